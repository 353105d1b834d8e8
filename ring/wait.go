package ring

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A sleeper says how a loop's thread waits in the kernel.
type sleeper struct {
	raw   bool // waits may keep their P
	quiet int  // waits in a row that a signal ended with nothing done
}

// quietAfter is how many waits in a row must have been ended by a signal with nothing done until the thread sleeps in the way the
// scheduler knows of. The runtime's monitor sends one every 10 ms to a thread that keeps its P, which costs an idle process 1 % of
// a CPU; a busy one never gets there, and sleeping the other way costs it a third of its speed.
const quietAfter = 2

// begin looks at what the process has, before the first wait.
func (s *sleeper) begin() { s.raw = runtime.GOMAXPROCS(0) > 1 } // with one P, nobody else would run meanwhile

// keepsP tells whether the next wait is one that the scheduler does not know of.
func (s *sleeper) keepsP() bool { return s.raw && s.quiet < quietAfter }

// worked notes that a wait brought something.
func (s *sleeper) worked() { s.quiet = 0 }

// interrupted notes that a signal ended a wait.
func (s *sleeper) interrupted() {
	s.quiet++
	s.begin()
}

// Submit implements [Interface].
func (u *Uring) Submit() error {
	for tries := 0; u.q.queued() > 0; tries++ {
		switch errno := u.enter(0, 0, true); {
		case errno == 0:
		case transient(errno):
			u.backOff(tries)
		default:
			return enterError("submit", errno)
		}
	}
	return nil
}

// Collect implements [Interface].
func (u *Uring) Collect(dst []Completion) []Completion { return u.reap(dst) }

// Wait implements [Interface].
func (u *Uring) Wait(dst []Completion) ([]Completion, error) {
	defer u.working.Store(true)
	before := len(dst)
	if before == cap(dst) {
		panic("ring: Wait without room for a completion")
	}
	u.recv.giveBack()
	wait := uint32(1)
	switch {
	case u.q.ready() || !u.backlog.empty():
		u.look.expected = false // it has come
		if u.q.queued() > 0 {
			wait = 0
		} else if dst = u.reap(dst); len(dst) > before {
			return dst, nil
		}
	default:
		if d := u.look.time(); d > 0 {
			var errno syscall.Errno
			if dst, errno = u.lookFor(d, dst); errno != 0 && !transient(errno) {
				return dst, enterError("wait", errno)
			}
			if len(dst) > before {
				return dst, nil
			}
		}
	}
	for tries := 0; ; tries++ {
		u.working.Store(false)
		errno := u.enter(wait, enterGetEvents, u.sleep.keepsP())
		if dst = u.reap(dst); len(dst) > before {
			u.sleep.worked()
			u.look.brought(len(dst) - before)
			return dst, nil
		}
		wait = 1
		switch {
		case errno == 0:
			tries = 0
		case errno == unix.EINTR:
			u.stats.Retries++
			u.sleep.interrupted()
		case transient(errno):
			u.backOff(tries)
		default:
			return dst, enterError("wait", errno)
		}
	}
}

// Pass implements [Interface].
func (u *Uring) Pass(dst []Completion) ([]Completion, error) {
	before := len(dst)
	u.recv.giveBack()
	if u.q.queued() > 0 || u.q.pending() {
		if errno := u.enter(0, enterGetEvents, true); errno != 0 && !transient(errno) {
			return dst, enterError("pass", errno)
		}
	}
	dst = u.reap(dst)
	if len(dst) > before {
		u.sleep.worked()
		u.look.brought(len(dst) - before)
	}
	return dst, nil
}

// lookFor submits what is queued, without waiting, and looks for work for as long as d. What it finds is left to the next enter, if
// it was not there at once: no system call is made meanwhile, for the kernel marks in shared memory that it has work for this thread.
func (u *Uring) lookFor(d time.Duration, dst []Completion) ([]Completion, syscall.Errno) {
	if u.q.queued() > 0 {
		before := len(dst)
		errno := u.enter(0, enterGetEvents, true)
		if dst = u.reap(dst); len(dst) > before || errno != 0 {
			u.look.brought(len(dst) - before)
			return dst, errno
		}
	}
	if u.q.queued() > 0 {
		return dst, 0 // the kernel took only a part
	}
	u.working.Store(false)
	found := u.q.watch(d)
	if u.look.looked(found) {
		u.look.contended(u.switches())
	}
	u.stats.Looks++
	if found {
		u.stats.Found++
	}
	return dst, 0
}

// switches is how often this thread has lost its processor to others.
func (u *Uring) switches() int64 {
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u.usage); err != nil {
		return 0 // it has no reason to fail
	}
	return u.usage.Nivcsw
}

// Expect implements [Interface].
func (u *Uring) Expect() { u.look.expected = true }

// Due implements [Interface].
func (u *Uring) Due() bool { return u.working.Load() || u.q.pending() || u.q.untaken() }

// enter makes the system call and brings the bookkeeping up to what the kernel did in it.
func (u *Uring) enter(wait, flags uint32, raw bool) syscall.Errno {
	if !u.enabled {
		if err := u.enable(); err != nil {
			var errno syscall.Errno
			if errors.As(err, &errno) {
				return errno
			}
			return unix.EINVAL
		}
	}
	u.stats.Enters++
	errno := u.q.enter(wait, flags, raw)
	if u.q.overflown() {
		u.unload()
	}
	u.markConsumed()
	return errno
}

// enable makes this thread the ring's.
func (u *Uring) enable() error {
	if err := u.q.enable(); err != nil {
		return err
	}
	u.q.registerRing()
	u.sleep.begin()
	u.look.yielded = u.switches()
	u.enabled = true
	return nil
}

// transient tells whether a call that failed with errno is made again.
func transient(errno syscall.Errno) bool {
	return errno == unix.EINTR || errno == unix.EAGAIN || errno == unix.EBUSY
}

// backOff is called between tries of a call that failed for want of memory, or was interrupted.
func (u *Uring) backOff(tries int) {
	u.stats.Retries++
	if tries > 10 {
		time.Sleep(time.Millisecond)
	}
}

// enterError describes a failed enter.
func enterError(what string, errno syscall.Errno) error {
	if errno == unix.EEXIST {
		return fmt.Errorf("ring: %s on another thread than the first: %w", what, errno)
	}
	return fmt.Errorf("ring: %s: %w", what, errno)
}
