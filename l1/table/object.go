package table

// An object is one entry of the table. Entries are reused; the generation
// tells one life from the next. It is 64 bytes, a cache line, so that who looks for a
// key waits for one; the rest of an entry is its place.
type object struct {
	key        Key
	generation uint32 // of this life, or of the next one when free
	holds      uint32
	hash       uint32
	state      State
	pin        Pin  // ready only
	dirty      bool // ready only: the disk should have its bytes and has not
	spilling   bool // ready or doomed: one of the holds is the disk's
}

// A place is where the bytes of an object are. It is 32 bytes, never in two cache
// lines.
type place struct {
	off, size int64  // bytes; off is meaningless when size is 0
	data      uint32 // the owner's word
	next      uint32 // spare list
	born      uint64 // its number among all objects that there were
}

func (p *place) extent() Extent {
	if p.size == 0 {
		return Extent{}
	}
	return Extent{Off: p.off, Len: p.size}
}

// unit is where the bytes begin, and no place when there are none.
func (p *place) unit() uint32 {
	if p.size == 0 {
		return nowhere
	}
	return unitAt(p.off)
}

// evictable is the whole rule of who may be evicted; exactly these objects are in the
// lists that victims are taken from, and those that are to leave them ([Table.settle]).
func (o *object) evictable() bool {
	return o.state == StateReady && o.holds == 0 && !o.dirty && o.pin != PinHard
}

// plain says that nothing but holds keeps an object from being evicted by the policy.
func (o *object) plain() bool {
	return o.state == StateReady && o.pin == PinNone && !o.dirty && !o.spilling
}

// held says whether anybody but the disk holds an object.
func (o *object) held() bool { return o.holds > 1 || o.holds == 1 && !o.spilling }

// cleaning says whether the end of a spill, under way or yet to begin, is all that an object
// waits for to be free, or to go if its pin lets it.
func (o *object) cleaning() bool {
	return o.dirty && o.holds == 0 || o.spilling && o.holds == 1
}

// object returns the living object of r.
func (t *Table) object(r Ref) *object {
	if !t.Alive(r) {
		panic("l1/table: use of a dead reference")
	}
	return &t.objects[r.index()]
}

// place is what object has of the rest.
func (t *Table) place(r Ref) *place {
	t.object(r)
	return &t.places[r.index()]
}

// Alive says whether r's object still has its entry, in whatever state.
func (t *Table) Alive(r Ref) bool {
	i := r.index()
	if i == 0 || int(i) >= len(t.objects) {
		return false
	}
	o := &t.objects[i]
	return o.generation == r.generation() && o.state != StateFree
}

// Extent returns where r's bytes are, until r is freed.
func (t *Table) Extent(r Ref) Extent { return t.place(r).extent() }

// Key returns r's key. It aliases the table, is not to be changed, and is valid
// until r is freed.
func (t *Table) Key(r Ref) *Key { return &t.object(r).key }

// State returns r's state, [StateFree] when r is dead.
func (t *Table) State(r Ref) State {
	if !t.Alive(r) {
		return StateFree
	}
	return t.objects[r.index()].state
}

// Holds returns how many holds are on r.
func (t *Table) Holds(r Ref) uint32 { return t.object(r).holds }

// Dirty says whether r is ready and waits for [Table.Cleaned].
func (t *Table) Dirty(r Ref) bool { return t.object(r).dirty }

// Data returns the word last given to [Table.SetData], 0 in a new life.
func (t *Table) Data(r Ref) uint32 { return t.place(r).data }

// SetData keeps one word of the owner's beside r. An evicted object takes its
// word along without a notice.
func (t *Table) SetData(r Ref, v uint32) { t.place(r).data = v }

// takeEntry removes an entry from the spare ones; there must be one.
func (t *Table) takeEntry() uint32 {
	if i := t.spare; i != 0 {
		t.spare = t.places[i].next
		t.places[i].next = 0
		return i
	}
	t.touched++
	t.objects[t.touched].generation = 1
	return t.touched
}

// hasEntry says whether takeEntry may be called.
func (t *Table) hasEntry() bool {
	return t.spare != 0 || int(t.touched)+1 < len(t.objects)
}

// free ends the life of entry i, which left the lists and sums and is not in
// the index any more. Its memory returns to the allocator; the start of the
// free block it became part of is returned, and no place when it had none.
func (t *Table) free(i uint32) uint32 {
	o, p := &t.objects[i], &t.places[i]
	if o.holds != 0 {
		panic("l1/table: free of a held object")
	}
	o.moveTo(StateFree)
	merged := nowhere
	born := p.born
	if p.size > 0 {
		merged = t.memory.release(p.off, p.size)
	}
	generation := o.generation + 1
	if generation == 0 {
		generation = 1 // a Ref is never zero, nor of generation zero
	}
	*o = object{generation: generation}
	*p = place{next: t.spare}
	t.spare = i
	t.parted(born, merged)
	return merged
}
