package client

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore tells which pages of data are in memory.
func mincore(data, resident []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(unsafe.Pointer(&resident[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
