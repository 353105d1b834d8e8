package seglog

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A digest stands for a key in memory. It is seeded, so that nobody can choose keys that share one. The whole key is on disk, in
// the header of the record's group, which is read with the value: what is served is the value of the very key that was asked for.
type digest struct{ hi, lo uint64 }

// An entry is the record that counts for a key: 56 bytes, 64 with its share of the buckets.
//
// A ghost is an entry that is not visible but for which the disk may hold a record: one whose header was written with an unknown
// result, or that failed to verify. It makes a delete of its key write a tombstone.
type entry struct {
	digest     digest
	seq        uint64 // 0: the entry is not in the index
	sum        uint64
	sizeHeat   uint32 // the size in bytes, and above it the reads since the entry was placed, up to heatMax
	at         uint32 // where the value begins, in units; 0: a ghost (block 0 of a segment is never a value's)
	prev, next uint32 // in the list of its segment, or (next) of the free entries
	space      uint32 // the namespace's place in index.spaces
	segment    uint16
	head       uint16 // how many blocks before the value's first block its group's header is
}

// The parts of entry.sizeHeat.
const (
	sizeBits = 30
	sizeMask = 1<<sizeBits - 1
)

var _ [sizeMask - segmentSizeMax + 1]byte // a value fits

// size is the value's size in bytes.
func (e *entry) size() int64 { return int64(e.sizeHeat & sizeMask) }

// heat is how often it was read since it was placed.
func (e *entry) heat() uint8 { return uint8(e.sizeHeat >> sizeBits) }

// used says that the entry is in the index.
func (e *entry) used() bool { return e.seq != 0 }

// A space is a namespace that has entries.
type space struct {
	namespace uint64
	entries   uint32
}

// heatMax is where the count of reads stops.
const heatMax = 3

// heats are units of values by heat.
type heats [heatMax + 1]int64

// ghost says that the entry is not visible.
func (e *entry) ghost() bool { return e.at == 0 }

// An index finds entries by key, and lists them by segment. It holds no pointers.
type index struct {
	seed, mask uint64
	fold       bool    // tests: many keys share a digest
	entries    []entry // from 1; made once at full size: what was never used is never touched
	high       uint32  // entries[1:high] were used
	free       uint32  // the first of those that are free again
	frees      int
	keys       chain
	spaces     []space           // from 1
	spaceFree  []uint32          // of them
	spaceOf    map[uint64]uint32 // by namespace
	heads      []uint32          // by segment: its list
	counts     []uint32          // by segment: entries in its list
	heats      []heats           // by segment: what its visible entries have
	walk       uint32            // the next entry that the eviction under way looks at, kept right when that one goes; or 0
	limit      int
	ghosts     int
	bytes      int64 // of the values of visible entries
}

// newIndex makes an index for at most limit entries.
func newIndex(cfg *Config, segments int) index {
	x := index{
		seed: cfg.Seed, mask: cfg.HashMask, fold: cfg.foldDigest, entries: make([]entry, cfg.MaxEntries+1), high: 1,
		keys: newChain(cfg.MaxEntries), heads: make([]uint32, segments), limit: cfg.MaxEntries,
		counts: make([]uint32, segments), heats: make([]heats, segments),
		spaces: make([]space, 1), spaceOf: make(map[uint64]uint32),
	}
	x.keys.next = make([]uint32, cfg.MaxEntries+1)
	return x
}

// digest makes the key's digest.
func (x *index) digest(k *Key) digest {
	var b [48]byte
	binary.LittleEndian.PutUint64(b[0:], k.Namespace)
	binary.LittleEndian.PutUint64(b[8:], k.Layout)
	copy(b[16:], k.Hash[:])
	h := xxh3.Hash128Seed(b[:], x.seed)
	if x.fold {
		return digest{lo: h.Lo & 7}
	}
	return digest{hi: h.Hi, lo: h.Lo}
}

// hash is what finds a digest's bucket.
func (x *index) hash(d digest) uint64 { return d.lo & x.mask }

// used counts the entries, ghosts included.
func (x *index) used() int { return int(x.high) - 1 - x.frees }

