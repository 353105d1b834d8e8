package client

import (
	"context"
	"fmt"
	"slices"
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
	past    []*link // lost ones to the present start of the server that granted what is still open; with lock
	parting parting
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
	w.parting.run(s.follow)
	w.parting.run(s.keepAlive)
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
	s.retain()
	w.parting.run(func() { w.sweep(s, past) })
}

// attempt runs fn in a live session, and once more in a new one if the connection was
// lost meanwhile. So fn must be something that may be done twice. Handles that fn makes
// take their own references.
func (w *Worker) attempt(ctx context.Context, fn func(s *session) error) error {
	w.parting.begin()
	defer w.parting.end()
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
