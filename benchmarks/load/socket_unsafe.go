package load

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// send sends all of p on a blocking socket, without a word to the scheduler: the thread
// keeps its P, which is what a program without a runtime would do.
func send(fd int, p []byte) error {
	for len(p) > 0 {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
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

// sendParts sends three parts as one, the last of which may be empty.
func sendParts(fd int, head, body, tail []byte) error {
	parts := [3]unix.Iovec{}
	n := 0
	for _, p := range [3][]byte{head, body, tail} {
		if len(p) > 0 {
			parts[n].Base = &p[0]
			parts[n].SetLen(len(p))
			n++
		}
	}
	for at := 0; at < n; {
		sent, _, errno := syscall.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&parts[at])), uintptr(n-at))
		if errno == unix.EINTR {
			pause()
			continue
		}
		if errno != 0 {
			return fmt.Errorf("load: send: %w", errno)
		}
		left := uint64(sent)
		for at < n && left >= parts[at].Len {
			left -= parts[at].Len
			at++
		}
		if at < n && left > 0 {
			parts[at].Base = (*byte)(unsafe.Add(unsafe.Pointer(parts[at].Base), left))
			parts[at].SetLen(int(parts[at].Len - left))
		}
	}
	return nil
}
