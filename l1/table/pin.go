package table

import "fmt"

// A Pin says how long a ready object stays in memory beyond its holds. It ends with
// the object's place in the index, whatever it is then.
//
//	          Pin            Pin
//	none <----------> soft -------> hard
//	 ^  <-------------------------> |
//	 |     Unpin       |            |
//	 |                 |   Lapse    |
//	 +---- lapsed <----+------------+
//	   use
//
// From lapsed, Pin leads to soft and hard as from none. A use is [Table.Touch] or
// [Table.Hold]: it makes a lapsed object one like any other, and never brings a pin
// back.
type Pin uint8

// The pins.
const (
	// PinNone: the policy says when it goes.
	PinNone Pin = iota
	// PinSoft: it goes when nothing else can.
	PinSoft
	// PinHard: it stays.
	PinHard
	// PinLapsed: its time is over and nobody used it since. It goes first.
	PinLapsed
)

const pinCount = int(PinLapsed) + 1

var pinNames = [pinCount]string{"none", "soft", "hard", "lapsed"}

// String returns the pin's name.
func (p Pin) String() string {
	if int(p) < pinCount {
		return pinNames[p]
	}
	return "unknown"
}

// pinMoves has, for each pin, the set of pins that may follow it.
var pinMoves = [pinCount]uint8{
	PinNone:   1<<PinSoft | 1<<PinHard,
	PinSoft:   1<<PinHard | 1<<PinNone | 1<<PinLapsed,
	PinHard:   1<<PinNone | 1<<PinLapsed,
	PinLapsed: 1<<PinNone | 1<<PinSoft | 1<<PinHard,
}

// pinTo is the only place that changes a pin.
func (o *object) pinTo(p Pin) {
	if int(p) >= pinCount || pinMoves[o.pin]&(1<<p) == 0 {
		panic("l1/table: pin moves from " + o.pin.String() + " to " + p.String())
	}
	o.pin = p
}

// pinned says whether the pin keeps an object.
func (p Pin) pinned() bool { return p == PinSoft || p == PinHard }

// The lists of evictable objects that are not the policy's.
const (
	listLapsed = iota
	listSoft
	pinLists
)

// Pin keeps ready object r in memory, as p says, until [Table.Unpin],
// [Table.Lapse] or [Table.Delete]. A hard pin does not become a soft one.
func (t *Table) Pin(r Ref, p Pin) {
	o := t.object(r)
	mustBe(o, StateReady, "pin")
	if !p.pinned() {
		panic("l1/table: pin of kind " + p.String())
	}
	if o.pin != p {
		t.repin(r.index(), p)
	}
}

// Unpin ends r's pin and says whether there was one. A lapsed one is none.
func (t *Table) Unpin(r Ref) bool {
	if !t.object(r).pin.pinned() {
		return false
	}
	t.repin(r.index(), PinNone)
	return true
}

// Lapse ends the pin of the object that has entry i, if it has one: its time is over.
// It says whether there was one.
func (t *Table) Lapse(i uint32) bool {
	if !t.objects[i].pin.pinned() {
		return false
	}
	t.repin(i, PinLapsed)
	return true
}

// PinOf returns how r is pinned.
func (t *Table) PinOf(r Ref) Pin { return t.object(r).pin }

// EachPinned calls f for every pinned object. It walks all entries and is for tests.
func (t *Table) EachPinned(f func(Ref)) {
	for i := range t.objects {
		if o := &t.objects[i]; o.pin.pinned() {
			f(newRef(uint32(i), o.generation))
		}
	}
}

func (t *Table) repin(i uint32, p Pin) {
	t.leave(i)
	t.objects[i].pinTo(p)
	t.enter(i)
}

// used makes a lapsed object one like any other.
func (t *Table) used(i uint32) {
	if t.objects[i].pin == PinLapsed {
		t.repin(i, PinNone)
	}
}

// victim returns the evictable object that goes first: what has lapsed, then the policy's
// choice, then, if they may go at all, what is pinned softly. It returns 0 if there is
// none.
func (t *Table) victim(soft bool) uint32 {
	t.settle() // whatever goes first: after asks the policy, too
	if i := t.pins.last(listLapsed); i != 0 {
		return i
	}
	if i := t.policy.victim(); i != 0 || !soft {
		return i
	}
	return t.pins.last(listSoft)
}

// after returns an evictable object that goes soon after i, 0 if it knows none.
func (t *Table) after(i uint32, soft bool) uint32 {
	switch t.objects[i].pin {
	case PinLapsed:
		if j := t.pins.before(i); j != 0 {
			return j
		}
		if j := t.policy.victim(); j != 0 {
			return j
		}
	case PinNone:
		if j := t.policy.after(i); j != 0 {
			return j
		}
	case PinSoft:
		return t.pins.before(i)
	case PinHard:
		panic("l1/table: a hard pin is a candidate")
	}
	if soft {
		return t.pins.last(listSoft)
	}
	return 0
}

// mayGo says whether object i is evictable, softly pinned ones only if soft is set.
func (t *Table) mayGo(i uint32, soft bool) bool {
	o := &t.objects[i]
	return o.evictable() && (soft || o.pin != PinSoft)
}

// link puts evictable object i where victim finds it.
func (t *Table) link(i uint32) {
	t.settle()
	switch t.objects[i].pin {
	case PinNone:
		t.policy.link(i)
	case PinSoft:
		t.pins.push(listSoft, i)
	case PinLapsed:
		t.pins.push(listLapsed, i)
	case PinHard:
		panic("l1/table: a hard pin is evictable")
	}
}

func (t *Table) unlink(i uint32) {
	t.settle()
	if t.objects[i].pin == PinNone {
		t.policy.unlink(i)
		return
	}
	t.pins.remove(i)
}

// checkPins compares the lists of pins with who should be in them.
func (t *Table) checkPins() error {
	of := func(i uint32) int {
		switch o := &t.objects[i]; {
		case !o.evictable():
		case o.pin == PinLapsed:
			return listLapsed
		case o.pin == PinSoft:
			return listSoft
		}
		return -1
	}
	for list := range uint32(pinLists) {
		for i := t.pins.last(list); i != 0; i = t.pins.before(i) {
			if of(i) != int(list) {
				return fmt.Errorf("l1/table: object %d is in list %d of the pins", i, list)
			}
		}
	}
	return t.pins.check(func(i uint32) bool { return of(i) >= 0 })
}
