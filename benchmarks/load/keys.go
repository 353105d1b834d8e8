package load

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/slotcache/slotcache/proto"
)

// Keys makes keys out of numbers. Two of them never make the same.
type Keys struct{ salt uint64 }

// NewKeys makes new keys.
func NewKeys() Keys { return Keys{rand.Uint64()} }

// At is key i.
func (k Keys) At(i uint64) (key proto.Key) {
	hi, lo := bits.Mul64(k.salt^i, 0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(key[:], hi^lo)
	binary.LittleEndian.PutUint64(key[8:], k.salt)
	binary.LittleEndian.PutUint64(key[16:], i)
	return key
}
