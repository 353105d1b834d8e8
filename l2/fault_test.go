package l2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

// A faultyRing makes some I/O fail, or itself. It carries out all of it: what
// fails has happened all the same, wholly.
type faultyRing struct {
	ring.Interface
	rng    *rand.Rand // the loop's
	reads  atomic.Int32
	writes atomic.Int32 // of 100 fail or come short
	dead   atomic.Bool  // Wait fails

	doomed map[ring.Tag]bool // the loop's
	failed atomic.Int64
}

var errDead = errors.New("ring is dead")

func (f *faultyRing) Read(tag ring.Tag, fd int, off int64, p []byte) {
	f.doom(tag, &f.reads)
	f.Interface.Read(tag, fd, off, p)
}

func (f *faultyRing) Write(tag ring.Tag, fd int, off int64, p []byte) {
	f.doom(tag, &f.writes)
	f.Interface.Write(tag, fd, off, p)
}

func (f *faultyRing) doom(tag ring.Tag, percent *atomic.Int32) {
	if f.rng.IntN(100) < int(percent.Load()) {
		f.doomed[tag] = true
	}
}

func (f *faultyRing) Wait(dst []ring.Completion) ([]ring.Completion, error) {
	if f.dead.Load() {
		return nil, errDead
	}
	dst, err := f.Interface.Wait(dst)
	for i := range dst {
		c := &dst[i]
		if (c.Kind == ring.KindRead || c.Kind == ring.KindWrite) && f.doomed[c.Tag] {
			delete(f.doomed, c.Tag)
			f.failed.Add(1)
			switch f.rng.IntN(3) {
			case 0:
				c.Res = -int32(unix.EIO)
			case 1:
				c.Res = -int32(unix.ENOSPC)
			case 2:
				c.Res = max(0, c.Res-4096)
			}
		}
	}
	return dst, err
}

// openFaulty opens a store on a faulty ring that is still without faults.
func openFaulty(t *testing.T, dir string, opts Options, seed uint64) (*Store, *faultyRing) {
	t.Helper()
	f := &faultyRing{rng: rand.New(rand.NewPCG(seed, 99)), doomed: map[ring.Tag]bool{}}
	s, err := openOn(dir, opts, func() (ring.Opened, error) {
		o, err := ring.Open(ringtest.Engine(t), ring.Config{Ops: maxInFlight, Control: controlOps})
		f.Interface, o.Ring = o.Ring, f
		return o, err
	})
	require.NoError(t, err)
	return s, f
}

func TestFailingReadsAreMissesAndNeverWrong(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx := context.Background()
	s, f := openFaulty(t, t.TempDir(), Options{Size: 128 << 20, SegmentSize: 8 << 20, Memory: 8 << 20}, seed)
	const keys = 60
	content := func(i int) []byte {
		return bytes.Repeat(fmt.Appendf(nil, "%9d ", i), 10000)
	}
	for i := range keys {
		require.NoError(t, s.Put(ctx, fmt.Append(nil, i), content(i)))
	}
	f.reads.Store(20)
	dst := make([]byte, 100000)
	missing := 0
	for i := range keys {
		n, err := s.Get(ctx, fmt.Append(nil, i), dst)
		if err != nil {
			require.ErrorIs(t, err, ErrNotFound)
			require.Zero(t, n)
			missing++
			continue
		}
		require.True(t, string(dst[:n]) == string(content(i)))
	}
	f.reads.Store(0)
	require.LessOrEqual(t, missing, int(f.failed.Load()))
	again := 0
	for i := range keys {
		n, err := s.Get(ctx, fmt.Append(nil, i), dst)
		if err != nil {
			require.ErrorIs(t, err, ErrNotFound)
			again++
			continue
		}
		require.True(t, string(dst[:n]) == string(content(i)))
	}
	require.Equal(t, missing, again)
	require.NoError(t, s.Close())
}

func TestFailingWritesDegradeTheStoreAndLoseNoMemory(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx := context.Background()
	dir := t.TempDir()
	opts := Options{Size: 128 << 20, SegmentSize: 8 << 20, Memory: 4 << 20}
	s, f := openFaulty(t, dir, opts, seed)
	content := func(i, version int) []byte {
		return bytes.Repeat(fmt.Appendf(nil, "%9d ", i*1000+version), 10000)
	}
	const keys = 30
	var held [keys]int // last version acknowledged; -1: unsure
	run := func() (refused int) {
		var count atomic.Int64
		var wait sync.WaitGroup
		for c := range 6 {
			wait.Go(func() {
				for i := c; i < keys; i += 6 {
					version := held[i] + 1
					err := s.Put(ctx, fmt.Append(nil, i), content(i, version))
					if err == nil {
						held[i] = version
						continue
					}
					assert.ErrorIs(t, err, ErrDegraded)
					held[i] = -1
					count.Add(1)
				}
			})
		}
		wait.Wait()
		return int(count.Load())
	}
	check := func() {
		dst := make([]byte, 100000)
		for i := range keys {
			n, err := s.Get(ctx, fmt.Append(nil, i), dst)
			if held[i] < 0 {
				continue // either is right
			}
			require.NoError(t, err, "key %d", i)
			require.True(t, string(dst[:n]) == string(content(i, held[i])), "key %d", i)
		}
	}
	require.Zero(t, run())
	f.writes.Store(30)
	require.Positive(t, run()+run()+run())
	f.writes.Store(0)
	for s.Put(ctx, []byte("probe"), nil) != nil { // it comes back by itself
		continue
	}
	for i := range held {
		held[i] = 100 // beyond any of before
	}
	require.Zero(t, run())
	check()
	require.EqualValues(t, opts.Memory, s.Stats().MemoryFree)
	require.NoError(t, s.Close())

	s, _ = openFaulty(t, dir, opts, seed)
	check()
	require.NoError(t, s.Close())
}

func TestADeadRingFailsAllCallsAndHangsNone(t *testing.T) {
	ctx := context.Background()
	s, f := openFaulty(t, t.TempDir(), Options{Size: 128 << 20}, 1)
	require.NoError(t, s.Put(ctx, []byte("k"), []byte("v")))
	var wait sync.WaitGroup
	for c := range 8 {
		wait.Go(func() {
			for n := 0; ; n++ {
				if err := s.Put(ctx, fmt.Appendf(nil, "%d/%d", c, n), make([]byte, 100000)); err != nil {
					assert.ErrorIs(t, err, errDead)
					return
				}
				if n == 3 {
					f.dead.Store(true)
				}
			}
		})
	}
	wait.Wait()
	_, err := s.Get(ctx, []byte("k"), make([]byte, 10))
	require.ErrorIs(t, err, errDead)
	require.ErrorIs(t, s.Delete(ctx, []byte("k")), errDead)
	require.EqualValues(t, DefaultMemory, s.Stats().MemoryFree)
	require.ErrorIs(t, s.Close(), errDead)
	require.ErrorIs(t, s.Close(), errDead)
	require.ErrorIs(t, s.Put(ctx, []byte("k"), nil), ErrClosed)
}
