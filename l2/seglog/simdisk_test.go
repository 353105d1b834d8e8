package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"
)

const simSector = 512

// A simFile is a segment file: what a running system reads (now), and what is on the platter for sure (safe).
type simFile struct {
	now, safe []byte
	dirty     map[int]bool // sectors in which they may differ
}

// A simDisk is a disk in memory on which every sector is written for itself.
type simDisk struct {
	rng   *rand.Rand
	files map[SegmentID]*simFile
	limit int64 // on all files together
}

func newSimDisk(rng *rand.Rand, limit int64) *simDisk {
	return &simDisk{rng: rng, files: make(map[SegmentID]*simFile), limit: limit}
}

// errRead is an injected failure.
var errRead = errors.New("injected")

func (d *simDisk) Segments() ([]SegmentID, error) {
	var ids []SegmentID
	for id := range d.files {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	d.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids, nil
}

func (d *simDisk) ReadAt(id SegmentID, p []byte, off int64) (int, error) {
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

func (d *simDisk) Size(id SegmentID) (int64, error) {
	if f := d.files[id]; f != nil {
		return int64(len(f.now)), nil
	}
	return 0, fmt.Errorf("segment %d: no such file", id)
}

func (d *simDisk) create(t *testing.T, id SegmentID, size int64) {
	total := size
	for other, f := range d.files {
		if other != id {
			total += int64(len(f.now))
		}
	}
	if total > d.limit {
		t.Fatalf("the files have %d bytes, the cap is %d", total, d.limit)
	}
	d.files[id] = &simFile{now: make([]byte, size), safe: make([]byte, size), dirty: make(map[int]bool)}
}

// write puts the sectors of p that keep chooses.
func (d *simDisk) write(id SegmentID, p []byte, off int64, keep func() bool) {
	f := d.files[id]
	for at := 0; at < len(p); at += simSector {
		if keep() {
			s := (int(off) + at) / simSector
			copy(f.now[s*simSector:][:simSector], p[at:])
			f.dirty[s] = true
		}
	}
}

// A simSnap is what a sync will make safe: what was written before it started.
type simSnap map[int][]byte

func (d *simDisk) beginSync(id SegmentID) simSnap {
	snap := make(simSnap)
	if f := d.files[id]; f != nil {
		for s := range f.dirty {
			snap[s] = slices.Clone(f.now[s*simSector:][:simSector])
		}
	}
	return snap
}

func (d *simDisk) endSync(id SegmentID, snap simSnap) {
	f := d.files[id]
	for s, p := range snap {
		copy(f.safe[s*simSector:], p)
		if bytes.Equal(f.now[s*simSector:][:simSector], p) {
			delete(f.dirty, s)
		}
	}
}

// cutPower loses any of the sectors that were not synced.
func (d *simDisk) cutPower() {
	ids, _ := d.Segments()
	slices.Sort(ids)
	for _, id := range ids {
		f := d.files[id]
		var dirty []int
		for s := range f.dirty {
			dirty = append(dirty, s)
		}
		slices.Sort(dirty)
		lose := d.rng.IntN(3) // none, about half, all
		for _, s := range dirty {
			from, to := f.now, f.safe
			if lose == 2 || lose == 1 && d.rng.IntN(2) == 0 {
				from, to = f.safe, f.now
			}
			copy(to[s*simSector:][:simSector], from[s*simSector:])
		}
		clear(f.dirty)
	}
}

// carryOut does an I/O, or fails it in one of the ways that there are.
func (s *sim) carryOut(f *simIO, fault bool) (res int64, sum uint64) {
	io := &f.io
	switch io.Kind {
	case IORead:
		if fault {
			s.readFaults++
			return []int64{-5, io.Mem.Len - simSector, 0}[s.rng.IntN(3)], 0
		}
		n, _ := s.disk.ReadAt(io.Addr.Segment, s.ioMem(io.Mem), io.Addr.Off)
		return int64(n), 0
	case IOWrite:
		some := s.rng.IntN(3)
		s.disk.write(io.Addr.Segment, s.ioMem(io.Mem), io.Addr.Off, func() bool {
			return !fault || some == 2 || some == 1 && s.rng.IntN(2) == 0
		})
		if fault {
			return []int64{-5, -28, -30, io.Mem.Len - simSector, 0}[s.rng.IntN(5)], 0
		}
		return io.Mem.Len, 0
	case IOSum:
		if fault {
			return -14, 0
		}
		return io.Mem.Len, xxh3.Hash(s.ioMem(io.Mem))
	case IOCopy:
		if fault {
			return -14, 0
		}
		return int64(copy(s.ioMem(io.Mem), s.ioMem(io.From))), 0
	case IOSync:
		if fault {
			return -5, 0
		}
		s.disk.endSync(io.Addr.Segment, f.snap)
		return 0, 0
	case IOCreate:
		if fault || s.createFail {
			return -28, 0
		}
		s.disk.create(s.t, io.Addr.Segment, io.Mem.Len)
		return 0, 0
	case IORemove:
		if fault {
			return -30, 0
		}
		delete(s.disk.files, io.Addr.Segment)
		return 0, 0
	case IOSpace:
		if fault {
			return -5, 0
		}
		free := int64(1 << 40)
		if s.faults > 0 {
			free = s.rng.Int64N(2 * s.cfg.Size)
		}
		s.l.SetFree(free)
		return 0, 0
	}
	panic("unknown kind")
}
