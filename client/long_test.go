package client_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// longFlag is how long a pool is to be full. With it the other tests here are long, too.
var longFlag = flag.Duration("long", 0, "how long the test of a full pool runs; the others of this kind are at their full size, too")

// What was looked up and held stays through an hour in which the pool is always full: two
// processes store and read more than it has room for, a third one holds half of it, again and
// again, reads what it was promised and stores what has gone.
func TestAPoolThatIsAlwaysFull(t *testing.T) {
	const n, size = 32, 64 << 10
	s := startChild(t, func(c *childConfig) { c.Size = 2 * n * size })
	watch := watcher(t, s)
	seed := rand.Uint64() >> 40
	t.Logf("seed %d", seed)
	end := time.Now().Add(max(*longFlag, time.Second))
	holder := startPuppet(t, s.addr())
	stirrers := []*puppet{startPuppet(t, s.addr()), startPuppet(t, s.addr())}
	held, whole, counts := 0, 0, map[string]int{}
	for round := uint64(0); time.Now().Before(end); round++ {
		for i, p := range stirrers {
			p.send(order{Do: "stir", First: 500, N: 2, Wait: 500 * time.Millisecond, Seed: seed + 2*round + uint64(i)})
		}
		for range 20 {
			holder.ask(order{Do: "prepare", First: 1000, N: n, Size: size, Wait: patience})
			holder.ask(order{Do: "fill"})
			holder.ask(order{Do: "commit"})
			hits := holder.ask(order{Do: "lookup", First: 1000, N: n, Size: size, Slots: true}).Hits
			require.Equal(t, hits, holder.ask(order{Do: "verify"}).Hits)
			held += hits
			if hits == n {
				whole++
			}
			holder.ask(order{Do: "release"})
		}
		for _, p := range stirrers {
			res := p.hear()
			require.Empty(t, res.Err)
			for name, n := range res.Counts {
				counts[name] += n
			}
		}
	}
	t.Logf("%d values held, %d times all; %v", held, whole, counts)
	require.NotZero(t, held)
	require.NotZero(t, counts["ok"])
	baseline(t, watch)
}

// Preparing what exists, in whole or in part, is no work and leaves nothing behind, a million
// times.
func TestStoringWhatExistsLeavesNothing(t *testing.T) {
	rounds := 2000
	if *longFlag > 0 {
		rounds = 1_000_000
	}
	s := startChild(t, func(c *childConfig) { c.Size = 4 << 20 })
	watch, ctx := watcher(t, s), context.Background()
	w, err := client.Open(ctx, s.addr(), client.Options{Logger: slog.New(slog.DiscardHandler)}, client.Registration{Layouts: []client.Layout{chunk}})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	sizes := []uint64{4096, 4096, 4096, 4096}
	var before int
	for round := range rounds {
		existing := []int{0, 2, 4}[round%3]
		first := 6*(round/3) + []int{0, 2, 2}[round%3]
		store, err := w.PrepareStore(ctx, 0, keys(first, 4), sizes, 0)
		require.NoError(t, err)
		for i := range 4 {
			require.Equal(t, i < existing, store.Status(i) == proto.StatusExists, "round %d: %v", round, store.Status(i))
		}
		require.NoError(t, store.Commit(ctx))
		if round == rounds/10 {
			before = anonymous(t, s)
		}
	}
	grown := anonymous(t, s) - before
	t.Logf("%d rounds, memory grew by %d KiB", rounds, grown>>10)
	require.Less(t, grown, 8<<20)
	baseline(t, watch)
}

// anonymous is what memory a server has for itself, in bytes.
func anonymous(t *testing.T, s *child) (n int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	_, err = fmt.Sscan(rest, &n)
	require.NoError(t, err)
	return n << 10
}

// Slots beyond 4 GiB are where they are said to be: a pool of 5 GiB is filled and read by two
// processes.
func TestAPoolOverFourGiB(t *testing.T) {
	if *longFlag == 0 {
		t.Skip("it takes 5 GiB of memory: give -long")
	}
	const n, batch, size = 4960, 31, 1 << 20
	s := startChild(t, func(c *childConfig) {
		c.Size = 5 << 30
		c.Limits = server.Limits{InstanceCap: 1 << 40}
	})
	watch := watcher(t, s)
	a, b := startPuppet(t, s.addr()), startPuppet(t, s.addr())
	for i := 0; i < n; i += batch {
		require.Equal(t, map[string]int{proto.StatusReserved.String(): batch}, a.ask(order{Do: "prepare", First: i, N: batch, Size: size, Wait: patience}).Statuses)
		a.ask(order{Do: "fill"})
		a.ask(order{Do: "commit"})
	}
	require.Greater(t, stats(t, watch)["l1_resident_bytes"], uint64(4<<30))
	for i := 0; i < n; i += batch {
		require.Equal(t, batch, b.ask(order{Do: "retrieve", First: i, N: batch, Size: size}).Hits)
		b.ask(order{Do: "verify"})
		b.ask(order{Do: "release"})
	}
	baseline(t, watch)
}
