package client

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

func TestWhatIsStoredIsRetrievedByAnotherWorker(t *testing.T) {
	eachTransport(t, func(t *testing.T, cfg fakeConfig) {
		s := newFake(t, cfg)
		a, b := open(t, s, Registration{}), open(t, s, Registration{})
		ctx := testContext(t)
		storeAll(t, a, 0, 5, 10000)

		r, err := b.Retrieve(ctx, 0, keysOf(0, 5), RetrieveOptions{})
		require.NoError(t, err)
		require.Len(t, r.Values(), 5)
		requireValues(t, 0, 10000, r.Values())
		require.NoError(t, r.Release(ctx))
		require.NoError(t, r.Release(ctx))

		_, err = b.Retrieve(ctx, 0, keysOf(3, 5), RetrieveOptions{})
		require.ErrorIs(t, err, ErrMiss)
		r, err = b.Retrieve(ctx, 0, keysOf(3, 5), RetrieveOptions{Prefix: true, Load: true})
		require.NoError(t, err)
		require.Len(t, r.Values(), 2)
		requireValues(t, 3, 10000, r.Values())
		require.NoError(t, r.Release(ctx))
		r, err = b.Retrieve(ctx, 0, keysOf(50, 2), RetrieveOptions{Prefix: true})
		require.NoError(t, err)
		require.Empty(t, r.Values())
		require.NoError(t, r.Release(ctx))
		s.idle()
	})
}

func TestPutAndFetchCopyOneObject(t *testing.T) {
	eachTransport(t, func(t *testing.T, cfg fakeConfig) {
		for name, old := range map[string]bool{"server": false, "server without PUT": true} {
			cfg.noPut = old
			t.Run(name, func(t *testing.T) { putAndFetch(t, newFake(t, cfg)) })
		}
	})
}

func putAndFetch(t *testing.T, s *fakeServer) {
	w := open(t, s, Registration{})
	ctx := testContext(t)
	for i, size := range []int{0, 1, 4096, 1 << 20} {
		st, err := w.Put(ctx, 0, keyOf(i), valueOf(i, size))
		require.NoError(t, err)
		require.Equal(t, proto.StatusOK, st)
		st, err = w.Put(ctx, 0, keyOf(i), valueOf(i, size))
		require.NoError(t, err)
		require.Equal(t, proto.StatusExists, st)
		got, ok, err := w.Fetch(ctx, 0, keyOf(i), []byte("before"))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "before", string(got[:6]))
		requireValues(t, i, size, [][]byte{got[6:]})
	}
	st, err := w.Put(ctx, 0, keyOf(9), make([]byte, 2<<20))
	require.NoError(t, err)
	require.Equal(t, proto.StatusTooLarge, st)
	got, ok, err := w.Fetch(ctx, 0, keyOf(10), nil)
	require.NoError(t, err)
	require.False(t, ok)
	require.Empty(t, got)
	s.idle()
}

func TestLookupHoldsLeadingHits(t *testing.T) {
	eachTransport(t, func(t *testing.T, cfg fakeConfig) {
		s := newFake(t, cfg)
		w := open(t, s, Registration{})
		ctx := testContext(t)
		storeAll(t, w, 0, 5, 100)

		r, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 8)})
		require.NoError(t, err)
		require.Equal(t, 5, r.Hits)
		require.Equal(t, 5, r.FromMemory)
		require.Nil(t, r.Lease)

		r, err = w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 8), Group: 2, Slots: true})
		require.NoError(t, err)
		require.Equal(t, 4, r.Hits)
		require.Len(t, r.Lease.Values(), 4)
		requireValues(t, 0, 100, r.Lease.Values())

		// Another worker reads through it, and outlives it.
		other := open(t, s, Registration{})
		part, err := other.RetrieveLease(ctx, r.Lease.Handle(), 1, 2)
		require.NoError(t, err)
		require.NoError(t, r.Lease.Release(ctx))
		require.NoError(t, r.Lease.Release(ctx))
		require.Len(t, part.Values(), 2)
		requireValues(t, 1, 100, part.Values())
		require.NoError(t, part.Release(ctx))
		s.idle() // nothing orders the release before another connection's requests
		_, err = other.RetrieveLease(ctx, r.Lease.Handle(), 0, 1)
		require.ErrorIs(t, err, ErrStale)
	})
}

