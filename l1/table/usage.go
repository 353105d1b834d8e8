package table

// A Usage is how the pool's bytes are spent. Memory is counted in whole units,
// so that Used = Staged + Loading + Resident + Doomed + Quarantined.
type Usage struct {
	Capacity    int64 // bytes of the pool
	Ready       int64 // of them, bytes that may be granted
	Used        int64 // bytes that belong to objects
	Staged      int64 // bytes under writers, deleted meanwhile or not
	Loading     int64 // bytes under loads, deleted meanwhile or not
	Resident    int64 // bytes of ready objects
	Doomed      int64 // bytes of deleted objects that wait for their last release
	Quarantined int64 // bytes of writers that lost them
	Held        int64 // bytes of objects with holds, in whatever state; that the disk reads one does not count
	Dirty       int64 // of Resident, bytes that the disk has not
	Unspilled   int64 // of Dirty, bytes that can be had once the disk has them; it does not read them yet
	Spilling    int64 // of Resident and Doomed, bytes that can be had once the disk has read them
	Evictable   int64 // of Resident, bytes that may be evicted now, softly pinned ones left out
	Yielding    int64 // of PinnedSoft, bytes that may be evicted when nothing else is left
	Softening   int64 // of PinnedSoft, bytes that will be Yielding once the disk has them
	PinnedSoft  int64 // of Resident
	PinnedHard  int64 // of Resident
	Pinned      int   // objects, softly or hard
	Objects     int   // entries in use, in whatever state
	Evictions   uint64
}

// sums are kept by enter and leave alone, in bytes.
type sums struct {
	state     [stateCount]int64
	held      int64
	dirty     int64
	unspilled int64
	spilling  int64
	evictable int64
	yielding  int64
	softening int64
	pins      [pinCount]int64
	pinned    int
	objects   int
	evictions uint64
}

// Usage returns the sums. It costs nothing.
func (t *Table) Usage() Usage {
	s := &t.sums
	return Usage{
		Capacity:    t.memory.Size(),
		Ready:       t.memory.Ready(),
		Used:        t.memory.Ready() - t.memory.FreeBytes(),
		Staged:      s.state[StateStaged] + s.state[StateFenced],
		Loading:     s.state[StateLoading] + s.state[StateAbandoned],
		Resident:    s.state[StateReady],
		Doomed:      s.state[StateDoomed],
		Quarantined: s.state[StateQuarantined],
		Held:        s.held,
		Dirty:       s.dirty,
		Unspilled:   s.unspilled,
		Spilling:    s.spilling,
		Evictable:   s.evictable,
		Yielding:    s.yielding,
		Softening:   s.softening,
		PinnedSoft:  s.pins[PinSoft],
		PinnedHard:  s.pins[PinHard],
		Pinned:      s.pinned,
		Objects:     s.objects,
		Evictions:   s.evictions,
	}
}

// Largest returns the size in bytes of the largest object that would be granted
// without evicting.
func (t *Table) Largest() int64 { return t.memory.Largest() }

// add counts object o, of so many bytes, n times, n being 1 or -1.
func (s *sums) add(o *object, size, n int64) {
	bytes := n * Footprint(size)
	s.objects += int(n)
	s.state[o.state] += bytes
	if o.held() {
		s.held += bytes
	}
	if o.dirty {
		s.dirty += bytes
	}
	switch {
	case !o.cleaning(), o.pin == PinHard:
	case o.pin == PinSoft:
		s.softening += bytes
	case o.spilling:
		s.spilling += bytes
	default:
		s.unspilled += bytes
	}
	if o.pin.pinned() {
		s.pins[o.pin] += bytes
		s.pinned += int(n)
	}
	switch {
	case !o.evictable():
	case o.pin == PinSoft:
		s.yielding += bytes
	default:
		s.evictable += bytes
	}
}

// leave takes object i out of the sums and the evictable ones, before its state,
// holds, pin or dirt change.
func (t *Table) leave(i uint32) {
	o := &t.objects[i]
	t.sums.add(o, t.places[i].size, -1)
	if o.evictable() {
		t.unlink(i)
	}
}

// enter puts object i into the sums and, as the most recently used one, among the
// evictable ones, as its state, holds, pin and dirt say.
func (t *Table) enter(i uint32) {
	o := &t.objects[i]
	t.sums.add(o, t.places[i].size, 1)
	if o.evictable() {
		t.link(i)
		t.parted(t.places[i].born, t.places[i].unit())
	}
}

// Each appends to dst the indexed objects (staged, loading, ready) of namespace
// ns, or of every namespace when all is set, among the next limit entries from
// cursor on. It returns the cursor for the next call, 0 at the end; the first
// call passes 0. Objects that come to be during a walk may or may not be met;
// one that is there from its start to its end is met once. The caller may
// delete what it got between calls.
func (t *Table) Each(ns uint64, all bool, cursor uint32, limit int, dst []Ref) ([]Ref, uint32) {
	i := cursor
	if i == 0 {
		i = 1
	}
	for n := 0; n < limit && i <= t.touched; n++ {
		o := &t.objects[i]
		if o.state.indexed() && (all || o.key.Namespace == ns) {
			dst = append(dst, newRef(i, o.generation))
		}
		i++
	}
	if i > t.touched {
		return dst, 0
	}
	return dst, i
}
