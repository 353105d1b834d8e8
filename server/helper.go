package server

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/ring"
)

const (
	// helperCount is how many goroutines do what would hold up the loop.
	helperCount = 2
	// populateStep is how much of the pool is reserved at a time, in bytes.
	populateStep = 64 << 20
	// lockedRest is more than what else than the pool and the log's memory counts as locked memory, in bytes.
	lockedRest = 8 << 20
	// roomSpare is how much free memory reserving the pool leaves, in bytes.
	roomSpare = 32 << 20
	// roomPause is the time between two looks at whether there is free memory again, and
	// roomTime how long it is waited for: workers that have a dead server's pool mapped give
	// it back as soon as they have found this one.
	roomPause = 100 * time.Millisecond
	roomTime  = 30 * time.Second
	// waysMost is how often in a row a helper gives way to the loop, and wayTime for how long after it has begun a sum it
	// does so: where others want its processor too, each time costs it some milliseconds.
	waysMost = 4
	wayTime  = 20 * time.Millisecond
)

// jobKind says what a helper has to do.
type jobKind uint8

const (
	jobSum jobKind = iota // the checksum of mem
	jobCreate
	jobRemove
	jobSpace // what the disk tier's file system has free
)

// A job is something for a helper. Its memory is the helper's until its result was taken.
type job struct {
	kind    jobKind
	op      uint32 // of the reactor's disk I/Os
	mem     []byte
	segment seglog.SegmentID
	size    int64
}

// A result is what came of a job.
type result struct {
	op  uint32
	res int64
	sum uint64
}

// segmentFiles is what the helpers need of a segdir.Dir.
type segmentFiles interface {
	Create(id seglog.SegmentID, size int64) error
	Remove(id seglog.SegmentID) error
	FreeSpace() (int64, error)
}

// helpers are the goroutines beside the loop. The loop hands them jobs at the end of a turn
// and takes their results when they wake it; it never waits for them. All of it goes through
// one mutex, which is held for the length of a few copies.
type helpers struct {
	ring ring.Interface // only to wake the loop
	dir  segmentFiles
	log  *slog.Logger

	patience time.Duration // with a want of free memory

	queued []job // of this turn; the loop's

	mutex    sync.Mutex
	work     sync.Cond
	jobs     []job
	results  []result
	ready    int64 // bytes of the pool that are populated
	free     int64 // bytes that the disk tier's file system had when a helper looked last; or -1
	failure  error // what ended the population early
	stopping bool
	group    sync.WaitGroup
}

// start starts the goroutines.
func (h *helpers) start() {
	h.work.L = &h.mutex
	h.free = -1
	for range helperCount {
		h.group.Go(h.run)
	}
}

// stop ends the goroutines and waits for them. Jobs that nobody began are dropped.
func (h *helpers) stop() {
	h.mutex.Lock()
	h.stopping = true
	h.mutex.Unlock()
	h.work.Broadcast()
	h.group.Wait()
}

// queue keeps a job until the end of the turn.
func (h *helpers) queue(j job) { h.queued = append(h.queued, j) }

// hand gives the jobs of the turn to the goroutines.
func (h *helpers) hand() {
	if len(h.queued) == 0 {
		return
	}
	h.mutex.Lock()
	h.jobs = append(h.jobs, h.queued...)
	h.mutex.Unlock()
	for range h.queued {
		h.work.Signal()
	}
	clear(h.queued)
	h.queued = h.queued[:0]
}

// news takes what has come: the results, appended to dst, the bytes of the pool that are
// populated, and, once, why there will not be more.
func (h *helpers) news(dst []result) ([]result, int64, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	dst = append(dst, h.results...)
	h.results = h.results[:0]
	failure := h.failure
	h.failure = nil
	return dst, h.ready, failure
}

// freeSpace takes what the disk tier's file system had when a helper looked last, once.
func (h *helpers) freeSpace() (int64, bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	free := h.free
	h.free = -1
	return free, free >= 0
}

