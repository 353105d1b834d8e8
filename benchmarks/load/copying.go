package load

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A Copy copies a source piece by piece to the next place in warm shared memory, as a store
// does without a server.
type Copy struct {
	source []byte // copied as a piece
	count  int    // pieces of an operation
	memory []byte
	next   int
}

// NewCopy makes the memory: as much, in bytes, as the pools that it is held against have.
func NewCopy(size int64) (*Copy, error) {
	fd, err := unix.MemfdCreate("slotbench", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: memory: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // the mapping stays
	if err := unix.Ftruncate(fd, size); err != nil {
		return nil, fmt.Errorf("load: memory: %w", err)
	}
	memory, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("load: memory: %w", err)
	}
	return &Copy{memory: memory}, populate(memory)
}

// Close unmaps the memory.
func (c *Copy) Close() error { return unix.Munmap(c.memory) }

// Do implements [Op].
func (c *Copy) Do() error {
	for range c.count {
		if c.next+len(c.source) > len(c.memory) {
			c.next = 0
		}
		c.next += copy(c.memory[c.next:], c.source)
	}
	return nil
}

// A Touch maps new memory, touches each page of it, and gives it back: what a program pays that
// allocates anew for every value, as the allocators of the peers do for large ones.
type Touch int

// Do implements [Op].
func (n Touch) Do() error {
	p, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("load: memory: %w", err)
	}
	for i := 0; i < len(p); i += 4096 {
		p[i] = 1
	}
	return unix.Munmap(p)
}

// NewBuffer makes n bytes of touched memory, in huge pages where the kernel gives some.
func NewBuffer(n int64) ([]byte, error) {
	p, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("load: memory: %w", err)
	}
	_ = unix.Madvise(p, unix.MADV_HUGEPAGE) // a wish
	return p, populate(p)
}

// FreeBuffer gives it back.
func FreeBuffer(p []byte) { _ = unix.Munmap(p) }
