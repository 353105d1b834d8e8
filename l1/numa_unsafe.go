package l1

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maskBits is the size of a mask as the kernel counts it, which is one too many.
const maskBits = nodesMax + 1

// mbind sets the policy of mapped memory.
func mbind(mem []byte, mode int, mask *nodeMask) error {
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		uintptr(mode), uintptr(unsafe.Pointer(mask)), maskBits, 0)
	runtime.KeepAlive(mask)
	if errno != 0 {
		return errno
	}
	return nil
}

// setMempolicy sets the policy of the thread.
func setMempolicy(mode int, mask *nodeMask) error {
	_, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, uintptr(mode), uintptr(unsafe.Pointer(mask)), maskBits)
	runtime.KeepAlive(mask)
	if errno != 0 {
		return errno
	}
	return nil
}

// mempolicy returns the policy of the thread.
func mempolicy() (int, nodeMask, error) { return getMempolicy(nil, 0) }

// mempolicyOf returns the policy of mapped memory.
func mempolicyOf(mem []byte) (int, nodeMask, error) {
	return getMempolicy(unsafe.Pointer(&mem[0]), unix.MPOL_F_ADDR)
}

func getMempolicy(addr unsafe.Pointer, flags uintptr) (int, nodeMask, error) {
	var mode int32
	var mask nodeMask
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), uintptr(unsafe.Pointer(&mask)),
		maskBits, uintptr(addr), flags, 0)
	if errno != 0 {
		return 0, mask, errno
	}
	return int(mode), mask, nil
}
