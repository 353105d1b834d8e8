package l2

import (
	"context"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/l2/seglog"
)

// A Buffer is a piece of the store's own memory ([Options.Memory]), which the kernel
// knows: values in it go to the disk and come from there without being copied. It is
// for one goroutine at a time, and to be released; what is lent and not released is
// missing to all others, who wait for it until the store is closed.
type Buffer struct {
	s    *Store
	mem  extent
	size int64
}

// Buffer lends a buffer of size bytes, and waits until there is memory. What is in it
// means nothing.
func (s *Store) Buffer(ctx context.Context, size int) (*Buffer, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if size < 0 || int64(size) > s.fits {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, s.fits)
	}
	mem, err := s.memory.acquire(ctx, int64(size))
	if err != nil {
		return nil, err
	}
	return &Buffer{s: s, mem: mem, size: int64(size)}, nil
}

// Bytes is the buffer's memory, page-aligned. It is valid until Release, even if the
// store is closed before.
func (b *Buffer) Bytes() []byte {
	if b.s == nil {
		return nil
	}
	return b.s.memory.bytes[b.mem.off : b.mem.off+b.size : b.mem.off+b.size]
}

// Release gives the buffer back. The second call does nothing.
func (b *Buffer) Release() {
	if b.s == nil {
		return
	}
	memory, mem := b.s.memory, b.mem
	b.s, b.mem, b.size = nil, extent{}, 0
	memory.release(mem)
}

// PutBuffer is [Store.Put] for a value in a buffer of this store, which nobody may
// change meanwhile. Afterwards the buffer is the caller's as before, unless the error
// is that of ctx: then it is released, for the disk may still be at work with it.
func (s *Store) PutBuffer(ctx context.Context, key []byte, b *Buffer) error {
	if b.s != s {
		return errors.New("l2: put of a released buffer, or one of another store")
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	r := s.newRequest(requestPut, key)
	r.mem, r.size = b.mem, b.size
	clear(s.memory.bytes[b.mem.off+b.size : b.mem.end()]) // the rest of the block goes to the disk too
	done, err := s.putSummed(ctx, r, b.Bytes())
	if !done {
		*b = Buffer{}
		return err
	}
	return r.err
}

// sumBeside is the length in bytes from which on a value's checksum is computed while the value is written. Of shorter ones
// it is known before, so that the header goes out with the value and both become one I/O.
const sumBeside = 2 << 20

// putSummed is wait for a put of value, whose checksum it computes.
func (s *Store) putSummed(ctx context.Context, r *request, value []byte) (bool, error) {
	if len(value) < sumBeside {
		r.sum = s.sum(value)
		return s.wait(ctx, r)
	}
	owed := new(debt)
	r.owed = owed
	if err := s.box.send(r); err != nil {
		s.memory.release(r.mem)
		return false, err
	}
	s.box.report(result{by: owed, sum: s.sum(value)})
	return r.await(ctx)
}

// GetBuffer reads the value of key into a buffer of the value's length, to be released
// by the caller.
func (s *Store) GetBuffer(ctx context.Context, key []byte) (*Buffer, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	mem, size, err := s.read(ctx, key, int64(len(s.memory.bytes)))
	if err != nil {
		return nil, err
	}
	return &Buffer{s: s, mem: mem, size: size}, nil
}

// read reads the value of key, of at most room bytes, into memory that it leaves to the
// caller to release, and returns the value's length. With ErrShortBuffer there is no
// memory but the length.
func (s *Store) read(ctx context.Context, key []byte, room int64) (extent, int64, error) {
	var mem extent
	for {
		r := s.newRequest(requestGet, key)
		r.mem, r.size = mem, room
		if done, err := s.wait(ctx, r); !done {
			return extent{}, 0, err
		}
		if r.err == nil {
			return r.mem, r.size, nil
		}
		s.memory.release(r.mem)
		switch {
		case errors.Is(r.err, errNoMemory):
		case errors.Is(r.err, ErrShortBuffer):
			return extent{}, r.size, r.err
		default:
			return extent{}, 0, r.err
		}
		var err error
		if mem, err = s.memory.acquire(ctx, r.size); err != nil {
			return extent{}, 0, err
		}
	}
}

// copySum copies value to dst and returns its xxh3-64: piece by piece, so that the sum
// finds in the processor's cache what the copy brought there.
func copySum(dst, value []byte) uint64 {
	const piece = 128 << 10
	if len(value) <= piece {
		return xxh3.Hash(dst[:copy(dst, value)])
	}
	var h xxh3.Hasher
	h.Reset()
	for len(value) > 0 {
		n := copy(dst, value[:min(piece, len(value))])
		_, _ = h.Write(dst[:n]) // never fails
		dst, value = dst[n:], value[n:]
	}
	return h.Sum64()
}

// tuning is how the log is to use the disk, for what callers keep in flight at most.
func tuning(cfg *seglog.Config, memory int64) {
	cfg.MaxInFlight = maxInFlight
	cfg.MaxInFlightBytes = max(memory, 32<<20)
	cfg.IOSize = ioSize
}
