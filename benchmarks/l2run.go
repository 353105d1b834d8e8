package benchmarks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/proto"
)

// An l2Run writes and reads one size of values in a store of its own, several at a time. All
// have the same content but for the number in their first bytes, so that making it takes no
// time.
type l2Run struct {
	s       *l2.Store
	dir     string
	size    int64
	depth   int
	content proto.Key
	memory  [][]byte // by worker: the caller's own
	first   uint64   // number of the first value of the last writing
	next    uint64   // of the first that was never written
	sums    l2Sums
}

// l2Sums counts the store's checksums.
type l2Sums struct{ bytes, nanos atomic.Int64 }

// sum is the checksum, with its costs counted.
func (c *l2Sums) sum(p []byte) (sum uint64) {
	c.nanos.Add(int64(threadCPU(func() { sum = xxh3.Hash(p) })))
	c.bytes.Add(int64(len(p)))
	return sum
}

// numberSize is how many bytes of a value are its number.
const numberSize = 8

func newL2Run(dir string, opts l2.Options, size int64, depth int) (*l2Run, error) {
	r := &l2Run{dir: dir, size: size, depth: depth}
	opts.Sum = r.sums.sum
	var err error
	if r.s, err = l2.Open(dir, opts); err != nil {
		return nil, err
	}
	r.content = BlockKey(uint64(size))
	for range depth {
		p := make([]byte, size)
		Fill(&r.content, p)
		r.memory = append(r.memory, p)
	}
	return r, nil
}

// close closes the store and removes it.
func (r *l2Run) close() error { return errors.Join(r.s.Close(), os.RemoveAll(r.dir)) }

// each runs f for count values, by depth workers, and returns what it took.
func (r *l2Run) each(count int, f func(w int, value uint64) error) (l2Sample, error) {
	failures := make([]error, r.depth)
	r.sums.bytes.Store(0)
	r.sums.nanos.Store(0)
	var taken atomic.Int64
	cpu, begin := processTime(), time.Now()
	var all sync.WaitGroup
	for w := range r.depth {
		all.Go(func() {
			for failures[w] == nil {
				i := taken.Add(1) - 1
				if i >= int64(count) {
					return
				}
				failures[w] = f(w, r.first+uint64(i))
			}
		})
	}
	all.Wait()
	took, used, bytes := time.Since(begin), processTime()-cpu, int64(count)*r.size
	return l2Sample{
		rate: float64(bytes) / took.Seconds(), cpu: perGB(used, bytes), sum: perGB(time.Duration(r.sums.nanos.Load()), bytes),
	}, errors.Join(failures...)
}

// key names value n.
func (r *l2Run) key(n uint64) []byte {
	var k [l2.KeySize]byte
	binary.LittleEndian.PutUint64(k[:], n)
	return k[:]
}

// count is how many values are so many bytes: a multiple of the workers, one each at least.
func (r *l2Run) count(bytes int64) int {
	return max(int(bytes/r.size)/r.depth, 1) * r.depth
}

// sample is one round of one way. What was read by it is read again afterwards, and compared
// byte by byte.
func (r *l2Run) sample(ctx context.Context, into *l2Sample, way *l2Way, bytes int64, f *L2Figure) error {
	if way.write {
		one, err := r.write(ctx, bytes, way.copied)
		into.rate, into.cpu, into.sum = one.rate, one.cpu, one.sum
		return err
	}
	one, err := r.read(ctx, bytes, way.copied, nil)
	if err != nil {
		return err
	}
	f.Verified += r.sums.bytes.Load()
	wrong := make([]int, r.depth)
	var head [pageSize]byte
	Fill(&r.content, head[:])
	var compared atomic.Int64
	if _, err = r.read(ctx, bytes, way.copied, func(w int, p []byte) {
		copy(p, head[:numberSize]) // the number was looked at
		wrong[w] += Mismatches(&r.content, p)
		compared.Add(int64(len(p)))
	}); err != nil {
		return err
	}
	for w, n := range wrong {
		if n > 0 {
			return fmt.Errorf("worker %d read %d wrong bytes", w, n)
		}
	}
	f.Compared += compared.Load()
	if f.Compared != f.Verified {
		return fmt.Errorf("%d bytes were verified, but %d were read", f.Verified, f.Compared)
	}
	into.rate, into.cpu, into.sum = one.rate, one.cpu, one.sum
	// What was read would be written again when its segment is evicted, in the middle of the next writing that is measured.
	return r.s.Clear(ctx)
}

// write puts as many new values as there are in so many bytes.
func (r *l2Run) write(ctx context.Context, bytes int64, copied bool) (l2Sample, error) {
	r.first, r.next = r.next, r.next+uint64(r.count(bytes))
	if copied {
		return r.each(r.count(bytes), func(w int, n uint64) error {
			binary.LittleEndian.PutUint64(r.memory[w], n)
			return r.s.Put(ctx, r.key(n), r.memory[w])
		})
	}
	buffers := make([]*l2.Buffer, r.depth)
	for w := range buffers {
		b, err := r.s.Buffer(ctx, int(r.size))
		if err != nil {
			return l2Sample{}, err
		}
		defer b.Release()
		copy(b.Bytes(), r.memory[w])
		buffers[w] = b
	}
	return r.each(r.count(bytes), func(w int, n uint64) error {
		binary.LittleEndian.PutUint64(buffers[w].Bytes(), n)
		return r.s.PutBuffer(ctx, r.key(n), buffers[w])
	})
}

// read gets the values written last and gives them to look, if there is one. The store's
// checksums must have seen all that was read, and each value must be the one asked for.
func (r *l2Run) read(ctx context.Context, bytes int64, copied bool, look func(w int, p []byte)) (l2Sample, error) {
	before := r.s.Stats().ReadBytes
	one, err := r.each(r.count(bytes), func(w int, n uint64) error {
		p := r.memory[w]
		if copied {
			if n, err := r.s.Get(ctx, r.key(n), p); err != nil || int64(n) != r.size {
				return fmt.Errorf("%d bytes: %w", n, err)
			}
		} else {
			b, err := r.s.GetBuffer(ctx, r.key(n))
			if err != nil {
				return err
			}
			defer b.Release()
			p = b.Bytes()
		}
		if got := binary.LittleEndian.Uint64(p); int64(len(p)) != r.size || got != n {
			return fmt.Errorf("value %d of %d bytes is %d of %d", n, r.size, got, len(p))
		}
		if look != nil {
			look(w, p)
		}
		return nil
	})
	if err != nil {
		return l2Sample{}, err
	}
	read := int64(r.count(bytes)) * r.size
	if told, summed := int64(r.s.Stats().ReadBytes-before), r.sums.bytes.Load(); told != read || summed != read {
		return l2Sample{}, fmt.Errorf("read %d bytes, but %d were verified and %d said to be", read, summed, told)
	}
	return one, nil
}

// processTime is the processor time of this process so far.
func processTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

// threadCPU is the processor time that f takes.
func threadCPU(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := clock(unix.CLOCK_THREAD_CPUTIME_ID)
	f()
	return clock(unix.CLOCK_THREAD_CPUTIME_ID) - begin
}

func clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic("benchmarks: no clock: " + err.Error())
	}
	return time.Duration(t.Nano())
}
