package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// A Worker is a registered instance. It is safe for concurrent use; requests are
// pipelined over its connection. After the connection was lost, the next call connects,
// registers and maps the server's memory again.
type Worker struct {
	conn    *Conn
	reg     *proto.Register
	lock    semaphore // held while registering
	session atomic.Pointer[session]
	base    context.Context // ends with Close or Unregister
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // populators and sweeps
	follows sync.WaitGroup // of links, and keepers
	past    []*link        // lost ones to the present start of the server that granted what is still open; with lock

	farewell     atomic.Pointer[session] // says bye when the last session of its identity has been left; nil while the worker is open
	unregistered atomic.Bool             // Unregister was answered
	busy         atomic.Int64            // calls under way
	quiet        chan struct{}           // one token when there are none any more, once the worker is closed
}

// Conn returns the worker's connection.
func (w *Worker) Conn() *Conn { return w.conn }

// Instance returns the worker's id.
func (w *Worker) Instance() uint64 { return w.reg.Instance }

// Transport returns how bytes travel in the present registration.
func (w *Worker) Transport() proto.Transport { return w.session.Load().transport }

// Incarnation returns the present registration's number among the processes that have
// used this instance id.
func (w *Worker) Incarnation() uint32 { return w.session.Load().incarnation }

// Ready returns how many bytes of the server's memory, from its start, were populated
// when the server last said so.
func (w *Worker) Ready() int64 { return w.session.Load().ready.Load() }

// PoolSize returns the size in bytes of the server's memory as told at registration.
func (w *Worker) PoolSize() int64 { return w.session.Load().poolSize }

// Close ends the worker and its connection. Calls under way end with [ErrClosed]. The
// server aborts what was not committed and gets back everything else: Close waits, for some
// seconds at most, until it says so. Where stores,
// retrievals or leases are open, the connection stays until the last of them is ended, so
// that the server gives nobody else the memory that they may still be using; ending them
// then does nothing but that. The second Close does nothing.
func (w *Worker) Close() error {
	w.conn.cancel()
	s := w.retire()
	if w.unregistered.Load() {
		return w.conn.closeLink() // nothing of the worker hangs on the connection
	}
	w.farewell.Store(s)
	s.end()
	w.tasks.Wait()
	w.follows.Wait()
	w.awaitCalls()
	select {
	case <-present.left(s.identity(), w):
		s.bye()
	default: // the last to leave says it
	}
	if s.link != w.conn.link.Load() {
		return w.conn.closeLink()
	}
	return nil
}

// retire makes the worker refuse new calls and ends those under way. It returns the
// session to be ended.
func (w *Worker) retire() *session {
	w.cancel()
	_ = w.lock.acquire(context.Background(), nil) // whoever registers just now stops; can't fail
	defer w.lock.release()
	return w.session.Load()
}

// awaitCalls waits, for some time, until the calls under way have ended: they do so at once,
// unless one is in what its caller has given it to call.
func (w *Worker) awaitCalls() {
	late := time.NewTimer(byeTime)
	defer late.Stop()
	for w.busy.Load() > 0 {
		select {
		case <-w.quiet:
		case <-late.C:
			return
		}
	}
}

// callEnded is for the end of a call.
func (w *Worker) callEnded() {
	if w.busy.Add(-1) > 0 || w.base.Err() == nil {
		return
	}
	select {
	case w.quiet <- struct{}{}:
	default:
	}
}

// leftAs is for the end of a session, or of an attempt to get one. Those who end handles do not
// wait for the server.
func (w *Worker) leftAs(id identity) {
	if !present.leave(id, w) {
		return
	}
	if s := w.farewell.Load(); s != nil && s.identity() == id {
		go s.bye()
	}
}

// Unregister ends the worker and leaves its connection open. It waits until all stores,
// retrievals and leases are ended, for the server gives their memory to others, and
// returns how many bytes the server's own I/O is still busy with. Where another worker of this
// process has the same instance, that stays registered, and this one's connection is made
// anew by the next call. After an error the
// connection is closed as by Close.
func (w *Worker) Unregister(ctx context.Context) (draining int64, err error) {
	if w.base.Err() != nil {
		return 0, ErrClosed
	}
	s := w.retire()
	s.end()
	select {
	case <-present.left(s.identity(), w):
	case <-ctx.Done():
		w.farewell.Store(s)
		select {
		case <-present.left(s.identity(), w):
			go s.bye()
		default: // the last to leave says it
		}
		return 0, fmt.Errorf("client: unregister: %w", ctx.Err())
	}
	w.tasks.Wait()
	w.follows.Wait()
	if draining, err = s.part(ctx); err != nil {
		s.link.lost(err) // nobody knows whether it is still registered
		return 0, err
	}
	w.unregistered.Store(true)
	w.conn.worker.CompareAndSwap(w, nil)
	return draining, nil
}

