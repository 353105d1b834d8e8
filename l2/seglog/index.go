package seglog

import "math/bits"

// An entry is the record that counts for a key: 88 bytes, 96 with its share of the buckets. The full key is in it, because it
// must be compared before anything is served; keeping only a digest would make it 56 bytes and the comparison a read.
//
// A ghost is an entry that is not visible but for which the disk may hold a record: one whose header was written with an unknown
// result, or that failed to verify. It makes a delete of its key write a tombstone.
type entry struct {
	key        Key
	seq        uint64
	sum        uint64
	size       uint32
	at         uint32 // where the value begins, in units; 0: a ghost (block 0 of a segment is never a value's)
	segment    uint32
	prev, next uint32 // in the list of its segment
	used       uint32 // 1: in the index
	heat       uint8  // reads since it was placed, up to heatMax
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
	entries    []entry // from 1; made once at full size: what was never used is never touched
	high       uint32  // entries[1:high] were used
	free       []uint32
	keys       chain
	heads      []uint32 // by segment: its list
	counts     []uint32 // by segment: entries in its list
	heats      []heats  // by segment: what its visible entries have
	walk       uint32   // the next entry that the eviction under way looks at, kept right when that one goes; or 0
	limit      int
	ghosts     int
	bytes      int64 // of the values of visible entries
}

// newIndex makes an index for at most limit entries.
func newIndex(cfg *Config, segments int) index {
	return index{
		seed: cfg.Seed, mask: cfg.HashMask, entries: make([]entry, cfg.MaxEntries+1), high: 1,
		keys: newChain(cfg.MaxEntries), heads: make([]uint32, segments), limit: cfg.MaxEntries,
		counts: make([]uint32, segments), heats: make([]heats, segments),
	}
}

// hash mixes the key's 48 bytes.
func (x *index) hash(k *Key) uint64 {
	h := mix(k.Namespace^x.seed^0x9e3779b97f4a7c15, k.Layout^0xd1b54a32d192ed03)
	for i := 0; i < 32; i += 16 {
		h = mix(h^word(&k.Hash, i), word(&k.Hash, i+8)^0x8bb84b93962eacc9)
	}
	return mix(h, x.seed^0x2d358dccaa6c78a5) & x.mask
}

// mix multiplies and folds.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// word reads 8 bytes of the hash at i.
func word(p *[32]byte, i int) uint64 {
	return uint64(p[i]) | uint64(p[i+1])<<8 | uint64(p[i+2])<<16 | uint64(p[i+3])<<24 |
		uint64(p[i+4])<<32 | uint64(p[i+5])<<40 | uint64(p[i+6])<<48 | uint64(p[i+7])<<56
}

// used counts the entries, ghosts included.
func (x *index) used() int { return int(x.high) - 1 - len(x.free) }

// find returns the key's entry, or 0.
func (x *index) find(k *Key) uint32 {
	for i := x.keys.first(x.hash(k)); i != 0; i = x.keys.after(i) {
		if x.entries[i].key == *k {
			return i
		}
	}
	return 0
}

// insert adds an entry for r, whose key has none. There must be room.
func (x *index) insert(r *record, segment uint32) {
	if x.used() >= x.limit {
		panic("l2/seglog: index is full")
	}
	var i uint32
	if n := len(x.free); n > 0 {
		i = x.free[n-1]
		x.free = x.free[:n-1]
	} else {
		i = x.high
		x.high++
	}
	x.entries[i] = entry{key: r.key, used: 1}
	x.keys.add(x.hash(&r.key), i)
	x.place(i, r, segment)
}

// replace makes entry i that of the newer record r of the same key.
func (x *index) replace(i uint32, r *record, segment uint32) {
	x.unplace(i)
	x.place(i, r, segment)
}

// place fills entry i from r and lists it under its segment.
func (x *index) place(i uint32, r *record, segment uint32) {
	e := &x.entries[i]
	e.seq, e.sum, e.size, e.at, e.segment, e.heat = r.seq, r.sum, uint32(r.size), r.at, segment, 0
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
	x.bytes += n * int64(e.size)
	x.heats[e.segment][e.heat] += n * int64(units(int64(e.size)))
}

// touch notes that the visible entry i is read.
func (x *index) touch(i uint32) {
	if e := &x.entries[i]; e.heat < heatMax {
		x.count(e, -1)
		e.heat++
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
	x.keys.remove(x.hash(&x.entries[i].key), i)
	x.entries[i] = entry{}
	x.free = append(x.free, i)
}