func TestLookupAnyTellsWhichKeysAreThere(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 1, 100)
	storeAll(t, w, 9, 3, 100)
	r, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 12), Mode: proto.ModeAny, Slots: true})
	require.NoError(t, err)
	require.Equal(t, 4, r.Hits)
	for i := range 12 {
		require.Equal(t, i == 0 || i >= 9, r.Hit(i), "key %d", i)
	}
	require.False(t, r.Hit(-1) || r.Hit(16))
	requireValues(t, 9, 100, r.Lease.Values()[1:])
	require.NoError(t, r.Lease.Release(ctx))
	s.idle()
}

func TestPrepareAnswersEachKey(t *testing.T) {
	eachTransport(t, func(t *testing.T, cfg fakeConfig) {
		s := newFake(t, cfg)
		w := open(t, s, Registration{})
		ctx := testContext(t)
		storeAll(t, w, 1, 1, 100)
		st, err := w.PrepareStore(ctx, 0, keysOf(0, 3), []uint64{10, 100, 2 << 20}, 0)
		require.NoError(t, err)
		require.Equal(t, []proto.Status{proto.StatusReserved, proto.StatusExists, proto.StatusTooLarge}, []proto.Status{st.Status(0), st.Status(1), st.Status(2)})
		require.Len(t, st.Results(), 3)
		require.Equal(t, 1, st.Reserved())
		require.Equal(t, 10, cap(st.Slot(0)), "a slot must not reach into what follows it")
		require.Nil(t, st.Slot(1))
		require.ErrorContains(t, st.Commit(ctx, 1, 2), "checksums")
		require.NoError(t, st.Commit(ctx, 1))
		require.ErrorIs(t, st.Commit(ctx), ErrStale)
		require.NoError(t, st.Abort(ctx))

		// Nothing reserved: there is nothing to commit, and that is a success.
		st, err = w.PrepareStore(ctx, 0, keysOf(1, 1), sizesOf(1, 100), 0)
		require.NoError(t, err)
		s.ops()
		require.NoError(t, st.Commit(ctx))
		require.Empty(t, s.ops())

		st, err = w.PrepareStore(ctx, 0, keysOf(7, 1), sizesOf(1, 100), 0)
		require.NoError(t, err)
		require.NoError(t, st.Abort(ctx))
		require.NoError(t, st.Abort(ctx))
		require.ErrorIs(t, st.Commit(ctx), ErrStale)
		s.idle()
		r, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(7, 1)})
		require.NoError(t, err)
		require.Zero(t, r.Hits)
	})
}

func TestKeysAreDeletedTouchedAndCleared(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 4, 100)
	n, err := w.Touch(ctx, 0, keysOf(2, 5))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = w.Delete(ctx, 0, keysOf(3, 5))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	cleared, err := w.Clear(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, cleared)
}

func TestKeysArePinnedInAsManyRequestsAsTheyTake(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd, maxKeys: 8})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 12, 100)
	s.ops()
	r, err := w.Pin(ctx, PinRequest{Keys: keysOf(2, 18), TTL: time.Microsecond, Load: true})
	require.NoError(t, err)
	s.idle()
	require.Equal(t, map[proto.Op]int{proto.OpLookup: 3, proto.OpPin: 3, proto.OpRelease: 2}, s.ops())
	want := make([]proto.Status, 18)
	for i := range want[10:] {
		want[10+i] = proto.StatusMiss
	}
	require.Equal(t, &PinResult{Pinned: 10, TTL: time.Millisecond, Results: want}, r)
	n, err := w.Unpin(ctx, 0, keysOf(0, 12))
	require.NoError(t, err)
	require.Equal(t, 10, n)
	r, err = w.Pin(ctx, PinRequest{})
	require.NoError(t, err)
	require.Zero(t, r.Pinned)
	_, err = w.Pin(ctx, PinRequest{Layout: 9})
	require.ErrorContains(t, err, "layout")

	s.onNext(proto.OpPin, fakeAct{status: proto.StatusUnsupported})
	_, err = w.Pin(ctx, PinRequest{Keys: keysOf(0, 1)})
	require.ErrorIs(t, err, &StatusError{Status: proto.StatusUnsupported})
	require.NotErrorIs(t, err, ErrMiss)
	s.setHook(func(r *fakeRequest) fakeAct {
		if r.Op == proto.OpPin {
			return fakeAct{raw: reply(r, proto.Header{}, proto.AppendPinReply(nil, &proto.PinReply{}), 0), skip: true}
		}
		return fakeAct{}
	})
	_, err = w.Pin(ctx, PinRequest{Keys: keysOf(0, 1)})
	require.ErrorIs(t, err, ErrReply, "no result for a key")
	s.setHook(nil)
}

