package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

// eachTransport runs a test with the pool passed, named and not shared at all.
func eachTransport(t *testing.T, run func(t *testing.T, s *child)) {
	none, name := "", "client_test"
	for label, shm := range map[string]*string{"fd": nil, "named": &name, "inline": &none} {
		t.Run(label, func(t *testing.T) {
			run(t, startChild(t, func(c *childConfig) { c.ShmName = shm }))
		})
	}
}

func TestServerStoresOneAfterAnother(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *child) {
		a, b := worker(t, s.addr(), client.Registration{}), worker(t, s.addr(), client.Registration{})
		ctx := within(t)
		const n = 300
		sizes := make([]uint64, n)
		for i := range sizes {
			sizes[i] = uint64(len(value(i)))
		}
		for range 2 { // the second time all are there
			status, err := a.StoreEach(ctx, 0, keys(0, n), sizes, time.Second, func(i int, slot []byte) error {
				copy(slot, value(i))
				return nil
			})
			require.NoError(t, err)
			require.Len(t, status, n)
		}
		for i := range n {
			st, err := b.Put(ctx, 0, key(i), nil)
			require.NoError(t, err)
			require.Equal(t, proto.StatusExists, st)
			got, ok, err := b.Fetch(ctx, 0, key(i), nil)
			require.NoError(t, err)
			require.True(t, ok)
			requireValues(t, i, [][]byte{got})
		}
	})
}

func TestServerStoresAndRetrieves(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *child) {
		a, b := worker(t, s.addr(), client.Registration{}), worker(t, s.addr(), client.Registration{})
		want := proto.TransportShared
		if s.cfg.ShmName != nil && *s.cfg.ShmName == "" {
			want = proto.TransportInline
		}
		require.Equal(t, want, a.Transport())
		ctx := within(t)
		store(t, a, 20)
		r, err := b.Retrieve(ctx, 0, keys(0, 20), client.RetrieveOptions{})
		require.NoError(t, err)
		require.Len(t, r.Values(), 20)
		requireValues(t, 0, r.Values())
		require.NoError(t, r.Release(ctx))

		found, err := b.Lookup(ctx, client.LookupRequest{Keys: keys(0, 30), Group: 4, Slots: true})
		require.NoError(t, err)
		require.Equal(t, 20, found.Hits)
		requireValues(t, 0, found.Lease.Values())
		part, err := a.RetrieveLease(ctx, found.Lease.Handle(), 5, 7)
		require.NoError(t, err)
		require.NoError(t, found.Lease.Release(ctx))
		require.Len(t, part.Values(), 7)
		requireValues(t, 5, part.Values())
		require.NoError(t, part.Release(ctx))

		found, err = b.Lookup(ctx, client.LookupRequest{Keys: keys(18, 9), Mode: proto.ModeAny})
		require.NoError(t, err)
		require.True(t, found.Hits == 2 && found.Hit(1) && !found.Hit(2))

		_, err = b.Retrieve(ctx, 0, keys(18, 9), client.RetrieveOptions{})
		require.ErrorIs(t, err, client.ErrMiss)
		status, err := b.Put(ctx, 0, key(3), value(3))
		require.NoError(t, err)
		require.Equal(t, proto.StatusExists, status)
		got, ok, err := b.Fetch(ctx, 0, key(7), nil)
		require.NoError(t, err)
		require.True(t, ok)
		requireValues(t, 7, [][]byte{got})

		n, err := a.Touch(ctx, 0, keys(0, 30))
		require.NoError(t, err)
		require.Equal(t, 20, n)
		n, err = a.Delete(ctx, 0, keys(0, 5))
		require.NoError(t, err)
		require.Equal(t, 5, n)
		_, err = b.Clear(ctx)
		require.NoError(t, err)
		found, err = b.Lookup(ctx, client.LookupRequest{Keys: keys(5, 1)})
		require.NoError(t, err)
		require.Zero(t, found.Hits)
		idle(t, a.Conn())
	})
}

