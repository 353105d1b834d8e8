package table

const (
	// workMax bounds one call, so that it stays within some tens of
	// microseconds however many small objects a large one displaces; the caller
	// comes again. Its unit is a look at a block, most of which is a cache miss.
	workMax = 1024
	// evictionWork is what an eviction costs: index, lists, allocator.
	evictionWork = 16
	// candidatesMax is how many of the objects that go next are looked at for a place
	// where a hole could grow to the size needed.
	candidatesMax = 8
	// neighboursMax is how many neighbours of a candidate are looked at before
	// it is taken on trust.
	neighboursMax = 64
)

// A hole is the start, in units, of the free block that is being widened by
// evicting its neighbours. Least recently used order alone would have to evict
// nearly everything before the freed pieces of a pool of small objects happened
// to join up to one large piece.
type hole struct {
	at     uint32
	active bool
}

// reserve finds memory and an entry for an object of size bytes. It is certain
// to succeed, over as many calls as it returns [Again], if there is a way to
// succeed by evicting and nobody else takes what was freed.
//
// With soft set that includes softly pinned objects, which the caller asks for when
// evicting all else would not do.
func (t *Table) reserve(size int64, soft bool) (off int64, res Result) {
	if size < 0 || size > t.memory.Size() {
		return 0, TooLarge
	}
	need := Footprint(size)
	most := t.memory.FreeBytes() + t.sums.evictable
	if soft {
		most += t.sums.yielding
	}
	if most < need {
		return 0, NoSpace // evicting all of it would be for nothing
	}
	if t.inVain(need, soft) {
		return 0, NoSpace
	}
	if !t.hasEntry() {
		i := t.victim(soft)
		if i == 0 {
			return 0, NoSpace
		}
		t.evict(i)
	}
	if need == 0 {
		return 0, Staged
	}
	for work := 0; ; {
		if off, ok := t.memory.Alloc(size); ok {
			return off, Staged
		}
		if work >= workMax {
			return 0, Again
		}
		looks, ok := t.makeRoom(need, soft)
		if !ok {
			t.wasVain(need, soft)
			return 0, NoSpace
		}
		work += evictionWork + looks
	}
}

// makeRoom evicts one object: the policy's choice while there are not enough
// bytes, and then one that makes a hole larger. It returns how many blocks it
// looked at; ok is false when there is none to evict.
func (t *Table) makeRoom(need int64, soft bool) (looks int, ok bool) {
	if t.hole.active && t.memory.FreeBytes() >= need {
		if i := t.holeNeighbour(soft); i != 0 {
			t.hole.at = t.evict(i)
			return 0, true
		}
		t.hole.active = false
	}
	first := t.victim(soft)
	if first == 0 {
		return 0, false
	}
	if t.memory.FreeBytes() < need {
		t.evict(first)
		return 0, true
	}
	i := first
	for range candidatesMax {
		ok, n := t.promising(i, need, soft)
		looks += n
		if ok {
			t.hole = hole{at: t.evict(i), active: true}
			return looks, true
		}
		if i = t.after(i, soft); i == 0 {
			break
		}
	}
	t.evict(first)
	return looks, true
}

// holeNeighbour returns the evictable object next to the hole, 0 if there is
// none or the hole is no free block any more.
func (t *Table) holeNeighbour(soft bool) uint32 {
	if !t.memory.isFree(t.hole.at) {
		return 0
	}
	if right := t.memory.after(t.hole.at); right != nowhere {
		if i := t.memory.owner[right]; t.mayGo(i, soft) {
			return i
		}
	}
	if left := t.memory.before(t.hole.at); left != nowhere {
		if i := t.memory.owner[left]; t.mayGo(i, soft) {
			return i
		}
	}
	return 0
}

// promising says whether evicting object i and its neighbours would do, as far as a bounded look can tell, and how many
// blocks it looked at.
func (t *Table) promising(i uint32, need int64, soft bool) (ok bool, looks int) {
	at := t.places[i].unit()
	if at == nowhere {
		return false, 1
	}
	return t.wide(at, need, soft, nobody)
}

// wide says whether the run of free and evictable blocks around that at start, which is one, and of objects that came after
// a certain one, is as large as needed, as far as a bounded look can tell, and how many blocks it looked at.
func (t *Table) wide(start uint32, need int64, soft bool, after uint64) (ok bool, looks int) {
	run := int64(t.memory.length(start)) * Unit
	right, left := t.memory.after(start), t.memory.before(start)
	for ; looks < neighboursMax && run < need; looks++ {
		switch {
		case t.yields(right, soft, after):
			run += int64(t.memory.length(right)) * Unit
			right = t.memory.after(right)
		case t.yields(left, soft, after):
			run += int64(t.memory.length(left)) * Unit
			left = t.memory.before(left)
		default:
			return false, looks + 1
		}
	}
	return true, looks
}

// yields says whether the block at a unit is free or may be evicted, or is of an object that came after a certain one.
func (t *Table) yields(unit uint32, soft bool, after uint64) bool {
	if unit == nowhere {
		return false
	}
	if t.memory.isFree(unit) {
		return true
	}
	i := t.memory.owner[unit]
	return t.mayGo(i, soft) || t.places[i].born > after
}

// evict frees evictable object i and returns the start of the free block that
// its memory became part of.
func (t *Table) evict(i uint32) uint32 {
	if !t.objects[i].evictable() {
		panic("l1/table: eviction of an object that must stay")
	}
	t.remove(i)
	t.leave(i)
	t.policy.evict(i, t.objects[i].hash)
	t.sums.evictions++
	return t.free(i)
}

// Trim evicts, in the policy's order, until objects have no more than most bytes of
// the pool. It returns whether they do; when they do not and it evicted something,
// the caller may ask again.
func (t *Table) Trim(most int64) bool {
	t.trimmed = most
	for work := 0; t.memory.Ready()-t.memory.FreeBytes() > most; work += evictionWork {
		i := t.victim(false)
		if i == 0 || work >= workMax {
			return false
		}
		t.evict(i)
	}
	return true
}