func TestAConnectionIsEnoughToLookAtAServer(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{Name: "w", Namespace: "n"})
	ctx := testContext(t)
	c, err := Dial(ctx, s.addr(), Options{})
	require.NoError(t, err)
	require.Equal(t, "fake 1", c.Server())
	require.EqualValues(t, 0x1000, c.Boot())
	p, err := c.Ping(ctx)
	require.NoError(t, err)
	require.Equal(t, Pong{Ready: 4 << 20, Uptime: 1500e6}, p)
	counters, err := c.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, []Counter{{Name: "lookups", Value: 7}}, counters)
	list, err := c.Instances(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, w.Instance(), list[0].ID)
	require.Equal(t, "w", list[0].Name)

	for i := range 3 {
		st, err := w.PrepareStore(ctx, 0, keysOf(i, 1), sizesOf(1, 10), 0)
		require.NoError(t, err)
		defer func() { require.NoError(t, st.Abort(ctx)) }()
	}
	transfers, err := c.Transfers(ctx)
	require.NoError(t, err)
	require.Len(t, transfers, 3)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	_, err = c.Ping(ctx)
	require.ErrorIs(t, err, ErrClosed)
}

func TestAConnectionHasOneWorkerAtATime(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	ctx := testContext(t)
	c, err := Dial(ctx, s.addr(), Options{Logger: (&logs{}).logger()})
	require.NoError(t, err)
	w, err := c.Register(ctx, Registration{Layouts: []Layout{testLayout}})
	require.NoError(t, err)
	require.Same(t, c, w.Conn())
	_, err = c.Register(ctx, Registration{})
	require.ErrorContains(t, err, "has a worker")
	n, err := w.Unregister(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	_, err = w.Unregister(ctx)
	require.ErrorIs(t, err, ErrClosed)
	_, err = w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 1)})
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.Ping(ctx)
	require.NoError(t, err, "the connection is still good")
	w2, err := c.Register(ctx, Registration{Layouts: []Layout{testLayout}})
	require.NoError(t, err)
	require.NoError(t, w2.Close())
	require.NoError(t, w.Close())
}

func TestWrongArgumentsAreRefusedHere(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	s.ops()
	_, err := w.Lookup(ctx, LookupRequest{Layout: 1, Keys: keysOf(0, 1)})
	require.ErrorContains(t, err, "layout 1")
	_, err = w.Lookup(ctx, LookupRequest{Group: 1 << 16, Keys: keysOf(0, 1)})
	require.ErrorContains(t, err, "group")
	_, err = w.PrepareStore(ctx, 0, keysOf(0, 2), sizesOf(1, 1), 0)
	require.ErrorContains(t, err, "1 sizes for 2 keys")
	_, err = w.RetrieveLease(ctx, 0, 0, 1)
	require.Error(t, err)
	require.Empty(t, s.ops())
	for _, addr := range []string{"", "unix:", "/path", "udp:1.2.3.4:5"} {
		_, err := Dial(ctx, addr, Options{})
		require.ErrorContains(t, err, "address")
	}
	long := string(make([]byte, proto.MaxName+1))
	for _, reg := range []Registration{
		{Name: long},
		{Namespace: "a\x00"},
		{Layouts: make([]Layout, proto.MaxLayouts+1)},
		{Layouts: []Layout{{Dims: make([]uint32, proto.MaxDims+1)}}},
		{Layouts: []Layout{{Name: long}}},
	} {
		_, err := Open(ctx, s.addr(), Options{}, reg)
		require.Error(t, err)
	}
	_, err = Dial(ctx, s.addr()+".not", Options{})
	require.Error(t, err)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = w.Ping(cancelled)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAReadOnlyWorkerCannotWrite(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	storeAll(t, w, 0, 1, 100)
	before, _ := poolMaps(t)
	r := open(t, s, Registration{ReadOnly: true})
	after, _ := poolMaps(t)
	require.Len(t, after, len(before)+1)
	n := 0
	for _, m := range after {
		if strings.Contains(m, " r--s ") {
			n++
		}
	}
	require.Equal(t, 1, n, "%v", after)
	_, err := r.PrepareStore(testContext(t), 0, keysOf(1, 1), sizesOf(1, 1), 0)
	require.ErrorIs(t, err, &StatusError{Status: proto.StatusDenied})
	got, ok, err := r.Fetch(testContext(t), 0, keyOf(0), nil)
	require.NoError(t, err)
	require.True(t, ok)
	requireValues(t, 0, 100, [][]byte{got})
}
