package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// byeTime is how long Close waits, and how long a server that does not answer has once the
// connection is closed.
const byeTime = 3 * time.Second

// A parting is the end of a worker. It comes once, whoever wants it, and all share its result: first
// what is under way ends, then the handles are ended, then the server is told.
type parting struct {
	once     sync.Once
	last     atomic.Pointer[session] // the worker's last one; nil while the worker is open
	tell     sync.Once
	busy     atomic.Int64 // calls and goroutines, and one for a worker that nobody has ended
	hush     sync.Once
	quiet    chan struct{} // closed when none of these are left
	patience time.Duration // byeTime
	over     chan struct{} // closed when the server has been told, or that has failed
	draining int64         // what it answered, once over
	err      error         // why it was not told, once over
}

func (p *parting) init() {
	p.busy.Store(1)
	p.patience = byeTime
	p.quiet, p.over = make(chan struct{}), make(chan struct{})
}

// begin counts something that is under way. What begins after the worker's end finds its session
// ended, and leaves it alone.
func (p *parting) begin() { p.busy.Add(1) }

func (p *parting) end() {
	if p.busy.Add(-1) == 0 {
		p.hush.Do(func() { close(p.quiet) })
	}
}

// run runs fn in a goroutine, which is under way.
func (p *parting) run(fn func()) {
	p.begin()
	go func() {
		defer p.end()
		fn()
	}()
}

// Close ends the worker and its connection. Calls under way end with [ErrClosed]. The
// server aborts what was not committed and gets back everything else: Close waits, 3
// seconds at most, until it says so. Where stores,
// retrievals or leases are open, the connection stays until the last of them is ended, so
// that the server gives nobody else the memory that they may still be using; ending them
// then does nothing but that. Within a function that a call of this worker calls, as [Worker.StoreEach] does, Close
// waits those 3 seconds in vain, for that call; the server is told when it has ended.
//
// The second Close does nothing. Close of an unregistered worker closes the connection, unless
// another worker has it.
func (w *Worker) Close() error {
	c := w.conn
	if c.worker.Load() != w && !c.worker.CompareAndSwap(nil, w) {
		return nil
	}
	c.cancel()
	w.retire()
	late := time.NewTimer(w.parting.patience)
	defer late.Stop()
	select {
	case <-w.parting.quiet:
	case <-late.C:
		return nil
	}
	select {
	case <-present.left(w.session.Load().identity(), w):
	default:
		return nil // handles are open
	}
	select {
	case <-w.parting.over:
	case <-late.C:
	}
	return c.closeLink()
}

// Unregister ends the worker and leaves its connection open. It waits until all calls, stores,
// retrievals and leases are ended, for the server gives their memory to others, so not within a function that a
// call of this worker calls; and returns how many bytes the server's own I/O is still busy with. Where another worker of this
// process has the same instance, that stays registered, and this one's connection is made
// anew by the next call. After an error the connection is closed as by Close, which does not wait
// here: as soon as all is ended the server is told, if it can be.
func (w *Worker) Unregister(ctx context.Context) (draining int64, err error) {
	if w.base.Err() != nil {
		return 0, ErrClosed
	}
	w.retire()
	select {
	case <-w.parting.over:
		return w.parting.draining, w.parting.err
	case <-ctx.Done():
	}
	w.conn.cancel()
	select {
	case <-w.parting.over: // too late to see that
		_ = w.conn.closeLink() // always nil
	default:
	}
	return 0, fmt.Errorf("client: unregister: %w", ctx.Err())
}

// retire makes the worker refuse new calls and ends those under way. The rest goes by itself.
func (w *Worker) retire() {
	w.cancel()
	w.parting.once.Do(func() {
		_ = w.lock.acquire(context.Background(), nil) // whoever registers just now stops; can't fail
		s := w.session.Load()                         // the last there is
		w.lock.release()
		s.end()
		w.parting.last.Store(s)
		w.parting.end()
		w.tellIfLeft()
	})
}

// leave is for the end of a session, or of an attempt to get one.
func (w *Worker) leave(id identity) {
	present.leave(id, w)
	w.tellIfLeft()
}

// tellIfLeft has the server told, once, if the worker has ended and its last session has been left. Those who end handles do not
// wait for that.
func (w *Worker) tellIfLeft() {
	s := w.parting.last.Load()
	if s == nil {
		return
	}
	select {
	case <-present.left(s.identity(), w):
		w.parting.tell.Do(func() { go w.part(s) })
	default: // whoever leaves it comes here again
	}
}

