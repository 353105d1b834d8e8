package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// A reply that is under way when the server lists its transfers must not be taken for a
// lost one: its caller is about to use what it grants.
func TestASweepSparesWhatIsJustBeingGranted(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 3, 10)
	late := make(chan struct{})
	s.onNext(proto.OpLookup, fakeAct{hold: late})
	type answer struct {
		r   *LookupResult
		err error
	}
	answers := make(chan answer)
	go func() {
		r, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 3), Slots: true})
		answers <- answer{r, err}
	}()
	require.Eventually(t, func() bool { return s.count().open == 1 }, waitMax, tick)
	swept := make(chan bool)
	go func() { swept <- w.sweepOnce(w.session.Load(), nil) }()
	require.Eventually(t, func() bool { return s.ops()[proto.OpTransfers] > 0 }, waitMax, tick)
	close(late)
	a := <-answers
	require.NoError(t, a.err)
	require.True(t, <-swept)
	_, err := w.Ping(ctx) // requests take effect in order: a release would have come before
	require.NoError(t, err)
	require.Equal(t, 1, s.count().open)
	require.NoError(t, a.r.Lease.Release(ctx))
	s.idle()
}

func TestASweepEndsWhatNobodyKnows(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 3, 10)
	for op, call := range grantingCalls(w) {
		s.onNext(op, fakeAct{dropAfter: true}) // granted, and the reply is lost
		require.NoError(t, call(ctx))
		s.idle()
	}
}

func TestASweepSparesWhatAnotherWorkerMayHave(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	a, b := open(t, s, Registration{Instance: 7}), open(t, s, Registration{Instance: 7})
	ctx := testContext(t)
	st, err := a.PrepareStore(ctx, 0, keysOf(0, 1), sizesOf(1, 10), 0)
	require.NoError(t, err)
	b.Break()
	_, err = b.Ping(ctx)
	require.NoError(t, err)
	require.False(t, b.sweepOnce(b.session.Load(), b.past))
	require.Equal(t, 1, s.count().open)
	require.NoError(t, st.Commit(ctx))
	require.NoError(t, a.Close())
	require.Eventually(t, func() bool { return b.sweepOnce(b.session.Load(), b.past) }, waitMax, tick)
}

// A worker ends whose connection was lost, and what that had is kept as long as another worker of its instance lives.
func TestTheLastWorkerOfAnInstanceSweepsUpAfterTheOthers(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	a, b := open(t, s, Registration{Instance: 7}), open(t, s, Registration{Instance: 7})
	ctx := testContext(t)
	storeAll(t, a, 0, 1, 10)
	r, err := a.Retrieve(ctx, 0, keysOf(0, 1), RetrieveOptions{})
	require.NoError(t, err)
	kept, err := b.Retrieve(ctx, 0, keysOf(0, 1), RetrieveOptions{})
	require.NoError(t, err)
	a.Break()
	require.ErrorIs(t, r.Release(ctx), ErrStale)
	_, err = a.Unregister(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { n := s.count(); return n.open+n.expired == 1 }, waitMax, tick)
	require.True(t, b.sweepOnce(b.session.Load(), nil))
	require.NoError(t, kept.Release(ctx))
	s.idle()
	require.Zero(t, s.ops()[proto.OpUnregister])
}

// A worker whose connection is lost over and over keeps a part of each for ever.
func TestLinksThatGrantNothingAreForgotten(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 1, 10)
	lost := func() {
		w.Break()
		_, err := w.Ping(ctx)
		require.NoError(t, err)
	}
	r, err := w.Retrieve(ctx, 0, keysOf(0, 1), RetrieveOptions{})
	require.NoError(t, err)
	for range 5 {
		lost()
	}
	require.Len(t, w.past, 1, "the one that the retrieval is from")
	require.True(t, w.sweepOnce(w.session.Load(), w.past))
	require.Equal(t, 1, s.count().open+s.count().expired)
	require.ErrorIs(t, r.Release(ctx), ErrStale)
	lost()
	require.Empty(t, w.past)
	s.idle()
}
