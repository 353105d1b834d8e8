package benchmarks

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
)

const conversation = "../testdata/traces/mooncake-conversation.jsonl.gz"

func hitRatios(t *testing.T, requests []Request, shares []float64, policies ...string) map[string][]float64 {
	t.Helper()
	results, err := HitRatios(context.Background(), requests, HitRatioOptions{
		Trace: t.Name(), Capacities: shares, Policies: policies, BlockSize: 256 << 10,
	})
	require.NoError(t, err)
	got := make(map[string][]float64)
	for i, r := range results {
		require.Equal(t, policies[i/len(shares)], r.Policy)
		require.InDelta(t, shares[i%len(shares)], r.Capacity, 0)
		got[r.Policy] = append(got[r.Policy], r.Ratio)
	}
	return got
}

func TestConversationIsServedAsItShouldBe(t *testing.T) {
	t.Parallel()
	requests, err := ReadTrace(conversation, 0)
	require.NoError(t, err)
	shares := []float64{0.01, 0.1}
	if cmdtest.Race {
		shares = shares[:1]
	}
	got := hitRatios(t, requests, shares, "fifo", "lru", "adaptive", Optimum)
	for j := range shares {
		for policy, want := range map[string][2]float64{
			"fifo": {0.0505, 0.2480}, "lru": {0.0525, 0.2789}, Optimum: {0.2464, 0.3664},
		} {
			require.InDelta(t, want[j], got[policy][j], 0.001, policy)
		}
		require.GreaterOrEqual(t, got["adaptive"][j], []float64{0.108, 0.292}[j])
	}
}

// learning is what some requests cost the adaptive policy beyond its bound of 0.005 below
// the best: in a pool of few objects, and in a short trace, there is little to learn from,
// and where the best rule changes, it takes some rooms of uses each time until that shows.
var learning = map[string]float64{
	"scan and hot set":           0.002,
	"loop with noise":            0.006,
	"scan through a working set": 0.016, // the first scan costs nearly all rules as much
	"loop and recency long":      0.005, // in the loop no rule serves anything at all
	"short zipf":                 0.005,
	"tasks of a batch in turn":   0.006,
	"tenants with long prompts":  0.014, // the longest half-lives serve most, which it takes more uses to see
	"long documents asked again": 0.003,
}

// luring is what some requests cost the adaptive policy beyond its bound of 0.003 below lru.
var luring = map[string]float64{
	"tasks of a batch in turn": 0.008, // one task is served better by S3-FIFO, whose queues are full of it when the next one comes
}

var seeds = flag.Int("seeds", 1, "how many seeds the policies are tried with on each kind of requests")

// halfLives are those that fixed frequencies are tried with, in requests.
var halfLives = []float64{250, 1000, 4000}

// A regret is how far adaptive stays below others.
type regret struct {
	where     string
	lru, best float64
}

func TestAdaptiveIsNearTheBestOnEveryKindOfRequests(t *testing.T) {
	kinds := slices.Concat(workloads, otherWorkloads, servingWorkloads)
	shares := []float64{0.005, 0.01, 0.03, 0.1, 0.3, 0.6, 1}
	if testing.Short() || cmdtest.Race { // it is one goroutine, and ten times slower under the detector
		kinds, shares = kinds[:4], shares[:2]
	}
	var mu sync.Mutex
	var regrets []regret
	t.Run("kinds", func(t *testing.T) {
		for _, w := range kinds {
			for seed := range *seeds {
				t.Run(fmt.Sprintf("%s, seed %d", w.name, seed), func(t *testing.T) {
					t.Parallel()
					for _, r := range tryAdaptive(t, w, uint64(seed), shares) {
						mu.Lock()
						regrets = append(regrets, r)
						mu.Unlock()
						assert.LessOrEqual(t, r.lru, 0.003+luring[w.name], r.where)
						assert.LessOrEqual(t, r.best, 0.005+learning[w.name], r.where)
					}
				})
			}
		}
	})
	over := 0
	slices.SortFunc(regrets, func(a, b regret) int { return cmp.Compare(max(b.lru, b.best), max(a.lru, a.best)) })
	for i, r := range regrets {
		if r.lru > 0.003 || r.best > 0.005 {
			over++
		}
		if i < 20 {
			t.Logf("below lru %+.4f, below the best %+.4f: %s", r.lru, r.best, r.where)
		}
	}
	t.Logf("%d of %d are beyond 0.003 below lru or 0.005 below the best", over, len(regrets))
}

