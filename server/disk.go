package server

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server/engine"
)

// sumInline is up to which length a checksum is computed in the loop, in bytes: about 15
// microseconds, less than handing it over costs.
const sumInline = 128 << 10

// A diskOp is an I/O of the log that is under way, in the ring or with a helper.
type diskOp struct {
	id         uint64 // of the log's I/O
	generation uint32
	busy       bool
}

// reportDisk says what has become of the disk tier.
func (r *reactor) reportDisk() {
	if r.tier != nil {
		r.diskWatch.Look(r.now, r.diskErr)
	}
}

// diskRoom is [engine.Host.DiskRoom].
func (r *reactor) diskRoom() int {
	return min(len(r.diskFree), r.ring.Room())
}

// startDisk is [engine.Host.Disk].
func (r *reactor) startDisk(io *seglog.IO) {
	switch io.Kind {
	case seglog.IORead, seglog.IOWrite, seglog.IOSync:
		r.startFile(io)
	case seglog.IOSum:
		if io.Mem.Len > sumInline {
			r.helpers.queue(job{kind: jobSum, op: r.takeDisk(io.ID), mem: r.diskMemory(io.Mem)})
			return
		}
		sum, err := l1.Sum(r.diskMemory(io.Mem))
		r.later(engine.Event{Kind: engine.EventDisk, Disk: io.ID, Res: sumResult(io.Mem.Len, err), Sum: sum})
	case seglog.IOCopy:
		r.later(engine.Event{Kind: engine.EventDisk, Disk: io.ID, Res: sumResult(io.Mem.Len, r.copyDisk(io))})
	case seglog.IOCreate:
		r.helpers.queue(job{kind: jobCreate, op: r.takeDisk(io.ID), segment: io.Addr.Segment, size: io.Mem.Len})
	case seglog.IORemove:
		r.helpers.queue(job{kind: jobRemove, op: r.takeDisk(io.ID), segment: io.Addr.Segment})
	case seglog.IOSpace:
		r.helpers.queue(job{kind: jobSpace, op: r.takeDisk(io.ID)})
	default:
		panic(fmt.Sprintf("server: I/O of kind %v", io.Kind))
	}
}

// copyDisk copies a small value between the pool and the log's memory: at most 32 KiB, some microseconds.
func (r *reactor) copyDisk(io *seglog.IO) error {
	to, from := r.diskMemory(io.Mem), r.diskMemory(io.From)
	if io.Mem.Own {
		return l1.CopyOut(to, from)
	}
	return l1.CopyIn(to, from)
}

// startFile gives the ring an I/O on a segment's file.
func (r *reactor) startFile(io *seglog.IO) {
	fd, err := r.dir.Fd(io.Addr.Segment)
	if err != nil {
		r.later(engine.Event{Kind: engine.EventDisk, Disk: io.ID, Res: -int64(unix.EBADF)})
		return
	}
	x := r.takeDisk(io.ID)
	tag := ring.NewTag(x, r.disk[x].generation)
	switch io.Kind {
	case seglog.IORead:
		if io.Again {
			r.ring.ForgetMemory(r.diskMemory(io.Mem))
		}
		r.ring.Read(tag, fd, io.Addr.Off, r.diskMemory(io.Mem))
	case seglog.IOWrite:
		r.ring.Write(tag, fd, io.Addr.Off, r.diskMemory(io.Mem))
	case seglog.IOSync, seglog.IOSum, seglog.IOCopy, seglog.IOCreate, seglog.IORemove, seglog.IOSpace:
		r.ring.Sync(tag, fd)
	}
}

// diskMemory is where an I/O's bytes are.
func (r *reactor) diskMemory(m seglog.Mem) []byte {
	if m.Own {
		return r.arena[m.Off : m.Off+m.Len : m.Off+m.Len]
	}
	return r.pool.Bytes(m.Off, m.Len)
}

// takeDisk takes a place for an I/O. There is one, for the engine asks for room first.
func (r *reactor) takeDisk(id uint64) uint32 {
	x := r.diskFree[len(r.diskFree)-1]
	r.diskFree = r.diskFree[:len(r.diskFree)-1]
	op := &r.disk[x]
	op.id = id
	op.generation++
	op.busy = true
	return x
}

// diskDone ends an I/O.
func (r *reactor) diskDone(x uint32, res int64, sum uint64) {
	op := &r.disk[x]
	if !op.busy {
		panic(fmt.Sprintf("server: completion for disk I/O %d, which is not there", x))
	}
	op.busy = false
	if res < 0 {
		r.diskErr = unix.Errno(-res)
	}
	r.diskFree = append(r.diskFree, x)
	r.post(engine.Event{Kind: engine.EventDisk, Disk: op.id, Res: res, Sum: sum})
}

// sumResult is the result of a checksum or copy of n bytes.
func sumResult(n int64, err error) int64 {
	if err != nil {
		return -int64(unix.EFAULT)
	}
	return n
}

// fileResult is the result of an I/O that a helper did.
func fileResult(err error) int64 { return -segdir.Errno(err) }
