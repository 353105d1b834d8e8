package load

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// send sends all of p on a blocking socket, without a word to the scheduler: the thread
// keeps its P, which is what a program without a runtime would do.
func send(fd int, p []byte) error {
	most := proto.SendSize(len(p))
	for len(p) > 0 {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(min(len(p), most)), unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno == unix.EINTR:
			pause()
		case errno != 0:
			return fmt.Errorf("load: send: %w", errno)
		default:
			p = p[n:]
		}
	}
	return nil
}

// readable waits, in the same way, until there is something to receive, or an error. Who sleeps in a receive is woken, too, when the
// peer takes what was sent; a poll for input is not.
func readable(fd int) error {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	for {
		limit := unix.NsecToTimespec(int64(patience)) // the call leaves in it what is left
		_, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
		switch {
		case errno == unix.EINTR:
			pause()
		case errno != 0:
			return fmt.Errorf("load: ppoll: %w", errno)
		default:
			return nil // the receive finds out which, and has a time of its own
		}
	}
}

// recv receives some bytes, one at least, in the same way.
func recv(fd int, p []byte, flags int) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(flags), 0, 0)
		switch {
		case errno == unix.EINTR:
			pause()
		case errno != 0:
			return 0, fmt.Errorf("load: receive: %w", errno)
		case n == 0:
			return 0, fmt.Errorf("load: receive: %w", unix.ECONNRESET)
		default:
			return int(n), nil
		}
	}
}

// pause is a safe point: the check of the stack at its start is where a stop of the world
// that the signal asked for takes hold.
//
//go:noinline
func pause() {}

// Do implements [Op].
func (p *Pingpong) Do() error {
	if err := p.link.Send(p.buf[:]); err != nil {
		return err
	}
	for got := 0; got < EchoSize; {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(p.link.fd), uintptr(unsafe.Pointer(&p.buf[got])), uintptr(EchoSize-got), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			pause()
		case errno != 0 || n == 0:
			return fmt.Errorf("load: receive: %w", errno)
		default:
			got += int(n)
		}
	}
	return nil
}

// vectors makes a list of the parts that are not empty.
func vectors(head, body, tail []byte) (list [3]unix.Iovec, n int) {
	for _, p := range [3][]byte{head, body, tail} {
		if len(p) > 0 {
			list[n].Base = &p[0]
			list[n].SetLen(len(p))
			n++
		}
	}
	return list, n
}

// pass takes n bytes off the front of parts, and returns those that are left.
func pass(parts []unix.Iovec, n uint64) []unix.Iovec {
	for len(parts) > 0 && n >= parts[0].Len {
		n -= parts[0].Len
		parts = parts[1:]
	}
	if len(parts) > 0 && n > 0 {
		parts[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(parts[0].Base), n))
		parts[0].SetLen(int(parts[0].Len - n))
	}
	return parts
}

// sendParts sends three parts as one, the last of which may be empty.
func sendParts(fd int, head, body, tail []byte) error {
	list, n := vectors(head, body, tail)
	for parts := list[:n]; len(parts) > 0; {
		sent, _, errno := syscall.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&parts[0])), uintptr(len(parts)))
		switch {
		case errno == unix.EINTR:
			pause()
		case errno != 0:
			return fmt.Errorf("load: send: %w", errno)
		default:
			parts = pass(parts, uint64(sent))
		}
	}
	return nil
}

// recvParts fills three parts, the first of which begins with mark: anything else is what the
// server has to say instead.
func recvParts(fd int, mark byte, head, body, tail []byte) error {
	list, n := vectors(head, body, tail)
	for parts := list[:n]; len(parts) > 0; {
		got, _, errno := syscall.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&parts[0])), uintptr(len(parts)))
		switch {
		case errno == unix.EINTR:
			pause()
		case errno != 0:
			return fmt.Errorf("load: receive: %w", errno)
		case got == 0:
			return fmt.Errorf("load: receive: %w", unix.ECONNRESET)
		case head[0] != mark:
			return fmt.Errorf("load: the server says %.80q", head[:min(int(got), len(head))])
		default:
			parts = pass(parts, uint64(got))
		}
	}
	return nil
}
