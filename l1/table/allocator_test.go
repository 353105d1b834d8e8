package table

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

type grant struct{ off, size int64 }

func newReady(size int64) *Allocator {
	a := NewAllocator(size)
	a.Grow(size)
	return a
}

func TestWholePoolIsGrantedAfterEverythingWasFreed(t *testing.T) {
	for _, size := range []int64{Unit, 3 * Unit, 64 * Unit, 65 * Unit, 4095 * Unit, 4097*Unit + 1, 1 << 30} {
		whole := size / Unit * Unit
		a := newReady(size)
		var live []grant
		for n := int64(1); ; n = n*3 + Unit {
			off, ok := a.Alloc(n)
			if !ok {
				break
			}
			live = append(live, grant{off, n})
		}
		for i := 0; i < len(live); i += 2 {
			a.Free(live[i].off, live[i].size)
		}
		for i := 1; i < len(live); i += 2 {
			a.Free(live[i].off, live[i].size)
		}
		require.Equal(t, whole, a.Largest())
		off, ok := a.Alloc(whole)
		require.True(t, ok)
		require.Zero(t, off)
		require.Zero(t, a.FreeBytes())
		_, ok = a.Alloc(1)
		require.False(t, ok)
		a.Free(0, whole)
	}
}

func TestGrowthJoinsAFreeTail(t *testing.T) {
	a := NewAllocator(100*Unit + 17)
	_, ok := a.Alloc(1)
	require.False(t, ok, "nothing is ready")
	a.Grow(10*Unit + 5)
	require.Equal(t, 10*Unit, a.Largest())
	a.Grow(30 * Unit)
	require.Equal(t, 30*Unit, a.Largest())
	off, ok := a.Alloc(30 * Unit)
	require.True(t, ok)
	require.Zero(t, off)
	a.Grow(12 * Unit)
	require.Equal(t, 30*Unit, a.Ready(), "growth never shrinks")
	a.Grow(100*Unit + 17)
	require.Equal(t, 70*Unit, a.Largest(), "a granted tail is not joined")
	require.Equal(t, 100*Unit, a.Ready())
	a.Free(0, 30*Unit)
	require.Equal(t, 100*Unit, a.Largest())
	require.NoError(t, a.CheckInvariants())
	require.Panics(t, func() { a.Grow(102 * Unit) })
}

func TestWrongFreesPanic(t *testing.T) {
	a := newReady(64 * Unit)
	off, _ := a.Alloc(4 * Unit)
	require.Panics(t, func() { a.Free(off, 3*Unit) }, "another length")
	require.Panics(t, func() { a.Free(off+1, 4*Unit) }, "between units")
	require.Panics(t, func() { a.Free(off+Unit, 3*Unit) }, "inside")
	require.Panics(t, func() { a.Free(off, 0) }, "nothing")
	require.Panics(t, func() { a.Alloc(0) })
	a.Free(off, 4*Unit)
	require.Panics(t, func() { a.Free(off, 4*Unit) }, "twice")
	require.NoError(t, a.CheckInvariants())
}

// TestOffsetsBeyondFourGiBAreExact: offsets over 4 GiB kept in 32 bits.
func TestOffsetsBeyondFourGiBAreExact(t *testing.T) {
	const size = 3 << 40
	a := newReady(size)
	off, ok := a.Alloc(size - Unit)
	require.True(t, ok)
	require.Zero(t, off)
	off, ok = a.Alloc(1)
	require.True(t, ok)
	require.Equal(t, int64(size)-Unit, off)
	a.Free(0, size-Unit)
	require.Equal(t, int64(size)-Unit, a.Largest())
}

func TestSmallestBlockThatFitsIsTaken(t *testing.T) {
	a := newReady(1000 * Unit)
	var wall []grant
	holes := map[int64]int64{}
	for _, n := range []int64{90, 7, 64, 63, 128, 65, 8, 300} {
		off, _ := a.Alloc(n * Unit)
		holes[n] = off
		wall = append(wall, grant{off, n * Unit})
		a.Alloc(Unit)
	}
	for _, g := range wall {
		a.Free(g.off, g.size)
	}
	for _, c := range []struct{ want, from int64 }{{64, 64}, {64, 65}, {62, 63}, {9, 90}, {8, 8}, {5, 7}, {270, 300}} {
		off, ok := a.Alloc(c.want * Unit)
		require.True(t, ok)
		require.Equal(t, holes[c.from], off, "%d units", c.want)
	}
	require.NoError(t, a.CheckInvariants())
}

