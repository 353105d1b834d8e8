package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// What a worker gives back as it closes never reaches a server that is slow to read, which keeps it for as long as the process lives.
func TestCloseWaitsUntilTheServerHasReadIt(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 1, 100)
	r, err := w.Retrieve(ctx, 0, keysOf(0, 1), RetrieveOptions{})
	require.NoError(t, err)
	block, entered := make(chan struct{}), make(chan struct{})
	s.setHook(func(r *fakeRequest) fakeAct {
		if r.Op == proto.OpTouch {
			s.hook = nil
			close(entered)
			s.mu.Unlock()
			<-block
			s.mu.Lock()
		}
		return fakeAct{}
	})
	go func() { _, _ = w.Touch(ctx, 0, keysOf(0, 1)) }()
	<-entered
	l := w.session.Load().link
	queued := func() bool {
		l.out.mu.Lock()
		defer l.out.mu.Unlock()
		return l.out.size > 0
	}
	for !queued() {
		c := newCall(proto.OpTouch)
		c.frame = proto.AppendTouch(c.frame, &proto.Touch{Keys: keysOf(0, proto.MaxKeys)})
		l.post(c)
	}
	require.NoError(t, r.Release(ctx))
	closed := make(chan error)
	go func() { closed <- w.Close() }()
	<-w.base.Done()
	close(block)
	require.NoError(t, <-closed)
	require.Equal(t, 1, s.ops()[proto.OpUnregister])
	require.Zero(t, s.count().open+s.count().expired)
}

// The end of a worker frees memory that handles from before a connection was lost still use.
func TestCloseWaitsForHandlesOfAFormerConnection(t *testing.T) {
	ends := map[string]func(w *Worker) error{
		"close":                   (*Worker).Close,
		"close of the connection": func(w *Worker) error { return w.conn.Close() },
		"unregister without time": func(w *Worker) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, err := w.Unregister(ctx)
			require.ErrorIs(t, err, context.Canceled)
			return nil
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s := newFake(t, fakeConfig{kind: proto.ShmFd})
			w := open(t, s, Registration{})
			ctx := testContext(t)
			storeAll(t, w, 0, 1, 5000)
			r, err := w.Retrieve(ctx, 0, keysOf(0, 1), RetrieveOptions{})
			require.NoError(t, err)
			s.disconnect()
			_, err = w.Ping(ctx)
			require.NoError(t, err)
			require.NoError(t, end(w))
			require.Zero(t, s.ops()[proto.OpUnregister])
			require.Equal(t, 1, s.count().expired)
			requireValues(t, 0, 5000, r.Values())
			require.ErrorIs(t, r.Release(ctx), ErrClosed)
			s.idle()
			require.Eventually(t, func() bool { return s.count().conns == 0 }, waitMax, tick)
			require.Equal(t, 1, s.ops()[proto.OpUnregister])
		})
	}
}

func TestUnregisterWaitsForHandlesOfAFormerConnection(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 1, 5000)
	r, err := w.Retrieve(ctx, 0, keysOf(0, 1), RetrieveOptions{})
	require.NoError(t, err)
	s.disconnect()
	_, err = w.Ping(ctx)
	require.NoError(t, err)
	result := make(chan error)
	go func() {
		_, err := w.Unregister(ctx)
		result <- err
	}()
	<-w.session.Load().left
	require.Zero(t, s.ops()[proto.OpUnregister])
	require.ErrorIs(t, r.Release(ctx), ErrClosed)
	require.NoError(t, <-result)
	require.Equal(t, 1, s.ops()[proto.OpUnregister])
	s.idle()
}

// The end of a worker frees memory that another worker of the same instance still uses: UNREGISTER ends what all its connections have.
func TestTheEndOfAWorkerLeavesOthersOfItsInstance(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	ctx := testContext(t)
	b := open(t, s, Registration{Instance: 7})
	storeAll(t, b, 0, 1, 5000)
	r, err := b.Retrieve(ctx, 0, keysOf(0, 1), RetrieveOptions{})
	require.NoError(t, err)
	for _, end := range []func(w *Worker) error{
		(*Worker).Close,
		func(w *Worker) error {
			_, err := w.Unregister(ctx)
			if err == nil {
				_, err = w.Conn().Ping(ctx) // it is open
			}
			return err
		},
	} {
		require.NoError(t, end(open(t, s, Registration{Instance: 7})))
		require.Zero(t, s.ops()[proto.OpUnregister])
		require.Equal(t, 1, s.count().open)
	}
	requireValues(t, 0, 5000, r.Values())
	require.NoError(t, r.Release(ctx))
	_, err = b.Unregister(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, s.ops()[proto.OpUnregister])
	s.idle()
}

// A server keeps what a lost connection had for as long as the process lives.
func TestCloseAfterALostConnectionGivesEverythingBack(t *testing.T) {
	ends := map[string]func(w *Worker) error{
		"close":      (*Worker).Close,
		"unregister": func(w *Worker) error { _, err := w.Unregister(testContext(t)); return err },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s := newFake(t, fakeConfig{kind: proto.ShmFd})
			w := open(t, s, Registration{})
			ctx := testContext(t)
			storeAll(t, w, 0, 1, 5000)
			r, err := w.Retrieve(ctx, 0, keysOf(0, 1), RetrieveOptions{})
			require.NoError(t, err)
			s.disconnect()
			<-w.session.Load().link.gone
			require.ErrorIs(t, r.Release(ctx), ErrStale)
			require.Equal(t, 1, s.count().expired)
			require.NoError(t, end(w))
			require.Zero(t, s.count().expired)
		})
	}
}

func TestCloseOfAServerThatDoesNotAnswerEnds(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	never := make(chan struct{})
	defer close(never)
	s.onNext(proto.OpUnregister, fakeAct{hold: never})
	w.parting.patience = tick
	require.NoError(t, soon(t, w.Close))
	require.Eventually(t, func() bool { return s.count().conns == 0 }, waitMax, tick)
}

// soon returns what fn returns, and fails the test if that takes very long.
func soon(t *testing.T, fn func() error) error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- fn() }()
	select {
	case err := <-result:
		return err
	case <-time.After(3 * waitMax):
		require.FailNow(t, "it hangs")
		return nil
	}
}

// A worker that registers while another of its process unregisters the same instance would lose its registration.
func TestNobodyRegistersWhileTheInstanceIsUnregistered(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	a := open(t, s, Registration{Instance: 7})
	a.parting.patience = time.Hour
	answer := make(chan struct{})
	s.onNext(proto.OpUnregister, fakeAct{hold: answer})
	closed := make(chan error)
	go func() { closed <- a.Close() }()
	require.Eventually(t, func() bool { return s.ops()[proto.OpUnregister] == 1 }, waitMax, tick)
	_, err := Open(shortContext(t), s.addr(), Options{}, Registration{Instance: 7, Layouts: []Layout{testLayout}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, s.ops()[proto.OpRegister])
	opened := make(chan *Worker)
	go func() { opened <- open(t, s, Registration{Instance: 7}) }()
	close(answer)
	require.NoError(t, <-closed)
	require.NotNil(t, <-opened)
}
