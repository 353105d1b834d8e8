package ring

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An Epoll is the [Interface] over epoll(7), for kernels and sandboxes without io_uring.
//
// Sends are tried directly, without blocking, and wait only for what did not go; other operations on sockets are tried when the
// kernel says that they are ready. A descriptor is in the epoll set, level-triggered, from its first operation that waits to the end
// of its last, so that a request that is received and answered costs a receive, a send and its share of one epoll_wait. Reads,
// writes and syncs of files are system calls of a few goroutines, handed over once a turn: see disk.
//
// An operation that is over waits, settling, in a queue until it is handed out; only data and connections go straight to the caller.
// Other goroutines write the eventfd only while the loop sleeps.
type Epoll struct {
	account
	fd     int
	events []unix.EpollEvent
	table  opTable
	tags   tagTable
	fds    fdTable
	timers timerHeap
	recv   recvPool
	sends  []uint32 // of SendNow, not tried yet
	ready  opQueue  // operations that are over
	reads  disk     // apart, so that reads go on where writes hang, and need not wait behind them
	writes disk     // and syncs
	held   []int
	spare  []*fdMessage // of SendFD, not in use

	start   time.Time
	spin    time.Duration
	sleep   sleeper
	started bool // the first wait was

	sleeping atomic.Bool // the loop may be in the kernel, and nobody has written the eventfd since
	woken    atomic.Bool // a Wake has no completion yet
	wakeMu   sync.Mutex  // guards wakeFD against Close
	wakeFD   int         // -1 when closed
	closed   bool
}

var _ Interface = (*Epoll)(nil)

const (
	// eventsMax is how many descriptors one epoll_wait reports at most.
	eventsMax = 512
	// acceptsMax is how many connections are taken of a listening socket in a turn.
	acceptsMax = 4
	// sendsMax is how many system calls a turn makes for one send.
	sendsMax = 8
)

// NewEpoll sets up an Epoll. It may run on any thread.
func NewEpoll(cfg Config) (*Epoll, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	all := cfg.Ops + cfg.Control
	e := &Epoll{
		fd:     -1,
		events: make([]unix.EpollEvent, eventsMax),
		table:  newOpTable(cfg.Ops, cfg.Control),
		tags:   newTagTable(cfg.Control),
		timers: newTimerHeap(all),
		sends:  make([]uint32, 0, cfg.Control),
		ready:  newOpQueue(all),
		start:  time.Now(),
		spin:   cfg.Spin,
		wakeFD: -1,
	}
	e.reads.init(e, cfg.Ops, cfg.Workers)
	e.writes.init(e, cfg.Ops, cfg.Workers)
	if err := e.open(&cfg); err != nil {
		e.free()
		return nil, err
	}
	return e, nil
}

// open opens the descriptors and maps the buffers.
func (e *Epoll) open(cfg *Config) (err error) {
	if e.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("ring: epoll: %w", err)
	}
	if e.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("ring: eventfd: %w", err)
	}
	// Edge-triggered: each write is told of once, and the counter is never read.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | epollET, Fd: int32(e.wakeFD)}
	if err = unix.EpollCtl(e.fd, unix.EPOLL_CTL_ADD, e.wakeFD, &ev); err != nil {
		return fmt.Errorf("ring: watch the eventfd: %w", err)
	}
	return e.recv.init(cfg.RecvBuffers, cfg.RecvBufferSize)
}

// Accept implements [Interface].
func (e *Epoll) Accept(tag Tag, fd int) { e.attach(e.takeArmed(codeAccept, tag, fd)) }

// Recv implements [Interface].
func (e *Epoll) Recv(tag Tag, fd int) { e.attach(e.takeArmed(codeRecv, tag, fd)) }

// Poll implements [Interface].
func (e *Epoll) Poll(tag Tag, fd int) { e.attach(e.takeArmed(codePoll, tag, fd)) }

// Timer implements [Interface].
func (e *Epoll) Timer(tag Tag, d time.Duration) {
	i := e.takeArmed(codeTimer, tag, -1)
	e.timers.push(i, e.now(), d)
}

// Pause implements [Interface].
func (e *Epoll) Pause(tag Tag) {
	i, ok := e.tags.find(tag)
	if !ok || e.table.ops[i].state != opLive {
		return
	}
	if e.table.ops[i].code == codeTimer {
		e.timers.remove(i)
	} else {
		e.detach(i)
	}
	e.settle(i, -int32(unix.ECANCELED))
}

// SendNow implements [Interface].
func (e *Epoll) SendNow(tag Tag, fd int, p []byte) {
	checkLen(p)
	i := e.take(codeSendNow, tag, fd)
	e.table.ops[i].buf = p
	e.sends = append(e.sends, i)
}

// sendAll tries what SendNow queued. What went out whole is over without a word.
func (e *Epoll) sendAll() {
	for _, i := range e.sends {
		o := &e.table.ops[i]
		n, errno := sendBytes(int(o.fd), o.buf)
		for tries := 0; errno == unix.EINTR && tries < retriesMax; tries++ {
			e.stats.Retries++
			n, errno = sendBytes(int(o.fd), o.buf)
		}
		if errno == 0 && n == len(o.buf) {
			e.finish(i)
		} else {
			e.settle(i, outcome(n, errno))
		}
	}
	e.sends = e.sends[:0]
}

// Send implements [Interface].
func (e *Epoll) Send(tag Tag, fd int, p []byte) {
	checkLen(p)
	i := e.take(codeSend, tag, fd)
	e.table.ops[i].buf = p
	e.beginSend(i)
}

