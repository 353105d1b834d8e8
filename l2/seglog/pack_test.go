package seglog

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestManySmallValuesTakeAboutTheirSize(t *testing.T) {
	const n, size = 100000, 100
	r := newRig(t, 16, func(c *Config) { c.SegmentSize, c.Size, c.MaxEntries = 1024*BlockSize, 16*1024*BlockSize, 2*n })
	for i := range n {
		slot := int64(i%50) * rigSlot / 8
		simFill(r.pool[slot:slot+size], i)
		k := key(i)
		require.True(t, r.l.Put(&k, Mem{Off: slot, Len: rigSlot / 8}, size, Token(i+1)))
		if i%50 == 49 {
			r.turn()
		}
	}
	r.run()
	clear(r.ended)
	s := r.l.Stats()
	t.Logf("%d values of %d bytes: %.0f bytes each written", n, size, float64(s.WriteBytes)/n)
	require.EqualValues(t, n, s.Records)
	require.Less(t, s.WriteBytes, uint64(n*size*35/10), "value, its two records and their blocks")
	require.LessOrEqual(t, int64(s.DiskBytes), r.cfg.Size)
	for i := 0; i < n; i += 9973 {
		r.sees(i, size)
	}
	r.restart()
	require.Equal(t, n, r.report.Records)
	for i := 0; i < n; i += 9973 {
		r.sees(i, size)
	}
}

func TestValuesOfAllSizesShareAGroup(t *testing.T) {
	r := newRig(t, 6, bigger)
	r.run()
	seed := uint64(11)
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	sizes := make([]int64, 400)
	for n := range sizes {
		sizes[n] = []int64{0, 1, 63, 64, 65, 4095, 4096, 4097, PackMax - 1, PackMax, PackMax + 1, int64(rng.IntN(2 * PackMax))}[rng.IntN(12)]
		r.put(n, sizes[n])
		if n%8 == 7 {
			r.turn()
			r.check()
		}
	}
	r.run()
	for range 2 {
		for n, size := range sizes {
			r.sees(n, size)
		}
		r.restart()
	}
}

func TestABadNeighbourInAPackHarmsNobody(t *testing.T) {
	r := newRig(t, 6, nil)
	r.run()
	for n := range 6 {
		r.put(n, 1000)
	}
	require.NotZero(t, r.delete(2)) // dropped: it has a place, and is never copied
	n := 0
	r.broken = func(io *IO) int64 {
		if io.Kind == IOCopy {
			if n++; n == 2 {
				return -14
			}
		}
		return 0
	}
	r.run()
	r.broken = nil
	here := 0
	for n := range 6 {
		if r.has(n) {
			r.sees(n, 1000)
			here++
		}
	}
	require.Equal(t, 4, here)
	require.False(t, r.has(2))
	require.Equal(t, StateOK, r.l.State())
	r.restart()
	require.Equal(t, 4, r.report.Records)
}

func TestAPackThatCannotBeWrittenTakesItsGroupWithIt(t *testing.T) {
	r := newRig(t, 6, nil)
	r.run()
	for n := range 3 {
		r.put(n, 1000)
	}
	r.broken = away
	r.run()
	require.Equal(t, StateDegraded, r.l.State())
	for n := range 3 {
		require.Equal(t, ResultIO, r.ended[Token(n+1)].Result)
	}
	r.broken = nil
	r.tick(5e9)
	require.Equal(t, StateOK, r.l.State())
	r.store(9, 1000)
	r.sees(9, 1000)
}
