package ring

import (
	"golang.org/x/sys/unix"
)

// reap takes completions from the kernel and appends what they mean to dst, up to its capacity.
func (u *Uring) reap(dst []Completion) []Completion {
	before := len(dst)
	for !u.backlog.empty() && len(dst) < cap(dst) {
		dst = u.complete(dst, u.backlog.next())
	}
	if u.backlog.empty() {
		q := u.q
		// Complete may submit, which may move the head to the end and all before it to the backlog.
		for end := q.completedTo(); int32(end-q.head) > 0 && len(dst) < cap(dst); {
			c := q.cqes[q.head&q.cqMask]
			q.head++
			dst = u.complete(dst, c)
		}
		q.publishHead()
	}
	u.settle()
	u.stats.Completions += uint64(len(dst) - before)
	return dst
}

// complete appends to dst what c means to the caller: a completion, or nothing.
func (u *Uring) complete(dst []Completion, c cqe) []Completion {
	i, ok := u.table.find(c.user)
	if !ok {
		return u.completeOther(dst, c)
	}
	o := &u.table.ops[i]
	out := Completion{Tag: o.tag, Res: c.res, Kind: codeKinds[o.code]}
	over := true
	switch o.code {
	case codeRecv:
		if c.flags&cqeBuffer != 0 {
			out.Data = u.recv.take(uint16(c.flags>>cqeBufferShift), int(max(c.res, 0)))
		}
		out.More, over = u.continueRecv(i, &out, c.flags&cqeMore != 0)
	case codeAccept:
		// One connection in a submission, and so in a turn: the kernel would take all that wait at once, and who floods
		// would have everybody wait until they are looked at.
		if out.More = c.res >= 0 && o.state != opPausing && !u.closing; out.More {
			o.retries = 0
			u.prepare(i)
		}
		over = out.More || !u.again(o, c.res)
	case codeSendNow:
	case codeSend, codeSendFD:
		out.Res, over = u.continueSend(o, c.res)
	case codeRead, codeWrite:
		out.Res, over = u.continueFile(o, c.res)
	case codeSync:
		over = !u.again(o, c.res)
	case codePoll:
		out.Res = min(c.res, 0)
	case codeTimer:
		if c.res == -int32(unix.ETIME) {
			out.Res = 0
		}
	case opCodes:
		panic("ring: completion of an operation without a code")
	}
	if !over {
		u.prepare(i)
		return dst
	}
	if !out.More {
		u.finish(i)
	}
	return append(dst, out)
}

// continueRecv takes a result of operation i, a receive. More tells that the kernel goes on with it, or else that it is armed again;
// over is false if it is tried again and there is nothing to hand out.
func (u *Uring) continueRecv(i uint32, out *Completion, armed bool) (more, over bool) {
	o := &u.table.ops[i]
	ends := u.closing || o.state == opPausing
	switch {
	case armed:
		o.retries = 0
		return true, true
	case out.Res > 0 && !ends: // it has brought as much as it may before others have their turn
		o.retries = 0
		u.prepare(i)
		return true, true
	case out.Res == -int32(unix.EINVAL) && o.chunk > 0: // before Linux 6.17 there is no such bound
		u.recvMax = 0
		if ends {
			out.Res = -int32(unix.ECANCELED)
		}
		return false, ends
	}
	return false, !u.again(o, out.Res)
}

// finish ends operation i.
func (u *Uring) finish(i uint32) {
	o := &u.table.ops[i]
	if o.code.armed() {
		u.tags.remove(o.tag)
	}
	if o.msg != nil {
		o.msg.clear()
		u.spare = append(u.spare, o.msg)
		o.msg = nil
	}
	u.table.release(i)
}

// completeOther handles what is no operation's.
func (u *Uring) completeOther(dst []Completion, c cqe) []Completion {
	switch c.user {
	case userIgnored:
		return dst
	case userWake:
		u.wakeArmed = false
		if u.closing {
			return dst
		}
		u.armWake()
		if c.res < 0 {
			return dst
		}
		u.woken.Store(false) // before the caller looks: what was done before a later Wake gets a completion of its own
		return append(dst, Completion{Kind: KindWake})
	}
	u.stats.Stale++
	return dst
}
