package ring

// A sendQueue holds the operations of SendNow, in the order of their submissions, until it is known what came of them.
//
// A success posts no completion, so it is told from the absence of one. That is safe to do: the kernel tries such a send within the
// enter that consumes its submission (it is neither asynchronous nor linked nor allowed to wait), and posts the completion of one
// that failed or fell short before that enter returns. So once the submission is consumed, and the completions that were posted by
// then were taken, a send that is still unsettled went out whole. Which submissions an enter consumed is read off the queue, not
// taken from what the call returned: it may consume fewer than it was asked to.
type sendQueue struct {
	entries  []sendEntry // a ring
	mask     uint32
	settled  uint32 // entries before it are done
	consumed uint32 // entries before it were consumed by the kernel
	tail     uint32
}

// A sendEntry is one SendNow.
type sendEntry struct {
	op         uint32
	generation uint32
	submission uint32 // its place in the submission queue
	completed  uint32 // the end of the completion queue after the enter that consumed it
}

func newSendQueue(n int) sendQueue {
	size := 1
	for size < n {
		size <<= 1
	}
	return sendQueue{entries: make([]sendEntry, size), mask: uint32(size - 1)}
}

// push adds a send. The queue has room for all the operations there can be; it grows only for a caller that collects so little at a
// time that entries of failed sends pile up.
func (s *sendQueue) push(e sendEntry) {
	if s.tail-s.settled > s.mask {
		s.grow()
	}
	s.entries[s.tail&s.mask] = e
	s.tail++
}

// grow doubles the queue.
func (s *sendQueue) grow() {
	entries := make([]sendEntry, 2*len(s.entries))
	mask := uint32(len(entries) - 1)
	for i := s.settled; i != s.tail; i++ {
		entries[i&mask] = s.entries[i&s.mask]
	}
	s.entries, s.mask = entries, mask
}

// markConsumed notes which sends the kernel has consumed, and where the completions of those that failed end.
func (u *Uring) markConsumed() {
	s := &u.sends
	if s.consumed == s.tail {
		return
	}
	consumed, completed := u.q.consumed(), u.q.completedTo()
	for s.consumed != s.tail {
		e := &s.entries[s.consumed&s.mask]
		if int32(consumed-e.submission) <= 0 {
			return
		}
		e.completed = completed
		u.table.ops[e.op].moveTo(opSettling)
		s.consumed++
	}
}

// settle ends the sends that have succeeded: those consumed whose completions, if they had any, were taken.
func (u *Uring) settle() {
	s := &u.sends
	for s.settled != s.consumed {
		e := &s.entries[s.settled&s.mask]
		if int32(u.q.head-e.completed) < 0 || !u.backlog.empty() {
			return
		}
		if u.table.ops[e.op].generation == e.generation {
			u.finish(e.op)
		}
		s.settled++
	}
}
