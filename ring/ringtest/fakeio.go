package ringtest

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

// Submit implements [ring.Interface].
func (f *Fake) Submit() error {
	for i := 0; i < len(f.ops); i++ {
		o := &f.ops[i]
		switch {
		case o.paused:
			f.complete(o, -int32(unix.ECANCELED), false, nil)
			continue
		case o.started:
			continue
		}
		o.started = true
		switch {
		case o.now:
			if n := sendOnce(o); n == len(o.p) {
				f.end(o)
			} else {
				f.complete(o, int32(n), false, nil)
			}
		case o.file():
			f.complete(o, f.fileIO(o), false, nil)
		}
	}
	f.sweep()
	return nil
}

// Collect implements [ring.Interface].
func (f *Fake) Collect(dst []ring.Completion) []ring.Completion {
	n := min(cap(dst)-len(dst), len(f.ready))
	for _, c := range f.ready[:n] {
		if c.Data != nil {
			f.out = append(f.out, c.Data[:cap(c.Data)])
		}
		dst = append(dst, c)
	}
	f.ready = f.ready[:copy(f.ready, f.ready[n:])]
	f.stats.Completions += uint64(n)
	return dst
}

// Wait implements [ring.Interface].
func (f *Fake) Wait(dst []ring.Completion) ([]ring.Completion, error) {
	if len(dst) == cap(dst) {
		panic("ringtest: Wait without room for a completion")
	}
	f.buffers = append(f.buffers, f.out...)
	f.out = f.out[:0]
	if err := f.Submit(); err != nil {
		return dst, err
	}
	for first := true; first || len(f.ready) == 0; first = false {
		if err := f.look(true); err != nil {
			return dst, err
		}
	}
	return f.Collect(dst), nil
}

// Pass implements [ring.Interface].
func (f *Fake) Pass(dst []ring.Completion) ([]ring.Completion, error) {
	f.buffers = append(f.buffers, f.out...)
	f.out = f.out[:0]
	if err := f.Submit(); err != nil {
		return dst, err
	}
	if err := f.look(false); err != nil {
		return dst, err
	}
	return f.Collect(dst), nil
}

// look polls the descriptors of all operations, without waiting if there are completions or block is not set, and does one step of each that can go on.
func (f *Fake) look(block bool) error {
	f.polls = append(f.polls[:0], unix.PollFd{Fd: int32(f.wakeFD), Events: unix.POLLIN})
	f.polled = append(f.polled[:0], -1)
	timeout := time.Duration(-1)
	for i := range f.ops {
		o := &f.ops[i]
		events := int16(unix.POLLIN)
		if o.kind == ring.KindTimer {
			if left := max(time.Until(o.until), 0); timeout < 0 || left < timeout {
				timeout = left
			}
			continue
		}
		if o.kind == ring.KindSend {
			events = unix.POLLOUT
		}
		f.poll(i, events)
	}
	if len(f.ready) > 0 || !block {
		timeout = 0
	}
	var ts *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	f.stats.Enters++
	if _, err := unix.Ppoll(f.polls, ts, nil); errors.Is(err, unix.EINTR) {
		f.stats.Retries++
		return nil
	} else if err != nil {
		return fmt.Errorf("ringtest: poll: %w", err)
	}
	f.expire()
	for k, p := range f.polls {
		switch {
		case p.Revents == 0:
		case f.polled[k] < 0:
			f.takeWake()
		default:
			f.step(&f.ops[f.polled[k]], p.Revents)
		}
	}
	f.sweep()
	return nil
}

// poll adds operation i to what is polled.
func (f *Fake) poll(i int, events int16) {
	if f.ops[i].fd < 0 { // poll(2) ignores it; the step finds out
		f.step(&f.ops[i], unix.POLLNVAL)
		return
	}
	f.polls = append(f.polls, unix.PollFd{Fd: int32(f.ops[i].fd), Events: events})
	f.polled = append(f.polled, i)
}

// expire completes the timers that are due, in the order of their times.
func (f *Fake) expire() {
	now := time.Now()
	for {
		var next *fakeOp
		for i := range f.ops {
			o := &f.ops[i]
			if o.kind == ring.KindTimer && !o.over && !o.until.After(now) && (next == nil || o.until.Before(next.until)) {
				next = o
			}
		}
		if next == nil {
			return
		}
		f.complete(next, 0, false, nil)
	}
}

