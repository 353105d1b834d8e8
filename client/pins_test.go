package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

// putBig stores a value of 1 MiB and uses it often.
func putBig(t *testing.T, w *client.Worker, i int) {
	t.Helper()
	st, err := w.Put(within(t), 0, key(i), make([]byte, mib))
	require.NoError(t, err)
	require.Equal(t, proto.StatusOK, st)
	for range 4 {
		_, err = w.Touch(within(t), 0, keys(i, 1))
		require.NoError(t, err)
	}
}

// TestAPinnedObjectStaysUntilItsTimeAndNoLonger: an expired pin comes back to life because
// somebody read the object. Here the pool is filled several times over while it is pinned,
// the pin expires by the server's clock, the object is read a hundred times, and goes like
// any other.
func TestAPinnedObjectStaysUntilItsTimeAndNoLonger(t *testing.T) {
	c := startChild(t, nil) // without a disk: what is evicted is gone
	w := worker(t, c.addr(), client.Registration{})
	there := func() bool {
		r, err := w.Lookup(within(t), client.LookupRequest{Keys: keys(0, 1)})
		require.NoError(t, err)
		return r.Hits > 0
	}
	gauge := func() uint64 {
		s := stats(t, w.Conn())
		require.Equal(t, uint64(4*mib), s["l1_pin_budget_bytes"])
		return s["l1_pinned_soft_bytes"] + s["l1_pinned_hard_bytes"]
	}
	putBig(t, w, 0)
	next := 1
	r, err := w.Pin(within(t), client.PinRequest{Keys: keys(0, 1), Hard: true, TTL: time.Minute})
	require.NoError(t, err)
	require.Equal(t, 1, r.Pinned)
	for range 40 {
		putBig(t, w, next)
		next++
	}
	require.Equal(t, uint64(mib), gauge())
	require.True(t, there())
	n, err := w.Unpin(within(t), 0, keys(0, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)

	_, err = w.Pin(within(t), client.PinRequest{Keys: keys(0, 1), Hard: true, TTL: 50 * time.Millisecond})
	require.NoError(t, err)
	// The server takes the pin off by itself: nobody asks for the object.
	require.Eventually(t, func() bool { return gauge() == 0 }, patience, time.Millisecond)
	for range 100 {
		got, found, err := w.Fetch(within(t), 0, key(0), nil)
		require.NoError(t, err)
		require.True(t, found)
		require.Len(t, got, mib)
	}
	require.Zero(t, gauge())
	for i := 0; there(); i++ { // which is a use
		require.Less(t, i, 20, "it does not go")
		for range 20 {
			putBig(t, w, next)
			next++
		}
	}
	require.Equal(t, uint64(1), stats(t, w.Conn())["pins_expired_total"])
}

// TestAPinLoadsAndEndsWithTheServer: what is only on disk is loaded on request, a pin
// outlives its worker, and a killed server has none when it is started again.
func TestAPinLoadsAndEndsWithTheServer(t *testing.T) {
	c := startChild(t, func(cfg *childConfig) { cfg.L2Dir = t.TempDir() })
	w := worker(t, c.addr(), client.Registration{})
	store(t, w, 2)
	require.Eventually(t, func() bool { return stats(t, w.Conn())["l1_dirty_bytes"] == 0 }, patience, time.Millisecond)
	c.kill()
	c.start()

	first := worker(t, c.addr(), client.Registration{})
	r, err := first.Pin(within(t), client.PinRequest{Keys: keys(0, 3)})
	require.NoError(t, err)
	require.Equal(t, []proto.Status{proto.StatusMiss, proto.StatusMiss, proto.StatusMiss}, r.Results)
	r, err = first.Pin(within(t), client.PinRequest{Keys: keys(0, 3), Load: true})
	require.NoError(t, err)
	require.Equal(t, []proto.Status{proto.StatusOK, proto.StatusOK, proto.StatusMiss}, r.Results)
	require.Equal(t, 10*time.Minute, r.TTL)
	require.NoError(t, first.Close())
	s := stats(t, w.Conn())
	require.Equal(t, uint64(2), s["l1_pinned_objects"])
	idle(t, w.Conn())

	c.kill()
	c.start()
	n, err := w.Unpin(within(t), 0, keys(0, 2))
	require.NoError(t, err)
	require.Zero(t, n)
	found, err := w.Lookup(within(t), client.LookupRequest{Keys: keys(0, 2)})
	require.NoError(t, err)
	require.Equal(t, 2, found.FromDisk)
}
