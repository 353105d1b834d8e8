package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/slotcache/slotcache/proto"
)

// A link is one connection to one start of the server. It is made once, lives until its
// first error and is never made again: what comes after it is another link.
//
// Requests are sent by the callers; one goroutine reads replies and pairs them with the
// calls by request id.
type link struct {
	conn  net.Conn
	log   *slog.Logger
	out   outbox
	boot  uint64           // the server's boot id; 0 until HELLO is answered
	hello proto.HelloReply // valid once dialLink has returned
	fds   fdReader
	gone  chan struct{} // closed when the link has failed
	read  chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	next    uint64
	pending map[uint64]*call    // waiting and abandoned calls by request id
	reading uint64              // id of the call that the reader has claimed and not finished; 0: none
	grants  map[uint64]struct{} // handles that callers were given and have not ended
	err     error               // why the link has failed; nil while it lives
}

// dialLink connects and says HELLO.
func dialLink(ctx context.Context, addr string, opts *Options) (*link, error) {
	network, address, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	token, err := opts.token()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, opts.DialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	l := newLink(conn, opts.Logger)
	if err := l.out.open(conn, l.lost); err != nil {
		_ = conn.Close() // nothing was sent yet
		return nil, err
	}
	go l.readReplies()
	if err := l.greet(ctx, token); err != nil {
		l.fail(err)
		<-l.read
		return nil, err
	}
	return l, nil
}

func newLink(conn net.Conn, log *slog.Logger) *link {
	l := &link{
		conn:    conn,
		log:     log,
		gone:    make(chan struct{}),
		read:    make(chan struct{}),
		pending: make(map[uint64]*call),
		grants:  make(map[uint64]struct{}),
	}
	l.fds.conn = conn
	return l
}

// greet exchanges HELLO.
func (l *link) greet(ctx context.Context, token string) error {
	c := newCall(proto.OpHello)
	c.frame = proto.AppendHello(c.frame, &proto.Hello{VersionMin: proto.Version, VersionMax: proto.Version, Token: token})
	if err := l.roundTrip(ctx, c); err != nil {
		return err
	}
	if err := proto.ParseHelloReply(c.body, &l.hello); err != nil {
		return malformed(proto.OpHello, "%v", err)
	}
	c.free()
	if l.hello.Version != proto.Version || l.hello.MaxKeys == 0 {
		return malformed(proto.OpHello, "version %d, %d keys a request", l.hello.Version, l.hello.MaxKeys)
	}
	l.boot = l.hello.Boot
	return nil
}

// alive reports whether the link has not failed yet.
func (l *link) alive() bool {
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}

// roundTrip sends the call and awaits its reply. If err is nil, the status says that the
// request was carried out, and the call is the caller's, to be freed after its body was
// parsed. After an error that is ErrDisconnected it is the caller's too; after any other
// it must not be touched.
func (l *link) roundTrip(ctx context.Context, c *call) error {
	if err := l.begin(ctx, c); err != nil {
		return err
	}
	return l.await(ctx, c)
}

// begin sends the call. After an error nothing was sent.
func (l *link) begin(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return &unsentError{op: c.op, err: err}
	}
	if err := l.start(c); err != nil {
		return err
	}
	if err := l.out.send(ctx, c.frame, c.payload); err != nil && ctx.Err() != nil && l.alive() {
		// Nothing was sent, so that no reply will ever come.
		l.unstart(c)
		return &unsentError{op: c.op, err: err}
	}
	return nil
}

// beginLate has the call, which has no payload, go together with the next one that is sent.
func (l *link) beginLate(c *call) error {
	if err := l.start(c); err != nil {
		return err
	}
	l.out.postLate(c.frame)
	return nil
}

// await waits for the reply to a call that was sent. For its error see roundTrip.
func (l *link) await(ctx context.Context, c *call) error {
	op := c.op
	select {
	case <-c.done:
	case <-ctx.Done():
		if l.abandon(c) {
			return fmt.Errorf("client: %s: %w", op, ctx.Err())
		}
		<-c.done
	case <-c.stop:
		if l.abandon(c) {
			return fmt.Errorf("client: %s: %w", op, ErrClosed)
		}
		<-c.done
	}
	if c.err != nil {
		return fmt.Errorf("client: %s: %w", c.op, c.err)
	}
	if c.header.Status.Done() {
		return nil
	}
	err := &StatusError{Op: c.op, Status: c.header.Status}
	if len(c.body)+len(c.values) > 0 {
		return l.broken(c.op, "%s with a body", err.Status)
	}
	c.free()
	return err
}

// lost ends the link because the environment broke it.
func (l *link) lost(err error) { l.fail(fmt.Errorf("%w: %w", ErrDisconnected, err)) }

// broken ends the link because the server broke the protocol, and returns the error for
// the call that found it.
func (l *link) broken(op proto.Op, format string, args ...any) error {
	err := malformed(op, format, args...)
	l.lost(err)
	return err
}

// An unsentError is a request that never left because its context ended first.
type unsentError struct {
	op  proto.Op
	err error
}

// Error says what was not sent.
func (e *unsentError) Error() string { return fmt.Sprintf("client: %s not sent: %v", e.op, e.err) }

// Unwrap returns the context's error.
func (e *unsentError) Unwrap() error { return e.err }

// unsent says that a request never left.
func unsent(err error) bool {
	var u *unsentError
	return errors.As(err, &u)
}