// enter returns the present session with a reference for the caller, and registers
// again if the one there was is lost.
func (w *Worker) enter(ctx context.Context) (*session, error) {
	if s := w.session.Load(); s.live() && s.enter() {
		return s, nil
	}
	if w.base.Err() != nil {
		return nil, ErrClosed
	}
	if err := w.lock.acquire(ctx, w.base.Done()); err != nil {
		return nil, err
	}
	defer w.lock.release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(w.base, cancel) // Close ends an attempt under way
	defer stop()
	wait := newBackoff(ctx, w.conn.opts.Reconnect)
	for {
		if w.base.Err() != nil {
			return nil, ErrClosed
		}
		old := w.session.Load()
		if old.live() && old.enter() {
			return old, nil
		}
		l, err := w.conn.live(ctx)
		if err != nil {
			return nil, err
		}
		s, err := w.attach(ctx, l)
		if err == nil {
			s.retain()
			w.replace(old, s)
			return s, nil
		}
		if !retryable(l, err) && permanent(err) {
			return nil, err
		}
		if err := wait.next(ctx, w.base.Done(), err); err != nil {
			return nil, err
		}
	}
}

// present makes s the present session, which nobody has ended yet.
func (w *Worker) present(s *session) {
	w.session.Store(s)
	w.follows.Go(s.follow)
	w.follows.Go(s.keepAlive)
}

// replace makes s the present session. The caller holds the lock.
func (w *Worker) replace(old, s *session) {
	w.present(s)
	old.end()
	if old.link.boot != s.link.boot {
		w.past = nil // that server, with all it kept for this process, is gone
		return
	}
	<-old.link.read // from here on its grants are all known, and only become fewer
	w.past = slices.DeleteFunc(append(w.past, old.link), (*link).grantsNothing)
	past := append([]*link(nil), w.past...)
	w.tasks.Add(1)
	s.retain()
	go func() {
		defer w.tasks.Done()
		w.sweep(s, past)
	}()
}

// attempt runs fn in a live session, and once more in a new one if the connection was
// lost meanwhile. So fn must be something that may be done twice. Handles that fn makes
// take their own references.
func (w *Worker) attempt(ctx context.Context, fn func(s *session) error) error {
	w.busy.Add(1)
	defer w.callEnded()
	for again := false; ; again = true {
		s, err := w.enter(ctx)
		if err != nil {
			return err
		}
		err = fn(s)
		s.leave()
		if err == nil || again || !retryable(s.link, err) || w.base.Err() != nil {
			return err
		}
	}
}

// Ping asks whether the server lives and how much of its memory is ready.
func (w *Worker) Ping(ctx context.Context) (Pong, error) {
	var p Pong
	err := w.attempt(ctx, func(s *session) (err error) {
		p, err = s.ping(ctx)
		return err
	})
	return p, err
}

// layout checks an index into the registered layouts.
func (w *Worker) layout(op proto.Op, layout int) (uint16, error) {
	if layout < 0 || layout >= len(w.reg.Layouts) {
		return 0, fmt.Errorf("client: %s: layout %d, registered are %d", op, layout, len(w.reg.Layouts))
	}
	return uint16(layout), nil
}

// waitMs turns a wait budget into the protocol's milliseconds. If ctx ends before it is
// spent, the budget is cut so that the reply has a chance to arrive in time.
func waitMs(ctx context.Context, wait time.Duration) uint32 {
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		wait = min(wait, left-left/8)
	}
	return uint32(min(max(wait.Milliseconds(), 0), 1<<32-1))
}

// budget is a wait that several requests share.
type budget struct {
	wait  time.Duration
	start time.Time
}

func newBudget(wait time.Duration) budget { return budget{wait: wait, start: time.Now()} }

// left returns what is not spent, in the protocol's milliseconds.
func (b budget) left(ctx context.Context) uint32 {
	if b.wait <= 0 {
		return 0
	}
	return waitMs(ctx, b.wait-time.Since(b.start))
}

// closeFD closes a descriptor that came unasked; -1 is none.
func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd) // nothing was written through it
	}
}
