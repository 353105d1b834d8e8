package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lateTime is how long a frame waits at most for another to go with.
	lateTime = time.Millisecond
	// lateMax is how many bytes wait so.
	lateMax = 4 << 10
	// copiedMax is how many bytes of a payload are copied if the kernel does not take them at once.
	copiedMax = 64 << 10
)

// outboxMax is how many bytes may wait for a slow server before calls wait too. A frame
// with a larger payload still goes into an empty queue.
const outboxMax = 64 << 20

// An outbox sends frames on one connection, whole and in order. The caller's goroutine
// hands a frame to the kernel itself; only what the kernel does not take at once is
// copied and left to a goroutine that lives until the queue is empty. So a call never
// blocks in a write and can always leave when its context ends.
type outbox struct {
	conn net.Conn
	raw  syscall.RawConn
	lost func(error) // called, without the mutex, when a write fails

	mu       sync.Mutex
	queue    net.Buffers   // what the kernel has not taken, in order
	size     int           // bytes in queue and in the flusher's hands
	flushing bool          // a flusher is running
	room     chan struct{} // closed when size has shrunk; nil if nobody waits
	late     []byte        // frames that go together with the next one
	timer    *time.Timer   // sends them if none comes
	armed    bool          // it runs
	err      error

	// Operands and results of tryFunc, which is made once so that a try allocates nothing.
	tryFunc func(fd uintptr) bool
	tryData [][]byte
	tryLen  int
	tryErr  error
}

// open prepares the outbox for a connection.
func (o *outbox) open(conn net.Conn, lost func(error)) error {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("client: %T has no descriptor", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return fmt.Errorf("client: descriptor of the connection: %w", err)
	}
	o.conn, o.raw, o.lost = conn, raw, lost
	o.tryFunc = func(fd uintptr) bool {
		o.tryLen, o.tryErr = unix.SendmsgBuffers(int(fd), o.tryData, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	}
	return nil
}

// send sends frame and the payload that follows it, waiting for room in the queue until
// ctx ends. The frame is the caller's again on return, and so is a payload of at most
// copiedMax bytes; a larger one must stay as it is until the connection has sent it or is
// closed. After an error nothing was sent.
func (o *outbox) send(ctx context.Context, frame []byte, payload [][]byte) error {
	size := len(frame)
	for _, p := range payload {
		size += len(p)
	}
	o.mu.Lock()
	for o.err == nil && o.size > 0 && o.size+size > outboxMax {
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
		o.mu.Lock()
	}
	err := o.put(frame, payload)
	o.mu.Unlock()
	if err != nil {
		o.lost(err)
	}
	return err
}

// post sends a frame without ever waiting.
func (o *outbox) post(frame []byte) {
	o.mu.Lock()
	err := o.put(frame, nil)
	o.mu.Unlock()
	if err != nil {
		o.lost(err)
	}
}

// postLate sends a frame together with the next one, or in a while if none comes: the server
// is not woken for it alone. It never waits.
func (o *outbox) postLate(frame []byte) {
	o.mu.Lock()
	var err error
	if o.err == nil {
		o.late = append(o.late, frame...)
		if len(o.late) > lateMax {
			err = o.put(nil, nil)
		} else if !o.armed {
			o.armed = true
			if o.timer == nil {
				o.timer = time.AfterFunc(lateTime, o.flushLate)
			} else {
				o.timer.Reset(lateTime)
			}
		}
	}
	o.mu.Unlock()
	if err != nil {
		o.lost(err)
	}
}

// flushLate sends what waits for another frame to go with.
func (o *outbox) flushLate() {
	o.mu.Lock()
	o.armed = false
	var err error
	if len(o.late) > 0 && o.err == nil {
		err = o.put(nil, nil)
	}
	o.mu.Unlock()
	if err != nil {
		o.lost(err)
	}
}

// put hands the frame, behind those that waited for it, to the kernel or to the queue. The
// caller holds the mutex.
func (o *outbox) put(frame []byte, payload [][]byte) error {
	if o.err != nil {
		return o.err
	}
	sent := 0
	if o.size == 0 {
		var err error
		if sent, err = o.try(frame, payload); err != nil {
			o.stop(err)
			return err
		}
	}
	size := 0
	for _, p := range payload {
		size += len(p)
	}
	rest := func(p []byte, copied bool) {
		n := min(sent, len(p))
		sent -= n
		if p = p[n:]; copied && len(p) > 0 {
			p = append([]byte(nil), p...)
		}
		o.push(p)
	}
	rest(o.late, true)
	o.late = o.late[:0]
	rest(frame, true)
	for _, p := range payload {
		rest(p, size <= copiedMax)
	}
	if o.size > 0 && !o.flushing {
		o.flushing = true
		go o.flush()
	}
	return nil
}

// push appends a piece to the queue. The caller holds the mutex.
func (o *outbox) push(p []byte) {
	if len(p) > 0 {
		o.queue = append(o.queue, p)
		o.size += len(p)
	}
}

// piecesMax is how many pieces are handed to the kernel at once; it takes 1024.
const piecesMax = 512

// try writes what the kernel takes without blocking, and returns how many bytes.
func (o *outbox) try(frame []byte, payload [][]byte) (int, error) {
	o.tryData = append(append(o.tryData[:0], o.late, frame), payload[:min(len(payload), piecesMax)]...)
	err := o.raw.Write(o.tryFunc)
	clear(o.tryData)
	if err != nil {
		return 0, err
	}
	switch err := o.tryErr; {
	case err == nil:
		return o.tryLen, nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS):
		return 0, nil
	default:
		return 0, err
	}
}

// flush writes the queue until it is empty or the connection fails.
func (o *outbox) flush() {
	o.mu.Lock()
	for o.err == nil && len(o.queue) > 0 {
		batch := o.queue
		o.queue = nil
		o.mu.Unlock()
		n, err := batch.WriteTo(o.conn)
		o.mu.Lock()
		if err != nil {
			o.stop(err)
			o.flushing = false
			o.mu.Unlock()
			o.lost(err)
			return
		}
		o.size -= int(n)
		o.wake()
	}
	o.flushing = false
	o.mu.Unlock()
}

// close makes every later send fail with err.
func (o *outbox) close(err error) {
	o.mu.Lock()
	o.stop(err)
	o.mu.Unlock()
}

// stop keeps the first error and wakes those who wait. The caller holds the mutex.
func (o *outbox) stop(err error) {
	if o.err == nil {
		o.err = err
	}
	o.queue, o.late = nil, nil
	if o.timer != nil {
		o.timer.Stop()
	}
	o.wake()
}

// wake lets those who wait for room look again. The caller holds the mutex.
func (o *outbox) wake() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}
