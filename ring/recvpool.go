package ring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// recvPool are the buffers that an Epoll receives to. The last given back is the first taken: few stay in the processor's caches.
type recvPool struct {
	mem  []byte // all buffers
	size int    // of one, in bytes
	free []uint32
	out  []uint32 // handed out
}

// init maps n buffers of size bytes. Their pages come with their first use.
func (b *recvPool) init(n, size int) (err error) {
	if b.mem, err = unix.Mmap(-1, 0, n*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return fmt.Errorf("ring: map %d receive buffers of %d bytes: %w", n, size, err)
	}
	b.size = size
	b.free, b.out = make([]uint32, n), make([]uint32, 0, n)
	for i := range b.free {
		b.free[i] = uint32(n - 1 - i)
	}
	return nil
}

// top returns the buffer that take hands out, or nil.
func (b *recvPool) top() []byte {
	if len(b.free) == 0 {
		return nil
	}
	at := int(b.free[len(b.free)-1]) * b.size
	return b.mem[at : at+b.size]
}

// take hands out a buffer, which is the caller's until giveBack.
func (b *recvPool) take() {
	last := len(b.free) - 1
	b.out = append(b.out, b.free[last])
	b.free = b.free[:last]
}

// giveBack takes back what was handed out.
func (b *recvPool) giveBack() {
	b.free = append(b.free, b.out...)
	b.out = b.out[:0]
}

// unmap frees the memory.
func (b *recvPool) unmap() {
	if b.mem != nil {
		_ = unix.Munmap(b.mem)
	}
	*b = recvPool{}
}
