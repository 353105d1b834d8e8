package l1

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAligned maps the first size bytes of a file at an address that is a multiple of align, a power of two: a page can only be
// huge where it is so in the mapping.
func mapAligned(fd int, size, align int64) ([]byte, error) {
	// Reserve more, put the file into it, and give the rest back.
	whole := uintptr(size + align)
	reserved, err := unix.MmapPtr(-1, 0, nil, whole, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	skip := -uintptr(reserved) % uintptr(align)
	at, err := unix.MmapPtr(fd, 0, unsafe.Add(reserved, skip), uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		_ = unix.MunmapPtr(reserved, whole) // of address space and no memory
		return nil, err
	}
	if skip > 0 {
		_ = unix.MunmapPtr(reserved, skip)
	}
	// The mapping ends with a page, huge or not; size may be less for a file of huge pages whose last is cut off.
	if rest := whole - skip - uintptr(size); rest > 0 {
		_ = unix.MunmapPtr(unsafe.Add(at, size), rest)
	}
	return unsafe.Slice((*byte)(at), size), nil
}

// unmap gives back what mapAligned returned.
func unmap(mem []byte) error { return unix.MunmapPtr(unsafe.Pointer(&mem[0]), uintptr(len(mem))) }
