package l2

import "unsafe"

// toHuge is how many bytes of p, which has as many, lie before the first huge page in it.
func toHuge(p []byte) int64 {
	return int64(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) & (hugeSize - 1))
}
