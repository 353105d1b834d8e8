package table

// Publish ends a staging: r becomes ready, and dirty if the disk is still to
// have it. It returns false, and r is freed, when the object was deleted while
// it was staged.
func (t *Table) Publish(r Ref, dirty bool) bool {
	o := t.object(r)
	if o.state == StateFenced {
		t.leave(r.index())
		t.free(r.index())
		return false
	}
	mustBe(o, StateStaged, "publish")
	t.leave(r.index())
	o.moveTo(StateReady)
	o.dirty = dirty
	t.policy.admit(r.index(), o.hash, t.room())
	t.enter(r.index())
	return true
}

// Abort frees a staged object, deleted meanwhile or not.
func (t *Table) Abort(r Ref) {
	o := t.object(r)
	if o.state != StateFenced {
		mustBe(o, StateStaged, "abort")
		t.remove(r.index())
	}
	t.leave(r.index())
	t.free(r.index())
}

// Quarantine takes a staged object, deleted meanwhile or not, from its writer,
// who may still write to it: its key is free again, its memory is not.
func (t *Table) Quarantine(r Ref) {
	o := t.object(r)
	if o.state != StateFenced {
		mustBe(o, StateStaged, "quarantine")
		t.remove(r.index())
	}
	t.leave(r.index())
	o.moveTo(StateQuarantined)
	t.enter(r.index())
}

// FreeQuarantined frees a quarantined object: its writer is gone or has said
// that it will not write any more.
func (t *Table) FreeQuarantined(r Ref) {
	mustBe(t.object(r), StateQuarantined, "free of a quarantined")
	t.leave(r.index())
	t.free(r.index())
}

// Loaded ends a load: r becomes ready and clean. It returns false when the
// object was deleted meanwhile; r is then freed, or doomed while it is held.
func (t *Table) Loaded(r Ref) bool {
	o := t.object(r)
	if o.state == StateAbandoned {
		t.retire(r.index())
		return false
	}
	mustBe(o, StateLoading, "load's end")
	t.leave(r.index())
	o.moveTo(StateReady)
	t.policy.admit(r.index(), o.hash, t.room())
	t.enter(r.index())
	return true
}

// LoadFailed ends a load without bytes: r is freed, or doomed while it is held.
// No I/O into its memory may be under way.
func (t *Table) LoadFailed(r Ref) {
	o := t.object(r)
	if o.state != StateAbandoned {
		mustBe(o, StateLoading, "load's failure")
		t.remove(r.index())
	}
	t.retire(r.index())
}

// Hold keeps r from being evicted or freed until [Table.Release]. Its object is
// ready or loading; one that was deleted while held may be held further.
func (t *Table) Hold(r Ref) {
	o := t.object(r)
	if !o.state.holdable() {
		panic("l1/table: hold of a " + o.state.String() + " object")
	}
	if o.holds == ^uint32(0) {
		panic("l1/table: too many holds")
	}
	t.used(r.index())
	if o.plain() {
		t.holdPlain(r.index())
		return
	}
	t.leave(r.index())
	o.holds++
	t.enter(r.index())
}

// holdPlain and releasePlain do what leave and enter would, for the most common objects
// and in less time.
func (t *Table) holdPlain(i uint32) {
	t.settle()
	if t.countHold(i) {
		t.policy.unlink(i)
	}
}

// countHold is what a hold of a plain object changes at once. It says whether it was the first.
func (t *Table) countHold(i uint32) bool {
	o := &t.objects[i]
	if o.holds++; o.holds != 1 {
		return false
	}
	bytes := Footprint(t.places[i].size)
	t.sums.held += bytes
	t.sums.evictable -= bytes
	return true
}

func (t *Table) releasePlain(i uint32) {
	o := &t.objects[i]
	if o.holds--; o.holds == 0 {
		bytes := Footprint(t.places[i].size)
		t.sums.held -= bytes
		t.sums.evictable += bytes
		t.policy.link(i)
		t.parted(t.places[i].born, t.places[i].unit())
	}
}

// Spill holds ready object r, dirty or not, for the disk, which reads its bytes, until
// [Table.Spilled]. It is no use of r.
func (t *Table) Spill(r Ref) {
	o := t.object(r)
	mustBe(o, StateReady, "spill")
	if o.spilling {
		panic("l1/table: spill of an object that is on its way already")
	}
	t.leave(r.index())
	o.holds++
	o.spilling = true
	t.enter(r.index())
}

