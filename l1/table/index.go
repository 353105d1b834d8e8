package table

import (
	"encoding/binary"
	"math/bits"
)

// An index finds objects by key: open addressing with linear probing. At most
// half of the slots are in use, and a deletion shifts the followers back, so that
// chains stay short whatever the history. A slot has what tells other keys from the object's beside it,
// so that a look past these touches no objects, and most chains are in one cache line.
type index struct {
	slots  []slot
	mask   uint32
	object uint // bits of a slot that are the object
	far    uint32
	secret [8]uint64
	fold   uint32
}

// A slot is 0 when empty. Else its lowest bits, as many as the highest index of an object has, are the object; the next, four if there
// are as many left, are how far behind its hash's place it is, at most far; and the rest are the highest of the hash. Four bytes for
// each: what all slots take is what a find waits for, as the object itself is one line wherever it is.
type slot uint32

// placeBits is how many bits say how far a slot is from its hash's place.
const placeBits = 4

func (x *index) init(cfg Config) {
	n := 1 << bits.Len(uint(2*cfg.MaxObjects-1))
	x.slots = make([]slot, n)
	x.mask = uint32(n - 1)
	x.object = uint(bits.Len(uint(cfg.MaxObjects)))
	x.far = 1<<min(placeBits, 32-x.object) - 1
	for i, word := range secret {
		x.secret[i] = word + cfg.Seed
		if i%2 == 1 {
			x.secret[i] = word - cfg.Seed
		}
	}
	x.fold = uint32(cfg.HashMask)
	if cfg.HashMask == 0 {
		x.fold = ^uint32(0)
	}
}

func (x *index) objectOf(s slot) uint32 { return uint32(s) & (1<<x.object - 1) }

// mark is what the slot of an object of hash h has beside that, in a place so far from the hash's own.
func (x *index) mark(h, place uint32) slot {
	low := x.object + placeBits
	return slot(h>>low<<low | min(place, x.far)<<x.object)
}

// marked says whether a slot has a mark.
func (x *index) marked(s, mark slot) bool { return (s^mark)>>x.object == 0 }

// place is how far a slot, which is at some place, is behind that of its hash.
func (t *Table) placeOf(s slot, at uint32) uint32 {
	x := &t.index
	if far := uint32(s) >> x.object & x.far; far < x.far {
		return far
	}
	return (at - t.objects[x.objectOf(s)].hash) & x.mask
}

// secret are the words of the secret of XXH3 that 48 bytes are hashed with.
var secret = [8]uint64{
	0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
	0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
}

// A stem is what the keys of a namespace and layout have in common, and what that adds to their hashes.
type stem struct{ namespace, layout, part uint64 }

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// unhashed is how many bytes of a key are not its hash.
const unhashed = 16

func (x *index) stem(k *Key) stem {
	prime, size := uint64(0x9e3779b185ebca87), uint64(unhashed+len(k.Hash))
	return stem{k.Namespace, k.Layout, size*prime + fold(k.Namespace^x.secret[0], k.Layout^x.secret[1])}
}

// hash is the seeded XXH3 of namespace, layout and hash of a key, in this order: of the whole key, for two layouts of one hash must not
// share a chain. What the keys of a request have in common is hashed once.
func (x *index) hash(s *stem, h *[32]byte) uint32 {
	a, b := binary.LittleEndian.Uint64(h[0:]), binary.LittleEndian.Uint64(h[8:])
	c, d := binary.LittleEndian.Uint64(h[16:]), binary.LittleEndian.Uint64(h[24:])
	sum := s.part + fold(a^x.secret[4], b^x.secret[5]) + fold(a^x.secret[6], b^x.secret[7]) + fold(c^x.secret[2], d^x.secret[3])
	sum ^= sum >> 37
	sum *= 0x165667919e3779f9
	sum ^= sum >> 32
	return uint32(sum) & x.fold
}

func (x *index) hashKey(k *Key) uint32 {
	s := x.stem(k)
	return x.hash(&s, &k.Hash)
}

// has says whether a key is h's of a stem.
func (k *Key) has(s *stem, h *[32]byte) bool {
	differ := (k.Namespace ^ s.namespace) | (k.Layout ^ s.layout)
	for i := 0; i < len(h); i += 8 {
		differ |= binary.LittleEndian.Uint64(k.Hash[i:]) ^ binary.LittleEndian.Uint64(h[i:])
	}
	return differ == 0
}

// find returns the object of the key, 0 if there is none. The whole key is
// compared: equal hashes prove nothing.
func (t *Table) find(k *Key, h uint32) uint32 {
	x := &t.index
	for place := uint32(0); ; place++ {
		s := x.slots[(h+place)&x.mask]
		if s == 0 {
			return 0
		}
		if x.marked(s, x.mark(h, place)) && t.objects[x.objectOf(s)].key == *k {
			return x.objectOf(s)
		}
	}
}

// insert adds object i, whose key the index must not have.
func (t *Table) insert(i uint32) {
	x := &t.index
	h := t.objects[i].hash
	place := uint32(0)
	for x.slots[(h+place)&x.mask] != 0 {
		place++
	}
	x.slots[(h+place)&x.mask] = x.mark(h, place) | slot(i)
}

// remove takes object i out of the index.
func (t *Table) remove(i uint32) {
	x := &t.index
	at := t.objects[i].hash & x.mask
	for x.objectOf(x.slots[at]) != i {
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
		if place, back := t.placeOf(s, at), (at-gap)&x.mask; place >= back {
			x.slots[gap] = s&^slot(x.far<<x.object) | slot(min(place-back, x.far)<<x.object)
			gap = at
		}
	}
	x.slots[gap] = 0
}