// run does jobs until stop.
func (h *helpers) run() {
	var begun time.Time
	giveWay := func() { h.giveWay(begun) }
	for {
		j, ok := h.next()
		if !ok {
			return
		}
		done, free := result{op: j.op}, int64(-1)
		if j.kind == jobSum {
			begun = time.Now()
			giveWay()
			sum, err := l1.SumPieces(j.mem, giveWay)
			done.res, done.sum = sumResult(int64(len(j.mem)), err), sum
		} else {
			done.res, free = h.file(&j)
		}
		h.mutex.Lock()
		if free >= 0 {
			h.free = free
		}
		h.results = append(h.results, done)
		h.mutex.Unlock()
		h.ring.Wake()
	}
}

// file does a job on a whole file, or none, and then looks what the file system has free; -1: that cannot be told.
func (h *helpers) file(j *job) (res, free int64) {
	switch j.kind {
	case jobCreate:
		res = h.report("create a segment", h.dir.Create(j.segment, j.size))
	case jobRemove:
		res = h.report("remove a segment", h.dir.Remove(j.segment))
	case jobSpace, jobSum:
	}
	free, err := h.dir.FreeSpace()
	if err != nil {
		free = -1
	}
	if j.kind == jobSpace {
		res = h.report("tell the free space", err)
	}
	return res, free
}

// giveWay lets the loop run if there is something for it to do. Where it has no processor but this one, the kernel would let a helper
// that it has begun to run go on for some tenths of a millisecond, to the end of its sum, and whoever asks for what is in memory would wait for that.
func (h *helpers) giveWay(begun time.Time) {
	for range waysMost {
		if !h.ring.Due() || time.Since(begun) > wayTime {
			return
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // never fails
	}
}

// report logs what failed, and turns it into a result.
func (h *helpers) report(what string, err error) int64 {
	if err != nil {
		h.log.Warn("disk store: cannot "+what, "err", err)
	}
	return fileResult(err)
}

// next waits for a job.
func (h *helpers) next() (job, bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for len(h.jobs) == 0 && !h.stopping {
		h.work.Wait()
	}
	if h.stopping {
		return job{}, false
	}
	j := h.jobs[0]
	n := copy(h.jobs, h.jobs[1:])
	h.jobs[n] = job{}
	h.jobs = h.jobs[:n]
	return j, true
}

// memory is what populate needs of a pool.
type memory interface {
	Size() int64
	Room(free int64) int64
	Populate(from, to int64) error
}

// populate reserves the memory of the pool, step by step. Free tells how much memory the
// process may take; nil is not asked.
func (h *helpers) populate(pool memory, free func() (int64, error)) {
	h.group.Go(func() {
		for from := int64(0); from < pool.Size(); from += populateStep {
			to := min(from+populateStep, pool.Size())
			err := h.awaitRoom(pool, free, to-from)
			if h.stopped() {
				return
			}
			if err == nil {
				err = pool.Populate(from, to)
			}
			h.mutex.Lock()
			if err == nil {
				h.ready = to
			} else {
				h.failure = fmt.Errorf("server: reserve bytes %d to %d of the pool: %w", from, to, err)
			}
			h.mutex.Unlock()
			h.ring.Wake()
			if err != nil {
				return
			}
		}
	})
}

// awaitRoom waits until n bytes of memory are free, and some to spare: without that the
// kernel would end this process, or another one, for the pages. It gives up after a while.
func (h *helpers) awaitRoom(pool memory, free func() (int64, error), n int64) error {
	if free == nil {
		return nil
	}
	for begin, told := time.Now(), false; ; time.Sleep(roomPause) {
		have, err := free()
		if err != nil {
			h.log.Debug("the free memory is not known", "err", err)
			return nil
		}
		have = pool.Room(have)
		switch {
		case have >= n+roomSpare || h.stopped():
			return nil
		case time.Since(begin) >= h.patience:
			return l1.ErrNoSpace{Need: n + roomSpare, Have: have}
		case !told:
			told = true
			h.log.Warn("reserving the pool waits for free memory", "need", n+roomSpare, "have", have, "most", h.patience)
		}
	}
}

// stopped says that stop was called.
func (h *helpers) stopped() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.stopping
}