// Spilled ends a [Table.Spill]: r's bytes are on disk, or never will be.
func (t *Table) Spilled(r Ref) {
	o := t.object(r)
	if !o.spilling {
		panic("l1/table: the end of a spill that is not under way")
	}
	t.leave(r.index())
	o.holds--
	o.spilling, o.dirty = false, false
	if o.holds == 0 && o.state == StateDoomed {
		t.free(r.index())
		return
	}
	t.enter(r.index())
}

// Release takes one hold of [Table.Hold] off r. The last one makes it the most recently used,
// or frees it when it was deleted.
func (t *Table) Release(r Ref) {
	o := t.object(r)
	if o.holds == 0 || o.holds == 1 && o.spilling {
		panic("l1/table: release of an object that nobody holds")
	}
	t.settle()
	if o.plain() {
		t.releasePlain(r.index())
		return
	}
	t.leave(r.index())
	o.holds--
	if o.holds == 0 && o.state == StateDoomed {
		t.free(r.index())
		return
	}
	t.enter(r.index())
}

// Cleaned says that r's bytes are not to go to disk: r may be evicted when it is
// not held. It changes nothing for a clean object, and for one that
// was deleted while held.
func (t *Table) Cleaned(r Ref) {
	o := t.object(r)
	if o.state == StateDoomed {
		return
	}
	mustBe(o, StateReady, "cleaning")
	if o.spilling {
		panic("l1/table: cleaning of an object that is on its way to disk")
	}
	if !o.dirty {
		return
	}
	t.leave(r.index())
	o.dirty = false
	t.enter(r.index())
}

// Delete takes r out of the index at once. A staged object's commit will be
// refused, a ready one is freed now or at its last release, a loading one when
// its load has ended and nobody holds it. It returns whether there was
// something for readers to miss: a ready or loading object.
func (t *Table) Delete(r Ref) bool {
	i := r.index()
	o := t.object(r)
	if !o.state.indexed() {
		return false
	}
	hash := o.hash // an entry that is freed has none
	t.remove(i)
	switch o.state {
	case StateStaged:
		t.leave(i)
		o.moveTo(StateFenced)
		t.enter(i)
		return false
	case StateLoading:
		t.leave(i)
		o.moveTo(StateAbandoned)
		t.enter(i)
	case StateReady:
		t.retire(i)
		t.policy.forget(hash)
	case StateFree, StateDoomed, StateFenced, StateAbandoned, StateQuarantined:
		panic("l1/table: delete of a " + o.state.String() + " object")
	}
	return true
}

// Touch tells the policy that r was used, and makes r the most recently used of
// the evictable objects. Those that are not evictable come to be the most
// recently used when their last hold is released or they are cleaned. It changes
// nothing for an object that is not ready.
func (t *Table) Touch(r Ref) {
	o, i := t.object(r), r.index()
	if o.state != StateReady {
		return
	}
	t.settle()
	t.used(i)
	t.policy.touch(i, o.hash, o.evictable() && o.pin == PinNone)
	if o.evictable() && o.pin == PinSoft {
		t.pins.remove(i)
		t.pins.push(listSoft, i)
	}
}

// Chain begins a chain of uses: those that follow (touches, publications, ends of
// loads), until the next call, are of keys of one prefix, the last key first. The
// policy learns from it that a key without those before it would not have served.
// Where it is never called, each use stands for itself. Once it was, every use needs
// a call ahead of its chain.
func (t *Table) Chain() { t.policy.chain() }

// room is about how many objects like those that are there the pool holds.
func (t *Table) room() int {
	most := len(t.objects) - 1
	if used := t.memory.Ready() - t.memory.FreeBytes(); used > 0 {
		most = min(most, int(float64(t.sums.objects)*float64(min(t.memory.Ready(), t.trimmed))/float64(used)))
	}
	return max(most, 1)
}

// retire frees an object that is out of the index, or dooms it while it is
// held.
func (t *Table) retire(i uint32) {
	o := &t.objects[i]
	t.settle()
	t.leave(i)
	if o.holds == 0 {
		t.free(i)
		return
	}
	if o.pin != PinNone {
		o.pinTo(PinNone)
	}
	o.dirty = false // what is deleted need not reach the disk
	o.moveTo(StateDoomed)
	t.enter(i)
}

func mustBe(o *object, s State, what string) {
	if o.state != s {
		panic("l1/table: " + what + " of a " + o.state.String() + " object")
	}
}
