package l2

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func newTestMemory(t *testing.T, blocks int64) *memory {
	t.Helper()
	m, err := newMemory(blocks * 4096)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.close()) })
	return m
}

func acquire(t *testing.T, m *memory, blocks int64) extent {
	t.Helper()
	e, err := m.acquire(context.Background(), blocks*4096)
	require.NoError(t, err)
	require.Equal(t, blocks*4096, e.len)
	return e
}

// queued returns when n requests wait.
func queued(m *memory, n int) {
	for {
		m.mu.Lock()
		waiting := len(m.waiters)
		m.mu.Unlock()
		if waiting >= n {
			return
		}
		runtime.Gosched()
	}
}

func TestMemoryLendsDisjointExtentsAndJoinsThemAgain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const blocks = 256
	m := newTestMemory(t, blocks)
	var owner [blocks]int
	lent := map[int]extent{}
	used := int64(0)
	for i := 1; i < 5000; i++ {
		n := 1 + rng.Int64N(20)
		if len(lent) < 12 && used+n < blocks/3 { // sparse enough to never wait
			e := acquire(t, m, n)
			lent[i] = e
			used += n
			for b := e.off / 4096; b < e.end()/4096; b++ {
				require.Zero(t, owner[b], "block %d lent twice", b)
				owner[b] = i
			}
		} else {
			for id, e := range lent {
				for b := e.off / 4096; b < e.end()/4096; b++ {
					require.Equal(t, id, owner[b])
					owner[b] = 0
				}
				m.release(e)
				used -= e.len / 4096
				delete(lent, id)
				break
			}
		}
		require.Equal(t, (blocks-used)*4096, m.available())
	}
	for _, e := range lent {
		m.release(e)
	}
	require.Equal(t, []extent{{0, blocks * 4096}}, m.free)
}

func TestNothingOvertakesABigRequest(t *testing.T) {
	m := newTestMemory(t, 10)
	first, second := acquire(t, m, 4), acquire(t, m, 4)
	order := make(chan string, 2)
	ask := func(name string, blocks int64, ahead int) {
		go func() {
			e, err := m.acquire(context.Background(), blocks*4096)
			if err == nil {
				order <- name
				m.release(e)
			}
		}()
		queued(m, ahead+1)
	}
	ask("big", 10, 0)
	ask("small", 1, 1) // would fit now
	m.release(first)
	require.Empty(t, order)
	m.release(second)
	require.Equal(t, "big", <-order)
	require.Equal(t, "small", <-order)
}

func TestALeavingWaiterLetsTheOthersPass(t *testing.T) {
	m := newTestMemory(t, 10)
	held := acquire(t, m, 8)
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := m.acquire(ctx, 9*4096)
		left <- err
	}()
	got := make(chan extent)
	go func() {
		queued(m, 1)
		e, _ := m.acquire(context.Background(), 2*4096)
		got <- e
	}()
	queued(m, 2)
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	m.release(<-got)
	m.release(held)
	require.Equal(t, int64(10*4096), m.available())
}

func TestGivingBackTwicePanics(t *testing.T) {
	m := newTestMemory(t, 10)
	e := acquire(t, m, 3)
	m.release(e)
	require.PanicsWithValue(t, "l2: memory [0,12288) given back twice", func() { m.release(e) })
	require.Equal(t, int64(10*4096), m.available())
}

func TestZeroBytesNeedNoMemory(t *testing.T) {
	m := newTestMemory(t, 1)
	acquire(t, m, 1)
	m.release(acquire(t, m, 0))
}

func TestWhoeverWaitsIsRefusedAndWhatIsFreeIsStillLent(t *testing.T) {
	m := newTestMemory(t, 2)
	a := acquire(t, m, 1)
	waiting := make(chan error)
	go func() {
		_, err := m.acquire(context.Background(), 2*4096)
		waiting <- err
	}()
	queued(m, 1)
	m.refuse()
	require.ErrorIs(t, <-waiting, ErrClosed)
	b := acquire(t, m, 1)
	_, err := m.acquire(context.Background(), 4096)
	require.ErrorIs(t, err, ErrClosed)
	m.release(a)
	m.release(b)
	require.Equal(t, []extent{{0, 2 * 4096}}, m.free)
}
