package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	us "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// A Uring is the [Interface] over one io_uring.
//
// Its entries: a table of operations holds what each asks for, from the call to its last completion; a submission carries the
// entry's index and generation. Submissions are written straight to the queue shared with the kernel and submitted by the call that
// waits. In the kernel's completion queue there is always room: as many places as there can be operations, cancellations and
// receive buffers, and a thousand to spare.
type Uring struct {
	account
	sleep   sleeper
	q       *queue
	table   opTable
	tags    tagTable
	recv    recvBuffers
	fixed   fixedMemory
	held    heldFiles
	sends   sendQueue
	backlog backlog
	spare   []*fdMessage // of SendFD, not in use

	recvMax int32 // bytes that a receive brings until it is to be armed again; 0: the kernel knows no bound, and takes 32 buffers

	look    lookout
	working atomic.Bool // from a Wait's end until the next one looks or sleeps
	usage   unix.Rusage // of switches
	enabled bool        // the ring has its thread

	closeTime unix.Timespec // of Close's timeout

	wakeArmed bool        // the eventfd's read is queued or with the kernel
	wakeCount uint64      // where it reads to
	woken     atomic.Bool // a Wake has no completion yet
	wakeMu    sync.Mutex  // guards wakeFD against Close
	wakeFD    int         // -1 when closed
}

var _ Interface = (*Uring)(nil)

// New sets up a ring. It and RegisterMemory and HoldFile may run on any thread before the first Submit or Wait, whose thread becomes
// the ring's. The error wraps [ErrUnavailable] if the kernel refuses.
func New(cfg Config) (*Uring, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if err := cfg.fits(); err != nil {
		return nil, err
	}
	all := cfg.Ops + 2*cfg.Control // a control operation has its own completion and that of a cancellation
	return open(cfg, uint32(min(all, 1024)), uint32(all+cfg.RecvBuffers+queueSpare))
}

// complete fills in the defaults and checks the sizes.
func (c *Config) complete() error {
	if c.Ops < 0 || c.Control < 0 || c.RecvBuffers < 0 || c.RecvBufferSize < 0 || c.Workers < 0 || c.Spin < 0 || c.Look < 0 {
		return fmt.Errorf("ring: negative size in %+v", *c)
	}
	for _, d := range []struct {
		v   *int
		def int
	}{
		{&c.Ops, DefaultOps},
		{&c.Control, DefaultControl},
		{&c.RecvBuffers, DefaultRecvBuffers},
		{&c.RecvBufferSize, DefaultRecvBufferSize},
		{&c.Workers, DefaultWorkers},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	const most = 1 << 15 // entries of a ring of buffers
	if c.RecvBuffers > most || c.RecvBufferSize > math.MaxInt32/most {
		return fmt.Errorf("ring: %d receive buffers of %d bytes: more than %d, or larger than %d",
			c.RecvBuffers, c.RecvBufferSize, most, math.MaxInt32/most)
	}
	for n := 1; ; n <<= 1 {
		if n >= c.RecvBuffers {
			c.RecvBuffers = n
			break
		}
	}
	const sane = 1 << 24
	if c.Ops > sane || c.Control > sane {
		return fmt.Errorf("ring: %d file and %d other operations: more than %d", c.Ops, c.Control, sane)
	}
	return nil
}

// queueSpare is how many completions there is room for beside those of operations and buffers: of wake-ups and the like.
const queueSpare = 1024

// ControlMax is the most that [Config.Control] may be with a [Uring] of so many Ops and the default buffers: the completion of each
// operation and that of its end must fit the kernel's largest queue. An [Epoll] has no such bound.
func ControlMax(ops int) int { return (queueEntriesMax - queueSpare - DefaultRecvBuffers - ops) / 2 }

// fits checks a complete config against the kernel's largest queue.
func (c *Config) fits() error {
	if c.Ops+2*c.Control+c.RecvBuffers+queueSpare > queueEntriesMax {
		return fmt.Errorf("ring: %w: %d file and %d other operations with %d buffers do not fit a completion queue of %d",
			ErrTooMany, c.Ops, c.Control, c.RecvBuffers, queueEntriesMax)
	}
	return nil
}

// open sets up a ring with queues of at least these sizes.
func open(cfg Config, sqEntries, cqEntries uint32) (*Uring, error) {
	q, err := openQueue(sqEntries, cqEntries)
	if err != nil {
		return nil, unavailable("set up", err)
	}
	u := &Uring{
		q:      q,
		table:  newOpTable(cfg.Ops, cfg.Control),
		tags:   newTagTable(cfg.Control),
		sends:  newSendQueue(cfg.Control),
		look:   lookout{always: cfg.Spin, pays: cfg.Look},
		wakeFD: -1,

		recvMax: int32(recvsMax * cfg.RecvBufferSize),
	}
	// A filter may let a ring be made and not be used. This thread is not the ring's yet, so that is all that comes of it.
	if errno := q.enter(0, 0, true); errno != 0 && errno != unix.EBADFD {
		u.free()
		return nil, unavailable("enter", errno)
	}
	if err := u.recv.init(cfg.RecvBuffers, cfg.RecvBufferSize); err != nil {
		u.free()
		return nil, err
	}
	if err := q.registerBufferRing(recvGroup, u.recv.ringMem, uint32(cfg.RecvBuffers)); err != nil {
		u.free()
		return nil, unavailable("register receive buffers", err)
	}
	// Blocking, so that the kernel waits for the counter; the ring's read never blocks this thread.
	if u.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		u.free()
		return nil, fmt.Errorf("ring: eventfd: %w", err)
	}
	u.armWake()
	return u, nil
}

