package table

import (
	"errors"
	"fmt"
)

// CheckInvariants walks everything and returns what is wrong first: each byte
// has exactly one owner, no two free blocks touch, each object is in exactly
// the lists and the index slot that its state asks for, and the sums are what a
// recount gives. It costs a pass over all entries, all index slots and all
// units, and is for tests.
func (t *Table) CheckInvariants() error {
	if err := t.memory.CheckInvariants(); err != nil {
		return err
	}
	for _, check := range []func() error{t.checkObjects, t.checkIndex, t.checkEvictable, t.checkPins, t.checkSpare, t.checkVains} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkObjects recounts the sums and asks the allocator for every extent.
func (t *Table) checkObjects() error {
	want := sums{evictions: t.sums.evictions}
	var granted int64
	blocks := 0
	for i := 1; i < len(t.objects); i++ {
		o, size := &t.objects[i], t.places[i].size
		if err := t.checkObject(uint32(i), o, &t.places[i]); err != nil {
			return fmt.Errorf("l1/table: object %d: %w", i, err)
		}
		if o.state == StateFree {
			continue
		}
		want.add(o, size, 1)
		if size > 0 {
			blocks++
			granted += Footprint(size)
		}
	}
	if want != t.sums {
		return fmt.Errorf("l1/table: sums are %+v, a recount gives %+v", t.sums, want)
	}
	// Every object's extent is a granted block of its own (checkObject), so that
	// equal numbers mean that every granted block has one owner.
	if n := t.memory.grantedBlocks(); n != blocks {
		return fmt.Errorf("l1/table: %d granted blocks, %d objects with memory", n, blocks)
	}
	if used := t.memory.Ready() - t.memory.FreeBytes(); used != granted {
		return fmt.Errorf("l1/table: %d bytes granted, objects own %d", used, granted)
	}
	return nil
}

func (t *Table) checkObject(i uint32, o *object, p *place) error {
	if o.state == StateFree {
		if *o != (object{generation: o.generation}) || *p != (place{next: p.next}) {
			return fmt.Errorf("free but not blank: %+v %+v", *o, *p)
		}
		if i > t.touched && (o.generation != 0 || p.next != 0) {
			return errors.New("was never used but is marked")
		}
		return nil
	}
	if i > t.touched {
		return errors.New("in use above the highest entry used")
	}
	if o.generation == 0 {
		return errors.New("in use with generation 0")
	}
	if o.holds > 0 && !o.state.holdable() {
		return fmt.Errorf("%d holds while %v", o.holds, o.state)
	}
	if o.holds == 0 && o.state == StateDoomed {
		return errors.New("doomed without holds")
	}
	if o.pin != PinNone && o.state != StateReady {
		return fmt.Errorf("pin %v while %v", o.pin, o.state)
	}
	if o.spilling && (o.holds == 0 || o.state != StateReady && o.state != StateDoomed) {
		return fmt.Errorf("on its way to disk with %d holds while %v", o.holds, o.state)
	}
	if o.dirty && o.state != StateReady {
		return fmt.Errorf("dirty while %v", o.state)
	}
	if p.next != 0 {
		return errors.New("on the spare list but in use")
	}
	if p.size == 0 {
		return nil
	}
	at := unitAt(p.off)
	if p.off%Unit != 0 || p.off+Footprint(p.size) > t.memory.Ready() {
		return fmt.Errorf("extent %+v is not in the pool", p.extent())
	}
	if t.memory.tags[at] != tagStart|uint32(Footprint(p.size)/Unit) {
		return fmt.Errorf("extent %+v is not granted", p.extent())
	}
	if t.memory.owner[at] != i {
		return fmt.Errorf("extent %+v belongs to object %d", p.extent(), t.memory.owner[at])
	}
	return nil
}

// checkIndex compares the slots with the states.
func (t *Table) checkIndex() error {
	slots := 0
	for at, s := range t.index.slots {
		i := t.index.objectOf(s)
		if i == 0 {
			if s != 0 {
				return fmt.Errorf("l1/table: slot %d is empty but has %x", at, s)
			}
			continue
		}
		slots++
		o := &t.objects[i]
		if want := t.index.mark(o.hash, (uint32(at)-o.hash)&t.index.mask) | slot(i); s != want {
			return fmt.Errorf("l1/table: slot %d is %x, of object %d and hash %x, want %x", at, s, i, o.hash, want)
		}
		if !o.state.indexed() {
			return fmt.Errorf("l1/table: slot %d has object %d, which is %v", at, i, o.state)
		}
		if h := t.index.hashKey(&o.key); h != o.hash {
			return fmt.Errorf("l1/table: object %d has hash %x, its key %x", i, o.hash, h)
		}
	}
	indexed := 0
	for i := uint32(1); i <= t.touched; i++ {
		o := &t.objects[i]
		if !o.state.indexed() {
			continue
		}
		indexed++
		if got := t.find(&o.key, o.hash); got != i {
			return fmt.Errorf("l1/table: the key of object %d finds object %d", i, got)
		}
	}
	if slots != indexed {
		return fmt.Errorf("l1/table: %d slots in use, %d objects indexed", slots, indexed)
	}
	return nil
}

// checkEvictable has the policy compare its lists with who is evictable.
func (t *Table) checkEvictable() error {
	leaving := make(map[uint32]bool, len(t.leaving))
	for _, i := range t.leaving {
		if o := &t.objects[i]; leaving[i] || o.holds == 0 || !o.state.holdable() {
			return fmt.Errorf("l1/table: object %d, %v with %d holds, is to leave the policy's lists", i, o.state, o.holds)
		}
		leaving[i] = true
	}
	return t.policy.check(func(i uint32) bool {
		o := &t.objects[i]
		return leaving[i] || o.evictable() && o.pin == PinNone
	})
}

// checkSpare walks the list of free entries.
func (t *Table) checkSpare() error {
	want := 0
	for i := uint32(1); i <= t.touched; i++ {
		if t.objects[i].state == StateFree {
			want++
		}
	}
	n := 0
	for i := t.spare; i != 0; i = t.places[i].next {
		if n++; n > want || t.objects[i].state != StateFree {
			return fmt.Errorf("l1/table: spare list is broken at entry %d", i)
		}
	}
	if n != want {
		return fmt.Errorf("l1/table: spare list has %d entries, want %d", n, want)
	}
	return nil
}

// CheckInvariants walks all blocks, all units and all classes.
func (a *Allocator) CheckInvariants() error {
	var free, freeBlocks uint32
	wasFree := false
	for at := uint32(0); at < a.ready; {
		length := a.length(at)
		if a.tags[at]&tagStart == 0 || length == 0 || length > a.ready-at {
			return fmt.Errorf("l1/table: no block starts at unit %d (tag %x)", at, a.tags[at])
		}
		if end := a.tags[at+length-1]; end&^tagStart != a.tags[at]&^tagStart {
			return fmt.Errorf("l1/table: block at unit %d has tags %x and %x", at, a.tags[at], end)
		}
		for i := at + 1; i+1 < at+length; i++ {
			if a.tags[i] != 0 {
				return fmt.Errorf("l1/table: tag %x inside the block at unit %d", a.tags[i], at)
			}
		}
		if a.isFree(at) {
			if wasFree {
				return fmt.Errorf("l1/table: two free blocks meet at unit %d", at)
			}
			free += length
			freeBlocks++
		}
		wasFree = a.isFree(at)
		at += length
	}
	if free != a.free {
		return fmt.Errorf("l1/table: %d units free, a recount gives %d", a.free, free)
	}
	return a.checkClasses(freeBlocks)
}

// checkClasses walks the list of every class.
func (a *Allocator) checkClasses(freeBlocks uint32) error {
	var listed, largest uint32
	for length := range uint32(len(a.class.first)) {
		if !a.class.has(length) {
			continue
		}
		largest = length
		if got := a.class.atLeast(length); got != length {
			return fmt.Errorf("l1/table: class %d is found as %d", length, got)
		}
		for at, prev := a.class.first[length], nowhere; at != nowhere; at, prev = a.next[at], at {
			if listed++; listed > freeBlocks || !a.isFree(at) || a.length(at) != length || a.owner[at] != prev {
				return fmt.Errorf("l1/table: class %d is broken at unit %d", length, at)
			}
		}
	}
	if listed != freeBlocks {
		return fmt.Errorf("l1/table: %d blocks in classes, %d are free", listed, freeBlocks)
	}
	if got := a.class.largest(); got != largest {
		return fmt.Errorf("l1/table: largest class is found as %d, is %d", got, largest)
	}
	return a.class.check()
}

// check compares each level with the one below it.
func (c *classes) check() error {
	for i := 1; i < c.height; i++ {
		for at, w := range c.levels[i-1] {
			if has := c.levels[i][at>>6]&(1<<(at&63)) != 0; has != (w != 0) {
				return fmt.Errorf("l1/table: level %d is wrong about word %d", i, at)
			}
		}
	}
	return nil
}

// grantedBlocks counts the blocks that are not free.
func (a *Allocator) grantedBlocks() int {
	n := 0
	for at := uint32(0); at < a.ready; at += a.length(at) {
		if !a.isFree(at) {
			n++
		}
	}
	return n
}
