package ring

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// fixedSize is the size of one entry of the table of registered memory: a gigabyte at once would stall the loop for 20 ms.
const fixedSize = 64 << 20

// A fixedRange is registered memory at adjacent addresses in consecutive entries of the table, all of fixedSize but the last.
type fixedRange struct {
	start, end uint64 // addresses
	first      uint32 // entry of start
}

// fixedMemory is the registered memory.
type fixedMemory struct {
	ranges []fixedRange // by address
	pieces [][]byte     // by entry; nil: the kernel does not know it any more
	count  uint32       // entries of the table in use
	bytes  int64
	sparse bool // the kernel has the table
	err    error
}

// find returns the entry that holds address, and how many of the n bytes there lie in it.
func (f *fixedMemory) find(address uint64, n int) (entry uint32, in int, ok bool) {
	for i := range f.ranges { // a pool is one range or a few
		r := &f.ranges[i]
		if address >= r.end || address < r.start {
			continue
		}
		k := (address - r.start) / fixedSize
		end := min(r.start+(k+1)*fixedSize, r.end)
		entry = r.first + uint32(k)
		return entry, int(min(uint64(n), end-address)), f.pieces[entry] != nil
	}
	return 0, 0, false
}

// add enters the memory p, from start to end, whose entry is the table's next, into the ranges.
func (f *fixedMemory) add(p []byte, start, end uint64) {
	entry := f.count
	f.count++
	f.pieces = append(f.pieces, p)
	f.bytes += int64(end - start)
	for i := range f.ranges {
		r := &f.ranges[i]
		if r.end == start && (r.end-r.start)%fixedSize == 0 && r.first+uint32((r.end-r.start)/fixedSize) == entry {
			r.end = end
			return
		}
	}
	f.ranges = append(f.ranges, fixedRange{start: start, end: end, first: entry})
	slices.SortFunc(f.ranges, func(a, b fixedRange) int {
		if a.start < b.start {
			return -1
		}
		return 1
	})
}

// overlaps tells whether any byte from start to end is registered.
func (f *fixedMemory) overlaps(start, end uint64) bool {
	for _, r := range f.ranges {
		if start < r.end && r.start < end {
			return true
		}
	}
	return false
}

// RegisterMemory implements [Interface]. Memory that overlaps what was registered before is refused (EEXIST).
func (u *Uring) RegisterMemory(p []byte) error {
	f := &u.fixed
	if !f.sparse {
		if f.err == nil {
			f.err = u.q.registerSparse(registerBuffers2, fixedBuffersMax)
		}
		if f.err != nil {
			return fmt.Errorf("ring: register a table of memory: %w", f.err)
		}
		f.sparse = true
	}
	page := uint64(os.Getpagesize())
	if skip := -addressOf(p) % page; skip < uint64(len(p)) {
		p = p[skip:]
	} else {
		p = nil
	}
	p = p[:uint64(len(p))&^(page-1)]
	if start := addressOf(p); len(p) > 0 && f.overlaps(start, start+uint64(len(p))) {
		return fmt.Errorf("ring: register memory of %d bytes: %w", len(p), unix.EEXIST)
	}
	for len(p) > 0 {
		n := min(len(p), fixedSize)
		if f.count == fixedBuffersMax {
			return fmt.Errorf("ring: register memory: more than %d pieces: %w", fixedBuffersMax, unix.ENOSPC)
		}
		if err := u.q.registerBuffer(f.count, p[:n]); err != nil {
			return fmt.Errorf("ring: register memory, %d bytes after %d: %w", n, f.bytes, err)
		}
		start := addressOf(p)
		f.add(p[:n:n], start, start+uint64(n))
		p = p[n:]
	}
	return nil
}

// ForgetMemory implements [Interface].
func (u *Uring) ForgetMemory(p []byte) {
	f := &u.fixed
	start := addressOf(p)
	for i, piece := range f.pieces {
		at := addressOf(piece)
		if piece == nil || at >= start+uint64(len(p)) || start >= at+uint64(len(piece)) {
			continue
		}
		_ = u.q.registerBuffer(uint32(i), nil) // if it stays it keeps its pages for nothing
		f.pieces[i] = nil
		f.bytes -= int64(len(piece))
	}
}

// heldFilesMax is the size of the table of held files.
const heldFilesMax = 16

// heldFiles counts the files registered with the ring, for nothing but their lives.
type heldFiles struct {
	count uint32
	table bool // the kernel has the table
}

// HoldFile implements [Interface] for up to 16 files.
func (u *Uring) HoldFile(fd int) error {
	if !u.held.table {
		if err := u.q.registerSparse(registerFiles2, heldFilesMax); err != nil {
			return fmt.Errorf("ring: register a table of files: %w", err)
		}
		u.held.table = true
	}
	if u.held.count == heldFilesMax {
		return fmt.Errorf("ring: hold file: more than %d: %w", heldFilesMax, unix.ENOSPC)
	}
	if err := u.q.registerFile(u.held.count, fd); err != nil {
		return fmt.Errorf("ring: hold file %d: %w", fd, err)
	}
	u.held.count++
	return nil
}
