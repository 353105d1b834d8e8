package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/slotcache/slotcache/proto"
)

// A Registration is what a worker tells of itself.
type Registration struct {
	Instance  uint64   // id; 0: a random one, kept for the worker's life. Workers of a process better have different ones
	Name      string   // for the server's logs and lists; empty: Options.Name
	Namespace string   // objects of different namespaces never meet
	Layouts   []Layout // requests name one by its index here
	Inline    bool     // don't use shared memory
	ReadOnly  bool     // the worker stores, deletes and clears nothing
}

// request checks the registration and turns it into the protocol's.
func (r *Registration) request(opts *Options) (*proto.Register, error) {
	x := &proto.Register{
		Instance:  r.Instance,
		Want:      proto.TransportShared,
		ReadOnly:  r.ReadOnly,
		Name:      r.Name,
		Namespace: r.Namespace,
		Layouts:   make([]Layout, len(r.Layouts)),
	}
	if r.Inline {
		x.Want = proto.TransportInline
	}
	if x.Name == "" {
		x.Name = opts.Name
	}
	for x.Instance == 0 {
		x.Instance = rand.Uint64()
	}
	if len(r.Layouts) > proto.MaxLayouts {
		return nil, fmt.Errorf("client: %d layouts, most %d", len(r.Layouts), proto.MaxLayouts)
	}
	err := errors.Join(proto.CheckName(x.Name), proto.CheckName(x.Namespace))
	for i, l := range r.Layouts {
		if len(l.Dims) > proto.MaxDims {
			err = errors.Join(err, fmt.Errorf("client: layout %d has %d dimensions, most %d", i, len(l.Dims), proto.MaxDims))
		}
		err = errors.Join(err, proto.CheckName(l.Name))
		x.Layouts[i] = Layout{Name: l.Name, Dims: append([]uint32(nil), l.Dims...), Size: l.Size}
	}
	return x, err
}

// Open connects to the server at addr and registers there. It tries once, as [Dial] does: who
// may come before its server calls again, as long as the error is no [StatusError]. Closing the
// worker closes the connection.
func Open(ctx context.Context, addr string, opts Options, reg Registration) (*Worker, error) {
	c, err := Dial(ctx, addr, opts)
	if err != nil {
		return nil, err
	}
	w, err := c.Register(ctx, reg)
	if err != nil {
		_ = c.Close() // the error at hand says more
		return nil, err
	}
	return w, nil
}

// Register makes the connection's peer a worker. A connection has one worker at a time:
// until it is unregistered, a second Register is an error.
func (c *Conn) Register(ctx context.Context, reg Registration) (*Worker, error) {
	x, err := reg.request(&c.opts)
	if err != nil {
		return nil, err
	}
	w := &Worker{conn: c, reg: x, lock: newSemaphore()}
	w.parting.init()
	if !c.worker.CompareAndSwap(nil, w) {
		return nil, errors.New("client: the connection has a worker already")
	}
	w.base, w.cancel = context.WithCancel(c.base)
	err = c.attempt(ctx, func(l *link) error {
		s, err := w.attach(ctx, l)
		if err == nil {
			w.present(s)
		}
		return err
	})
	if err != nil {
		w.cancel()
		c.worker.Store(nil)
		return nil, err
	}
	if c.base.Err() != nil { // closed just now, perhaps without a look at this worker
		return nil, errors.Join(ErrClosed, w.Close())
	}
	return w, nil
}

// attach registers on the link and maps the memory. Where that can't be had it registers
// once more, inline.
func (w *Worker) attach(ctx context.Context, l *link) (*session, error) {
	s, err := w.register(ctx, l, w.reg.Want)
	var refused *mappingError
	if errors.As(err, &refused) {
		l.log.Warn("client: no shared memory, going on inline", "instance", w.reg.Instance, "err", refused.err)
		s, err = w.register(ctx, l, proto.TransportInline)
	}
	if err != nil {
		return nil, err
	}
	if s.pool != nil {
		s.retain()
		w.parting.run(s.populate)
	}
	return s, nil
}

// A mappingError says why offered memory could not be used.
type mappingError struct{ err error }

// Error says why.
func (e *mappingError) Error() string { return e.err.Error() }

// request makes one registration, with the transport wanted. The descriptor, or -1, is the
// caller's. The call ends with ErrClosed when stop is closed.
func (w *Worker) request(ctx context.Context, l *link, want proto.Transport, stop <-chan struct{}) (x proto.RegisterReply, fd int, err error) {
	req := *w.reg
	req.Want = want
	c := newCall(proto.OpRegister)
	c.frame = proto.AppendRegister(c.frame, &req)
	c.stop = stop
	if err := l.roundTrip(ctx, c); err != nil {
		return x, -1, err
	}
	err = proto.ParseRegisterReply(c.body, &x)
	fd = c.fd
	c.free()
	switch {
	case err != nil:
	case len(x.LayoutIDs) != len(req.Layouts):
		err = fmt.Errorf("%d layout ids for %d layouts", len(x.LayoutIDs), len(req.Layouts))
	case want == proto.TransportInline && x.Transport != want:
		err = fmt.Errorf("transport %s", x.Transport)
	}
	if err != nil {
		closeFD(fd)
		return x, -1, l.broken(proto.OpRegister, "%v", err)
	}
	return x, fd, nil
}

// register registers once, with the transport wanted.
func (w *Worker) register(ctx context.Context, l *link, want proto.Transport) (*session, error) {
	id := identity{boot: l.boot, instance: w.reg.Instance}
	if err := present.enter(ctx, id, w); err != nil {
		return nil, err
	}
	x, fd, err := w.request(ctx, l, want, w.base.Done())
	if err != nil {
		w.leave(id)
		return nil, err
	}
	s := &session{
		link:        l,
		worker:      w,
		transport:   x.Transport,
		incarnation: x.Incarnation,
		poolSize:    int64(min(x.PoolSize, 1<<62)),
		layouts:     w.reg.Layouts,
		left:        make(chan struct{}),
	}
	s.refs.Store(1)
	if s.inline() {
		closeFD(fd)
	} else if s.pool, err = mapReply(&x, w.conn.opts.ShmDir, fd, w.reg.ReadOnly); err != nil {
		s.leave()
		return nil, &mappingError{err: err}
	}
	s.announce(int64(min(x.Ready, 1<<62)))
	l.log.LogAttrs(ctx, slog.LevelDebug, "client: registered",
		slog.Uint64("instance", w.reg.Instance), slog.Uint64("incarnation", uint64(x.Incarnation)),
		slog.String("namespace", w.reg.Namespace), slog.String("transport", x.Transport.String()),
		slog.String("shm", x.ShmKind.String()), slog.String("segment", x.ShmName),
		slog.Uint64("size", x.PoolSize), slog.Uint64("ready", x.Ready), slog.Uint64("boot", l.boot))
	return s, nil
}
