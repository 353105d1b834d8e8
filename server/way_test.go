package server

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

// askedRing counts how often it is asked whether its loop has something to do.
type askedRing struct {
	*ringtest.Fake
	due   bool
	asked atomic.Int64
}

func (a *askedRing) Due() bool {
	a.asked.Add(1)
	return a.due
}

// Hits in memory wait for a disk that is busy: a helper that computes a checksum lets the loop go first again and again, but
// not without end.
func TestAChecksumGivesWayToTheLoopAndEnds(t *testing.T) {
	const size = 8 << 20
	b := make([]byte, size)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for _, due := range []bool{false, true} {
		fake, err := ringtest.NewFake(ring.Config{Ops: 8, Control: 8})
		require.NoError(t, err)
		r := &askedRing{Fake: fake, due: due}
		h := &helpers{ring: r, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		h.start()
		h.queue(job{kind: jobSum, op: 7, mem: b})
		h.hand()
		var got []result
		for end := time.Now().Add(20 * time.Second); len(got) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			got, _, _ = h.news(nil)
		}
		require.Equal(t, []result{{op: 7, res: size, sum: xxh3.Hash(b)}}, got)
		require.GreaterOrEqual(t, r.asked.Load(), int64(16), "asked on the way")
		require.LessOrEqual(t, r.asked.Load(), int64(64*waysMost))
		h.stop()
		require.NoError(t, fake.Close())
	}
}
