// Package client is the worker's side of the cache in Go: it attaches to a server,
// stores and retrieves objects, and carries their bytes through shared memory where it
// can be had and inline where it can't.
//
// A [Conn] is enough to look at a server ([Conn.Ping], [Conn.Stats], [Conn.Instances]). A
// [Worker] is registered and may use objects:
//
//	w, err := client.Open(ctx, "unix:/run/slotcache.sock", client.Options{}, client.Registration{
//		Namespace: "llama-3-8b",
//		Layouts:   []client.Layout{{Name: "bf16", Dims: []uint32{2, 32, 256, 1024}, Size: 32 << 20}},
//	})
//	store, err := w.PrepareStore(ctx, 0, keys, sizes, time.Second)
//	copy(store.Slot(0), chunk) // straight into the server's memory
//	err = store.Commit(ctx)
//
// Statuses and the modes of a lookup are constants of package proto.
//
// Both are safe for concurrent use. When the server has been restarted they connect,
// register and map its memory again by themselves, and a call that can be repeated is: it takes as
// long as the server is away, at most until its context's deadline, or without one for
// [Options].Reconnect. A [Store], [Retrieval] or [Lease] of
// before then answers [ErrStale]. Slices into the server's memory are valid until their
// handle is ended, and must not be touched after that: the memory may be unmapped.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// Options are how to reach a server.
type Options struct {
	Token       string        // the server's secret, where it asks for one; UTF-8 without NUL, at most 64 bytes
	TokenFile   string        // a file with the token, where Token is empty: its first line that is neither empty nor begins with #; read for each connection
	Name        string        // the worker's name in the server's logs and lists, unless its Registration has one
	Logger      *slog.Logger  // nil: [slog.Default]
	DialTimeout time.Duration // of one attempt to connect; 0: 5 s
	Reconnect   time.Duration // how long a call whose context has no deadline tries to connect again; 0: 30 s
	ShmDir      string        // where the server has named segments, its --shm-dir; empty: /dev/shm
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = 5 * time.Second
	}
	if o.Reconnect <= 0 {
		o.Reconnect = 30 * time.Second
	}
	if o.ShmDir == "" {
		o.ShmDir = shmDir
	}
	return o
}

// A Conn is a connection to a server. When it breaks, the next call makes it again. It
// is safe for concurrent use.
type Conn struct {
	addr   string
	opts   Options
	lock   semaphore // held while connecting
	link   atomic.Pointer[link]
	base   context.Context // ends with Close
	cancel context.CancelFunc
	worker atomic.Pointer[Worker] // uses this connection, or is about to; nil: none
}

// Dial connects to the server at addr, "unix:PATH" or "tcp:HOST:PORT", and greets it. It
// tries once.
func Dial(ctx context.Context, addr string, opts Options) (*Conn, error) {
	c := &Conn{addr: addr, opts: opts.withDefaults(), lock: newSemaphore()}
	l, err := dialLink(ctx, addr, &c.opts)
	if err != nil {
		return nil, err
	}
	c.base, c.cancel = context.WithCancel(context.Background())
	c.link.Store(l)
	return c, nil
}

// tokenMax is the most that is read of a file with a token, in bytes.
const tokenMax = 4096

