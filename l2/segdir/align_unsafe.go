package segdir

import "unsafe"

// aligned reports whether a direct read of all of p at off is possible.
func aligned(p []byte, off int64) bool {
	if len(p) == 0 {
		return true
	}
	address := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return address%blockSize == 0 && off%blockSize == 0 && len(p)%blockSize == 0
}
