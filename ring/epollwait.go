package ring

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Expect implements [Interface]. To look takes a system call here.
func (e *Epoll) Expect() {}

// Due implements [Interface]. While the loop sleeps it takes a system call: the set is ready when something in it is.
func (e *Epoll) Due() bool {
	if !e.sleeping.Load() || e.reads.finished.Load() || e.writes.finished.Load() {
		return true
	}
	p := [1]unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p[:], 0)
	return n > 0 && err == nil
}

// Submit implements [Interface].
func (e *Epoll) Submit() error {
	e.begin()
	return nil
}

// begin carries out what is queued, or hands it over.
func (e *Epoll) begin() {
	e.sendAll()
	e.reads.hand()
	e.writes.hand()
}

// Collect implements [Interface].
func (e *Epoll) Collect(dst []Completion) []Completion {
	before := len(dst)
	dst = e.handOut(dst)
	e.stats.Completions += uint64(len(dst) - before)
	return dst
}

// Wait implements [Interface].
func (e *Epoll) Wait(dst []Completion) ([]Completion, error) {
	before := len(dst)
	if before == cap(dst) {
		panic("ring: Wait without room for a completion")
	}
	dst = e.enter(dst)
	var until time.Duration
	if e.spin > 0 {
		until = e.now() + e.spin
	}
	for len(dst) < cap(dst) {
		errno := e.turn(&dst, len(dst) == before && until == 0)
		if errno != 0 && errno != unix.EINTR {
			return dst, fmt.Errorf("ring: epoll_wait: %w", errno)
		}
		if len(dst) > before {
			break
		}
		if errno == unix.EINTR {
			e.stats.Retries++
			e.sleep.interrupted()
		}
		if until != 0 && e.now() >= until {
			until = 0
		}
	}
	e.sleep.worked()
	e.stats.Completions += uint64(len(dst) - before)
	return dst, nil
}

// Pass implements [Interface].
func (e *Epoll) Pass(dst []Completion) ([]Completion, error) {
	before := len(dst)
	dst = e.enter(dst)
	if len(dst) < cap(dst) {
		if errno := e.turn(&dst, false); errno != 0 && errno != unix.EINTR {
			return dst, fmt.Errorf("ring: epoll_wait: %w", errno)
		}
	}
	if len(dst) > before {
		e.sleep.worked()
	}
	e.stats.Completions += uint64(len(dst) - before)
	return dst, nil
}

// enter is how a Wait begins: it takes back what was handed out, begins what is queued, and appends what is over to dst.
func (e *Epoll) enter(dst []Completion) []Completion {
	if !e.started {
		e.started = true
		e.sleep.begin()
	}
	e.recv.giveBack()
	e.begin()
	return e.handOut(dst)
}

// turn makes one epoll_wait, for as long as it takes if block is set, and appends to dst, which has room, what came.
func (e *Epoll) turn(dst *[]Completion, block bool) syscall.Errno {
	timeout := 0
	if block {
		timeout = e.timers.wait(e)
		// In this order: whoever changes something after the look sees that the loop sleeps.
		e.sleeping.Store(true)
		if e.woken.Load() || e.reads.finished.Load() || e.writes.finished.Load() {
			timeout = 0
		}
	}
	e.stats.Enters++
	n, errno := epollWait(e.fd, e.events[:min(len(e.events), cap(*dst)-len(*dst))], timeout, timeout == 0 || e.sleep.keepsP())
	if block {
		e.sleeping.Store(false)
	}
	for i := range e.events[:n] {
		ev := &e.events[i]
		if int(ev.Fd) != e.wakeFD {
			*dst = e.happened(*dst, ev.Fd, ev.Events)
		}
	}
	e.timers.expire(e)
	*dst = e.handOut(*dst)
	if len(*dst) < cap(*dst) && e.woken.Swap(false) {
		*dst = append(*dst, Completion{Kind: KindWake})
	}
	return errno
}

