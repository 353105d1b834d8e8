package l1

import (
	"runtime/debug"
	"unsafe"

	"github.com/zeebo/xxh3"
)

const (
	// sumPiece is how many bytes SumPieces reads between two calls: some 20 microseconds.
	sumPiece = 256 << 10
	// sumKept is how many bytes at its end a hasher keeps for later at most: a block and a stripe of xxh3.
	sumKept = 1024 + 64
)

// SumPieces is Sum for many bytes, and calls between about every 20 microseconds, so that who computes it may let others run.
func SumPieces(b []byte, between func()) (sum uint64, err error) {
	if !hasherStops {
		return Sum(b)
	}
	old := debug.SetPanicOnFault(true)
	defer settle(old, &err)
	return sumPieces(b, sumPiece, between), nil
}

// hasherHead is how xxh3.Hasher begins.
type hasherHead struct {
	acc    [8]uint64
	blocks uint64 // that were read
	kept   uint64 // bytes that are kept behind these
}

// hasherStops says that xxh3.Hasher is as sumPieces knows it: no other version of that package may make a sum wrong.
var hasherStops = func() bool {
	b := make([]byte, 5*1024+sumKept+9)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return unsafe.Sizeof(xxh3.Hasher{}) >= unsafe.Sizeof(hasherHead{}) && sumPieces(b, 1024, func() {}) == xxh3.Hash(b)
}()

// sumPieces stops at each piece, a multiple of 1024 bytes. A hasher copies what follows its first write, which takes twice the
// time, only because it has kept the end of that. So it is made to forget what it kept, and given it again.
func sumPieces(b []byte, piece int, between func()) uint64 {
	if len(b) <= piece+sumKept {
		return xxh3.Hash(b)
	}
	var h xxh3.Hasher
	for len(b) > piece+sumKept {
		_, _ = h.Write(b[:piece+sumKept]) // never fails
		(*hasherHead)(unsafe.Pointer(&h)).kept = 0
		b = b[piece:]
		between()
	}
	_, _ = h.Write(b)
	return h.Sum64()
}
