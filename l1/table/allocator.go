package table

import "math"

const (
	// Unit is what memory is granted in, in bytes: direct I/O needs it aligned.
	Unit int64 = 4096
	// MaxSize is the largest pool, in bytes: a block's length in units has 30
	// bits.
	MaxSize = (1<<30 - 1) * Unit

	nowhere uint32 = math.MaxUint32

	tagFree  uint32 = 1 << 31
	tagStart uint32 = 1 << 30
	tagLen          = tagStart - 1
)

// Footprint returns how many bytes of the pool an object of size bytes takes.
func Footprint(size int64) int64 { return (size + Unit - 1) / Unit * Unit }

func unitAt(off int64) uint32 { return uint32(off / Unit) }

// An Allocator grants extents of a pool and takes them back, both in constant
// time and without touching the pool. It is a segregated fit with one class for
// each length in units, so that the best fit is exact: a request is refused only
// if no free block is large enough. Neighbouring free blocks are always merged.
//
// Each block, free or granted, has a tag at its first and at its last unit, and
// none between: that is how a block finds its neighbours. The tables take 16
// bytes for each unit of the pool (0.4 %); the operating system gives memory
// only for the parts that were used.
type Allocator struct {
	tags  []uint32 // at a block's first and last unit: length, flags; else 0
	next  []uint32 // at a free block's first unit: the next block of its class
	owner []uint32 // at a granted block's first unit: the owner's word; at a free one's: the previous block of its class
	ready uint32   // units that may be granted
	free  uint32   // of them, units that are
	class classes
}

// NewAllocator returns an allocator for a pool of size bytes, at most [MaxSize],
// of which none may be granted before [Allocator.Grow].
func NewAllocator(size int64) *Allocator {
	if size < 0 || size > MaxSize {
		panic("l1/table: size of the pool is out of range")
	}
	a := new(Allocator)
	a.init(size)
	return a
}

func (a *Allocator) init(size int64) {
	units := size / Unit
	a.tags = make([]uint32, units)
	a.next = make([]uint32, units)
	a.owner = make([]uint32, units)
	a.class.init(int(units))
}

// Size returns the pool's size in bytes, in whole units.
func (a *Allocator) Size() int64 { return int64(len(a.tags)) * Unit }

// Ready returns how many bytes may be granted.
func (a *Allocator) Ready() int64 { return int64(a.ready) * Unit }

// FreeBytes returns how many bytes are not granted.
func (a *Allocator) FreeBytes() int64 { return int64(a.free) * Unit }

// Largest returns the size in bytes of the largest free block.
func (a *Allocator) Largest() int64 { return int64(a.class.largest()) * Unit }

// Grow lets the bytes [0, ready) be granted, but for an incomplete unit at
// their end. It never shrinks.
func (a *Allocator) Grow(ready int64) {
	if ready >= a.Size()+Unit {
		panic("l1/table: growth beyond the pool's end")
	}
	if ready <= a.Ready() {
		return
	}
	start := a.ready
	a.ready = uint32(ready / Unit)
	if n := a.ready - start; n > 0 {
		a.give(start, n)
	}
}

// Alloc grants n bytes, n > 0, rounded up to whole units, and returns where.
func (a *Allocator) Alloc(n int64) (off int64, ok bool) {
	if n <= 0 {
		panic("l1/table: allocation of nothing")
	}
	if n > a.Largest() {
		return 0, false
	}
	want := uint32((n + Unit - 1) / Unit)
	at := a.class.first[a.class.atLeast(want)]
	length := a.length(at)
	a.unlist(at, length)
	if rest := length - want; rest > 0 {
		a.tag(at+want, rest, tagFree)
		a.list(at+want, rest)
	}
	a.tag(at, want, 0)
	a.owner[at] = 0
	a.free -= want
	return int64(at) * Unit, true
}

// Free takes back what Alloc granted for n bytes at off.
func (a *Allocator) Free(off, n int64) { a.release(off, n) }

// release is Free; it returns the start of the free block that now covers off.
func (a *Allocator) release(off, n int64) uint32 {
	at, length := unitAt(off), uint32((n+Unit-1)/Unit)
	if off%Unit != 0 || n <= 0 || at >= a.ready || a.tags[at] != tagStart|length {
		panic("l1/table: free of an extent that was not granted")
	}
	return a.give(at, length)
}

// give makes the block of length units at a free one, merged with its free
// neighbours, and returns where the merged block starts. Tags that end up inside
// it are cleared.
func (a *Allocator) give(at, length uint32) uint32 {
	a.free += length
	if left := a.before(at); left != nowhere && a.isFree(left) {
		n := a.length(left)
		a.unlist(left, n)
		a.tags[at-1], a.tags[at] = 0, 0
		at, length = left, length+n
	}
	if right := at + length; right < a.ready && a.isFree(right) {
		n := a.length(right)
		a.unlist(right, n)
		a.tags[right-1], a.tags[right] = 0, 0
		length += n
	}
	a.tag(at, length, tagFree)
	a.list(at, length)
	return at
}

// tag marks a block's ends.
func (a *Allocator) tag(at, length, flags uint32) {
	a.tags[at+length-1] = length | flags
	a.tags[at] = length | flags | tagStart
}

// isFree says whether a free block starts at a unit.
func (a *Allocator) isFree(at uint32) bool {
	return a.tags[at]&(tagFree|tagStart) == tagFree|tagStart
}

// length returns the length in units of the block that starts at a unit.
func (a *Allocator) length(at uint32) uint32 { return a.tags[at] & tagLen }

// after returns the block behind the one that starts at a unit.
func (a *Allocator) after(at uint32) uint32 {
	if at += a.length(at); at < a.ready {
		return at
	}
	return nowhere
}

// before returns the block ahead of the one that starts at a unit.
func (a *Allocator) before(at uint32) uint32 {
	if at == 0 {
		return nowhere
	}
	return at - a.tags[at-1]&tagLen
}

// setOwner keeps the owner's word for the granted block at off.
func (a *Allocator) setOwner(off int64, owner uint32) { a.owner[unitAt(off)] = owner }

// list puts a free block into its class.
func (a *Allocator) list(at, length uint32) {
	head := nowhere
	if a.class.has(length) {
		head = a.class.first[length]
		a.owner[head] = at
	} else {
		a.class.set(length)
	}
	a.next[at] = head
	a.owner[at] = nowhere
	a.class.first[length] = at
}

// unlist takes a free block out of its class.
func (a *Allocator) unlist(at, length uint32) {
	next, prev := a.next[at], a.owner[at]
	if next != nowhere {
		a.owner[next] = prev
	}
	switch {
	case prev != nowhere:
		a.next[prev] = next
	case next != nowhere:
		a.class.first[length] = next
	default:
		a.class.clear(length)
	}
}
