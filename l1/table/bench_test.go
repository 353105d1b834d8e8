package table

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestMetadataOfAnObjectIsSmall(t *testing.T) {
	const objects = 1_000_000
	tab := New(Config{Size: 1 << 30, MaxObjects: objects, Policy: PolicyAdaptive})
	bytes := len(bytesOf(tab.objects)) + len(bytesOf(tab.places)) + len(bytesOf(tab.index.slots)) + len(bytesOf(tab.pins.at))
	tab.policy.eachArray(func(memory []byte) { bytes += len(memory) })
	t.Logf("%.1f bytes an object, %d of them its entry", float64(bytes)/objects, unsafe.Sizeof(object{})+unsafe.Sizeof(place{}))
	require.LessOrEqual(t, float64(bytes)/objects, 192.0)
	a := &tab.memory
	perUnit := 4 * float64(len(a.tags)+len(a.next)+len(a.owner)+len(a.class.first))
	for _, l := range a.class.levels {
		perUnit += 8 * float64(len(l))
	}
	perUnit /= float64(a.Size() / Unit)
	t.Logf("%.2f bytes a unit of %d bytes", perUnit, Unit)
	require.Less(t, perUnit, 17.0)
}

// Whoever gives huge pages is told of all that is large.
func TestAllLargeArraysAreTold(t *testing.T) {
	for _, p := range policies {
		var told int
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tab := New(Config{Size: 1 << 32, MaxObjects: 1 << 20, Policy: p, Advise: func(memory []byte) { told += len(memory) }})
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(tab)
		require.InDelta(t, after.TotalAlloc-before.TotalAlloc, told, 4<<20, "%v: the sample of the requests is the rest", p)
	}
}

func TestOperationsDoNotAllocate(t *testing.T) {
	tab := newTable(1000, 100)
	n := uint64(0)
	refs := make([]Ref, 0, 100)
	var one [1]Ref
	var sizes [1]int64
	got := testing.AllocsPerRun(1000, func() {
		n++
		k := keyOf(n)
		r, _, _ := tab.Stage(&k, 30*Unit)
		tab.Publish(r, true)
		tab.Spill(r)
		tab.Spilled(r)
		tab.Pin(r, PinSoft)
		tab.Lapse(r.Entry())
		r, _, _ = tab.Find(&k)
		tab.Hold(r)
		tab.Touch(r)
		tab.Release(r)
		one[0] = r
		tab.HoldAll(one[:], sizes[:], MaxSize)
		tab.Release(r)
		_ = tab.Usage()
		refs, _ = tab.Each(0, true, 0, 100, refs[:0])
		if n%3 == 0 {
			tab.Delete(r)
		}
	})
	require.Zero(t, got)
}

func BenchmarkPolicies(b *testing.B) {
	const room = 100_000
	for _, p := range policies {
		b.Run(p.String(), func(b *testing.B) {
			tab := newTableWith(p, room, room*8)
			rng := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			hits := 0
			for b.Loop() {
				n := rng.Uint64N(room * 16)
				if n%4 != 0 {
					n = rng.Uint64N(room / 2)
				}
				k := keyOf(n)
				if r, _, ok := tab.Find(&k); ok {
					tab.Touch(r)
					hits++
				} else {
					put(b, tab, n, Unit)
				}
			}
			b.ReportMetric(float64(hits)/float64(b.N), "hits")
		})
	}
}

// BenchmarkStagePublishEvict stores into a full table, so that each object displaces
// another: one for itself, and in requests of 16.
func BenchmarkStagePublishEvict(b *testing.B) {
	const request = 16
	for _, objects := range many {
		b.Run(fmt.Sprintf("objects=%d", objects), func(b *testing.B) {
			tab, _ := filled(b, PolicyAdaptive, objects)
			b.ReportAllocs()
			n := uint64(objects)
			perKey(b, request, func() {
				for range request {
					n++
					put(b, tab, n, 16*Unit)
				}
			})
		})
	}
}

// BenchmarkStageMixed stores sizes of a mixture that is hard on the allocator into a
// full pool, so that large objects displace many small ones.
func BenchmarkStageMixed(b *testing.B) {
	sizes := []int64{4 << 10, 4 << 10, 4 << 10, 4 << 10, 4 << 10, 4 << 10, 4 << 10, 256 << 10, 256 << 10, 3271557}
	tab := newTable(1<<20, 1<<20)
	rng := rand.New(rand.NewPCG(1, 1))
	n := uint64(0)
	for tab.Usage().Evictions < 1<<16 {
		n++
		put(b, tab, n, sizes[rng.IntN(10)])
	}
	start := tab.Usage().Evictions
	b.ReportAllocs()
	var used int64
	for b.Loop() {
		n++
		put(b, tab, n, sizes[rng.IntN(10)])
		used += tab.Usage().Used
	}
	b.ReportMetric(float64(used)/float64(b.N)/float64(tab.Usage().Capacity), "used")
	b.ReportMetric(float64(tab.Usage().Evictions-start)/float64(b.N), "evictions/op")
}

func BenchmarkAllocFree(b *testing.B) {
	a := newReady(8 << 30)
	var live [256]grant
	for i := range live {
		n := int64(i*i+1) * 100
		off, _ := a.Alloc(n)
		live[i] = grant{off, n}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		g := &live[i*7919%256]
		a.Free(g.off, g.size)
		g.off, _ = a.Alloc(g.size)
		i++
	}
}
