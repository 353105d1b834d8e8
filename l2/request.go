package l2

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/ring"
)

// KeySize is the length in bytes of the keys that are used as they are. Keys of
// other lengths stand for their SHA-256.
const KeySize = 32

// errNoMemory tells a caller to wait for memory and to ask again.
var errNoMemory = errors.New("l2: no memory now")

// A requestKind says what a caller wants of the loop.
type requestKind uint8

const (
	requestPut requestKind = iota + 1
	requestGet
	requestSize
	requestDelete
	requestClear
	requestStats
	requestScan
)

// A requestState says whose a request is.
//
//	         finish
//	pending ---------> finished   the result is the caller's, and the memory too
//	   |     abandon
//	   +-------------> abandoned  the caller left: the memory is the loop's to free
type requestState = int32

const (
	pending requestState = iota
	finished
	abandoned
)

// A request is what a caller wants and what came of it. The caller makes it, the
// loop has it until it finishes it.
type request struct {
	kind requestKind
	key  seglog.Key
	mem  extent // put: the value; get: where it is read to, found by the loop if it can
	size int64  // put: length of the value; get: of the buffer, then of what was found; size: of what was found
	sum  uint64 // put: xxh3-64 of the value, unless it is owed
	owed *debt  // put: the caller computes the sum while the value is written already

	keys  []seglog.Key // scan: which are asked for
	sizes []int64      // scan: of what was found, negative for what was not

	state atomic.Int32
	err   error
	stats Stats
	done  chan struct{} // has room for the one signal
}

// A debt is a checksum that a caller owes the loop, which has begun to write the value. All of it is the loop's.
type debt struct {
	io   uint64 // the log's I/O that waits for it; 0: none does yet
	size int64  // bytes that are summed by that
	paid bool   // sum is there
	sum  uint64
}

// newRequest returns a request for key.
func (s *Store) newRequest(kind requestKind, key []byte) *request {
	r := &request{kind: kind, done: make(chan struct{}, 1)}
	r.key.Namespace = s.space
	if len(key) == KeySize {
		r.key.Hash = [KeySize]byte(key)
	} else {
		r.key.Hash = sha256.Sum256(key)
	}
	return r
}

// number turns a namespace's name into its number; "" is 0.
func number(namespace string) uint64 {
	if namespace == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(namespace))
	return binary.LittleEndian.Uint64(sum[:])
}

// wait hands r to the loop and waits for its end, or for that of ctx. When it
// reports false, the request is the loop's for good and r.err must not be read.
func (s *Store) wait(ctx context.Context, r *request) (bool, error) {
	if err := s.box.send(r); err != nil {
		s.memory.release(r.mem)
		return false, err
	}
	return r.await(ctx)
}

// await waits for the end of r, which the loop has, or for that of ctx.
func (r *request) await(ctx context.Context) (bool, error) {
	select {
	case <-r.done:
		return true, nil
	case <-ctx.Done():
		if r.state.CompareAndSwap(pending, abandoned) {
			return false, ctx.Err()
		}
		<-r.done // it ended at the same time
		return true, nil
	}
}

// Put stores value under key, in the place of what was there. When it returns nil
// the value is written and survives the death of the process. When ctx ends first
// it returns ctx's error, and the value may or may not have been stored. A value overtaken by a later Put or Delete of its key is a
// success.
func (s *Store) Put(ctx context.Context, key, value []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	size := int64(len(value))
	if size > s.fits {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, s.fits)
	}
	mem, err := s.memory.acquire(ctx, size)
	if err != nil {
		return err
	}
	r := s.newRequest(requestPut, key)
	r.mem, r.size = mem, size
	buf := s.memory.bytes[mem.off:mem.end()]
	r.sum = copySum(buf, value)
	clear(buf[size:]) // the rest of the block goes to the disk too
	if done, err := s.wait(ctx, r); !done {
		return err
	}
	s.memory.release(mem)
	return r.err
}

