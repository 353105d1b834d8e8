package client

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

func TestAWorkerComesBackToARestartedServer(t *testing.T) {
	for _, kind := range []proto.ShmKind{proto.ShmFd, proto.ShmNone} {
		t.Run(kind.String(), func(t *testing.T) {
			s := newFake(t, fakeConfig{kind: kind})
			w := open(t, s, Registration{})
			id, boot := w.Instance(), w.Conn().Boot()
			ctx := testContext(t)
			storeAll(t, w, 0, 2, 10)
			s.restart()
			r, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 2)})
			require.NoError(t, err)
			require.Zero(t, r.Hits, "the new server is empty")
			storeAll(t, w, 0, 2, 10)
			require.Equal(t, id, w.Instance())
			require.NotEqual(t, boot, w.Conn().Boot())
			s.restart()
			status, err := w.Put(ctx, 0, keyOf(0), valueOf(0, 10))
			require.NoError(t, err)
			require.Equal(t, proto.StatusOK, status)
			s.idle()
		})
	}
}

func TestHandlesOfTheOldServerAreStaleAndTheirMemoryStays(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 3, 5000)
	st, err := w.PrepareStore(ctx, 0, keysOf(10, 1), sizesOf(1, 5000), 0)
	require.NoError(t, err)
	r, err := w.Retrieve(ctx, 0, keysOf(0, 3), RetrieveOptions{})
	require.NoError(t, err)
	l, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 3), Slots: true})
	require.NoError(t, err)
	s.restart()
	storeAll(t, w, 0, 1, 5000)

	copy(st.Slot(0), valueOf(10, 5000)) // into the old memory, which nobody reads
	requireValues(t, 0, 5000, r.Values())
	requireValues(t, 0, 5000, l.Lease.Values())
	require.ErrorIs(t, st.Commit(ctx), ErrStale)
	require.ErrorIs(t, r.Release(ctx), ErrStale)
	require.NoError(t, r.Release(ctx))
	maps, _ := poolMaps(t)
	require.Len(t, maps, 3, "the server's, the new and, for the lease, the old one")
	require.ErrorIs(t, l.Lease.Release(ctx), ErrStale)
	// The populator of the old one may not have seen yet that its link is lost.
	require.Eventually(t, func() bool { maps, _ = poolMaps(t); return len(maps) == 2 }, waitMax, tick, "the last handle unmaps the old one")
	found, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(10, 1)})
	require.NoError(t, err)
	require.Zero(t, found.Hits)
}

// A server that was killed is started again at once, and may have room only for one pool.
func TestAnIdleWorkerDoesNotKeepTheMemoryOfAServerThatIsGone(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 1, 5000)
	old := w.session.Load()
	mapped := func() int { maps, _ := poolMaps(t); return len(maps) }
	require.Equal(t, 2, mapped(), "the server's and the worker's")
	s.restart()
	select {
	case <-old.left: // without a call
	case <-ctx.Done():
		t.Fatal("the worker keeps the mapping")
	}
	require.LessOrEqual(t, mapped(), 1)
	storeAll(t, w, 1, 1, 5000)
	require.Equal(t, 2, mapped())
}

// A server that lives on keeps what it has granted to a living process, until that says
// that it is through.
func TestWhatALostConnectionHadIsGivenBackByTheNext(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 3, 10)
	open := func() (*Store, *Retrieval, *Lease) {
		st, err := w.PrepareStore(ctx, 0, keysOf(10, 1), sizesOf(1, 10), 0)
		require.NoError(t, err)
		r, err := w.Retrieve(ctx, 0, keysOf(0, 3), RetrieveOptions{})
		require.NoError(t, err)
		l, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 3), Slots: true})
		require.NoError(t, err)
		return st, r, l.Lease
	}
	st, r, l := open()
	s.disconnect()
	require.Equal(t, 3, s.count().expired)
	_, err := w.Ping(ctx)
	require.NoError(t, err)
	require.True(t, w.sweepOnce(w.session.Load(), w.past))
	require.Equal(t, 3, s.count().expired, "what is still open here is left alone")
	require.ErrorIs(t, st.Abort(ctx), ErrStale)
	require.ErrorIs(t, r.Release(ctx), ErrStale)
	require.ErrorIs(t, l.Release(ctx), ErrStale)
	s.idle()

	// Ended while there is no connection: the next one tells.
	st, r, l = open()
	s.disconnect()
	<-w.session.Load().link.gone
	require.ErrorIs(t, st.Commit(ctx), ErrStale)
	require.ErrorIs(t, r.Release(ctx), ErrStale)
	require.ErrorIs(t, l.Release(ctx), ErrStale)
	require.Equal(t, 3, s.count().expired)
	_, err = w.Ping(ctx)
	require.NoError(t, err)
	s.idle()
}