// tryAdaptive compares adaptive with lru and the best of all that do not learn.
func tryAdaptive(t *testing.T, w workload, seed uint64, shares []float64) (regrets []regret) {
	requests := w.make(rand.New(rand.NewPCG(seed, 7)))
	got := hitRatios(t, requests, shares, "lru", "s3fifo", "adaptive", Optimum)
	p := newPlan(requests)
	for j, share := range shares {
		best := max(got["lru"][j], got["s3fifo"][j])
		for _, half := range halfLives {
			d := newDecayed(p, max(int(share*float64(p.distinct)), 1), half)
			hits := 0
			for k := range p.requests {
				hits += d.request(k, p.requests[k])
			}
			best = max(best, ratio(int64(hits), int64(p.blocks)))
		}
		a := got["adaptive"][j]
		regrets = append(regrets, regret{
			where: fmt.Sprintf("%s, seed %d, %g: adaptive %.4f, optimum %.4f", w.name, seed, share, a, got[Optimum][j]),
			lru:   got["lru"][j] - a, best: best - a,
		})
		require.GreaterOrEqual(t, got[Optimum][j], best-1e-9)
	}
	return regrets
}

func TestBlocksMayBeTwiceInARequest(t *testing.T) {
	var requests []Request
	for i := range uint64(60) {
		d := 10 * (i % 3)
		requests = append(requests, Request{[]uint64{d, d + 1, d, d + 1, d + 2}}, Request{[]uint64{100 + i, 100 + i}})
	}
	shares := []float64{0.1, 0.2, 1}
	got := hitRatios(t, requests, shares, "fifo", "lru", "s3fifo", "adaptive", Optimum)
	for policy, ratios := range got {
		for j := range shares {
			require.LessOrEqual(t, ratios[j], got[Optimum][j], policy)
		}
		require.InDelta(t, 57*5/420.0, ratios[2], 1e-9, policy)
	}
}

func TestUnknownPolicyHasNoHitRatio(t *testing.T) {
	_, err := HitRatios(context.Background(), []Request{{Blocks: []uint64{1}}}, HitRatioOptions{
		Capacities: []float64{1}, Policies: []string{"magic"}, BlockSize: 1,
	})
	require.ErrorContains(t, err, "magic")
}

func TestHitRatiosAreDrawn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ratios.svg")
	require.NoError(t, PlotHitRatios(path, []HitRatio{
		{Trace: "t", Capacity: 0.01, Policy: "lru", Ratio: 0.1}, {Trace: "t", Capacity: 0.1, Policy: "lru", Ratio: 0.2},
	}))
	require.NoError(t, PlotHitRatios(filepath.Join(t.TempDir(), "one.svg"), []HitRatio{{Capacity: 0.01, Policy: "lru", Ratio: 0.1}}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), "<svg")
	require.Contains(t, string(text), ">lru</text>")
	require.ErrorContains(t, PlotHitRatios(path, nil), "nothing")
}

func TestPoolIsWellUsedWhateverTheSizes(t *testing.T) {
	done := 0
	results, err := Allocations(context.Background(), 3, func(n, _ int) { done = n })
	require.NoError(t, err)
	require.Len(t, results, len(mixtures)+1)
	require.Equal(t, len(results), done)
	for i, r := range results {
		least := 0.85
		switch {
		case i == len(mixtures):
			least = 1
		case len(mixtures[i].sizes) == 1:
			least = 0.95
		}
		require.GreaterOrEqual(t, r.Utilisation, least, r.Mix)
		require.Positive(t, r.NsPerOp)
	}
}
