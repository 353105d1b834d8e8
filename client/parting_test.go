package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// Several end a worker at once, and one of them fails, or ends the connection under the request of another.
func TestAWorkerThatSeveralEndIsEndedOnce(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	ctx := testContext(t)
	for range 20 {
		w := open(t, s, Registration{})
		w.parting.patience = time.Hour
		st, err := w.PrepareStore(ctx, 0, keysOf(0, 1), sizesOf(1, 10), 0)
		require.NoError(t, err)
		results := make(chan error, 2)
		for range cap(results) {
			go func() {
				_, err := w.Unregister(ctx)
				results <- err
			}()
		}
		<-w.base.Done()
		require.NoError(t, w.Close())
		require.ErrorIs(t, st.Abort(ctx), ErrClosed)
		first, second := <-results, <-results
		for _, err := range []error{first, second} {
			if err != nil {
				require.Same(t, ErrClosed, err, "it came when the other had begun")
			}
		}
		require.False(t, first != nil && second != nil)
		require.Equal(t, 1, s.ops()[proto.OpUnregister])
		s.idle()
		require.Eventually(t, func() bool { return s.count().conns == 0 }, waitMax, tick)
	}
}

func TestTwoClosesAtOnceEnd(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	w.parting.patience = time.Hour
	block, entered, result := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		_, err := w.StoreEach(context.Background(), 0, keysOf(0, 1), sizesOf(1, 10), 0, func(int, []byte) error {
			close(entered)
			<-block
			return nil
		})
		result <- err
	}()
	<-entered
	closed := make(chan error, 2)
	for range cap(closed) {
		go func() { closed <- w.Close() }()
	}
	<-w.base.Done()
	close(block)
	requireClosedOrDone(t, <-result)
	for range cap(closed) {
		require.NoError(t, soon(t, func() error { return <-closed }))
	}
	require.Equal(t, 1, s.ops()[proto.OpUnregister])
	s.idle()
}

func TestCloseFromWithinACallEnds(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	err := soon(t, func() error {
		_, err := w.StoreEach(context.Background(), 0, keysOf(0, 1), sizesOf(1, 10), 0, func(int, []byte) error {
			w.parting.patience = tick
			defer func() { w.parting.patience = time.Hour }() // for the server
			return w.Close()
		})
		return err
	})
	requireClosedOrDone(t, err)
	require.Eventually(t, func() bool { return s.count().conns == 0 }, waitMax, tick)
	require.Equal(t, 1, s.ops()[proto.OpUnregister])
	s.idle()
}

// requireClosedOrDone is for a call that the end of its worker may just miss.
func requireClosedOrDone(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, ErrClosed)
	}
}

// Two workers of an instance end at once, and one is told that it failed as the other has ended both.
func TestWorkersOfOneInstanceThatEndTogether(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	ctx := testContext(t)
	for range 20 {
		both := [2]*Worker{open(t, s, Registration{Instance: 7}), open(t, s, Registration{Instance: 7})}
		results := make(chan error, len(both))
		for _, w := range both {
			go func() {
				_, err := w.Unregister(ctx)
				results <- err
			}()
		}
		for range both {
			require.NoError(t, <-results)
		}
		require.Positive(t, s.ops()[proto.OpUnregister])
	}
}

func TestUnregisterOfWhatAnotherHasEnded(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	s.onNext(proto.OpUnregister, fakeAct{status: proto.StatusNotRegistered})
	_, err := w.Unregister(testContext(t))
	require.NoError(t, err)
	_, err = w.Conn().Ping(testContext(t))
	require.NoError(t, err)
}