// start gives the call an id and makes it known to the reader.
func (l *link) start(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state == callDone {
		c.rewind()
	}
	c.moveTo(callWaiting)
	if l.err != nil {
		c.moveTo(callDone)
		return fmt.Errorf("client: %s: %w", c.op, l.err)
	}
	l.next++
	c.seal(l.next, l.boot)
	l.pending[l.next] = c
	return nil
}

// sent counts the calls that were begun.
func (l *link) sent() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// unstart takes back a call that was not sent.
func (l *link) unstart(c *call) {
	l.mu.Lock()
	delete(l.pending, l.callID(c))
	l.mu.Unlock()
}

// callID reads the request id out of the call's frame.
func (l *link) callID(c *call) uint64 {
	h, err := proto.ParseHeader(c.frame)
	if err != nil {
		panic("client: a sealed frame has no header")
	}
	return h.Request
}

// abandon leaves the call, and what its reply will carry, to the reader. It reports
// false if the reply is there already.
func (l *link) abandon(c *call) bool {
	l.mu.Lock()
	if c.state == callDone {
		l.mu.Unlock()
		return false
	}
	op := c.op
	c.moveTo(callAbandoned)
	l.mu.Unlock()
	if op == proto.OpRegister {
		// Nobody would know what this connection is registered as.
		l.lost(errors.New("registration given up"))
	}
	return true
}

// post sends a request that wants no reply. It never waits, and does nothing on a link
// that has failed: the server has given back what hung on it.
func (l *link) post(c *call) {
	l.sealPost(c)
	l.out.post(c.frame)
	c.free()
}

// postLate is post, but with the next request, or a moment later if none comes.
func (l *link) postLate(c *call) {
	l.sealPost(c)
	l.out.postLate(c.frame)
	c.free()
}

func (l *link) sealPost(c *call) {
	c.flags |= proto.FlagNoReply
	l.mu.Lock()
	l.next++
	c.seal(l.next, l.boot)
	l.mu.Unlock()
}

// fail ends the link: every call that has no reply yet ends with err. Only the first
// failure counts.
func (l *link) fail(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = err
	left := l.pending
	l.pending = nil
	for id, c := range left {
		if c.state == callAbandoned {
			delete(left, id)
			continue
		}
		c.err = err
		c.moveTo(callDone)
	}
	close(l.gone)
	l.mu.Unlock()
	_ = l.conn.Close() // its error would say no more than the one at hand
	l.out.close(err)
	for _, c := range left {
		c.done <- struct{}{}
	}
}

// readReplies is the reader.
func (l *link) readReplies() {
	defer close(l.read)
	defer l.fds.close()
	r := bufio.NewReaderSize(&l.fds, 64<<10)
	for {
		if err := l.readReply(r); err != nil {
			l.lost(err)
			return
		}
	}
}

// readReply reads one frame into the call that it answers.
func (l *link) readReply(r *bufio.Reader) error {
	var head [proto.HeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	h, err := proto.ParseHeader(head[:])
	if err != nil {
		return err
	}
	c, discard := l.claim(h.Request)
	switch {
	case c == nil:
		return malformed(h.Op, "nobody asked as request %d", h.Request)
	case !h.Reply() || h.Op != c.op || !h.Status.Valid():
		err = malformed(h.Op, "flags %#x and status %s to %s", h.Flags, h.Status, c.op)
	case h.Payload() > c.payloadMax:
		err = malformed(h.Op, "payload of %d bytes, most %d", h.Payload(), c.payloadMax)
	default:
		err = c.receive(r, h, discard)
	}
	if err == nil && c.op == proto.OpRegister {
		c.fd = l.fds.take()
	}
	l.finish(c, err)
	return err
}

// receive reads the reply's body and payload.
func (c *call) receive(r *bufio.Reader, h proto.Header, discard bool) error {
	c.header = h
	if cap(c.body) < int(h.Body) {
		c.body = make([]byte, h.Body)
	}
	c.body = c.body[:h.Body]
	if _, err := io.ReadFull(r, c.body); err != nil {
		return err
	}
	switch {
	case h.Payload() == 0:
		return nil
	case discard:
		_, err := r.Discard(int(h.Payload()))
		return err
	}
	c.values = make([]byte, h.Payload())
	_, err := io.ReadFull(r, c.values)
	return err
}

// claim takes the call with the given id out of the pending ones. The reader alone may
// touch it until finish. abandoned says that nobody wants the reply's payload.
func (l *link) claim(id uint64) (c *call, abandoned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c = l.pending[id]
	if c == nil {
		return nil, false
	}
	delete(l.pending, id)
	l.reading = id
	if c.state == callAbandoned {
		return c, true
	}
	c.moveTo(callReading)
	return c, false
}

// finish hands a claimed call to its caller, or gives back what it carries if the caller
// has left.
func (l *link) finish(c *call, err error) {
	if err != nil {
		l.lost(err)
	}
	l.mu.Lock()
	l.reading = 0
	if c.state == callAbandoned {
		l.mu.Unlock()
		if err == nil {
			l.giveBack(c)
		}
		c.free()
		return
	}
	if err != nil {
		c.err = l.err
	}
	if h := grantOf(c); h != 0 {
		l.grants[h] = struct{}{}
	}
	c.moveTo(callDone)
	l.mu.Unlock()
	c.done <- struct{}{}
}