func TestServerOverTCPCarriesBytesInline(t *testing.T) {
	s := startChild(t, nil)
	far, near := worker(t, s.addrs[2], client.Registration{}), worker(t, s.addr(), client.Registration{})
	require.Equal(t, proto.TransportInline, far.Transport())
	store(t, far, 200)
	r, err := near.Retrieve(within(t), 0, keys(0, 200), client.RetrieveOptions{})
	require.NoError(t, err)
	requireValues(t, 0, r.Values())
	require.NoError(t, r.Release(within(t)))
	r, err = far.Retrieve(within(t), 0, keys(0, 300), client.RetrieveOptions{Prefix: true})
	require.NoError(t, err)
	require.Len(t, r.Values(), 200)
	requireValues(t, 0, r.Values())
	require.NoError(t, r.Release(within(t)))
	idle(t, near.Conn())
}

func TestServerFencesAndAborts(t *testing.T) {
	s := startChild(t, nil)
	w := worker(t, s.addr(), client.Registration{})
	ctx := within(t)
	st, err := w.PrepareStore(ctx, 0, keys(0, 2), []uint64{10, 0}, 0)
	require.NoError(t, err)
	_, err = w.Delete(ctx, 0, keys(0, 1))
	require.NoError(t, err)
	require.ErrorIs(t, st.Commit(ctx), client.ErrStale)
	st, err = w.PrepareStore(ctx, 0, keys(5, 2), []uint64{10, 2 << 20}, 0)
	require.NoError(t, err)
	require.Equal(t, proto.StatusTooLarge, st.Status(1))
	require.NoError(t, st.Abort(ctx))
	idle(t, w.Conn())
	draining, err := w.Unregister(ctx)
	require.NoError(t, err)
	require.Zero(t, draining)
	_, err = w.Conn().Stats(ctx)
	require.NoError(t, err)
}

func TestServerIsKilledAndComesBack(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *child) {
		w := worker(t, s.addr(), client.Registration{})
		ctx := within(t)
		store(t, w, 3)
		st, err := w.PrepareStore(ctx, 0, keys(10, 1), []uint64{uint64(len(value(10)))}, 0)
		require.NoError(t, err)
		r, err := w.Retrieve(ctx, 0, keys(0, 3), client.RetrieveOptions{})
		require.NoError(t, err)

		s.kill()
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err = w.Ping(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		back := make(chan error)
		go func() {
			_, err := w.Lookup(ctx, client.LookupRequest{Keys: keys(0, 1)})
			back <- err
		}()
		s.start()
		require.NoError(t, <-back)

		store(t, w, 5)
		copy(st.Slot(0), value(10))
		requireValues(t, 0, r.Values())
		require.ErrorIs(t, st.Commit(ctx), client.ErrStale)
		if w.Transport() == proto.TransportShared {
			require.ErrorIs(t, r.Release(ctx), client.ErrStale)
		}
		found, err := w.Lookup(ctx, client.LookupRequest{Keys: keys(10, 1)})
		require.NoError(t, err)
		require.Zero(t, found.Hits)
		again, err := w.Retrieve(ctx, 0, keys(0, 5), client.RetrieveOptions{})
		require.NoError(t, err)
		requireValues(t, 0, again.Values())
		require.NoError(t, again.Release(ctx))
		idle(t, w.Conn())
	})
}

func TestServerLoadsFromDiskAfterARestart(t *testing.T) {
	dir, err := os.MkdirTemp("", "slot")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := startChild(t, func(c *childConfig) { c.L2Dir = dir })
	w := worker(t, s.addr(), client.Registration{})
	ctx := within(t)
	store(t, w, 10)
	s.stop()
	s.start()
	found, err := w.Lookup(ctx, client.LookupRequest{Keys: keys(0, 12), Load: true, Slots: true, Wait: patience})
	require.NoError(t, err)
	require.Equal(t, 10, found.Hits)
	require.Equal(t, 10, found.FromDisk)
	requireValues(t, 0, found.Lease.Values())
	require.NoError(t, found.Lease.Release(ctx))
	s.stop()
	s.start()
	got, ok, err := w.Fetch(ctx, 0, key(4), nil)
	require.NoError(t, err)
	require.True(t, ok)
	requireValues(t, 4, [][]byte{got})
	inline := worker(t, s.addr(), client.Registration{Inline: true})
	require.Equal(t, proto.TransportInline, inline.Transport())
	r, err := inline.Retrieve(ctx, 0, keys(0, 12), client.RetrieveOptions{Prefix: true, Load: true})
	require.NoError(t, err)
	require.Len(t, r.Values(), 10)
	requireValues(t, 0, r.Values())
	require.NoError(t, r.Release(ctx))
	idle(t, w.Conn())
}

