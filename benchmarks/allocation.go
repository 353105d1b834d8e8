package benchmarks

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/slotcache/slotcache/l1/table"
)

// An Allocation is how well the pool's allocator served a mixture of sizes. Utilisation is
// the part of the pool that was granted when a request was refused for the first time.
type Allocation struct {
	Mix         string  `json:"mix"`
	Utilisation float64 `json:"utilisation"`
	NsPerOp     float64 `json:"ns_per_op"` // of an allocation with the free that it follows, if one does
}

// allocPool is the size of the pool that mixtures are drawn for, in bytes.
const allocPool = 4 << 30

// A mixture is sizes in bytes and how often each comes.
type mixture struct {
	name  string
	sizes []int64
	odds  []int
	fill  float64 // of the pool in use while objects come and go; 0: it is only filled
	ops   int     // that many do
}

var mixtures = []mixture{
	{name: "one size of 256 KiB", sizes: []int64{256 << 10}, odds: []int{1}},
	{name: "one size of 3 MiB", sizes: []int64{3 << 20}, odds: []int{1}},
	{name: "one odd size", sizes: []int64{3276801}, odds: []int{1}},
	{name: "random: 4 KiB, 256 KiB, 3 MiB", sizes: []int64{4 << 10, 256 << 10, 3 << 20}, odds: []int{1, 1, 1}, fill: 0.5, ops: 100_000},
	{name: "random: 64 KiB to 2.5 MiB", sizes: []int64{64 << 10, 640 << 10, 1 << 20, 2560 << 10}, odds: []int{4, 2, 2, 1}, fill: 0.8, ops: 100_000},
	{name: "random: 1, 2, 5, 10 MiB", sizes: []int64{1 << 20, 2 << 20, 5 << 20, 10 << 20}, odds: []int{1, 1, 1, 1}, fill: 0.8, ops: 100_000},
	{name: "random: any size to 4 MiB", fill: 0.8, ops: 100_000},
	{
		name:  "churn: 4 KiB 70 %, 256 KiB 20 %, 3 MiB 10 % at 80 % fill",
		sizes: []int64{4 << 10, 256 << 10, 3 << 20}, odds: []int{70, 20, 10}, fill: 0.8, ops: 1_000_000,
	},
}

func (m *mixture) draw(r *rand.Rand) int64 {
	if m.sizes == nil {
		return 1 + r.Int64N(4<<20)
	}
	sum := 0
	for _, o := range m.odds {
		sum += o
	}
	n := r.IntN(sum)
	for i, o := range m.odds {
		if n -= o; n < 0 {
			return m.sizes[i]
		}
	}
	return m.sizes[0]
}

type grant struct{ off, size int64 }

// Allocations measures the allocator of the pool, without a pool. Sizes follow the seed.
func Allocations(ctx context.Context, seed uint64, show func(done, total int)) ([]Allocation, error) {
	var results []Allocation
	for i := range mixtures {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		show(i, len(mixtures)+1)
		results = append(results, mixtures[i].measure(rand.New(rand.NewPCG(seed, uint64(i)))))
	}
	results = append(results, measureWhole(rand.New(rand.NewPCG(seed, 100))))
	show(len(mixtures)+1, len(mixtures)+1)
	return results, nil
}

func newAllocator() *table.Allocator {
	a := table.NewAllocator(allocPool)
	a.Grow(allocPool)
	return a
}

// measure has objects come and go at a fill, and fills the pool then. Sizes are drawn
// before the clock starts.
func (m *mixture) measure(r *rand.Rand) Allocation {
	a := newAllocator()
	sizes := make([]int64, max(m.ops, 1<<16))
	picks := make([]uint32, len(sizes))
	for i := range sizes {
		sizes[i], picks[i] = m.draw(r), r.Uint32()
	}
	live := make([]grant, 0, len(sizes))
	ops := 0
	refused := false
	begin := time.Now()
	for i := 0; i < m.ops && !refused; i++ {
		for float64(allocPool-a.FreeBytes()+table.Footprint(sizes[i])) > m.fill*allocPool {
			j := int(uint64(picks[i]) * uint64(len(live)) >> 32)
			a.Free(live[j].off, live[j].size)
			live[j] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		off, ok := a.Alloc(sizes[i])
		live = append(live, grant{off, sizes[i]})
		ops++
		refused = !ok
	}
	for i := 0; !refused; i = (i + 1) % len(sizes) {
		_, ok := a.Alloc(sizes[i])
		ops++
		refused = !ok
	}
	return Allocation{
		Mix: m.name, NsPerOp: float64(time.Since(begin).Nanoseconds()) / float64(ops),
		Utilisation: float64(allocPool-a.FreeBytes()) / allocPool,
	}
}

// measureWhole fills the pool, frees all in random order and asks for the whole pool: the
// utilisation is 1 if it is had.
func measureWhole(r *rand.Rand) Allocation {
	a := newAllocator()
	var live []grant
	begin := time.Now()
	for {
		size := int64(4<<10) << r.IntN(10)
		off, ok := a.Alloc(size)
		if !ok {
			break
		}
		live = append(live, grant{off, size})
	}
	r.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	for _, g := range live {
		a.Free(g.off, g.size)
	}
	_, _ = a.Alloc(allocPool) // a refusal shows in the utilisation
	return Allocation{
		Mix: "one object of the whole pool after all was freed", NsPerOp: float64(time.Since(begin).Nanoseconds()) / float64(len(live)+1),
		Utilisation: float64(allocPool-a.FreeBytes()) / allocPool,
	}
}
