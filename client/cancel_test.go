package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// Each call that is granted something, as a function of its context. It ends what it got.
func grantingCalls(w *Worker) map[proto.Op]func(ctx context.Context) error {
	return map[proto.Op]func(ctx context.Context) error{
		proto.OpLookup: func(ctx context.Context) error {
			r, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 3), Slots: true})
			if err != nil {
				return err
			}
			return r.Lease.Release(ctx)
		},
		proto.OpPrepareStore: func(ctx context.Context) error {
			st, err := w.PrepareStore(ctx, 0, keysOf(100, 3), sizesOf(3, 10), 0)
			if err != nil {
				return err
			}
			return st.Abort(ctx)
		},
		proto.OpPrepareRetrieve: func(ctx context.Context) error {
			r, err := w.Retrieve(ctx, 0, keysOf(0, 3), RetrieveOptions{})
			if err != nil {
				return err
			}
			return r.Release(ctx)
		},
	}
}

func TestAGrantThatComesTooLateIsGivenBack(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	storeAll(t, w, 0, 3, 10)
	for op, call := range grantingCalls(w) {
		late := make(chan struct{})
		s.onNext(op, fakeAct{hold: late})
		ctx, cancel := context.WithCancel(testContext(t))
		result := make(chan error)
		go func() { result <- call(ctx) }()
		require.Eventually(t, func() bool { return s.count().open == 1 }, waitMax, tick)
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
		require.Equal(t, 1, s.count().open)
		close(late)
		s.idle()
	}
	_, err := w.Ping(testContext(t))
	require.NoError(t, err)
	require.Equal(t, 1, s.count().conns, "the connection is the same")
}

func TestDeadlinesAreKept(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	never := make(chan struct{})
	defer close(never)
	s.onNext(proto.OpPing, fakeAct{hold: never})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := w.Ping(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAWaitBudgetEndsBeforeTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.EqualValues(t, 1000, waitMs(ctx, time.Second))
	require.LessOrEqual(t, waitMs(ctx, time.Hour), uint32(53_000))
	require.Greater(t, waitMs(ctx, time.Hour), uint32(40_000))
	require.Zero(t, waitMs(ctx, -time.Second))
	require.EqualValues(t, uint32(1<<32-1), waitMs(context.Background(), 10000*time.Hour))
	require.Zero(t, newBudget(0).left(ctx))
}

func TestACommitWhoseCallerLeftStillEnds(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	for _, status := range []proto.Status{0, proto.StatusStale} {
		st, err := w.PrepareStore(testContext(t), 0, keysOf(int(status), 1), sizesOf(1, 10), 0)
		require.NoError(t, err)
		late := make(chan struct{})
		s.onNext(proto.OpCommitStore, fakeAct{hold: late, status: status})
		ctx, cancel := context.WithCancel(testContext(t))
		result := make(chan error)
		go func() { result <- st.Commit(ctx) }()
		require.Eventually(t, func() bool { return s.ops()[proto.OpCommitStore] == 1 }, waitMax, tick)
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
		close(late)
		s.idle() // a refused one is aborted when the refusal comes
		require.Equal(t, 1, s.count().objects)
	}
}

func TestACommitThatWasNotSentIsAborted(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	st, err := w.PrepareStore(testContext(t), 0, keysOf(0, 1), sizesOf(1, 10), 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	require.ErrorIs(t, st.Commit(ctx), context.Canceled)
	s.idle()
	require.Zero(t, s.count().objects)
}

// Calls leave at random moments while replies come at random moments: whatever was
// granted is used or given back, and the stream stays in step.
func TestNothingLeaksWhenCallsLeaveAtAnyMoment(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	storeAll(t, w, 0, 3, 10)
	var wg sync.WaitGroup
	uses := []func(ctx context.Context, i int) error{
		func(ctx context.Context, _ int) error {
			r, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 3), Slots: true})
			if err != nil {
				return err
			}
			requireValues(t, 0, 10, r.Lease.Values())
			return r.Lease.Release(ctx)
		},
		func(ctx context.Context, _ int) error {
			r, err := w.Retrieve(ctx, 0, keysOf(0, 3), RetrieveOptions{})
			if err != nil {
				return err
			}
			requireValues(t, 0, 10, r.Values())
			return r.Release(ctx)
		},
		func(ctx context.Context, i int) error {
			st, err := w.PrepareStore(ctx, 0, keysOf(1000*i+100, 3), sizesOf(3, 10), 0)
			if err != nil {
				return err
			}
			if i%2 == 0 {
				return st.Abort(ctx)
			}
			return st.Commit(ctx)
		},
	}
	for u, use := range uses {
		for i := range 4 {
			wg.Go(func() {
				for n := range 50 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n*i)*10*time.Microsecond)
					err := use(ctx, 100*i+n)
					cancel()
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("use %d: %v", u, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	s.idle()
	require.Equal(t, 1, s.count().conns)
	l := w.session.Load().link
	l.mu.Lock()
	require.Empty(t, l.grants)
	require.Empty(t, l.pending)
	l.mu.Unlock()
}

func shortContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A server that does not read must not hold a caller beyond its context.
func TestACallLeavesAServerThatDoesNotRead(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmNone, size: 32 << 20})
	w := open(t, s, Registration{Layouts: []Layout{{Name: "large", Size: 16 << 20}}})
	block, entered := make(chan struct{}), make(chan struct{})
	once := sync.Once{}
	s.setHook(func(r *fakeRequest) fakeAct {
		if r.Op == proto.OpPing {
			once.Do(func() { close(entered); s.mu.Unlock(); <-block; s.mu.Lock() })
		}
		return fakeAct{}
	})
	go func() { _, _ = w.Ping(testContext(t)) }()
	<-entered
	st := &Store{handle: handle{s: w.session.Load().retain()}, reserved: 1, parts: []storePart{{transfer: 1 << 40, slots: [][]byte{make([]byte, 16<<20)}}}}
	ctx, leave := context.WithCancel(testContext(t))
	left := make(chan error)
	go func() { left <- st.Commit(ctx) }()
	l := w.session.Load().link
	queued := func() bool {
		l.out.mu.Lock()
		defer l.out.mu.Unlock()
		return l.out.size > 0
	}
	require.Eventually(t, queued, 20*time.Second, time.Millisecond)
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	require.True(t, queued())
	close(block)
	_, err := w.Ping(testContext(t))
	require.NoError(t, err, "the stream is in step")
}

func TestCallsWaitForRoomInTheQueue(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	l := w.session.Load().link
	l.out.mu.Lock()
	l.out.size += outboxMax
	l.out.mu.Unlock()
	_, err := w.Ping(shortContext(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var unsent *unsentError
	require.ErrorAs(t, err, &unsent)
	l.mu.Lock()
	require.Empty(t, l.pending)
	l.mu.Unlock()
	l.out.mu.Lock()
	l.out.size -= outboxMax
	l.out.wake()
	l.out.mu.Unlock()
	_, err = w.Ping(testContext(t))
	require.NoError(t, err)
}
