package benchmarks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
)

// trees are requests for prefixes of a random tree, so that a block always has the same blocks before it.
func trees(r *rand.Rand, n, depth, fan int) []Request {
	type edge struct{ parent, branch uint64 }
	ids := make(map[edge]uint64)
	requests := make([]Request, n)
	for i := range requests {
		at := uint64(0)
		for range 1 + r.IntN(depth) {
			e := edge{at, uint64(min(r.IntN(fan), r.IntN(fan)))}
			if ids[e] == 0 {
				ids[e] = uint64(len(ids) + 1)
			}
			at = ids[e]
			requests[i].Blocks = append(requests[i].Blocks, at)
		}
	}
	return requests
}

// anything is requests in which blocks come in any order, some of them twice.
func anything(r *rand.Rand, n, length, blocks int) []Request {
	requests := make([]Request, n)
	for i := range requests {
		for range r.IntN(length + 1) {
			requests[i].Blocks = append(requests[i].Blocks, uint64(r.IntN(blocks)))
		}
	}
	return requests
}

func countBlocks(requests []Request) (blocks, distinct int) {
	seen := make(map[uint64]bool)
	for i := range requests {
		blocks += len(requests[i].Blocks)
		for _, b := range requests[i].Blocks {
			seen[b] = true
		}
	}
	return blocks, len(seen)
}

// inOrder replays requests through a plain list, the next victim first, and counts the hits.
func inOrder(requests []Request, most int, moves bool) (hits int) {
	var order []uint64
	for i := range requests {
		blocks := requests[i].Blocks
		for n := 0; n < len(blocks) && slices.Contains(order, blocks[n]); n++ {
			hits++
		}
		var met []uint64
		for _, b := range blocks {
			if !slices.Contains(met, b) {
				met = append(met, b)
			}
		}
		for _, b := range slices.Backward(met) {
			at := slices.Index(order, b)
			switch {
			case at < 0:
				order = append(order, b)
			case moves:
				order = append(slices.Delete(order, at, at+1), b)
			}
		}
		order = order[max(len(order)-most, 0):]
	}
	return hits
}

// best tries everything that a cache of so many blocks, below 32, could keep after each request.
func best(requests []Request, most int) int {
	kept := map[uint32]int{0: 0}
	for i := range requests {
		next := make(map[uint32]int)
		var used uint32
		for _, b := range requests[i].Blocks {
			used |= 1 << b
		}
		for have, hits := range kept {
			for _, b := range requests[i].Blocks {
				if have&(1<<b) == 0 {
					break
				}
				hits++
			}
			for _, keep := range subsets(have|used, most) {
				next[keep] = max(next[keep], hits)
			}
		}
		kept = next
	}
	n := 0
	for _, hits := range kept {
		n = max(n, hits)
	}
	return n
}

// subsets are those of a set that have n members, or all that there are.
func subsets(set uint32, n int) []uint32 {
	if set == 0 || n == 0 {
		return []uint32{0}
	}
	low := set & -set
	with := subsets(set&^low, n-1)
	for i := range with {
		with[i] |= low
	}
	return append(with, subsets(set&^low, n)...)
}

func exactHits(t *testing.T, requests []Request, policy string, share float64, size int64) int {
	t.Helper()
	results, err := HitRatios(context.Background(), requests, HitRatioOptions{
		Capacities: []float64{share}, Policies: []string{policy}, BlockSize: size,
	})
	require.NoError(t, err)
	blocks, _ := countBlocks(requests)
	return int(results[0].Ratio*float64(blocks) + 0.5)
}

func TestReplaysOfFixedOrdersAreThoseOfAPlainList(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for name, requests := range map[string][]Request{
		"trees": trees(r, 300, 10, 4), "anything": anything(r, 300, 12, 200), "often twice": anything(r, 200, 30, 40),
		"one": {{Blocks: []uint64{1, 2, 3}}}, "longer than the cache": anything(r, 20, 300, 400),
	} {
		_, distinct := countBlocks(requests)
		for _, share := range []float64{0.005, 0.07, 0.4, 1} {
			most := max(int(share*float64(distinct)), 1)
			require.Equal(t, inOrder(requests, most, false), exactHits(t, requests, "fifo", share, 256<<10), "fifo, %s, %v", name, share)
			require.Equal(t, inOrder(requests, most, true), exactHits(t, requests, "lru", share, 256<<10), "lru, %s, %v", name, share)
		}
	}
}

// The capacity is in blocks: what these would be in bytes is neither allocated nor bound by the largest pool.
func TestBlocksOfAnySizeAreServedAlike(t *testing.T) {
	t.Parallel()
	requests := anything(rand.New(rand.NewPCG(3, 4)), 5000, 2, 3000)
	_, distinct := countBlocks(requests)
	for _, size := range []int64{1, table.Unit, 64 << 20} {
		want := inOrder(requests, int(0.5*float64(distinct)), true)
		require.Equal(t, want, exactHits(t, requests, "lru", 0.5, size), "blocks of %d bytes", size)
	}
}

func TestNothingIsServedBetterThanTheOptimum(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		requests := trees(rand.New(rand.NewPCG(seed, 5)), 7, 4, 2)
		_, distinct := countBlocks(requests)
		for most := 1; most <= min(distinct, 6); most++ {
			share := (float64(most) + 0.5) / float64(distinct)
			require.Equal(t, best(requests, most), exactHits(t, requests, Optimum, share, 1), fmt.Sprintf("seed %d, %d blocks", seed, most))
		}
	}
}
