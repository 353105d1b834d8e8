package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// groupsOf are the groups of a Unix socket's peer.
func groupsOf(fd int, primary uint32) []uint32 {
	groups := []uint32{primary}
	for size := 32; size <= 1<<16; size *= 2 {
		more := make([]uint32, size)
		length := uint32(4 * size)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&more[0])), uintptr(unsafe.Pointer(&length)), 0)
		if errno == unix.ERANGE {
			continue
		}
		if errno == 0 {
			groups = append(groups, more[:length/4]...)
		}
		break
	}
	return groups
}
