package table

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// An index finds objects by key: open addressing with linear probing. A slot
// has an object's index, 0 when empty. At most half of the slots are in use,
// and a deletion shifts the followers back, so that chains stay short whatever
// the history.
type index struct {
	slots []uint32
	mask  uint32
	seed  uint64
	fold  uint64
}

func (x *index) init(cfg Config) {
	n := 1 << bits.Len(uint(2*cfg.MaxObjects-1))
	x.slots = make([]uint32, n)
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
		i := x.slots[at]
		if i == 0 {
			return 0
		}
		if o := &t.objects[i]; o.hash == h && o.key == *k {
			return i
		}
	}
}

// insert adds object i, whose key the index must not have.
func (t *Table) insert(i uint32) {
	x := &t.index
	at := t.objects[i].hash & x.mask
	for x.slots[at] != 0 {
		at = (at + 1) & x.mask
	}
	x.slots[at] = i
}

// remove takes object i out of the index.
func (t *Table) remove(i uint32) {
	x := &t.index
	at := t.objects[i].hash & x.mask
	for x.slots[at] != i {
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
		j := x.slots[at]
		if j == 0 {
			break
		}
		home := t.objects[j].hash & x.mask
		if (at-home)&x.mask >= (at-gap)&x.mask {
			x.slots[gap] = j
			gap = at
		}
	}
	x.slots[gap] = 0
}
