package l2

import (
	"runtime"
	"sync"

	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
)

// helpers do what would keep the loop from its callers: one goroutine makes,
// syncs and removes files and looks at their file system, in the order it is told
// to, others compute checksums.
// Results go to the inbox.
type helpers struct {
	dir   *segdir.Dir
	box   *inbox
	sumOf func([]byte) uint64
	files chan seglog.IO // have room for all that the log starts at once
	sums  chan sumJob
	ended sync.WaitGroup
}

// sumHelpers is how many goroutines compute checksums at most: each does 20 GB/s or more.
const sumHelpers = 4

// A sumJob is a checksum to compute.
type sumJob struct {
	id    uint64
	bytes []byte
}

// newHelpers starts the helpers. They end with close.
func newHelpers(dir *segdir.Dir, box *inbox, sum func([]byte) uint64) *helpers {
	h := &helpers{
		dir:   dir,
		box:   box,
		sumOf: sum,
		files: make(chan seglog.IO, maxInFlight),
		sums:  make(chan sumJob, maxInFlight),
	}
	h.ended.Go(h.runFiles)
	for range min(runtime.GOMAXPROCS(0), sumHelpers) {
		h.ended.Go(h.runSums)
	}
	return h
}

// file hands over an I/O on a whole file.
func (h *helpers) file(io seglog.IO) { h.files <- io }

// sum hands over a checksum.
func (h *helpers) sum(j sumJob) { h.sums <- j }

// close ends the helpers when they have done what they were given.
func (h *helpers) close() {
	close(h.files)
	close(h.sums)
	h.ended.Wait()
}

func (h *helpers) runFiles() {
	for io := range h.files {
		h.box.report(h.do(io))
	}
}

// do carries out an I/O on a whole file, or looks at the file system. Where that may have changed, the result tells what it has free.
func (h *helpers) do(io seglog.IO) result {
	var err error
	switch io.Kind {
	case seglog.IOCreate:
		err = h.dir.Create(io.Addr.Segment, io.Mem.Len)
	case seglog.IORemove:
		err = h.dir.Remove(io.Addr.Segment)
	case seglog.IOSync:
		err = h.dir.Sync(io.Addr.Segment)
		return result{id: io.ID, res: -segdir.Errno(err), err: err}
	case seglog.IOSpace:
	case seglog.IORead, seglog.IOWrite, seglog.IOSum, seglog.IOCopy:
		panic("l2: " + io.Kind.String() + " is not a helper's")
	}
	free, unknown := h.dir.FreeSpace()
	if io.Kind == seglog.IOSpace {
		err = unknown
	}
	return result{id: io.ID, res: -segdir.Errno(err), err: err, free: free, freeKnown: unknown == nil}
}

func (h *helpers) runSums() {
	for j := range h.sums {
		h.box.report(result{id: j.id, res: int64(len(j.bytes)), sum: h.sumOf(j.bytes)})
	}
}
