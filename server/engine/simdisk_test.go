package engine

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"

	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/l2/seglog"
)

const simSector = 512 // what the simulated disk writes wholly or not at all

// A simDisk is the segment files, in memory.
type simDisk struct {
	files map[seglog.SegmentID]*simFile
	lives uint64 // of the logs on it
}

func newSimDisk() *simDisk { return &simDisk{files: map[seglog.SegmentID]*simFile{}} }

// A simFile is what reads see, and what is left of it when the power goes.
type simFile struct {
	now, safe []byte
	dirty     map[int64]bool // sectors written since they were last made safe
}

func (d *simDisk) Segments() ([]seglog.SegmentID, error) {
	return slices.Sorted(maps.Keys(d.files)), nil
}

func (d *simDisk) ReadAt(id seglog.SegmentID, p []byte, off int64) (int, error) {
	f := d.files[id]
	if f == nil || off >= int64(len(f.now)) {
		return 0, io.EOF
	}
	n := copy(p, f.now[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (d *simDisk) Size(id seglog.SegmentID) (int64, error) {
	if f := d.files[id]; f != nil {
		return int64(len(f.now)), nil
	}
	return 0, fmt.Errorf("segment %d: no such file", id)
}

func (d *simDisk) create(id seglog.SegmentID, size int64) {
	d.files[id] = &simFile{now: make([]byte, size), safe: make([]byte, size), dirty: map[int64]bool{}}
}

// write writes the sectors of p that keep chooses.
func (f *simFile) write(p []byte, off int64, keep func() bool) {
	for at := int64(0); at < int64(len(p)); at += simSector {
		if keep() {
			copy(f.now[off+at:], p[at:min(at+simSector, int64(len(p)))])
			f.dirty[(off+at)/simSector] = true
		}
	}
}

// A simSnap is what a sync makes safe: what was written before it began.
type simSnap map[int64][]byte

func (d *simDisk) beginSync(id seglog.SegmentID) simSnap {
	snap := simSnap{}
	if f := d.files[id]; f != nil {
		for s := range f.dirty {
			snap[s] = slices.Clone(f.now[s*simSector:][:simSector])
		}
	}
	return snap
}

func (d *simDisk) endSync(id seglog.SegmentID, snap simSnap) {
	f := d.files[id]
	if f == nil {
		return
	}
	for s, p := range snap {
		copy(f.safe[s*simSector:], p)
		if slices.Equal(f.now[s*simSector:][:simSector], p) {
			delete(f.dirty, s)
		}
	}
}

// cutPower loses any of the sectors that were not made safe: of a file none, some or all.
func (d *simDisk) cutPower(r *rand.Rand) {
	for _, id := range slices.Sorted(maps.Keys(d.files)) {
		f := d.files[id]
		lose := r.IntN(3)
		for _, s := range slices.Sorted(maps.Keys(f.dirty)) {
			from, to := f.now, f.safe
			if lose == 2 || lose == 1 && r.IntN(2) == 0 {
				from, to = f.safe, f.now
			}
			copy(to[s*simSector:][:simSector], from[s*simSector:])
		}
		clear(f.dirty)
	}
}

// memory returns the bytes of an I/O's memory.
func (w *world) memory(m seglog.Mem) []byte {
	from := w.pool
	if m.Own {
		from = w.arena
	}
	return from[m.Off : m.Off+m.Len]
}

// carryOut does an I/O, unless it is to fail, and returns what the kernel would.
func (w *world) carryOut(io *seglog.IO) (res int64, sum uint64) {
	length := io.Mem.Len
	if w.fail != nil {
		switch res := w.fail(io); {
		case res < 0:
			return res, 0
		case res > 0: // it comes short
			length = res
		}
	}
	file := w.disk.files[io.Addr.Segment]
	switch io.Kind {
	case seglog.IORead, seglog.IOWrite:
		if file == nil || io.Addr.Off+io.Mem.Len > int64(len(file.now)) {
			return -int64(syscall.EIO), 0
		}
		mem := w.memory(io.Mem)[:length]
		if io.Kind == seglog.IORead {
			return int64(copy(mem, file.now[io.Addr.Off:])), 0
		}
		file.write(mem, io.Addr.Off, func() bool { return true })
		return length, 0
	case seglog.IOSum:
		return length, xxh3.Hash(w.memory(io.Mem))
	case seglog.IOCopy:
		return int64(copy(w.memory(io.Mem), w.memory(io.From))), 0
	case seglog.IOCreate:
		w.disk.create(io.Addr.Segment, io.Mem.Len)
	case seglog.IORemove:
		delete(w.disk.files, io.Addr.Segment)
	case seglog.IOSpace: // there is always room
	case seglog.IOSync:
		w.disk.endSync(io.Addr.Segment, w.syncs[io.ID])
		delete(w.syncs, io.ID)
	}
	return 0, 0
}

// abandon ends the process: of what the kernel was to do some is done all the same, of a
// write any of its sectors.
func (w *world) abandon(r *rand.Rand) {
	w.fail = nil
	for i := range w.ios {
		io := &w.ios[i]
		switch file := w.disk.files[io.Addr.Segment]; {
		case r.IntN(2) == 0:
			w.carryOut(io)
		case io.Kind == seglog.IOWrite && file != nil:
			file.write(w.memory(io.Mem), io.Addr.Off, func() bool { return r.IntN(2) == 0 })
		}
	}
}