// The connection breaks at each step of each call: before the request is carried out,
// after that, and within the reply; or the server says that it is about to stop.
func TestCallsSurviveABrokenConnectionAtEachStep(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 3, 10)
	calls := grantingCalls(w)
	calls[proto.OpPing] = func(ctx context.Context) error { _, err := w.Ping(ctx); return err }
	calls[proto.OpTouch] = func(ctx context.Context) error { _, err := w.Touch(ctx, 0, keysOf(0, 1)); return err }
	calls[proto.OpDelete] = func(ctx context.Context) error { _, err := w.Delete(ctx, 0, keysOf(500, 1)); return err }
	calls[proto.OpClear] = func(ctx context.Context) error { _, err := w.Conn().ClearNamespace(ctx, "other"); return err }
	calls[proto.OpStats] = func(ctx context.Context) error { _, err := w.Conn().Stats(ctx); return err }
	acts := []fakeAct{{drop: true}, {dropAfter: true}, {cut: 1}, {cut: proto.HeaderSize}, {cut: proto.HeaderSize + 1}, {status: proto.StatusDraining}}
	for _, op := range []proto.Op{proto.OpLookup, proto.OpPrepareStore, proto.OpPrepareRetrieve, proto.OpPing, proto.OpTouch, proto.OpDelete, proto.OpStats, proto.OpClear} {
		for _, act := range acts {
			s.onNext(op, act)
			require.NoError(t, calls[op](ctx), "%s after %+v", op, act)
			if op == proto.OpClear {
				continue
			}
			require.Equal(t, proto.TransportShared, w.Transport())
		}
	}
	for _, op := range []proto.Op{proto.OpHello, proto.OpRegister} {
		for _, act := range acts {
			s.onNext(op, act)
			s.disconnect()
			_, err := w.Ping(ctx)
			require.NoError(t, err, "%s and %+v", op, act)
		}
	}
	require.LessOrEqual(t, poolFds(t), 1, "a descriptor is left")
}

func TestACommitThatIsLostIsReported(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	for i, act := range []fakeAct{{drop: true}, {dropAfter: true}, {cut: 5}} {
		st, err := w.PrepareStore(ctx, 0, keysOf(i, 1), sizesOf(1, 10), 0)
		require.NoError(t, err)
		s.onNext(proto.OpCommitStore, act)
		require.ErrorIs(t, st.Commit(ctx), ErrDisconnected)
		require.ErrorIs(t, st.Commit(ctx), ErrStale)
		_, err = w.Ping(ctx)
		require.NoError(t, err)
		s.idle()
	}
	for op, size := range map[proto.Op]int{proto.OpPut: 10, proto.OpCommitStore: putMax + 1} {
		s.onNext(op, fakeAct{dropAfter: true})
		status, err := w.Put(ctx, 0, keyOf(size), valueOf(9, size))
		require.NoError(t, err)
		require.Equal(t, proto.StatusExists, status, "the first try was carried out")
	}
}

func TestAnUnknownEpochOrInstanceRegistersAgain(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	for _, status := range []proto.Status{proto.StatusStaleEpoch, proto.StatusNotRegistered} {
		s.ops()
		s.onNext(proto.OpLookup, fakeAct{status: status})
		_, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 1)})
		require.NoError(t, err)
		require.Equal(t, 1, s.ops()[proto.OpRegister])

		st, err := w.PrepareStore(ctx, 0, keysOf(int(status), 1), sizesOf(1, 10), 0)
		require.NoError(t, err)
		s.onNext(proto.OpCommitStore, fakeAct{status: status})
		require.Error(t, st.Commit(ctx))
		_, err = w.Ping(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, s.ops()[proto.OpRegister])
		s.idle()
	}
	// A boot id that changes under a connection that lives.
	s.mu.Lock()
	s.boot++
	s.mu.Unlock()
	_, err := w.Ping(ctx)
	require.NoError(t, err)
}

func TestCallsWaitForAServerThatIsAway(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	s.stop()
	_, err := w.Ping(shortContext(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	result := make(chan error, 3)
	for range cap(result) {
		go func() {
			_, err := w.Ping(testContext(t))
			result <- err
		}()
	}
	_, err = w.Ping(shortContext(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	s.start()
	for range cap(result) {
		require.NoError(t, <-result)
	}

	s.stop()
	w.conn.opts.Reconnect = time.Millisecond
	_, err = w.Ping(context.Background())
	require.ErrorIs(t, err, ErrDisconnected)
	w.conn.opts.Reconnect = time.Minute
	go func() {
		_, err := w.Ping(context.Background())
		result <- err
	}()
	require.NoError(t, w.Close())
	require.ErrorIs(t, <-result, ErrClosed)
	_, err = w.Ping(context.Background())
	require.ErrorIs(t, err, ErrClosed)
}

func TestARefusalIsNotRetried(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	for _, op := range []proto.Op{proto.OpHello, proto.OpRegister} {
		for _, status := range []proto.Status{proto.StatusDenied, proto.StatusBadVersion} {
			s.setHook(func(r *fakeRequest) fakeAct {
				if r.Op == op {
					return fakeAct{status: status}
				}
				return fakeAct{}
			})
			s.disconnect()
			s.ops()
			_, err := w.Ping(testContext(t))
			require.ErrorIs(t, err, &StatusError{Op: op, Status: status})
			require.Equal(t, 1, s.ops()[op])
			_, err = Open(testContext(t), s.addr(), Options{}, Registration{})
			require.ErrorIs(t, err, &StatusError{Op: op, Status: status})
		}
	}
}

func TestASocketThatIsNoServerIsGivenUp(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	s.stop()
	require.NoError(t, os.WriteFile(s.path, nil, 0o600))
	_, err := Dial(testContext(t), s.addr(), Options{})
	require.Error(t, err)
	require.NoError(t, os.Remove(s.path))
}