// find returns the entry of a digest, or 0.
func (x *index) find(d digest) uint32 {
	for i := x.keys.first(x.hash(d)); i != 0; i = x.keys.after(i) {
		if x.entries[i].digest == d {
			return i
		}
	}
	return 0
}

// enterSpace counts an entry in its namespace, and returns the place of that.
func (x *index) enterSpace(namespace uint64) uint32 {
	i, ok := x.spaceOf[namespace]
	if !ok {
		if n := len(x.spaceFree); n > 0 {
			i, x.spaceFree = x.spaceFree[n-1], x.spaceFree[:n-1]
		} else {
			x.spaces = append(x.spaces, space{})
			i = uint32(len(x.spaces) - 1)
		}
		x.spaces[i] = space{namespace: namespace}
		x.spaceOf[namespace] = i
	}
	x.spaces[i].entries++
	return i
}

// leaveSpace undoes enterSpace.
func (x *index) leaveSpace(i uint32) {
	s := &x.spaces[i]
	if s.entries--; s.entries == 0 {
		delete(x.spaceOf, s.namespace)
		x.spaceFree = append(x.spaceFree, i)
	}
}

// namespace is the namespace of entry e.
func (x *index) namespace(e *entry) uint64 { return x.spaces[e.space].namespace }

// insert adds an entry for r, whose key has digest d and no entry. There must be room.
func (x *index) insert(d digest, r *record, segment uint32) {
	if x.used() >= x.limit {
		panic("l2/seglog: index is full")
	}
	i := x.free
	if i != 0 {
		x.free = x.entries[i].next
		x.frees--
	} else {
		i = x.high
		x.high++
	}
	x.entries[i] = entry{digest: d, space: x.enterSpace(r.key.Namespace)}
	x.keys.add(x.hash(d), i)
	x.place(i, r, segment)
}

// replace makes entry i that of the newer record r of the same key.
func (x *index) replace(i uint32, r *record, segment uint32) {
	x.unplace(i)
	if e := &x.entries[i]; x.namespace(e) != r.key.Namespace { // another key of the same digest
		x.leaveSpace(e.space)
		e.space = x.enterSpace(r.key.Namespace)
	}
	x.place(i, r, segment)
}

// place fills entry i from r and lists it under its segment.
func (x *index) place(i uint32, r *record, segment uint32) {
	e := &x.entries[i]
	e.seq, e.sum, e.sizeHeat, e.at, e.segment, e.head = r.seq, r.sum, uint32(r.size), r.at, uint16(segment), r.head
	e.prev, e.next = 0, x.heads[segment]
	if e.next != 0 {
		x.entries[e.next].prev = i
	}
	x.heads[segment] = i
	x.counts[segment]++
	if e.ghost() {
		x.ghosts++
	} else {
		x.count(e, 1)
	}
}

// count adds the visible entry e to the sums, or takes it off them with n = -1.
func (x *index) count(e *entry, n int64) {
	x.bytes += n * e.size()
	x.heats[e.segment][e.heat()] += n * int64(units(e.size()))
}

// touch notes that the visible entry i is read.
func (x *index) touch(i uint32) {
	if e := &x.entries[i]; e.heat() < heatMax {
		x.count(e, -1)
		e.sizeHeat += 1 << sizeBits
		x.count(e, 1)
	}
}

// unplace undoes place.
func (x *index) unplace(i uint32) {
	e := &x.entries[i]
	if x.walk == i {
		x.walk = e.next
	}
	x.counts[e.segment]--
	if e.prev != 0 {
		x.entries[e.prev].next = e.next
	} else {
		x.heads[e.segment] = e.next
	}
	if e.next != 0 {
		x.entries[e.next].prev = e.prev
	}
	if e.ghost() {
		x.ghosts--
	} else {
		x.count(e, -1)
	}
}

// bury makes entry i a ghost.
func (x *index) bury(i uint32) {
	e := &x.entries[i]
	if e.ghost() {
		return
	}
	x.count(e, -1)
	x.ghosts++
	e.at = 0
}

// remove takes entry i out.
func (x *index) remove(i uint32) {
	x.unplace(i)
	e := &x.entries[i]
	x.leaveSpace(e.space)
	x.keys.remove(x.hash(e.digest), i)
	*e = entry{next: x.free}
	x.free = i
	x.frees++
}
