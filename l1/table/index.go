package table

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// An index finds objects by key: open addressing with linear probing. At most
// half of the slots are in use, and a deletion shifts the followers back, so that
// chains stay short whatever the history. A slot has the hash beside the object,
// so that a look past other keys touches no objects, and most chains are in one
// cache line.
type index struct {
	slots []slot
	mask  uint32
	seed  uint64
	fold  uint64
}

// A slot is an object's index in the lower 32 bits, 0 when empty, and its hash in
// the upper.
type slot uint64

func newSlot(i, hash uint32) slot { return slot(hash)<<32 | slot(i) }

func (s slot) object() uint32 { return uint32(s) }
func (s slot) hash() uint32   { return uint32(s >> 32) }

func (x *index) init(cfg Config) {
	n := 1 << bits.Len(uint(2*cfg.MaxObjects-1))
	x.slots = make([]slot, n)
	x.mask = uint32(n - 1)
	x.seed = cfg.Seed
	x.fold = cfg.HashMask
	if x.fold == 0 {
		x.fold = ^uint64(0)
	}
}

// hash covers the whole key: two layouts of one hash must not share a chain.
func (x *index) hash(k *Key) uint32 {
	var b [48]byte
	binary.LittleEndian.PutUint64(b[0:], k.Namespace)
	binary.LittleEndian.PutUint64(b[8:], k.Layout)
	copy(b[16:], k.Hash[:])
	return uint32(xxh3.HashSeed(b[:], x.seed) & x.fold)
}

// find returns the object of the key, 0 if there is none. The whole key is
// compared: equal hashes prove nothing.
func (t *Table) find(k *Key, h uint32) uint32 {
	x := &t.index
	for at := h & x.mask; ; at = (at + 1) & x.mask {
		s := x.slots[at]
		if s == 0 {
			return 0
		}
		if s.hash() == h && t.objects[s.object()].key == *k {
			return s.object()
		}
	}
}

// insert adds object i, whose key the index must not have.
func (t *Table) insert(i uint32) {
	x := &t.index
	h := t.objects[i].hash
	at := h & x.mask
	for x.slots[at] != 0 {
		at = (at + 1) & x.mask
	}
	x.slots[at] = newSlot(i, h)
}

// remove takes object i out of the index.
func (t *Table) remove(i uint32) {
	x := &t.index
	at := t.objects[i].hash & x.mask
	for x.slots[at].object() != i {
		if x.slots[at] == 0 {
			panic("l1/table: the index has lost an object")
		}
		at = (at + 1) & x.mask
	}
	// Close the gap: each follower whose home is not behind the gap moves into
	// it and leaves a new one.
	gap := at
	for {
		at = (at + 1) & x.mask
		s := x.slots[at]
		if s == 0 {
			break
		}
		home := s.hash() & x.mask
		if (at-home)&x.mask >= (at-gap)&x.mask {
			x.slots[gap] = s
			gap = at
		}
	}
	x.slots[gap] = 0
}