// What the server keeps for a process whose connection broke comes back by the next one.
func TestServerGetsBackWhatABrokenConnectionHad(t *testing.T) {
	s := startChild(t, nil)
	w := worker(t, s.addr(), client.Registration{})
	watch, err := client.Dial(within(t), s.addr(), client.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, watch.Close()) }()
	ctx := within(t)
	store(t, w, 3)
	for range 5 {
		st, err := w.PrepareStore(ctx, 0, keys(10, 1), []uint64{100}, 0)
		require.NoError(t, err)
		r, err := w.Retrieve(ctx, 0, keys(0, 3), client.RetrieveOptions{})
		require.NoError(t, err)
		l, err := w.Lookup(ctx, client.LookupRequest{Keys: keys(0, 3), Slots: true})
		require.NoError(t, err)
		w.Break()
		require.ErrorIs(t, st.Commit(ctx), client.ErrStale)
		_, err = w.Ping(ctx)
		require.NoError(t, err)
		requireValues(t, 0, r.Values())
		requireValues(t, 0, l.Lease.Values())
		require.ErrorIs(t, r.Release(ctx), client.ErrStale)
		require.ErrorIs(t, l.Lease.Release(ctx), client.ErrStale)
		idle(t, watch)
	}
	st, err := w.PrepareStore(ctx, 0, keys(10, 1), []uint64{100}, 0)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.ErrorIs(t, st.Abort(ctx), client.ErrClosed)
	idle(t, watch)
}

// Many workers at once on a pool that is too small for all, leaving at random moments and
// losing their connections: every value read is whole, and nothing is left at the end.
func TestServerUnderManyWorkersLosesNothing(t *testing.T) {
	s := startChild(t, func(c *childConfig) { c.Size = 4 << 20 })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	var hits, stored, left, lost [6]int
	for id := range hits {
		w := worker(t, s.addr(), client.Registration{Inline: id%3 == 2})
		rng := rand.New(rand.NewPCG(seed, uint64(id)))
		wg.Go(func() {
			for n := range 300 {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				if rng.IntN(4) == 0 {
					cancel()
					ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rng.IntN(500))*time.Microsecond)
				}
				if rng.IntN(100) == 0 {
					w.Break()
				}
				i := rng.IntN(200)
				got, ok, err := w.Fetch(ctx, 0, key(i), nil)
				if ok && string(got) != string(value(i)) {
					t.Errorf("worker %d, step %d: value %d is not what was stored", id, n, i)
				}
				if err == nil && ok {
					hits[id]++
				}
				if err == nil && !ok {
					var status proto.Status
					if status, err = w.Put(ctx, 0, key(i), value(i)); err == nil && status == proto.StatusOK {
						stored[id]++
					}
				}
				cancel()
				switch {
				case err == nil:
				case errors.Is(err, context.DeadlineExceeded):
					left[id]++
				case errors.Is(err, client.ErrDisconnected), errors.Is(err, client.ErrStale):
					lost[id]++
				default:
					t.Errorf("worker %d, step %d: %v", id, n, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("hits %d, stored %d, left %d, lost %d", hits, stored, left, lost)
	for id := range hits {
		require.Positive(t, hits[id]+stored[id])
	}
	watch, err := client.Dial(within(t), s.addr(), client.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, watch.Close()) }()
	idle(t, watch)
}

// Objects of a lease are of a layout that who retrieves them has not registered: inline, they are taken for a reply that
// breaks the protocol, and the connection is lost.
func TestALeaseOfAnotherLayoutIsRetrievedInline(t *testing.T) {
	c := startChild(t, nil)
	a := worker(t, c.addr(), client.Registration{})
	store(t, a, 40)
	found, err := a.Lookup(within(t), client.LookupRequest{Keys: keys(0, 40), Hold: true})
	require.NoError(t, err)
	require.Equal(t, 40, found.Hits)
	for _, inline := range []bool{false, true} {
		b := worker(t, c.addr(), client.Registration{Inline: inline, Layouts: []client.Layout{{Name: "token", Size: 64}}})
		boot := b.Conn().Boot()
		r, err := b.RetrieveLease(within(t), found.Lease.Handle(), 0, 40)
		require.NoError(t, err)
		require.Len(t, r.Values(), 40)
		requireValues(t, 0, r.Values())
		require.NoError(t, r.Release(within(t)))
		require.Equal(t, boot, b.Conn().Boot())
	}
	require.NoError(t, found.Lease.Release(within(t)))
}
