package ring

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// recvGroup is the id of the receive buffers' group.
const recvGroup = 0

// recvBuffers are the buffers that receives take as data arrives. A buffer is the kernel's, until a completion hands it to the
// caller; giveBack returns to the kernel all those handed out before.
type recvBuffers struct {
	mem     []byte // all buffers
	size    int    // of one, in bytes
	ringMem []byte
	entries []bufEntry
	tailAt  *uint32 // the tail in the upper half of a word; the id of the first entry in the lower
	tail    uint16
	out     []uint16 // ids of buffers handed out
}

// init maps n buffers, a power of two, of size bytes.
func (b *recvBuffers) init(n, size int) (err error) {
	if b.ringMem, err = unix.Mmap(-1, 0, n*16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return fmt.Errorf("ring: map the ring of %d receive buffers: %w", n, err)
	}
	b.mem, err = unix.Mmap(-1, 0, n*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("ring: map %d receive buffers of %d bytes: %w", n, size, err)
	}
	b.size = size
	b.entries, b.tailAt = bufEntriesOf(b.ringMem, uint32(n))
	b.out = make([]uint16, n)
	for i := range b.out {
		b.out[i] = uint16(i)
	}
	b.giveBack()
	return nil
}

// take returns the first n bytes of buffer id, which is the caller's until giveBack.
func (b *recvBuffers) take(id uint16, n int) []byte {
	b.out = append(b.out, id)
	at := int(id) * b.size
	return b.mem[at : at+n : at+n]
}

// giveBack returns to the kernel what was handed out.
func (b *recvBuffers) giveBack() {
	if len(b.out) == 0 {
		return
	}
	mask := uint16(len(b.entries) - 1)
	for _, id := range b.out {
		e := &b.entries[b.tail&mask]
		e.addr = addressOf(b.mem[int(id)*b.size:])
		e.size = uint32(b.size)
		e.id = id
		b.tail++
	}
	b.out = b.out[:0]
	// One store of a word publishes the tail after the entries; it repeats the id beside the tail, which only this side writes.
	atomic.StoreUint32(b.tailAt, uint32(b.entries[0].id)|uint32(b.tail)<<16)
}

// unmap frees the memory, which the kernel must not use any more.
func (b *recvBuffers) unmap() {
	for _, m := range [][]byte{b.ringMem, b.mem} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	*b = recvBuffers{}
}