func TestRandomGrantsNeverOverlap(t *testing.T) {
	for seed := range uint64(4) {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		units := 1 + rng.IntN(600)
		a := NewAllocator(int64(units) * Unit)
		ready := 0
		owned := make([]int, units)
		var live []grant
		for step := range 3000 {
			switch {
			case ready < units && rng.IntN(50) == 0:
				ready += rng.IntN(units-ready) + 1
				a.Grow(int64(ready) * Unit)
			case rng.IntN(2) == 0 || len(live) == 0:
				n := 1 + rng.Int64N(int64(1+rng.IntN(units))*Unit)
				off, ok := a.Alloc(n)
				require.Equal(t, longestRun(owned[:ready]) >= int((n+Unit-1)/Unit), ok, "a block is found if and only if there is one")
				if !ok {
					continue
				}
				for i := off / Unit; i*Unit < off+n; i++ {
					require.Zero(t, owned[i])
					owned[i] = step + 1
				}
				live = append(live, grant{off, n})
			default:
				i := rng.IntN(len(live))
				g := live[i]
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
				a.Free(g.off, g.size)
				for i := g.off / Unit; i*Unit < g.off+g.size; i++ {
					owned[i] = 0
				}
			}
			require.NoError(t, a.CheckInvariants())
			require.Equal(t, int64(longestRun(owned[:ready]))*Unit, a.Largest())
		}
	}
}

func longestRun(owned []int) int {
	longest, run := 0, 0
	for _, o := range owned {
		if run++; o != 0 {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// mixtures are sizes as layouts of inference workers have them, and some that
// are made to hurt.
var mixtures = []struct {
	name  string
	least float64 // of the pool in use when the first request is refused
	fill  float64 // of the pool in use while sizes churn
	sizes []int64
	odds  []int
}{
	{"one size of 1 MiB", 0.95, 0.95, []int64{1 << 20}, []int{1}},
	{"one size of 32 MiB", 0.95, 0.95, []int64{32 << 20}, []int{1}},
	{"one odd size", 0.95, 0.95, []int64{3276800}, []int{1}},
	{"4 KiB, 256 KiB, 3.12 MiB", 0.85, 0.80, []int64{4 << 10, 256 << 10, 3271557}, []int{70, 20, 10}},
	{"shards of 1, 2, 5, 10 MiB", 0.85, 0.80, []int64{1 << 20, 2 << 20, 5 << 20, 10 << 20}, []int{1, 1, 1, 1}},
	{"64 KiB to 2.5 MiB", 0.85, 0.80, []int64{64 << 10, 640 << 10, 1 << 20, 2560 << 10}, []int{4, 2, 2, 1}},
	{"17 MiB and 32 MiB and short last chunks", 0.85, 0.80, []int64{17 << 20, 32 << 20, 1 << 20, 5 << 20}, []int{4, 4, 1, 1}},
	{"any size to 4 MiB", 0.85, 0.80, nil, nil},
}

func pick(rng *rand.Rand, sizes []int64, odds []int) int64 {
	if sizes == nil {
		return 1 + rng.Int64N(4<<20)
	}
	sum := 0
	for _, o := range odds {
		sum += o
	}
	n := rng.IntN(sum)
	for i, o := range odds {
		if n -= o; n < 0 {
			return sizes[i]
		}
	}
	return sizes[0]
}

// TestPoolIsWellUsedAtTheFirstRefusal: enough bytes are free, and the allocation fails for they
// are in pieces.
func TestPoolIsWellUsedAtTheFirstRefusal(t *testing.T) {
	const size = 4 << 30
	for i, m := range mixtures {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(2) {
				t.Logf("seed %d", seed)
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				a := newReady(size)
				var live []grant
				for range 25_000 {
					n := pick(rng, m.sizes, m.odds)
					for float64(size-a.FreeBytes()+Footprint(n)) > m.fill*size {
						j := rng.IntN(len(live))
						a.Free(live[j].off, live[j].size)
						live[j] = live[len(live)-1]
						live = live[:len(live)-1]
					}
					off, ok := a.Alloc(n)
					require.True(t, ok, "refused at a fill of %.2f", m.fill)
					live = append(live, grant{off, n})
				}
				for {
					n := pick(rng, m.sizes, m.odds)
					if _, ok := a.Alloc(n); !ok {
						break
					}
				}
				used := float64(size-a.FreeBytes()) / size
				t.Logf("in use at the first refusal: %.3f", used)
				require.GreaterOrEqual(t, used, m.least)
			}
		})
	}
}

func FuzzAllocator(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 201, 4, 5})
	f.Add([]byte{255, 0, 0, 0, 255, 128, 7, 7, 7, 129, 131})
	f.Add([]byte{64, 64, 64, 64, 129, 131, 100, 30, 128, 128, 128, 128})
	f.Fuzz(func(t *testing.T, ops []byte) {
		const size = 256 * Unit
		a := newReady(size)
		var live []grant
		for _, op := range ops {
			if op < 128 {
				n := int64(op)*Unit/2 + 1
				if off, ok := a.Alloc(n); ok {
					live = append(live, grant{off, n})
				}
			} else if len(live) > 0 {
				i := int(op-128) % len(live)
				a.Free(live[i].off, live[i].size)
				live = append(live[:i], live[i+1:]...)
			}
			if err := a.CheckInvariants(); err != nil {
				t.Fatal(err)
			}
		}
		for _, g := range live {
			a.Free(g.off, g.size)
		}
		if a.Largest() != size {
			t.Fatalf("got %d bytes in one piece, want %d", a.Largest(), size)
		}
	})
}
