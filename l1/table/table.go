// Package table keeps the life of the objects in the pool: which bytes of the
// pool each of them owns, which key it is found by, who holds it and when it
// may be evicted. It is pure: it never touches the pool's bytes, does no I/O,
// knows no clock and starts no goroutine. A [Table] belongs to one goroutine.
//
// The files, in the order a request meets them: index.go (key to object),
// reserve.go (memory for a new object, evicting as needed), allocator.go and
// classes.go (which bytes), state.go and life.go (what may happen next),
// policy.go, adaptive.go and pin.go (who is evicted).
//
// Everything lives in arrays made by [New], indexed by uint32 and free of
// pointers, so that no operation allocates and the garbage collector has
// nothing to walk.
package table

import "math"

// A Key names an object: the same hash under two layouts or in two namespaces
// is two objects.
type Key struct {
	Namespace, Layout uint64
	Hash              [32]byte
}

// A Ref names one life of one object entry: its index in the upper 32 bits,
// its generation in the lower. The zero Ref names nothing. A Ref stays safe to
// ask [Table.Alive] about after its object is gone.
type Ref uint64

func newRef(index, generation uint32) Ref { return Ref(index)<<32 | Ref(generation) }

// Entry is the index of the entry, from 1 to [Config.MaxObjects]. Another life of
// the same entry has it too.
func (r Ref) Entry() uint32 { return r.index() }

func (r Ref) index() uint32      { return uint32(r >> 32) }
func (r Ref) generation() uint32 { return uint32(r) }

// An Extent is a range of the pool, in bytes. Off is a multiple of [Unit]. Len
// is the object's own length; the memory behind it goes on to the end of its
// last unit. An object of no length has the zero Extent.
type Extent struct{ Off, Len int64 }

// A Config says how large a [Table] is.
type Config struct {
	// Size of the pool in bytes, at most [MaxSize]. An incomplete unit at its
	// end is not used.
	Size int64
	// MaxObjects bounds the entries, whatever their state.
	MaxObjects int
	// Seed of the index's hash, so that a peer cannot choose keys that collide.
	Seed uint64
	// Policy says which object is evicted first.
	Policy Policy
	// Advise, if not nil, is told of the memory of each large array before it is
	// used, so that it can have huge pages: a table of a million objects is far
	// larger than what a processor knows the pages of.
	Advise func(memory []byte)
	// HashMask is applied to the hash of a key; zero means all bits. Tests fold
	// the hash with it to make every chain long.
	HashMask uint64
}

// A Result says how [Table.Stage] or [Table.Load] ended.
type Result uint8

// The results of [Table.Stage] and [Table.Load].
const (
	// Staged: the object is there, in the state asked for, with its memory.
	Staged Result = iota
	// ExistsReady: the key has a ready object, which is returned.
	ExistsReady
	// ExistsBusy: the key has an object that is staged or loading, which is
	// returned.
	ExistsBusy
	// NoSpace: evicting all that may be evicted would not do.
	NoSpace
	// TooLarge: the pool is smaller than the object.
	TooLarge
	// Again: objects were evicted and there is not enough room yet. The caller
	// may ask again at once or after other work; every call evicts, so asking
	// ends.
	Again
)

// String returns the result's name in snake case.
func (r Result) String() string {
	switch r {
	case Staged:
		return "staged"
	case ExistsReady:
		return "exists_ready"
	case ExistsBusy:
		return "exists_busy"
	case NoSpace:
		return "no_space"
	case TooLarge:
		return "too_large"
	case Again:
		return "again"
	}
	return "unknown"
}

// A Table owns the objects of a pool. Each byte of the pool up to the last
// [Table.Grow] is either free or belongs to exactly one object. A caller that
// uses a dead [Ref], or makes a move the object's state does not allow, has a
// bug, and the table panics.
type Table struct {
	memory  Allocator
	objects []object // objects[0] is never an object
	places  []place  // of the same objects
	spare   uint32   // head of the list of free entries, linked by next
	touched uint32   // entries above this one were never used
	index   index
	policy  policy
	leaving []uint32 // objects that are held and still in the policy's lists, see HoldAll
	pins    rings    // of evictable objects that are not the policy's
	trimmed int64    // bytes that the last Trim left, all of the pool before
	hole    hole
	births  uint64 // objects that there were
	vains   vains
	sums    sums
	scratch [Batch]uint32
}

