package ring

// A backlog holds completions that were taken from the kernel's queue only to make room in it. By the sizing of the queue that
// never happens; if it does, nothing is lost, only memory is allocated.
type backlog struct {
	cqes []cqe
	at   int
}

func (b *backlog) empty() bool { return b.at == len(b.cqes) }

// next returns the oldest completion of the backlog, which must not be empty.
func (b *backlog) next() cqe {
	c := b.cqes[b.at]
	b.at++
	if b.empty() {
		b.cqes, b.at = b.cqes[:0], 0
	}
	return c
}

// unload makes room in the completion queue for what the kernel holds back, and has the kernel put it there, until all of it is on
// this side: a SendNow must not be taken for a success because the completion that says otherwise is held back.
func (u *Uring) unload() {
	for u.q.overflown() {
		u.stats.Overflows++
		for end := u.q.completedTo(); u.q.head != end; u.q.head++ {
			u.backlog.cqes = append(u.backlog.cqes, u.q.cqes[u.q.head&u.q.cqMask])
		}
		u.q.publishHead()
		u.stats.Enters++
		_ = u.q.enter(0, enterGetEvents, false) // an error is seen by the next enter of the caller's
	}
}
