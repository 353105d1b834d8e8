package ring

import (
	"golang.org/x/sys/unix"
)

// epollET is EPOLLET: the constant of package unix has no room in the field.
const epollET = 1 << 31

// An fdEntry is what waits for one descriptor.
type fdEntry struct {
	first   uint32 // index + 1 of an operation, the first of a list by op.peer; 0: none
	readers uint32 // operations in the list that wait for something to come
	writers uint32 // and for room
}

// events is what the epoll set has the descriptor with; 0: it is not in the set.
func (f *fdEntry) events() (events uint32) {
	if f.readers > 0 {
		events |= unix.EPOLLIN
	}
	if f.writers > 0 {
		events |= unix.EPOLLOUT
	}
	return events
}

// count is the number of operations that wait for the same as one of this code.
func (f *fdEntry) count(code opCode) *uint32 {
	if code.interest() == unix.EPOLLOUT {
		return &f.writers
	}
	return &f.readers
}

// fdTable tells by descriptor what waits for it. It grows with the largest number, which is the process's least free one.
type fdTable []fdEntry

// at returns the entry of fd.
func (t *fdTable) at(fd int32) *fdEntry {
	for int(fd) >= len(*t) {
		*t = append(*t, make([]fdEntry, max(64, len(*t)))...)
	}
	return &(*t)[fd]
}

// interest is what an operation waits for.
func (c opCode) interest() uint32 {
	switch c {
	case codeAccept, codeRecv, codePoll:
		return unix.EPOLLIN
	case codeSend, codeSendFD:
		return unix.EPOLLOUT
	case codeSendNow, codeRead, codeWrite, codeSync, codeTimer, opCodes:
	}
	panic("ring: an operation that waits for no descriptor")
}

// attach has operation i wait for its descriptor. One that epoll cannot have (a regular file) is never waited for: the try
// tells what the matter is.
func (e *Epoll) attach(i uint32) {
	o := &e.table.ops[i]
	var events uint32
	if o.fd >= 0 && int(o.fd) < len(e.fds) {
		events = e.fds[o.fd].events()
	}
	if want := events | o.code.interest(); want != events {
		err := e.control(o.fd, events, want)
		if err == unix.EPERM {
			e.settle(i, e.tryUnpollable(o))
			return
		}
		if err != 0 {
			e.settle(i, -int32(err))
			return
		}
	}
	entry := e.fds.at(o.fd)
	*entry.count(o.code)++
	o.peer, o.before = entry.first, 0
	if o.peer != 0 {
		e.table.ops[o.peer-1].before = i + 1
	}
	entry.first = i + 1
}

// detach ends that operation i waits for its descriptor, which then may be closed.
func (e *Epoll) detach(i uint32) {
	o := &e.table.ops[i]
	entry := e.fds.at(o.fd)
	if o.before != 0 {
		e.table.ops[o.before-1].peer = o.peer
	} else {
		entry.first = o.peer
	}
	if o.peer != 0 {
		e.table.ops[o.peer-1].before = o.before
	}
	o.peer, o.before = 0, 0
	events := entry.events()
	*entry.count(o.code)--
	if left := entry.events(); left != events {
		_ = e.control(o.fd, events, left) // fails only for a descriptor that was closed, which is out of the set
	}
}

// control changes what the epoll set has fd with.
func (e *Epoll) control(fd int32, from, to uint32) unix.Errno {
	ev := unix.EpollEvent{Events: to, Fd: fd}
	op := unix.EPOLL_CTL_MOD
	switch {
	case from == 0:
		op = unix.EPOLL_CTL_ADD
	case to == 0:
		op = unix.EPOLL_CTL_DEL
	}
	return epollControl(e.fd, op, int(fd), &ev)
}

// tryUnpollable is what comes of an operation on a file that is no socket, pipe or the like.
func (e *Epoll) tryUnpollable(o *op) int32 {
	switch o.code {
	case codeAccept:
		n, errno := acceptConn(int(o.fd))
		return outcome(n, errno)
	case codeRecv:
		var none [1]byte
		n, errno := recvBytes(int(o.fd), none[:])
		return outcome(n, errno)
	case codePoll:
		return 0 // it is always readable
	case codeSend, codeSendFD, codeSendNow, codeRead, codeWrite, codeSync, codeTimer, opCodes:
	}
	panic("ring: a send that can neither be done nor waited for")
}
