package l2

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2/seglog"
)

// An extent is a range of a memory, in bytes; both numbers are multiples of a block.
type extent struct{ off, len int64 }

// end is the offset behind the extent.
func (e extent) end() int64 { return e.off + e.len }

// A memory is a piece of page-aligned memory, lent out in extents. Requests are
// served in the order they came, so that a big one is not starved by small ones:
// while it waits, all that is given back collects in front of it.
type memory struct {
	bytes   []byte
	mapping []byte // all of it, bytes among it

	mu      sync.Mutex
	free    []extent // by offset, never adjacent
	waiters []*waiter
	lent    int64 // bytes
	closed  bool  // to be unmapped when nothing is lent

	shut chan struct{} // closed when nobody is to wait any more
}

// A waiter is a request for memory that had to wait.
type waiter struct {
	size    int64
	granted chan extent // has room for the one grant
}

// hugeSize is the size in bytes of a huge page, where the kernel has them.
const hugeSize = 2 << 20

// newMemory maps size bytes, in huge pages if it can: a request to a disk has room for
// some hundred pieces of memory, so that small pages, each a piece, cut it short, and the
// kernel handles each page on its own.
func newMemory(size int64) (*memory, error) {
	size = seglog.AlignUp(size)
	mapping, err := unix.Mmap(-1, 0, int(size+hugeSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("l2: map %d bytes: %w", size, err)
	}
	skip := toHuge(mapping)
	bytes := mapping[skip : skip+size : skip+size]
	_ = unix.Madvise(bytes, unix.MADV_HUGEPAGE) // small ones do as well
	return &memory{bytes: bytes, mapping: mapping, free: []extent{{0, size}}, shut: make(chan struct{})}, nil
}

// refuse ends all waits for memory, and those to come, with [ErrClosed]. It is called once.
func (m *memory) refuse() { close(m.shut) }

// close unmaps the memory, or lets the last release do so.
func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return m.unmap()
}

// unmap unmaps the memory if nothing is lent.
func (m *memory) unmap() error {
	if m.lent > 0 {
		return nil
	}
	if err := unix.Munmap(m.mapping); err != nil {
		return fmt.Errorf("l2: munmap: %w", err)
	}
	return nil
}

// acquire lends an extent for size bytes and waits until it can, or until refuse. The size
// is at most that of the memory.
func (m *memory) acquire(ctx context.Context, size int64) (extent, error) {
	size = seglog.AlignUp(size)
	if size == 0 {
		return extent{}, nil
	}
	m.mu.Lock()
	if e, ok := m.tryLocked(size); ok {
		m.mu.Unlock()
		return e, nil
	}
	w := &waiter{size: size, granted: make(chan extent, 1)}
	m.waiters = append(m.waiters, w)
	m.mu.Unlock()
	var err error
	select {
	case e := <-w.granted:
		return e, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-m.shut:
		err = ErrClosed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.waiters, w); i >= 0 {
		m.waiters = slices.Delete(m.waiters, i, i+1)
	} else {
		m.put(<-w.granted) // it came after all
	}
	m.grant() // whoever stood behind
	return extent{}, err
}

// try lends an extent if nobody has to wait for it. The size is a positive multiple
// of a block.
func (m *memory) try(size int64) (extent, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tryLocked(size)
}

func (m *memory) tryLocked(size int64) (extent, bool) {
	if len(m.waiters) > 0 {
		return extent{}, false
	}
	return m.take(size)
}

// release takes an extent back.
func (m *memory) release(e extent) {
	if e.len == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(e)
	m.grant()
	if m.closed {
		_ = m.unmap() // there is nobody left to be told
	}
}

// grant serves the waiters at the head of the queue.
func (m *memory) grant() {
	for len(m.waiters) > 0 {
		w := m.waiters[0]
		e, ok := m.take(w.size)
		if !ok {
			return
		}
		m.waiters = slices.Delete(m.waiters, 0, 1)
		w.granted <- e
	}
}

// take cuts size bytes out of the first free extent that has them.
func (m *memory) take(size int64) (extent, bool) {
	for i := range m.free {
		f := &m.free[i]
		if f.len < size {
			continue
		}
		e := extent{f.off, size}
		m.lent += size
		f.off += size
		f.len -= size
		if f.len == 0 {
			m.free = slices.Delete(m.free, i, i+1)
		}
		return e, true
	}
	return extent{}, false
}

// put puts an extent among the free ones and joins it with its neighbours.
func (m *memory) put(e extent) {
	i, _ := slices.BinarySearchFunc(m.free, e, func(a, b extent) int { return int(a.off - b.off) })
	if i > 0 && m.free[i-1].end() > e.off || i < len(m.free) && e.end() > m.free[i].off {
		panic(fmt.Sprintf("l2: memory [%d,%d) given back twice", e.off, e.end()))
	}
	m.lent -= e.len
	before := i > 0 && m.free[i-1].end() == e.off
	after := i < len(m.free) && e.end() == m.free[i].off
	switch {
	case before && after:
		m.free[i-1].len += e.len + m.free[i].len
		m.free = slices.Delete(m.free, i, i+1)
	case before:
		m.free[i-1].len += e.len
	case after:
		m.free[i].off = e.off
		m.free[i].len += e.len
	default:
		m.free = slices.Insert(m.free, i, e)
	}
}

// available returns the free bytes.
func (m *memory) available() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var n int64
	for _, e := range m.free {
		n += e.len
	}
	return n
}