// Get reads the value of key into dst and returns its length in bytes. Of a value
// longer than dst it reads nothing and returns the length with [ErrShortBuffer].
// dst is written only when the error is nil.
func (s *Store) Get(ctx context.Context, key, dst []byte) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.calls.Done()
	mem, size, err := s.read(ctx, key, int64(len(dst)))
	if err != nil {
		return int(size), err
	}
	copy(dst, s.memory.bytes[mem.off:][:size])
	s.memory.release(mem)
	return int(size), nil
}

// Size returns the length in bytes of the value of key, without reading it.
func (s *Store) Size(ctx context.Context, key []byte) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.calls.Done()
	return s.size(ctx, key)
}

func (s *Store) size(ctx context.Context, key []byte) (int64, error) {
	r := s.newRequest(requestSize, key)
	if done, err := s.wait(ctx, r); !done {
		return 0, err
	}
	return r.size, r.err
}

// Delete removes the value of key; it is a success if there is none. When it
// returns nil the value will not come back, not after the death of the process
// either. An error that wraps [ErrDegraded] means that it is gone now, but may be
// there again if the process dies before the disk takes writes again.
func (s *Store) Delete(ctx context.Context, key []byte) error {
	return s.fence(ctx, s.newRequest(requestDelete, key))
}

// Clear is Delete for all values of the store's namespace.
func (s *Store) Clear(ctx context.Context) error {
	return s.fence(ctx, s.newRequest(requestClear, nil))
}

func (s *Store) fence(ctx context.Context, r *request) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	if done, err := s.wait(ctx, r); !done {
		return err
	}
	return r.err
}

// Stats are gauges and counters of a [Store] since Open.
type Stats struct {
	seglog.Stats
	// Report says what the start found.
	Report seglog.Report
	// State is "ok", "degraded", "closing" or "closed".
	State string
	// Direct tells that I/O bypasses the page cache.
	Direct bool
	// Engine is what carries out the I/O.
	Engine ring.Engine
	// MemoryFree is how much of Options.Memory is not in use, in bytes.
	MemoryFree int64
}

// Stats returns the counters. After Close they are those of its end.
func (s *Store) Stats() Stats {
	if s.enter(context.Background()) == nil {
		defer s.calls.Done()
		r := s.newRequest(requestStats, nil)
		if done, _ := s.wait(context.Background(), r); done {
			return r.stats
		}
		<-s.loop.done // it failed
		return s.loop.stats()
	}
	_ = s.Close() // it is called already: wait for its end
	return s.final
}

// An inbox is where callers and helpers leave what the loop shall take.
type inbox struct {
	wake func() // makes the loop look

	mu       sync.Mutex
	requests []*request
	results  []result
	closing  bool
	err      error // why the loop takes nothing any more
}

// A result is what came of an I/O that a helper did.
type result struct {
	id  uint64
	res int64
	sum uint64
	err error // what was behind a negative res
	by  *debt // a caller's checksum: sum alone counts

	free      int64 // bytes that the file system has left
	freeKnown bool
}

// send leaves a request, unless nobody would take it.
func (b *inbox) send(r *request) error {
	b.mu.Lock()
	if b.err != nil {
		defer b.mu.Unlock()
		return b.err
	}
	first := len(b.requests)+len(b.results) == 0
	b.requests = append(b.requests, r)
	b.mu.Unlock()
	if first { // else the one who was first wakes
		b.wake()
	}
	return nil
}

// report leaves a helper's result.
func (b *inbox) report(r result) {
	b.mu.Lock()
	first := len(b.requests)+len(b.results) == 0
	b.results = append(b.results, r)
	b.mu.Unlock()
	if first {
		b.wake()
	}
}

// close asks the loop to come to an end.
func (b *inbox) close() {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.wake()
}

// take exchanges the filled lists for empty ones.
func (b *inbox) take(requests []*request, results []result) ([]*request, []result, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	filled, reported := b.requests, b.results
	b.requests, b.results = requests[:0], results[:0]
	return filled, reported, b.closing
}

// fail makes every later send return err, and returns what was left.
func (b *inbox) fail(err error) []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	left := b.requests
	b.requests = nil
	return left
}