// part ends the parting. Once the connection is closed, the server has some time.
func (w *Worker) part(s *session) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := context.AfterFunc(w.conn.base, func() { time.AfterFunc(w.parting.patience, cancel) })
	defer stop()
	p := &w.parting
	if p.draining, p.err = s.part(ctx); p.err != nil {
		s.link.log.Debug("client: unregister", "err", p.err)
		if ctx.Err() != nil {
			p.err = ErrClosed
		}
		_ = w.conn.closeLink() // always nil
	} else {
		w.conn.worker.CompareAndSwap(w, nil)
	}
	close(p.over)
	if w.conn.base.Err() != nil { // else who closes it finds that this is over
		_ = w.conn.closeLink() // always nil
	}
}

// part tells the server that this process touches none of its memory any more. Only when everybody
// has left, this link's predecessors too, may that be said. It awaits the answer: what is
// only queued here, or sent while the server writes to a closed socket, may never be read, and the
// server would keep all of it until this process ends. Where another worker of this process has the same
// instance it must not, and only sees to it that the server has read all that was sent; what a lost connection
// had, a last one sweeps up.
func (s *session) part(ctx context.Context) (draining int64, err error) {
	done, alone := present.part(s.identity(), s.worker)
	defer done()
	if !alone {
		_, err = s.link.ping(ctx, nil)
		s.link.lost(errShared) // the next call connects anew
		if other := present.only(s.identity()); other != nil {
			other.parting.run(other.sweepAgain)
		}
		if errors.Is(err, ErrDisconnected) {
			err = nil // this process keeps the registration, and nothing else was to be told
		}
		return 0, err
	}
	if s.link.alive() {
		draining, err = s.link.unregister(ctx)
		if !errors.Is(err, ErrDisconnected) {
			return draining, err
		}
	}
	return s.unregisterAnew(ctx)
}

// errShared ends the link of a worker whose instance others have, too.
var errShared = errors.New("another worker of this process stays registered as this instance")

// unregister makes the request.
func (l *link) unregister(ctx context.Context) (draining int64, err error) {
	c := newCall(proto.OpUnregister)
	err = l.roundTrip(ctx, c)
	if statusOf(err) == proto.StatusNotRegistered {
		return 0, nil // another connection has, and nothing is left of the instance
	}
	if err != nil {
		return 0, err
	}
	var x proto.UnregisterReply
	if err := proto.ParseUnregisterReply(c.body, &x); err != nil {
		return 0, l.broken(c.op, "%v", err)
	}
	c.free()
	return int64(x.Draining), nil
}

// unregisterAnew is for a link that is lost. If the server is still the same it keeps for this process
// what it had, and is told over a link that lasts as long as that takes. To say it one has to
// register, which would end another process that has taken the id: so where the server does not say that nobody has,
// it keeps that until this process ends.
func (s *session) unregisterAnew(ctx context.Context) (int64, error) {
	w := s.worker
	l, err := dialLink(ctx, w.conn.addr, &w.conn.opts)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	defer func() {
		l.fail(ErrClosed)
		<-l.read
	}()
	if l.boot != s.link.boot {
		return 0, nil // that server is gone, with all it kept
	}
	list, err := l.instances(ctx)
	if err != nil {
		return 0, err
	}
	if left, err := s.leftAmong(list); err != nil || !left {
		return 0, err
	}
	_, fd, err := w.request(ctx, l, w.reg.Want, nil)
	closeFD(fd)
	if err != nil {
		return 0, err
	}
	return l.unregister(ctx)
}

// leftAmong reports whether the session's life of its instance is among those that the server has, and may have
// something. It is an error if another one has the id by now.
func (s *session) leftAmong(list []InstanceInfo) (left bool, err error) {
	reg := s.worker.reg
	for i := range list {
		x := &list[i]
		switch {
		case x.ID != reg.Instance || x.Namespace != reg.Namespace:
		case x.Incarnation != s.incarnation && x.State != proto.InstanceDraining:
			return false, fmt.Errorf("%w: another process is instance %d now", ErrDisconnected, reg.Instance)
		case x.Incarnation == s.incarnation && x.Transport == proto.TransportShared:
			left = true // inline has nothing without its connection, and by TCP anybody may be the same
		}
	}
	return left, nil
}