// SendFD implements [Interface].
func (e *Epoll) SendFD(tag Tag, fd int, p []byte, passed int) {
	if len(p) == 0 {
		panic("ring: a descriptor is sent with no byte")
	}
	checkLen(p)
	i := e.take(codeSendFD, tag, fd)
	o := &e.table.ops[i]
	o.buf, o.off = p, int64(passed)
	if n := len(e.spare); n > 0 {
		o.msg, e.spare = e.spare[n-1], e.spare[:n-1]
	} else {
		o.msg = new(fdMessage)
	}
	e.beginSend(i)
}

// beginSend tries a send, and has what is left wait for room.
func (e *Epoll) beginSend(i uint32) {
	if res, over := e.trySend(&e.table.ops[i]); over {
		e.settle(i, res)
		return
	}
	e.attach(i)
}

// Read implements [Interface].
func (e *Epoll) Read(tag Tag, fd int, off int64, p []byte) { e.queueFile(codeRead, tag, fd, off, p) }

// Write implements [Interface].
func (e *Epoll) Write(tag Tag, fd int, off int64, p []byte) { e.queueFile(codeWrite, tag, fd, off, p) }

// Sync implements [Interface].
func (e *Epoll) Sync(tag Tag, fd int) { e.queueFile(codeSync, tag, fd, 0, nil) }

// queueFile queues an operation on a file for the end of the turn.
func (e *Epoll) queueFile(code opCode, tag Tag, fd int, off int64, p []byte) {
	checkLen(p)
	if off < 0 {
		panic("ring: negative file offset")
	}
	i := e.take(code, tag, fd)
	o := &e.table.ops[i]
	o.buf, o.off = p, off
	if code == codeRead {
		e.reads.add(i)
	} else {
		e.writes.add(i)
	}
}

// RegisterMemory implements [Interface]: system calls know no such thing.
func (e *Epoll) RegisterMemory([]byte) error {
	return fmt.Errorf("ring: register memory with epoll: %w", unix.EOPNOTSUPP)
}

// ForgetMemory implements [Interface]: nothing is registered.
func (e *Epoll) ForgetMemory([]byte) {}

// HoldFile implements [Interface]. The kernel closes the descriptors of a killed process when its last thread has ended, and that
// finishes its system call first.
func (e *Epoll) HoldFile(fd int) error {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("ring: hold file %d: %w", fd, err)
	}
	e.held = append(e.held, n)
	return nil
}

// Room implements [Interface].
func (e *Epoll) Room() int { return e.table.filesMax - e.table.files }

// Stats implements [Interface].
func (e *Epoll) Stats() Stats {
	s := e.stats
	s.InFlight = e.table.live()
	return s
}

// Wake implements [Interface].
func (e *Epoll) Wake() {
	if !e.woken.Swap(true) {
		e.rouse()
	}
}

// rouse ends the loop's sleep. Any goroutine may call it, after it made visible what the loop is to find.
func (e *Epoll) rouse() {
	if !e.sleeping.CompareAndSwap(true, false) {
		return // it is awake and looks before it sleeps, or somebody else has written
	}
	e.wakeMu.Lock()
	defer e.wakeMu.Unlock()
	if e.wakeFD >= 0 {
		writeOne(e.wakeFD)
	}
}

// now is the time on the monotonic clock.
func (e *Epoll) now() time.Duration { return time.Since(e.start) }

// take makes an operation.
func (e *Epoll) take(code opCode, tag Tag, fd int) uint32 {
	if e.closing {
		panic("ring: operation after Close")
	}
	i := e.table.take(code)
	o := &e.table.ops[i]
	o.tag, o.fd = tag, int32(fd)
	return i
}

// takeArmed makes an operation that is found by its tag.
func (e *Epoll) takeArmed(code opCode, tag Tag, fd int) uint32 {
	if _, taken := e.tags.find(tag); taken {
		panic("ring: an operation is armed under this tag")
	}
	i := e.take(code, tag, fd)
	e.tags.insert(tag, i)
	return i
}

// settle puts operation i, which nothing else knows of any more, among those to be handed out.
func (e *Epoll) settle(i uint32, res int32) {
	o := &e.table.ops[i]
	o.moveTo(opSettling)
	o.res = res
	e.ready.push(i)
}

// finish ends operation i.
func (e *Epoll) finish(i uint32) {
	o := &e.table.ops[i]
	if o.code.armed() {
		e.tags.remove(o.tag)
	}
	if o.msg != nil {
		o.msg.clear()
		e.spare = append(e.spare, o.msg)
		o.msg = nil
	}
	e.table.release(i)
}

// Close implements [Interface].
func (e *Epoll) Close() error {
	if e.closed {
		return nil
	}
	e.closing, e.closed = true, true
	e.reads.close()
	e.writes.close()
	for i := range e.table.ops {
		if e.table.ops[i].state != opFree {
			e.finish(uint32(i))
		}
	}
	e.free()
	return nil
}

// free gives everything back.
func (e *Epoll) free() {
	e.wakeMu.Lock()
	if e.wakeFD >= 0 {
		_ = unix.Close(e.wakeFD)
		e.wakeFD = -1
	}
	e.wakeMu.Unlock()
	if e.fd >= 0 {
		_ = unix.Close(e.fd)
	}
	for _, fd := range e.held {
		_ = unix.Close(fd)
	}
	e.held = nil
	e.recv.unmap()
}

// outcome is the result of a system call.
func outcome(n int, errno syscall.Errno) int32 {
	if errno != 0 {
		return -int32(errno)
	}
	return int32(n)
}
