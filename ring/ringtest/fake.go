package ringtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

// A Fake is a [ring.Interface] of plain system calls, for tests of what is built on one: it runs wherever poll(2) does, needs no
// thread of its own, and what it does depends on nothing but the order of the calls and the state of the descriptors. File
// operations are carried out by Submit or Wait, in the order they were queued; sockets are looked at in the order they were armed,
// one step each a turn. It has no registered memory.
type Fake struct {
	cfg     ring.Config
	ops     []fakeOp
	ready   []ring.Completion
	files   int // queued operations that Room counts
	control int

	buffers [][]byte // not in use
	out     [][]byte // handed out since the last Wait
	held    []int
	polls   []unix.PollFd
	polled  []int // the operation of each of polls
	stats   ring.Stats
	closed  bool

	wakeMu sync.Mutex
	wakeFD int // -1 when closed
}

var _ ring.Interface = (*Fake)(nil)

// A fakeOp is an operation in the order it was queued.
type fakeOp struct {
	kind    ring.Kind
	tag     ring.Tag
	fd      int
	p       []byte
	off     int64
	done    int
	passed  int // SendFD: what goes with the first byte; else -1
	until   time.Time
	now     bool // SendNow
	started bool // what happens at the first Submit or Wait happened
	paused  bool
	over    bool // to be taken off the list
}

// armed tells whether Pause finds the operation.
func (o *fakeOp) armed() bool {
	return o.kind == ring.KindAccept || o.kind == ring.KindRecv || o.kind == ring.KindPoll || o.kind == ring.KindTimer
}

// file tells whether Room counts the operation.
func (o *fakeOp) file() bool {
	return o.kind == ring.KindRead || o.kind == ring.KindWrite || o.kind == ring.KindSync
}

// NewFake makes a Fake of the sizes in cfg, whose zero fields mean the ring's defaults.
func NewFake(cfg ring.Config) (*Fake, error) {
	for _, d := range []struct {
		v   *int
		def int
	}{
		{&cfg.Ops, ring.DefaultOps},
		{&cfg.Control, ring.DefaultControl},
		{&cfg.RecvBuffers, ring.DefaultRecvBuffers},
		{&cfg.RecvBufferSize, ring.DefaultRecvBufferSize},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("ringtest: eventfd: %w", err)
	}
	f := &Fake{cfg: cfg, wakeFD: fd, buffers: make([][]byte, cfg.RecvBuffers)}
	for i := range f.buffers {
		f.buffers[i] = make([]byte, cfg.RecvBufferSize)
	}
	return f, nil
}

// queue adds an operation to the list.
func (f *Fake) queue(o fakeOp) {
	if f.closed {
		panic("ringtest: operation after Close")
	}
	if len(o.p) > math.MaxInt32 || o.off < 0 {
		panic("ringtest: I/O of 2 GiB or more, or a negative file offset")
	}
	if o.armed() {
		for i := range f.ops {
			if f.ops[i].armed() && f.ops[i].tag == o.tag && !f.ops[i].over {
				panic("ringtest: an operation is armed under this tag")
			}
		}
		for _, c := range f.ready {
			if c.Tag == o.tag && c.Kind == o.kind && !c.More {
				panic("ringtest: an operation is armed under this tag")
			}
		}
	}
	if o.file() {
		if f.files == f.cfg.Ops {
			panic("ringtest: more reads, writes and syncs than Room")
		}
		f.files++
	} else {
		if f.control == f.cfg.Control {
			panic("ringtest: more operations than Config.Control")
		}
		f.control++
	}
	f.ops = append(f.ops, o)
}

// Accept implements [ring.Interface].
func (f *Fake) Accept(tag ring.Tag, fd int) {
	f.queue(fakeOp{kind: ring.KindAccept, tag: tag, fd: fd, passed: -1})
}

// Recv implements [ring.Interface].
func (f *Fake) Recv(tag ring.Tag, fd int) {
	f.queue(fakeOp{kind: ring.KindRecv, tag: tag, fd: fd, passed: -1})
}

// Pause implements [ring.Interface].
func (f *Fake) Pause(tag ring.Tag) {
	for i := range f.ops {
		if o := &f.ops[i]; o.armed() && o.tag == tag && !o.over {
			o.paused = true
		}
	}
}

