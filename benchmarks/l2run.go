package benchmarks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/proto"
)

// An l2Run writes and reads one size of values, several at a time. Worker w of them writes
// the values whose number is w modulo their count, all with the same content, so that
// making it takes no time.
type l2Run struct {
	s       *l2.Store
	size    int64
	depth   int
	content []proto.Key // by worker
	memory  [][]byte    // by worker: the caller's own
	first   uint64      // number of the first value of the last writing
	next    uint64      // of the first that was never written
}

func newL2Run(ctx context.Context, s *l2.Store, size int64, depth int) (*l2Run, error) {
	r := &l2Run{s: s, size: size, depth: depth}
	for w := range depth {
		r.content = append(r.content, BlockKey(uint64(w)<<32|uint64(size)))
		p := make([]byte, size)
		Fill(&r.content[w], p)
		r.memory = append(r.memory, p)
	}
	return r, ctx.Err()
}

// each runs f for count values, by depth workers, and returns the bytes, the time and the
// process' processor time. What f returns of the latter is taken off.
func (r *l2Run) each(count int, f func(w int, value uint64) (time.Duration, error)) (int64, time.Duration, time.Duration, error) {
	var off atomic.Int64
	failures := make([]error, r.depth)
	cpu, begin := processTime(), time.Now()
	var all sync.WaitGroup
	for w := range r.depth {
		all.Go(func() {
			for i := w; i < count && failures[w] == nil; i += r.depth {
				var own time.Duration
				own, failures[w] = f(w, r.first+uint64(i))
				off.Add(int64(own))
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	return int64(count) * r.size, took, processTime() - cpu - time.Duration(off.Load()), errors.Join(failures...)
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

// sample is one round of one way.
func (r *l2Run) sample(ctx context.Context, into *l2Sample, way string, bytes int64, verified *int64) error {
	var one l2Sample
	var err error
	switch way {
	case "write", "write_copy":
		one, err = r.write(ctx, bytes, way == "write_copy")
	case "read", "read_copy":
		one, err = r.read(ctx, bytes, way == "read_copy", verified)
	default:
		panic("benchmarks: no way " + way)
	}
	into.rate, into.cpu = one.rate, one.cpu
	return err
}

// write puts as many new values as there are in so many bytes.
func (r *l2Run) write(ctx context.Context, bytes int64, copied bool) (l2Sample, error) {
	r.first, r.next = r.next, r.next+uint64(r.count(bytes))
	buffers := make([]*l2.Buffer, r.depth)
	if !copied {
		for w := range buffers {
			b, err := r.s.Buffer(ctx, int(r.size))
			if err != nil {
				return l2Sample{}, err
			}
			defer b.Release()
			copy(b.Bytes(), r.memory[w])
			buffers[w] = b
		}
	}
	return r.rated(r.each(r.count(bytes), func(w int, n uint64) (time.Duration, error) {
		if copied {
			return 0, r.s.Put(ctx, r.key(n), r.memory[w])
		}
		return 0, r.s.PutBuffer(ctx, r.key(n), buffers[w])
	}))
}

// read gets the values written last and compares every byte. The store compared their
// checksums before; both have to have seen all that was read.
func (r *l2Run) read(ctx context.Context, bytes int64, copied bool, verified *int64) (l2Sample, error) {
	var same atomic.Int64
	before := r.s.Stats().ReadBytes
	wrong := make([]int, r.depth)
	read, took, used, err := r.each(r.count(bytes), func(w int, n uint64) (time.Duration, error) {
		p := r.memory[w]
		if copied {
			if n, err := r.s.Get(ctx, r.key(n), p); err != nil || int64(n) != r.size {
				return 0, fmt.Errorf("%d bytes: %w", n, err)
			}
		} else {
			b, err := r.s.GetBuffer(ctx, r.key(n))
			if err != nil {
				return 0, err
			}
			defer b.Release()
			p = b.Bytes()
		}
		own := threadCPU(func() { wrong[w] += Mismatches(&r.content[w], p) })
		same.Add(int64(len(p)))
		return own, nil
	})
	if err != nil {
		return l2Sample{}, err
	}
	for w, n := range wrong {
		if n > 0 {
			return l2Sample{}, fmt.Errorf("worker %d read %d wrong bytes", w, n)
		}
	}
	if summed := int64(r.s.Stats().ReadBytes - before); summed != read || same.Load() != read {
		return l2Sample{}, fmt.Errorf("read %d bytes, but verified %d by checksum and %d byte by byte", read, summed, same.Load())
	}
	*verified += read
	return r.rated(read, took, used, nil)
}

// rated turns what each returns into a sample.
func (r *l2Run) rated(bytes int64, took, used time.Duration, err error) (l2Sample, error) {
	return l2Sample{rate: float64(bytes) / took.Seconds(), cpu: perGB(used, bytes)}, err
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

// sumCost is the processor time of a value's checksum now, in seconds for 10^9 bytes,
// where the value is not in the processor's cache.
func sumCost(size int64) float64 {
	const span = 128 << 20
	memory := make([]byte, max(span, size))
	for i := 0; i < len(memory); i += pageSize {
		memory[i] = 1
	}
	var sink uint64
	bytes := int64(0)
	used := threadCPU(func() {
		for ; bytes+size <= int64(len(memory)); bytes += size {
			sink ^= xxh3.Hash(memory[bytes:][:size])
		}
	})
	runtime.KeepAlive(sink)
	return perGB(used, bytes)
}
