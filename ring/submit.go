package ring

import (
	"math"
	"time"

	us "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// The flags of sends. MSG_WAITALL on a stream makes the kernel go on after a short send by itself.
const (
	sendFlags    = unix.MSG_NOSIGNAL | unix.MSG_WAITALL
	sendNowFlags = unix.MSG_NOSIGNAL | unix.MSG_WAITALL | unix.MSG_DONTWAIT
	// A message with a descriptor goes once: when the kernel continues one by itself, some versions send the descriptor again.
	sendFDFlags = unix.MSG_NOSIGNAL
)

// chunkMax is the most bytes a read, write or send asks for at once; the kernel's limit is a page short of 2 GiB.
const chunkMax = 1 << 30

// Accept implements [Interface].
func (u *Uring) Accept(tag Tag, fd int) { u.queueArmed(codeAccept, tag, fd) }

// Recv implements [Interface].
func (u *Uring) Recv(tag Tag, fd int) { u.queueArmed(codeRecv, tag, fd) }

// Poll implements [Interface].
func (u *Uring) Poll(tag Tag, fd int) { u.queueArmed(codePoll, tag, fd) }

// Timer implements [Interface].
func (u *Uring) Timer(tag Tag, d time.Duration) {
	i := u.takeArmed(codeTimer, tag, -1)
	u.table.times[i] = unix.NsecToTimespec(int64(max(d, 0)))
	u.prepare(i)
}

// Pause implements [Interface].
func (u *Uring) Pause(tag Tag) {
	i, ok := u.tags.find(tag)
	if !ok || u.table.ops[i].state == opPausing {
		return
	}
	u.table.ops[i].moveTo(opPausing)
	s := u.submission()
	s.PrepOperation(us.IORING_OP_ASYNC_CANCEL, -1, u.table.userOf(i), 0, 0)
	s.SetFlags(sqeSkipSuccess)
	s.SetUserData(userIgnored)
}

// SendNow implements [Interface].
func (u *Uring) SendNow(tag Tag, fd int, p []byte) { u.queueBytes(codeSendNow, tag, fd, 0, p) }

// Send implements [Interface].
func (u *Uring) Send(tag Tag, fd int, p []byte) { u.queueBytes(codeSend, tag, fd, 0, p) }

// SendFD implements [Interface].
func (u *Uring) SendFD(tag Tag, fd int, p []byte, passed int) {
	if len(p) == 0 {
		panic("ring: a descriptor is sent with no byte")
	}
	checkLen(p)
	i := u.take(codeSendFD, tag, fd)
	o := &u.table.ops[i]
	o.buf, o.off = p, int64(passed)
	if n := len(u.spare); n > 0 {
		o.msg, u.spare = u.spare[n-1], u.spare[:n-1]
	} else {
		o.msg = new(fdMessage)
	}
	u.prepare(i)
}

// Read implements [Interface].
func (u *Uring) Read(tag Tag, fd int, off int64, p []byte) { u.queueBytes(codeRead, tag, fd, off, p) }

// Write implements [Interface].
func (u *Uring) Write(tag Tag, fd int, off int64, p []byte) { u.queueBytes(codeWrite, tag, fd, off, p) }

// Sync implements [Interface].
func (u *Uring) Sync(tag Tag, fd int) { u.prepare(u.take(codeSync, tag, fd)) }

// checkLen panics if p is too long for the result of an operation.
func checkLen(p []byte) {
	if len(p) > math.MaxInt32 {
		panic("ring: I/O of 2 GiB or more")
	}
}

// queueArmed queues an operation that is found by its tag.
func (u *Uring) queueArmed(code opCode, tag Tag, fd int) {
	u.prepare(u.takeArmed(code, tag, fd))
}

// takeArmed makes an operation that is found by its tag.
func (u *Uring) takeArmed(code opCode, tag Tag, fd int) uint32 {
	if _, taken := u.tags.find(tag); taken {
		panic("ring: an operation is armed under this tag")
	}
	i := u.take(code, tag, fd)
	u.tags.insert(tag, i)
	return i
}

// queueBytes queues an operation on a buffer.
func (u *Uring) queueBytes(code opCode, tag Tag, fd int, off int64, p []byte) {
	checkLen(p)
	if off < 0 {
		panic("ring: negative file offset")
	}
	i := u.take(code, tag, fd)
	o := &u.table.ops[i]
	o.buf, o.off = p, off
	u.prepare(i)
}

// take makes an operation.
func (u *Uring) take(code opCode, tag Tag, fd int) uint32 {
	if u.closing {
		panic("ring: operation after Close")
	}
	if !code.file() && u.table.control == u.table.controlMax {
		u.settle() // a send that went out may not have been noticed for want of a Collect
	}
	i := u.table.take(code)
	o := &u.table.ops[i]
	o.tag, o.fd = tag, int32(fd)
	return i
}

// submission returns a zeroed submission to fill in.
func (u *Uring) submission() *us.SubmissionQueueEntry64 {
	for tries := 0; u.q.full(); tries++ {
		if tries > 1000 {
			panic("ring: the kernel consumes no submissions")
		}
		if errno := u.enter(0, 0, true); errno != 0 {
			u.backOff(tries)
		}
	}
	return u.q.push()
}

// prepare writes the submission for what is left of operation i.
func (u *Uring) prepare(i uint32) {
	o := &u.table.ops[i]
	s := u.submission()
	s.SetUserData(u.table.userOf(i))
	switch o.code {
	case codeAccept:
		s.PrepOperation(us.IORING_OP_ACCEPT, o.fd, 0, 0, 0)
		s.SetOpFlags(unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC)
	case codeRecv:
		s.PrepOperation(us.IORING_OP_RECV, o.fd, 0, 0, 0)
		s.SetIoprio(recvMultishot)
		s.SetSpliceFdIn(u.recvMax) // the field is the bound's, too
		o.chunk = int(u.recvMax)
		s.SetFlags(sqeBufferSelect)
		s.SetBufGroup(recvGroup)
	case codeSendNow:
		s.PrepOperation(us.IORING_OP_SEND, o.fd, addressOf(o.buf), uint32(len(o.buf)), 0)
		s.SetOpFlags(sendNowFlags)
		s.SetFlags(sqeSkipSuccess)
		u.sends.push(sendEntry{op: i, generation: o.generation, submission: u.q.tail - 1})
	case codeSend, codeSendFD:
		prepareSend(o, s)
	case codeRead, codeWrite:
		u.prepareFile(o, s)
	case codeSync:
		s.PrepOperation(us.IORING_OP_FSYNC, o.fd, 0, 0, 0)
		s.SetOpFlags(us.IORING_FSYNC_DATASYNC)
	case codePoll:
		s.PrepOperation(us.IORING_OP_POLL_ADD, o.fd, 0, 0, 0)
		s.SetOpFlags(unix.POLLIN)
	case codeTimer:
		s.PrepOperation(us.IORING_OP_TIMEOUT, -1, addressOfTime(&u.table.times[i]), 1, 0)
	case opCodes:
		panic("ring: operation without a code")
	}
}

// prepareSend writes the submission of a send. The descriptor of codeSendFD goes with the first bytes and not with the rest.
func prepareSend(o *op, s *us.SubmissionQueueEntry64) {
	p := o.rest()
	if o.code == codeSendFD && o.done == 0 {
		s.PrepOperation(us.IORING_OP_SENDMSG, o.fd, o.msg.set(p, int(o.off)), 1, 0)
		s.SetOpFlags(sendFDFlags)
		return
	}
	s.PrepOperation(us.IORING_OP_SEND, o.fd, addressOf(p), uint32(len(p)), 0)
	s.SetOpFlags(sendFlags)
}

// rest returns the part of o's buffer that the next submission asks for, and notes its length.
func (o *op) rest() []byte {
	p := o.buf[o.done:]
	p = p[:min(len(p), chunkMax)]
	o.chunk = len(p)
	return p
}

// prepareFile writes the submission of a read or write. It ends where a piece of registered memory does; the part behind it is asked
// for when this one is done.
func (u *Uring) prepareFile(o *op, s *us.SubmissionQueueEntry64) {
	p := o.rest()
	code, fixed := us.IORING_OP_READ, us.IORING_OP_READ_FIXED
	if o.code == codeWrite {
		code, fixed = us.IORING_OP_WRITE, us.IORING_OP_WRITE_FIXED
	}
	entry, n, ok := u.fixed.find(addressOf(p), len(p))
	if ok {
		o.chunk = n
		s.PrepOperation(fixed, o.fd, addressOf(p), uint32(n), uint64(o.off)+uint64(o.done))
		s.SetBufIndex(uint16(entry))
		u.stats.FixedIO++
		return
	}
	s.PrepOperation(code, o.fd, addressOf(p), uint32(len(p)), uint64(o.off)+uint64(o.done))
	u.stats.PlainIO++
}
