package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/pages"
)

func TestFindAllFindsWhatFindDoes(t *testing.T) {
	for _, mask := range []uint64{0, 3} { // all bits, and so few that chains are long
		tab := New(Config{Size: 1000 * Unit, MaxObjects: 300, Seed: 7, HashMask: mask, Policy: PolicyAdaptive, Advise: pages.Advise})
		tab.Grow(1000 * Unit)
		k := Key{Namespace: 3, Layout: 4}
		for n := range uint64(200) {
			k.Hash = keyOf(n).Hash
			if n%5 == 0 {
				k.Layout++ // another object of the same hash is not found
			}
			_, _, res := tab.Stage(&k, Unit)
			require.Equal(t, Staged, res)
			k.Layout = 4
		}
		rng := rand.New(rand.NewPCG(1, mask))
		for count := range 5*Batch + 2 {
			keys := make([][32]byte, count)
			for i := range keys {
				keys[i] = keyOf(rng.Uint64N(300)).Hash
			}
			found := make([]Ref, count)
			FindAll(tab, k, keys, found)
			for i := range keys {
				k.Hash = keys[i]
				want, _, _ := tab.Find(&k)
				require.Equal(t, want, found[i], "mask %x, key %d of %d", mask, i, count)
			}
			before := tab.Usage()
			for i := 0; i < count; i += Batch {
				tab.Ahead(found, i)
			}
			require.Equal(t, before, tab.Usage())
		}
		require.NoError(t, tab.CheckInvariants())
	}
}

func TestBatchesDoNotAllocate(t *testing.T) {
	for _, p := range policies {
		tab := newTableWith(p, 1000, 100)
		keys, found := make([][32]byte, 100), make([]Ref, 100)
		for n := range keys {
			keys[n] = keyOf(uint64(n)).Hash
			put(t, tab, uint64(n), Unit)
		}
		require.Zero(t, testing.AllocsPerRun(100, func() {
			FindAll(tab, Key{}, keys, found)
			for i, r := range found {
				if i%Batch == 0 {
					tab.Ahead(found, i)
				}
				tab.Touch(r)
			}
		}), p)
	}
}

// many is the numbers of objects that the benchmarks of lookups compare.
var many = []int{1e3, 1e4, 1e5, 1e6}

// filled returns a full table of so many objects of 64 KiB, made in random order, and
// their keys in another.
func filled(b *testing.B, p Policy, objects int) (*Table, [][32]byte) {
	units := int64(objects) * 16
	tab := New(Config{Size: units * Unit, MaxObjects: objects + 16, Seed: 7, Policy: p, Advise: pages.Advise})
	tab.Grow(units * Unit)
	rng := rand.New(rand.NewPCG(1, uint64(objects)))
	for _, n := range rng.Perm(objects) {
		put(b, tab, uint64(n), 16*Unit)
	}
	keys := make([][32]byte, objects)
	for i, n := range rng.Perm(objects) {
		keys[i] = keyOf(uint64(n)).Hash
	}
	return tab, keys
}

// window returns the next n keys, as often as there are operations.
func window(keys [][32]byte, at *int, n int) [][32]byte {
	if *at+n > len(keys) {
		*at = 0
	}
	w := keys[*at : *at+n]
	*at += n
	return w
}

// request is how many keys the operations of a benchmark have together.
const request = 512

// perKey times do, which handles so many keys, again and again, and reports the median
// and the tenth of all times for one key: what other work of the machine adds falls on
// few of them.
func perKey(b *testing.B, keys int, do func()) {
	times := make([]time.Duration, 0, b.N/keys+1)
	b.ResetTimer()
	for n := 0; n < b.N; n += keys {
		start := time.Now()
		do()
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2])/float64(keys), "p50-ns/key")
	b.ReportMetric(float64(times[len(times)/10])/float64(keys), "p10-ns/key")
}

// BenchmarkLookup is what a key costs: found, or found, held, touched and released; each
// for itself, or all of a request together. Keys come in random order. ns/op is of one
// key.
func BenchmarkLookup(b *testing.B) {
	var found [request]Ref
	for _, c := range []struct {
		name string
		do   func(tab *Table, keys [][32]byte)
	}{
		{"find/single", func(tab *Table, keys [][32]byte) {
			for i := range keys {
				k := Key{Hash: keys[i]}
				found[i], _, _ = tab.Find(&k)
			}
		}},
		{"find/batch", func(tab *Table, keys [][32]byte) { FindAll(tab, Key{}, keys, found[:]) }},
		{"hold/single", func(tab *Table, keys [][32]byte) {
			for i := range keys {
				k := Key{Hash: keys[i]}
				r, _, _ := tab.Find(&k)
				tab.Hold(r)
				tab.Touch(r)
				tab.Release(r)
			}
		}},
		{"hold/batch", func(tab *Table, keys [][32]byte) {
			FindAll(tab, Key{}, keys, found[:])
			for i, r := range found {
				if i%Batch == 0 {
					tab.Ahead(found[:], i)
				}
				tab.Hold(r)
				tab.Touch(r)
			}
			for i, r := range found {
				if i%Batch == 0 {
					tab.Ahead(found[:], i)
				}
				tab.Release(r)
			}
		}},
	} {
		for _, objects := range many {
			b.Run(fmt.Sprintf("%s/objects=%d", c.name, objects), func(b *testing.B) {
				tab, keys := filled(b, PolicyAdaptive, objects)
				at := 0
				perKey(b, request, func() { c.do(tab, window(keys, &at, request)) })
				if found[0] == 0 {
					b.Fatal("missing")
				}
			})
		}
	}
}

// BenchmarkMemory is what the machine's memory costs beside the table: a read of a random line
// of as many bytes as the lines of so many objects, each of which has to be waited for
// (wait) or none (all).
func BenchmarkMemory(b *testing.B) {
	for _, objects := range many {
		lines := make([][8]uint64, objects)
		pages.Advise(bytesOf(lines))
		order := rand.New(rand.NewPCG(1, uint64(objects))).Perm(objects)
		for i, at := range order {
			lines[at][0] = uint64(order[(i+1)%objects])
		}
		at, sum := uint64(order[0]), uint64(0)
		b.Run(fmt.Sprintf("wait/objects=%d", objects), func(b *testing.B) {
			perKey(b, request, func() {
				for range request {
					at = lines[at][0]
				}
			})
		})
		b.Run(fmt.Sprintf("all/objects=%d", objects), func(b *testing.B) {
			i := 0
			perKey(b, request, func() {
				for range request {
					sum += lines[order[i]][0]
					if i++; i == objects {
						i = 0
					}
				}
			})
		})
		if at == sum {
			b.Log("by chance")
		}
	}
}
