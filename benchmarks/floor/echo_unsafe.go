package floor

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// listen opens a listening Unix socket.
func listen(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, 1024)
	}
	if err != nil {
		return -1, fmt.Errorf("floor: listen on %s: %w", path, err)
	}
	return fd, nil
}

// serveEpoll is a level-triggered loop of one thread, whose waits keep their P.
func serveEpoll(path string, ready func()) error {
	runtime.LockOSThread()
	listener, err := listen(path)
	if err != nil {
		return err
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, listener, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(listener)})
	}
	if err != nil {
		return fmt.Errorf("floor: epoll: %w", err)
	}
	ready()
	var events [256]unix.EpollEvent
	buf := make([]byte, 64<<10)
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), ^uintptr(0), 0, 0)
		if errno == unix.EINTR {
			safePoint()
			continue
		}
		if errno != 0 {
			return fmt.Errorf("floor: epoll: %w", errno)
		}
		for i := range events[:n] {
			fd := int(events[i].Fd)
			if fd == listener {
				if err := accept(ep, listener); err != nil {
					return err
				}
			} else if !echoOnce(fd, buf, 0) {
				_ = unix.Close(fd)
			}
		}
	}
}

func accept(ep, listener int) error {
	fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err == nil {
		err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("floor: accept: %w", err)
	}
	return nil
}

// serveSpin never sleeps while there is a connection.
func serveSpin(path string, ready func()) error {
	runtime.LockOSThread()
	listener, err := listen(path)
	if err != nil {
		return err
	}
	ready()
	buf := make([]byte, 64<<10)
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("floor: accept: %w", err)
		}
		for echoOnce(fd, buf, unix.MSG_DONTWAIT) {
		}
		_ = unix.Close(fd)
	}
}

// echoOnce sends back what there is, and reports whether the connection lives.
func echoOnce(fd int, buf []byte, flags int) bool {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(flags), 0, 0)
	if errno == unix.EAGAIN || errno == unix.EINTR {
		safePoint()
		return true
	}
	if errno != 0 || n == 0 {
		return false
	}
	for done := uintptr(0); done < n; {
		k, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&buf[done])), n-done, unix.MSG_NOSIGNAL, 0, 0)
		if errno == unix.EINTR {
			safePoint()
			continue
		}
		if errno != 0 {
			return false
		}
		done += k
	}
	return true
}

// safePoint is where a stop of the world, asked for by a signal, takes hold.
//
//go:noinline
func safePoint() {}
