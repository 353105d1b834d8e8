package client

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

func TestCloseEndsCallsUnderWay(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	never := make(chan struct{})
	defer close(never)
	s.setHook(func(r *fakeRequest) fakeAct {
		if r.Op == proto.OpLookup || r.Op == proto.OpPing {
			return fakeAct{hold: never}
		}
		return fakeAct{}
	})
	result := make(chan error, 6)
	for range 3 {
		go func() {
			_, err := w.Lookup(context.Background(), LookupRequest{Keys: keysOf(0, 1)})
			result <- err
		}()
		go func() {
			_, err := w.Ping(context.Background())
			result <- err
		}()
	}
	require.Eventually(t, func() bool { n := s.ops(); return n[proto.OpLookup]+n[proto.OpPing] > 0 }, waitMax, tick)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	for range cap(result) {
		require.ErrorIs(t, <-result, ErrClosed)
	}
	require.Eventually(t, func() bool { return s.count().conns == 0 }, waitMax, tick)
	_, err := w.Put(testContext(t), 0, keyOf(0), nil)
	require.ErrorIs(t, err, ErrClosed)
	_, err = w.Conn().Ping(testContext(t))
	require.ErrorIs(t, err, ErrClosed)
}

// Closing a worker whose memory is still in use must not let the server give it to
// somebody else.
func TestCloseKeepsWhatIsInUse(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 1, 100)
	st, err := w.PrepareStore(ctx, 0, keysOf(10, 1), sizesOf(1, 5000), 0)
	require.NoError(t, err)
	r, err := w.Retrieve(ctx, 0, keysOf(0, 1), RetrieveOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Equal(t, 2, s.count().open)
	copy(st.Slot(0), valueOf(10, 5000))
	requireValues(t, 0, 100, r.Values())
	require.ErrorIs(t, st.Commit(ctx), ErrClosed)
	require.ErrorIs(t, r.Release(ctx), ErrClosed)
	require.NoError(t, r.Release(ctx))
	s.idle()
	require.Eventually(t, func() bool { return s.count().conns == 0 }, waitMax, tick)
	maps, _ := poolMaps(t)
	require.Len(t, maps, 1, "only the server's mapping is left")
	require.Equal(t, 1, s.count().objects, "nothing was published")
}

func TestUnregisterWaitsForWhatIsOpen(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	st, err := w.PrepareStore(testContext(t), 0, keysOf(10, 1), sizesOf(1, 10), 0)
	require.NoError(t, err)
	result := make(chan error)
	go func() {
		_, err := w.Unregister(testContext(t))
		result <- err
	}()
	require.Eventually(t, func() bool { return w.session.Load().ended.Load() }, waitMax, tick)
	require.Zero(t, s.ops()[proto.OpUnregister])
	require.ErrorIs(t, st.Abort(testContext(t)), ErrClosed)
	require.NoError(t, <-result)
	require.Equal(t, 1, s.ops()[proto.OpUnregister])
	s.idle()
}

func TestAConnectionClosedUnderItsWorkerClosesIt(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	st, err := w.PrepareStore(testContext(t), 0, keysOf(10, 1), sizesOf(1, 10), 0)
	require.NoError(t, err)
	require.NoError(t, w.Conn().Close())
	_, err = w.Ping(testContext(t))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, st.Commit(testContext(t)), ErrClosed)
	_, err = w.Unregister(testContext(t))
	require.ErrorIs(t, err, ErrClosed)
}