// takeWake turns the eventfd's counter into a completion.
func (f *Fake) takeWake() {
	var count [8]byte
	if _, err := unix.Read(f.wakeFD, count[:]); err == nil {
		f.ready = append(f.ready, ring.Completion{Kind: ring.KindWake})
	}
}

// step does what the descriptor of o allows.
func (f *Fake) step(o *fakeOp, revents int16) {
	switch o.kind {
	case ring.KindAccept:
		fd, _, err := unix.Accept4(o.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN):
		case err != nil:
			f.complete(o, result(0, err), false, nil)
		default:
			f.complete(o, int32(fd), true, nil)
		}
	case ring.KindRecv:
		f.stepRecv(o)
	case ring.KindSend:
		n := sendOnce(o)
		switch {
		case n == -int(unix.EAGAIN):
			return
		case n < 0:
			f.complete(o, int32(n), false, nil)
			return
		}
		o.done += n
		if o.done == len(o.p) {
			f.complete(o, int32(o.done), false, nil)
		}
	case ring.KindPoll:
		if revents&unix.POLLNVAL != 0 {
			f.complete(o, -int32(unix.EBADF), false, nil)
			return
		}
		f.complete(o, 0, false, nil)
	case ring.KindRead, ring.KindWrite, ring.KindSync, ring.KindTimer, ring.KindWake:
		panic("ringtest: no descriptor is polled for " + o.kind.String())
	}
}

// stepRecv receives once.
func (f *Fake) stepRecv(o *fakeOp) {
	if len(f.buffers) == 0 {
		f.complete(o, -int32(unix.ENOBUFS), false, nil)
		return
	}
	p := f.buffers[len(f.buffers)-1]
	n, _, err := unix.Recvfrom(o.fd, p, unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
	case err != nil || n == 0:
		f.complete(o, result(n, err), false, nil)
	default:
		f.buffers = f.buffers[:len(f.buffers)-1]
		f.complete(o, int32(n), true, p[:n])
	}
}

// sendOnce sends what goes of o without blocking: bytes sent, or a negated errno.
func sendOnce(o *fakeOp) int {
	rest := o.p[o.done:]
	for {
		var n int
		var err error
		if o.passed >= 0 && o.done == 0 {
			n, err = unix.SendmsgN(o.fd, rest, unix.UnixRights(o.passed), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		} else {
			n, err = unix.SendmsgN(o.fd, rest, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
		if !errors.Is(err, unix.EINTR) {
			return int(result(n, err))
		}
	}
}

// fileIO carries out a read, write or sync whole.
func (f *Fake) fileIO(o *fakeOp) int32 {
	if o.kind == ring.KindSync {
		return result(0, unix.Fdatasync(o.fd))
	}
	f.stats.PlainIO++
	for {
		var n int
		var err error
		if o.kind == ring.KindRead {
			n, err = unix.Pread(o.fd, o.p[o.done:], o.off+int64(o.done))
		} else {
			n, err = unix.Pwrite(o.fd, o.p[o.done:], o.off+int64(o.done))
		}
		switch {
		case errors.Is(err, unix.EINTR):
			f.stats.Retries++
			continue
		case errors.Is(err, unix.EINVAL) && o.kind == ring.KindRead && o.done > 0 && o.done%512 != 0:
			return int32(o.done) // the end of the file, and direct I/O does not start there
		case err != nil:
			return result(0, err)
		}
		o.done += n
		switch {
		case o.done == len(o.p) || n == 0 && o.kind == ring.KindRead:
			return int32(o.done)
		case n == 0:
			return -int32(unix.EIO)
		}
		f.stats.ShortIO++
	}
}

// result is n, or the negated errno of err.
func result(n int, err error) int32 {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return -int32(errno)
	}
	return int32(n)
}

// complete adds a completion of o, which ends it unless more.
func (f *Fake) complete(o *fakeOp, res int32, more bool, data []byte) {
	f.ready = append(f.ready, ring.Completion{Tag: o.tag, Kind: o.kind, Res: res, More: more, Data: data})
	if !more {
		f.end(o)
	}
}

// end ends o.
func (f *Fake) end(o *fakeOp) {
	o.over = true
	if o.file() {
		f.files--
	} else {
		f.control--
	}
}

// sweep takes the operations that are over off the list.
func (f *Fake) sweep() {
	kept := f.ops[:0]
	for i := range f.ops {
		if !f.ops[i].over {
			kept = append(kept, f.ops[i])
		}
	}
	clear(f.ops[len(kept):])
	f.ops = kept
}