// SendNow implements [ring.Interface].
func (f *Fake) SendNow(tag ring.Tag, fd int, p []byte) {
	f.queue(fakeOp{kind: ring.KindSend, tag: tag, fd: fd, p: p, now: true, passed: -1})
}

// Send implements [ring.Interface].
func (f *Fake) Send(tag ring.Tag, fd int, p []byte) {
	f.queue(fakeOp{kind: ring.KindSend, tag: tag, fd: fd, p: p, passed: -1})
}

// SendFD implements [ring.Interface].
func (f *Fake) SendFD(tag ring.Tag, fd int, p []byte, passed int) {
	if len(p) == 0 {
		panic("ringtest: a descriptor is sent with no byte")
	}
	f.queue(fakeOp{kind: ring.KindSend, tag: tag, fd: fd, p: p, passed: passed})
}

// Read implements [ring.Interface].
func (f *Fake) Read(tag ring.Tag, fd int, off int64, p []byte) {
	f.queue(fakeOp{kind: ring.KindRead, tag: tag, fd: fd, off: off, p: p, passed: -1})
}

// Write implements [ring.Interface].
func (f *Fake) Write(tag ring.Tag, fd int, off int64, p []byte) {
	f.queue(fakeOp{kind: ring.KindWrite, tag: tag, fd: fd, off: off, p: p, passed: -1})
}

// Sync implements [ring.Interface].
func (f *Fake) Sync(tag ring.Tag, fd int) {
	f.queue(fakeOp{kind: ring.KindSync, tag: tag, fd: fd, passed: -1})
}

// Poll implements [ring.Interface].
func (f *Fake) Poll(tag ring.Tag, fd int) {
	f.queue(fakeOp{kind: ring.KindPoll, tag: tag, fd: fd, passed: -1})
}

// Timer implements [ring.Interface].
func (f *Fake) Timer(tag ring.Tag, d time.Duration) {
	f.queue(fakeOp{kind: ring.KindTimer, tag: tag, fd: -1, until: time.Now().Add(d), passed: -1})
}

// Wake implements [ring.Interface].
func (f *Fake) Wake() {
	f.wakeMu.Lock()
	defer f.wakeMu.Unlock()
	if f.wakeFD < 0 {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	for {
		_, err := unix.Write(f.wakeFD, one[:])
		if !errors.Is(err, unix.EINTR) {
			return // its only other error is a full counter, which wakes as well
		}
	}
}

// Expect implements [ring.Interface]: it never looks before it sleeps.
func (f *Fake) Expect() {}

// Due implements [ring.Interface]: it cannot tell.
func (f *Fake) Due() bool { return false }

// RegisterMemory implements [ring.Interface]: there is no such thing here.
func (f *Fake) RegisterMemory([]byte) error {
	return fmt.Errorf("ringtest: register memory: %w", unix.EOPNOTSUPP)
}

// ForgetMemory implements [ring.Interface]: nothing is registered.
func (f *Fake) ForgetMemory([]byte) {}

// HoldFile implements [ring.Interface] as far as that goes without a ring: until Close.
func (f *Fake) HoldFile(fd int) error {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("ringtest: hold file %d: %w", fd, err)
	}
	f.held = append(f.held, n)
	return nil
}

// Room implements [ring.Interface].
func (f *Fake) Room() int { return f.cfg.Ops - f.files }

// Stats implements [ring.Interface].
func (f *Fake) Stats() ring.Stats {
	s := f.stats
	s.InFlight = f.files + f.control
	return s
}

// Close implements [ring.Interface].
func (f *Fake) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	for _, c := range f.ready {
		if c.Kind == ring.KindAccept && c.Res >= 0 {
			_ = unix.Close(int(c.Res))
		}
	}
	for _, fd := range f.held {
		_ = unix.Close(fd)
	}
	f.wakeMu.Lock()
	defer f.wakeMu.Unlock()
	err := unix.Close(f.wakeFD)
	f.wakeFD, f.files, f.control = -1, 0, 0
	if err != nil {
		return fmt.Errorf("ringtest: close: %w", err)
	}
	return nil
}
