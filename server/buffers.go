package server

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Output buffers come in powers of two.
const (
	bufferMin  = 4 << 10 // the smallest, what a connection keeps at rest, in bytes
	bufferStep = 256 << 10
	// bufferChunk is what is mapped at a time for the buffers that are smaller.
	bufferChunk = 1 << 20
	// bufferSpare is how much of unused buffers of each size of 64 KiB or more is kept, in bytes.
	bufferSpare = 1 << 20

	bufferClasses  = 20 // 4 KiB to 2 GiB
	bufferOwnClass = 4  // 64 KiB: from here on a buffer is a mapping of its own
)

// buffers gives out memory for what is sent. It lies outside the Go heap, because the
// kernel reads it while the collector runs, and because what a burst needed is given
// back to the system. Buffers belong to who took them until they are given back.
type buffers struct {
	free [bufferClasses][][]byte
	held int64 // bytes taken and not given back
	// mapped are all mappings, by their first byte.
	mapped map[*byte][]byte
}

// bufferClass is the class of the smallest buffer that holds n bytes.
func bufferClass(n int) int {
	if n <= bufferMin {
		return 0
	}
	return bits.Len(uint(n-1)) - bits.Len(uint(bufferMin-1))
}

// take returns a buffer of at least n bytes; its length is all there is.
func (b *buffers) take(n int) ([]byte, error) {
	class := bufferClass(n)
	size := bufferMin << class
	if list := b.free[class]; len(list) > 0 {
		p := list[len(list)-1]
		b.free[class] = list[:len(list)-1]
		b.held += int64(size)
		return p, nil
	}
	length := size
	if class < bufferOwnClass {
		length = bufferChunk
	}
	p, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("server: map %d bytes for output: %w", length, err)
	}
	if b.mapped == nil {
		b.mapped = make(map[*byte][]byte)
	}
	b.mapped[&p[0]] = p
	for off := size; off < length; off += size {
		b.free[class] = append(b.free[class], p[off:off+size:off+size])
	}
	b.held += int64(size)
	return p[:size:size], nil
}

// give takes back a buffer that nobody reads any more.
func (b *buffers) give(p []byte) {
	class := bufferClass(cap(p))
	if cap(p) != bufferMin<<class {
		panic(fmt.Sprintf("server: a buffer of %d bytes is given back", cap(p)))
	}
	b.held -= int64(cap(p))
	if class >= bufferOwnClass && (len(b.free[class])+1)*cap(p) > bufferSpare {
		delete(b.mapped, &p[0])
		unmap(p[:cap(p)])
		return
	}
	b.free[class] = append(b.free[class], p[:cap(p)])
}

// unmap gives a mapping back. It fails only for what never was one.
func unmap(p []byte) {
	if err := unix.Munmap(p); err != nil {
		panic(fmt.Sprintf("server: unmap %d bytes: %v", len(p), err))
	}
}

// close gives everything back, also what was taken. Nobody may use it any more.
func (b *buffers) close() {
	for _, p := range b.mapped {
		unmap(p)
	}
	*b = buffers{}
}