// unavailable wraps an error of the kernel's refusal.
func unavailable(what string, err error) error {
	sysctl := "absent"
	if v, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); err == nil {
		sysctl = strings.TrimSpace(string(v))
	}
	name := "no errno"
	var errno unix.Errno
	if errors.As(err, &errno) {
		name = unix.ErrnoName(errno)
	}
	return fmt.Errorf("ring: %w: %s: %w (%s, kernel.io_uring_disabled is %s)", ErrUnavailable, what, err, name, sysctl)
}

// Room implements [Interface].
func (u *Uring) Room() int { return u.table.filesMax - u.table.files }

// Stats implements [Interface].
func (u *Uring) Stats() Stats {
	s := u.stats
	s.InFlight = u.table.live()
	s.Registered = u.fixed.bytes
	if u.q != nil {
		s.Overflows += uint64(u.q.lost())
	}
	return s
}

// Wake implements [Interface].
func (u *Uring) Wake() {
	if u.woken.Swap(true) {
		return // the loop has not yet seen an earlier one
	}
	u.wakeMu.Lock()
	defer u.wakeMu.Unlock()
	if u.wakeFD >= 0 {
		writeOne(u.wakeFD)
	}
}

// one is what a Wake adds to the eventfd's counter.
var one = func() (b [8]byte) {
	binary.NativeEndian.PutUint64(b[:], 1)
	return b
}()

// writeOne adds to the counter of an eventfd.
func writeOne(fd int) {
	for {
		_, err := unix.Write(fd, one[:])
		if !errors.Is(err, unix.EINTR) {
			return // its only other error is a full counter, which wakes as well
		}
	}
}

// armWake queues the read of the eventfd.
func (u *Uring) armWake() {
	s := u.submission()
	s.PrepOperation(us.IORING_OP_READ, int32(u.wakeFD), addressOfWord(&u.wakeCount), 8, 0)
	s.SetUserData(userWake)
	u.wakeArmed = true
}

// Close implements [Interface].
func (u *Uring) Close() error {
	if u.q == nil {
		return nil
	}
	u.closing = true
	err := u.drain()
	if err != nil {
		// The kernel may still write to buffers and read messages. Leaking the ring keeps them.
		return err
	}
	for _, f := range []func() error{
		func() error { return u.q.unregisterBufferRing(recvGroup) },
		func() error {
			if !u.fixed.sparse {
				return nil
			}
			return u.q.unregister(us.IORING_UNREGISTER_BUFFERS)
		},
		func() error {
			if !u.held.table {
				return nil
			}
			return u.q.unregister(us.IORING_UNREGISTER_FILES)
		},
	} {
		if e := f(); e != nil && err == nil {
			err = fmt.Errorf("ring: close: %w", e)
		}
	}
	u.free()
	return err
}

// drain cancels everything and waits until the kernel is done with it.
func (u *Uring) drain() error {
	if !u.enabled && u.table.live() == 0 {
		return nil // nothing was ever submitted
	}
	var one [1]Completion
	for first := true; ; first = false {
		for done := one[:0]; ; done = done[:0] {
			if done = u.reap(done); len(done) == 0 {
				break
			}
			if c := &done[0]; c.Kind == KindAccept && c.Res >= 0 {
				_ = unix.Close(int(c.Res))
			}
		}
		if !first && u.table.live() == 0 && !u.wakeArmed {
			return nil
		}
		if u.q.queued()+2 > u.q.sqMask {
			if errno := u.enter(0, enterGetEvents, false); errno != 0 && !transient(errno) {
				return fmt.Errorf("ring: close: %w", errno)
			}
			continue
		}
		s := u.q.push()
		s.PrepOperation(us.IORING_OP_ASYNC_CANCEL, -1, 0, 0, 0)
		s.SetOpFlags(cancelAll | cancelAny)
		s.SetUserData(userIgnored)
		// What is on a disk cannot be cancelled, and what moved just then is not found: look again after a while.
		u.closeTime = unix.NsecToTimespec(int64(2 * time.Millisecond))
		s = u.q.push()
		s.PrepOperation(us.IORING_OP_TIMEOUT, -1, addressOfTime(&u.closeTime), 1, 0)
		s.SetUserData(userIgnored)
		if errno := u.enter(2, enterGetEvents, false); errno != 0 && !transient(errno) {
			return fmt.Errorf("ring: close: %w", errno)
		}
	}
}

// free gives everything back that the kernel has finished with.
func (u *Uring) free() {
	u.wakeMu.Lock()
	if u.wakeFD >= 0 {
		_ = unix.Close(u.wakeFD)
		u.wakeFD = -1
	}
	u.wakeMu.Unlock()
	u.q.unregisterRing()
	u.q.close()
	u.q = nil
	u.recv.unmap()
}
