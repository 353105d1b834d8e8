package table

import "unsafe"

// bytesOf is the memory of an array.
func bytesOf[T any](a []T) []byte {
	if len(a) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&a[0])), len(a)*int(unsafe.Sizeof(a[0])))
}

// fetch has the processor bring elements of a into its caches while the program goes
// on: the line where each begins.
func fetch[T any](a []T, at []uint32) {
	if len(at) > 0 {
		prefetch(unsafe.Pointer(&a[0]), &at[0], len(at), ^uint32(0), unsafe.Sizeof(a[0]))
	}
}

var ( // see there
	_ [64]byte = [unsafe.Sizeof(object{})]byte{}
	_ [32]byte = [unsafe.Sizeof(place{})]byte{}
)

// fetch is for the slots where the chains of hashes begin.
func (x *index) fetch(hashes []uint32) {
	if len(hashes) > 0 {
		prefetch(unsafe.Pointer(&x.slots[0]), &hashes[0], len(hashes), x.mask, unsafe.Sizeof(x.slots[0]))
	}
}

// plain is the same hashes by another name.
func plain[H ~[32]byte](hashes []H) [][32]byte {
	return unsafe.Slice((*[32]byte)(unsafe.Pointer(unsafe.SliceData(hashes))), len(hashes))
}
