package ring

import (
	"sync/atomic"
	"syscall"

	us "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// A queue is the pair of queues shared with the kernel: what is submitted and what completed. It knows nothing of operations.
type queue struct {
	fd         int
	enterFD    int    // fd, or its index among the thread's registered rings
	enterFlags uint32 // says which of the two

	sqHead, sqTail, sqFlags *uint32
	cqHead, cqTail, cqLost  *uint32
	sqMask, cqMask          uint32
	sqes                    []us.SubmissionQueueEntry64
	cqes                    []cqe

	tail uint32 // submissions written, ahead of *sqTail until the next enter
	head uint32 // completions taken, ahead of *cqHead until publishHead

	submitMax uint32 // most submissions an enter gives to the kernel; 0: all (tests)

	refuse func() syscall.Errno // if not nil it may have an enter fail (tests)

	ringMem, sqeMem []byte
}

// queued is how many submissions the kernel has not consumed.
func (q *queue) queued() uint32 { return q.tail - atomic.LoadUint32(q.sqHead) }

// consumed is the sequence number of the first submission that the kernel has not consumed.
func (q *queue) consumed() uint32 { return atomic.LoadUint32(q.sqHead) }

// full tells that no submission can be written before an enter.
func (q *queue) full() bool { return q.queued() > q.sqMask }

// push returns the next submission, zeroed. The queue must not be full.
func (q *queue) push() *us.SubmissionQueueEntry64 {
	s := &q.sqes[q.tail&q.sqMask]
	q.tail++
	s.Reset()
	return s
}

// completedTo is the sequence number after the last completion.
func (q *queue) completedTo() uint32 { return atomic.LoadUint32(q.cqTail) }

// ready tells that there are completions to be taken.
func (q *queue) ready() bool { return q.head != atomic.LoadUint32(q.cqTail) }

// untaken tells, to any thread, that there are completions which were not taken when the head was last published.
func (q *queue) untaken() bool { return atomic.LoadUint32(q.cqHead) != atomic.LoadUint32(q.cqTail) }

// publishHead gives the room of the completions taken back to the kernel.
func (q *queue) publishHead() { atomic.StoreUint32(q.cqHead, q.head) }

// overflown tells that the kernel keeps completions that the queue had no room for.
func (q *queue) overflown() bool { return atomic.LoadUint32(q.sqFlags)&sqOverflow != 0 }

// pending tells that the kernel has work for this thread that is done by the next enter, completions perhaps.
func (q *queue) pending() bool { return atomic.LoadUint32(q.sqFlags)&sqTaskrun != 0 }

// lost is how many completions the kernel dropped, for want of memory.
func (q *queue) lost() uint32 { return atomic.LoadUint32(q.cqLost) }

// enter submits what is queued and waits for wait completions. With raw the scheduler is not told that this thread may sleep: that
// is cheaper by half, but the thread keeps its P until a signal ends the sleep (EINTR). The call is a safe point: the check of the
// stack at its start is where a stop of the world, asked for by that signal, takes hold of a loop that does nothing else.
//
//go:noinline
func (q *queue) enter(wait, flags uint32, raw bool) syscall.Errno {
	if q.refuse != nil {
		if errno := q.refuse(); errno != 0 {
			return errno
		}
	}
	atomic.StoreUint32(q.sqTail, q.tail)
	n := q.queued()
	if q.submitMax != 0 && n > q.submitMax {
		n, wait = q.submitMax, 0 // a kernel that consumes fewer than it was asked to does not wait
	}
	var errno syscall.Errno
	if raw {
		_, _, errno = syscall.RawSyscall6(us.SYS_IO_URING_ENTER,
			uintptr(q.enterFD), uintptr(n), uintptr(wait), uintptr(flags|q.enterFlags), 0, 0)
	} else {
		_, _, errno = syscall.Syscall6(us.SYS_IO_URING_ENTER,
			uintptr(q.enterFD), uintptr(n), uintptr(wait), uintptr(flags|q.enterFlags), 0, 0)
	}
	return errno
}

// close unmaps the queues and closes the ring.
func (q *queue) close() {
	for _, m := range [][]byte{q.ringMem, q.sqeMem} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	_ = unix.Close(q.fd)
}