// handOut appends the operations that are over to dst, up to its capacity.
func (e *Epoll) handOut(dst []Completion) []Completion {
	e.reads.collect()
	e.writes.collect()
	for !e.ready.empty() && len(dst) < cap(dst) {
		i := e.ready.pop()
		o := &e.table.ops[i]
		dst = append(dst, Completion{Tag: o.tag, Res: o.res, Kind: codeKinds[o.code]})
		e.finish(i)
	}
	return dst
}

// happened lets the operations that wait for fd go on. What finds no room in dst is told of again by the next turn.
func (e *Epoll) happened(dst []Completion, fd int32, events uint32) []Completion {
	if int(fd) >= len(e.fds) || e.fds[fd].first == 0 {
		e.stats.Stale++ // somebody closed it too early, or has another descriptor of it
		return dst
	}
	for next := e.fds[fd].first; next != 0; {
		i := next - 1
		o := &e.table.ops[i]
		next = o.peer
		if events&(o.code.interest()|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
			continue
		}
		switch o.code {
		case codeAccept:
			dst = e.accept(dst, i)
		case codeRecv:
			dst = e.receive(dst, i)
		case codeSend, codeSendFD:
			if res, over := e.trySend(o); over {
				e.detach(i)
				e.settle(i, res)
			}
		case codePoll:
			e.detach(i)
			e.settle(i, 0)
		case codeSendNow, codeRead, codeWrite, codeSync, codeTimer, opCodes:
			panic("ring: an operation waits for a descriptor that needs none")
		}
	}
	return dst
}

// accept takes connections.
func (e *Epoll) accept(dst []Completion, i uint32) []Completion {
	o := &e.table.ops[i]
	for n := 0; n < acceptsMax && len(dst) < cap(dst); n++ {
		conn, errno := acceptConn(int(o.fd))
		if errno == unix.EAGAIN || errno == unix.EINTR {
			break
		}
		if errno != 0 {
			return e.last(dst, i, -int32(errno))
		}
		dst = append(dst, Completion{Tag: o.tag, Res: int32(conn), Kind: KindAccept, More: true})
	}
	return dst
}

// receive takes data. A buffer that is not filled is the last.
func (e *Epoll) receive(dst []Completion, i uint32) []Completion {
	o := &e.table.ops[i]
	for n := 0; n < recvsMax && len(dst) < cap(dst); n++ {
		p := e.recv.top()
		if p == nil {
			return e.last(dst, i, -int32(unix.ENOBUFS))
		}
		got, errno := recvBytes(int(o.fd), p)
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return dst
		case errno != 0 || got == 0:
			return e.last(dst, i, outcome(got, errno))
		}
		e.recv.take()
		dst = append(dst, Completion{Tag: o.tag, Data: p[:got:got], Res: int32(got), Kind: KindRecv, More: true})
		if got < len(p) {
			return dst
		}
	}
	return dst
}

// last appends the last completion of operation i, which waits for a descriptor, to dst, which has room.
func (e *Epoll) last(dst []Completion, i uint32, res int32) []Completion {
	o := &e.table.ops[i]
	dst = append(dst, Completion{Tag: o.tag, Res: res, Kind: codeKinds[o.code]})
	e.detach(i)
	e.finish(i)
	return dst
}

// trySend sends what goes of o. It returns o's result, or false if there is more to send.
func (e *Epoll) trySend(o *op) (int32, bool) {
	for range sendsMax {
		p := o.rest()
		var n int
		var errno syscall.Errno
		if o.code == codeSendFD && o.done == 0 {
			o.msg.set(p, int(o.off))
			n, errno = sendMessage(int(o.fd), o.msg)
		} else {
			n, errno = sendBytes(int(o.fd), p)
		}
		if errno == unix.EAGAIN {
			break
		}
		if res, over := e.continueSend(o, outcome(n, errno)); over {
			return res, true
		}
	}
	return 0, false
}