// New returns an empty table without memory: [Table.Grow] gives it some. It
// panics when cfg makes no sense.
func New(cfg Config) *Table {
	if cfg.Size < 0 || cfg.Size > MaxSize {
		panic("l1/table: size of the pool is out of range")
	}
	if cfg.MaxObjects <= 0 || cfg.MaxObjects >= math.MaxUint32/4 {
		panic("l1/table: number of objects is out of range")
	}
	t := &Table{objects: make([]object, cfg.MaxObjects+1), places: make([]place, cfg.MaxObjects+1), policy: newPolicy(cfg), trimmed: MaxSize}
	t.leaving = make([]uint32, 0, min(cfg.MaxObjects, leavingMost))
	t.pins = newRings(cfg.MaxObjects, pinLists)
	t.memory.init(cfg.Size)
	t.index.init(cfg)
	if cfg.Advise != nil {
		t.eachArray(cfg.Advise)
	}
	return t
}

// eachArray calls do with the memory of each large array.
func (t *Table) eachArray(do func([]byte)) {
	do(bytesOf(t.objects))
	do(bytesOf(t.places))
	do(bytesOf(t.index.slots))
	for _, a := range [][]uint32{t.memory.tags, t.memory.next, t.memory.owner, t.memory.class.first} {
		do(bytesOf(a))
	}
	do(bytesOf(t.pins.at))
	t.policy.eachArray(do)
}

// Grow lets the bytes [0, ready) of the pool be granted. It never takes memory
// back: a smaller value than before changes nothing.
func (t *Table) Grow(ready int64) {
	before := t.memory.ready
	t.memory.Grow(ready)
	if t.memory.ready != before {
		t.vains = vains{}
	}
}

// Find returns the object that k finds, which is staged, loading or ready. It
// is not a touch.
func (t *Table) Find(k *Key) (Ref, State, bool) {
	i := t.find(k, t.index.hashKey(k))
	if i == 0 {
		return 0, StateFree, false
	}
	o := &t.objects[i]
	return newRef(i, o.generation), o.state, true
}

// Stage makes a staged object of size bytes for one writer, to be ended by
// [Table.Publish], [Table.Abort] or [Table.Quarantine]. It evicts what it needs
// in bounded steps, but nothing that is pinned. When the key has an object already,
// that one is returned.
func (t *Table) Stage(k *Key, size int64) (Ref, Extent, Result) {
	return t.Start(k, size, StateStaged, false)
}

// Load is [Table.Stage] for an object whose bytes come from disk, to be ended
// by [Table.Loaded] or [Table.LoadFailed].
func (t *Table) Load(k *Key, size int64) (Ref, Extent, Result) {
	return t.Start(k, size, StateLoading, false)
}

// Start is [Table.Stage] or [Table.Load], as s says. With soft set it also evicts softly
// pinned objects: the caller asks for it once evicting all else would not do.
func (t *Table) Start(k *Key, size int64, s State, soft bool) (Ref, Extent, Result) {
	h := t.index.hashKey(k)
	if i := t.find(k, h); i != 0 {
		o := &t.objects[i]
		if o.state == StateReady {
			return newRef(i, o.generation), t.places[i].extent(), ExistsReady
		}
		return newRef(i, o.generation), t.places[i].extent(), ExistsBusy
	}
	off, res := t.reserve(size, soft)
	if res != Staged {
		return 0, Extent{}, res
	}
	i := t.takeEntry()
	o, p := &t.objects[i], &t.places[i]
	o.key, o.hash = *k, h
	t.births++
	p.off, p.size, p.born = off, size, t.births
	if size > 0 {
		t.memory.setOwner(off, i)
	}
	o.moveTo(s)
	t.enter(i)
	t.insert(i)
	return newRef(i, o.generation), p.extent(), Staged
}
