package l2_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2"
)

// A model is what a store should hold: for each key its value's version, 0 for
// none. A key's lock is held around an operation on it and its effect here.
type model struct {
	keys []struct {
		sync.Mutex
		version, length int
	}
	evicts bool // a value may be gone
}

// content returns the value of a version of a key: it says itself what it is.
func content(key, version, n int) []byte {
	v := bytes.Clone(value(uint64(key)<<32|uint64(version), n))
	if n >= 16 {
		binary.LittleEndian.PutUint64(v, uint64(key))
		binary.LittleEndian.PutUint64(v[8:], uint64(version))
	}
	return v
}

// operate does one random operation.
func (m *model) operate(s *l2.Store, rng *rand.Rand, buf []byte, lengths []int) error {
	i := rng.IntN(len(m.keys))
	k := &m.keys[i]
	key := fmt.Appendf(nil, "key %d", i)
	k.Lock()
	defer k.Unlock()
	switch p := rng.IntN(100); {
	case p < 45:
		n := lengths[rng.IntN(len(lengths))]
		version := k.version + 1 + rng.IntN(3)
		if err := s.Put(ctx, key, content(i, version, n)); err != nil {
			return fmt.Errorf("put %s: %w", key, err)
		}
		k.version, k.length = version, n
	case p < 50:
		if err := s.Delete(ctx, key); err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
		k.version, k.length = 0, 0
	default:
		return m.check(s, i, key, buf)
	}
	return nil
}

// check compares a value with the model.
func (m *model) check(s *l2.Store, i int, key, buf []byte) error {
	k := &m.keys[i]
	n, err := s.Get(ctx, key, buf)
	switch {
	case errors.Is(err, l2.ErrNotFound):
		if k.version == 0 || m.evicts {
			return nil
		}
		return fmt.Errorf("%s is gone, want version %d of %d bytes", key, k.version, k.length)
	case err != nil:
		return fmt.Errorf("get %s: %w", key, err)
	case k.version == 0:
		return fmt.Errorf("%s has %d bytes, want none", key, n)
	case n != k.length || string(buf[:n]) != string(content(i, k.version, n)):
		return fmt.Errorf("%s has %d wrong bytes, want version %d of %d bytes", key, n, k.version, k.length)
	}
	return nil
}

// runModel has 16 callers at work, reopening the store a few times.
func runModel(t *testing.T, opts l2.Options, keys, operations int, lengths []int, evicts bool) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &model{evicts: evicts}
	m.keys = make([]struct {
		sync.Mutex
		version, length int
	}, keys)
	dir := t.TempDir()
	const callers = 16
	for round := range 3 {
		s := open(t, dir, opts)
		var wait sync.WaitGroup
		for c := range callers {
			wait.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(round*callers+c)))
				buf := make([]byte, 3<<20)
				for range operations {
					if err := m.operate(s, rng, buf, lengths); !assert.NoError(t, err) {
						return
					}
				}
			})
		}
		wait.Wait()
		st := s.Stats()
		require.Zero(t, st.BadRecords)
		require.EqualValues(t, opts.Memory, st.MemoryFree, "memory leaked")
		require.NoError(t, s.Close())
		s = open(t, dir, opts)
		buf := make([]byte, 3<<20)
		for i := range m.keys {
			require.NoError(t, m.check(s, i, fmt.Appendf(nil, "key %d", i), buf))
		}
		require.NoError(t, s.Close())
	}
}

func TestConcurrentCallersAgreeWithTheModel(t *testing.T) {
	lengths := []int{0, 1, 100, 4095, 4096, 4097, 20000, 70000, 300000, 1<<20 + 5}
	runModel(t, l2.Options{Size: 2 << 30, Memory: 16 << 20, SegmentSize: 8 << 20}, 60, 30, lengths, false)
}

func TestConcurrentCallersAgreeWithTheModelUnderEviction(t *testing.T) {
	lengths := []int{0, 16, 5000, 50000, 250000}
	runModel(t, l2.Options{Size: 8 << 20, Memory: 2 << 20, SegmentSize: 512 << 10}, 100, 50, lengths, true)
}

func TestUnguardedCallersNeverSeeAWrongValue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := open(t, t.TempDir(), l2.Options{Size: 256 << 20, Memory: 4 << 20})
	const callers, keys = 16, 5
	var wait sync.WaitGroup
	for c := range callers {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			buf := make([]byte, 1<<20)
			for n := range 80 {
				i := rng.IntN(keys)
				key := fmt.Appendf(nil, "key %d", i)
				switch p := rng.IntN(100); {
				case p < 40:
					assert.NoError(t, s.Put(ctx, key, content(i, c*1000+n, 16+rng.IntN(100000))))
				case p < 50:
					assert.NoError(t, s.Delete(ctx, key))
				default:
					got, err := s.Get(ctx, key, buf)
					if errors.Is(err, l2.ErrNotFound) {
						continue
					}
					if !assert.NoError(t, err) {
						return
					}
					version := binary.LittleEndian.Uint64(buf[8:])
					want := content(i, int(version), got)
					assert.True(t, string(want) == string(buf[:got]), "key %d has wrong bytes", i)
				}
			}
		})
	}
	wait.Wait()
}

func TestCancelledCallsLeaveNothingBehind(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	opts := l2.Options{Size: 256 << 20, Memory: 1 << 20} // four of the values
	s := open(t, t.TempDir(), opts)
	var values [5][]byte
	for i := range values {
		values[i] = content(i, 1, 256<<10)
	}
	var wait sync.WaitGroup
	var left atomic.Int64
	for c := range 16 {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			buf := make([]byte, 1<<20)
			for range 60 {
				ctx, cancel := context.WithCancel(ctx)
				i := rng.IntN(len(values))
				key := fmt.Appendf(nil, "key %d", i)
				go func() {
					for range rng.IntN(2000) {
						_ = ctx.Err() // some time
					}
					cancel()
				}()
				var err error
				switch c % 3 {
				case 0:
					err = s.Put(ctx, key, values[i])
				case 1:
					var n int
					n, err = s.Get(ctx, key, buf)
					if err == nil {
						assert.True(t, string(values[i]) == string(buf[:n]))
					}
				case 2:
					err = s.Delete(ctx, key)
				}
				if err != nil && !errors.Is(err, l2.ErrNotFound) {
					assert.ErrorIs(t, err, context.Canceled)
					left.Add(1)
				}
				<-ctx.Done()
			}
		})
	}
	wait.Wait()
	t.Logf("%d of %d calls were left", left.Load(), 16*60)
	// What was abandoned ends by itself. A put that the loop took in the same turn as the question has no I/O in flight yet.
	require.Eventually(t, func() bool { return s.Stats().MemoryFree == opts.Memory }, 20*time.Second, time.Millisecond)
	require.ErrorIs(t, s.Put(cancelled(), []byte("k"), nil), context.Canceled)
}

// cancelled returns a context that is over.
func cancelled() context.Context {
	c, cancel := context.WithCancel(context.Background())
	cancel()
	return c
}