// token is what to present to the server.
func (o *Options) token() (string, error) {
	if o.Token != "" || o.TokenFile == "" {
		return o.Token, checkToken(o.Token)
	}
	file, err := os.Open(o.TokenFile)
	if err != nil {
		return "", fmt.Errorf("client: read the token: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(file, tokenMax))
	if err != nil {
		return "", fmt.Errorf("client: read the token: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		token := strings.TrimSpace(line)
		if token == "" || token[0] == '#' {
			continue
		}
		if strings.ContainsAny(token, " \t") {
			return "", fmt.Errorf("client: read the token: the first line of %s has more than one word; the server's file of all tokens is not for clients", o.TokenFile)
		}
		return token, checkToken(token)
	}
	return "", fmt.Errorf("client: read the token: %s has none", o.TokenFile)
}

// checkToken refuses what cannot be sent. The token is a secret, so the error does not have it.
func checkToken(token string) error {
	if len(token) > proto.MaxName {
		return fmt.Errorf("client: the token has %d bytes, at most %d", len(token), proto.MaxName)
	}
	if proto.CheckName(token) != nil {
		return errors.New("client: the token is not UTF-8, or contains a NUL")
	}
	return nil
}

// splitAddr cuts an address into those of package net.
func splitAddr(addr string) (network, address string, err error) {
	network, address, ok := strings.Cut(addr, ":")
	if !ok || address == "" || (network != "unix" && network != "tcp") {
		return "", "", fmt.Errorf("client: address %q is neither unix:PATH nor tcp:HOST:PORT", addr)
	}
	return network, address, nil
}

// Server returns the name and version that the server told when it was last greeted.
func (c *Conn) Server() string { return c.link.Load().hello.Server }

// Boot returns the random id of the server's start that was last greeted.
func (c *Conn) Boot() uint64 { return c.link.Load().boot }

// Close closes the connection; the server gives back whatever hangs on it. Calls under
// way end with [ErrClosed]. Where a [Worker] uses it that is closed, as by [Worker.Close]. The
// second Close does nothing.
func (c *Conn) Close() error {
	c.cancel()
	if w := c.worker.Load(); w != nil && w.session.Load() != nil {
		return w.Close()
	}
	return c.closeLink()
}

// closeLink closes the connection at once.
func (c *Conn) closeLink() error {
	c.cancel()
	_ = c.lock.acquire(context.Background(), nil) // whoever connects just now stops; can't fail
	defer c.lock.release()
	l := c.link.Load()
	l.fail(ErrClosed)
	<-l.read
	return nil
}

// live returns the link, and makes a new one if it has failed. It tries until ctx ends,
// or for Options.Reconnect if ctx has no deadline.
func (c *Conn) live(ctx context.Context) (*link, error) {
	if c.base.Err() != nil {
		return nil, ErrClosed
	}
	if l := c.link.Load(); l.alive() {
		return l, nil
	}
	if err := c.lock.acquire(ctx, c.base.Done()); err != nil {
		return nil, err
	}
	defer c.lock.release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(c.base, cancel) // Close ends an attempt under way
	defer stop()
	wait := newBackoff(ctx, c.opts.Reconnect)
	for {
		if c.base.Err() != nil {
			return nil, ErrClosed
		}
		if l := c.link.Load(); l.alive() {
			return l, nil
		}
		l, err := dialLink(ctx, c.addr, &c.opts)
		if err == nil {
			c.link.Store(l)
			c.opts.Logger.Info("client: connected again", "addr", c.addr, "server", l.hello.Server, "boot", l.boot)
			return l, nil
		}
		if permanent(err) {
			return nil, err
		}
		if err := wait.next(ctx, c.base.Done(), err); err != nil {
			return nil, err
		}
	}
}

// permanent reports whether connecting again would end the same way.
func permanent(err error) bool {
	s := statusOf(err)
	return s != proto.StatusOK && s != proto.StatusDraining && s != proto.StatusBusy
}

// attempt runs fn on a live link, and once more on a new one if the link was lost
// meanwhile. So fn must be something that may be done twice.
func (c *Conn) attempt(ctx context.Context, fn func(l *link) error) error {
	for again := false; ; again = true {
		l, err := c.live(ctx)
		if err != nil {
			return err
		}
		if err = fn(l); err == nil || again || !retryable(l, err) {
			return err
		}
	}
}

// retryable reports whether err says that the server does not know this connection (any
// more) or is about to end, in which case the link is ended: who waits for the next server is
// not to see a difference between one that stops and one that is killed.
func retryable(l *link, err error) bool {
	if s := statusOf(err); s == proto.StatusStaleEpoch || s == proto.StatusNotRegistered || s == proto.StatusDraining {
		l.lost(err)
		return true
	}
	return errors.Is(err, ErrDisconnected)
}

// A semaphore is a mutex whose wait ends with a context.
type semaphore chan struct{}

func newSemaphore() semaphore { return make(semaphore, 1) }

// acquire locks. A nil closed is never closed.
func (s semaphore) acquire(ctx context.Context, closed <-chan struct{}) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-closed:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("client: connecting: %w", ctx.Err())
	}
}

func (s semaphore) release() { <-s }

// A backoff spaces attempts to connect.
type backoff struct {
	delay time.Duration
	until time.Time
}

const (
	backoffMin = 5 * time.Millisecond
	backoffMax = 500 * time.Millisecond
)

// newBackoff starts with the shortest delay. limit counts only if ctx has no deadline.
func newBackoff(ctx context.Context, limit time.Duration) *backoff {
	b := &backoff{delay: backoffMin}
	if _, ok := ctx.Deadline(); !ok {
		b.until = time.Now().Add(limit)
	}
	return b
}

// next waits before the attempt after the one that failed with cause.
func (b *backoff) next(ctx context.Context, closed <-chan struct{}, cause error) error {
	if !b.until.IsZero() && time.Now().After(b.until) {
		return fmt.Errorf("%w: %w", ErrDisconnected, cause)
	}
	t := time.NewTimer(b.delay/2 + rand.N(b.delay/2))
	defer t.Stop()
	b.delay = min(2*b.delay, backoffMax)
	select {
	case <-t.C:
		return nil
	case <-closed:
		return ErrClosed
	case <-ctx.Done():
		select {
		case <-closed:
			return ErrClosed
		default:
		}
		return fmt.Errorf("client: connecting: %w (last: %w)", ctx.Err(), cause)
	}
}
