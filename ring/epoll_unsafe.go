package ring

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of an Epoll. Those of the loop, but for epollWait, do not block: the scheduler is not told of them.

// epollWait waits timeout milliseconds for events, for ever if that is negative. Raw and the safe point are as of queue.enter.
//
//go:noinline
func epollWait(fd int, events []unix.EpollEvent, timeout int, raw bool) (int, syscall.Errno) {
	var n uintptr
	var errno syscall.Errno
	if raw {
		n, _, errno = syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT,
			uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(timeout), 0, 0)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_EPOLL_PWAIT,
			uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(timeout), 0, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// epollControl changes the epoll set.
func epollControl(fd, op, target int, ev *unix.EpollEvent) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(fd), uintptr(op), uintptr(target), uintptr(unsafe.Pointer(ev)), 0, 0)
	return errno
}

// acceptConn takes a connection of the non-blocking socket fd.
func acceptConn(fd int) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	return int(n), errno
}

// recvBytes receives what is there.
func recvBytes(fd int, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM,
		uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// sendBytes sends what there is room for.
func sendBytes(fd int, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO,
		uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// sendMessage sends what there is room for of m, whose descriptor goes with the first byte.
func sendMessage(fd int, m *fdMessage) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.hdr)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0, 0)
	return int(n), errno
}

// fileIO reads or writes at off of a file, in a goroutine beside the loop.
func fileIO(write bool, fd int, p []byte, off int64) (int, syscall.Errno) {
	call := uintptr(unix.SYS_PREAD64)
	if write {
		call = unix.SYS_PWRITE64
	}
	n, _, errno := syscall.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(off), 0, 0)
	return int(n), errno
}

// syncFile makes a file's written data durable, in a goroutine beside the loop.
func syncFile(fd int) syscall.Errno {
	_, _, errno := syscall.Syscall(unix.SYS_FDATASYNC, uintptr(fd), 0, 0)
	return errno
}