// The end of a worker that was unregistered ends the next one of its connection.
func TestCloseOfAnUnregisteredWorker(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	ctx := testContext(t)
	first := open(t, s, Registration{})
	c := first.Conn()
	_, err := first.Unregister(ctx)
	require.NoError(t, err)
	second, err := c.Register(ctx, Registration{Layouts: []Layout{testLayout}})
	require.NoError(t, err)
	require.NoError(t, first.Close())
	_, err = second.Ping(ctx)
	require.NoError(t, err)
	_, err = second.Unregister(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, s.ops()[proto.OpUnregister])
	require.NoError(t, first.Close(), "nobody has the connection")
	_, err = c.Ping(ctx)
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.Register(ctx, Registration{Layouts: []Layout{testLayout}})
	require.Error(t, err)
	require.NoError(t, second.Close())
}

// An unregistration that fails leaves everything on the server.
func TestAnUnregistrationThatFailsClosesTheConnection(t *testing.T) {
	fails := map[string]func(s *fakeServer, w *Worker) (context.Context, error){
		"no time": func(s *fakeServer, w *Worker) (context.Context, error) {
			late := make(chan struct{})
			ctx, cancel := context.WithCancel(context.Background())
			s.setHook(func(r *fakeRequest) fakeAct {
				if r.Op != proto.OpUnregister {
					return fakeAct{}
				}
				cancel()
				return fakeAct{hold: late}
			})
			s.t.Cleanup(func() { close(late) })
			return ctx, context.Canceled
		},
		"refused": func(s *fakeServer, w *Worker) (context.Context, error) {
			s.onNext(proto.OpUnregister, fakeAct{status: proto.StatusBusy})
			return testContext(s.t), &StatusError{Status: proto.StatusBusy}
		},
	}
	for name, fail := range fails {
		t.Run(name, func(t *testing.T) {
			s := newFake(t, fakeConfig{kind: proto.ShmFd})
			w := open(t, s, Registration{})
			w.parting.patience = tick
			ctx, want := fail(s, w)
			_, err := w.Unregister(ctx)
			require.ErrorIs(t, err, want)
			_, err = w.Conn().Ping(testContext(t))
			require.ErrorIs(t, err, ErrClosed)
			require.Eventually(t, func() bool { return s.count().conns == 0 }, waitMax, tick)
		})
	}
}

func TestAnUnregistrationWhoseConnectionIsLostIsMadeAnew(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	s.onNext(proto.OpUnregister, fakeAct{drop: true})
	n, err := w.Unregister(testContext(t))
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.Equal(t, 2, s.ops()[proto.OpUnregister])
}

// A worker whose connection is lost registers to say that it ends, and so ends the process that has replaced it.
func TestTheEndOfAWorkerDoesNotTakeAnIDBack(t *testing.T) {
	for name, happens := range map[string]func(s *fakeServer){
		"another process has it": func(s *fakeServer) { s.lives[7].Incarnation++ },
		"the server does not say": func(s *fakeServer) {
			s.hook = func(r *fakeRequest) fakeAct {
				if r.Op == proto.OpInstances {
					return fakeAct{status: proto.StatusDenied}
				}
				return fakeAct{}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFake(t, fakeConfig{kind: proto.ShmFd})
			w := open(t, s, Registration{Instance: 7})
			s.ops()
			s.disconnect()
			<-w.session.Load().link.gone
			s.mu.Lock()
			happens(s)
			s.mu.Unlock()
			_, err := w.Unregister(testContext(t))
			require.Error(t, err)
			n := s.ops()
			require.Zero(t, n[proto.OpRegister]+n[proto.OpUnregister], "%v", n)
			require.NoError(t, w.Close())
		})
	}
}

// A handle that is ended late, or never, costs nothing but itself and its memory once its worker is closed and its connection lost.
func TestAHandleThatIsLeftOpenLeavesNoGoroutine(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	storeAll(t, w, 0, 3, 10)
	r, err := w.Lookup(testContext(t), LookupRequest{Keys: keysOf(0, 3), Slots: true})
	require.NoError(t, err)
	t.Run("closed", func(t *testing.T) {
		checkLeaks(t)
		require.NoError(t, w.Close())
		s.disconnect()
	})
	require.ErrorIs(t, r.Lease.Release(testContext(t)), ErrClosed)
}
