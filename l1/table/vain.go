package table

import (
	"fmt"
	"math"
)

// A vain want is one that could not be had though all was evicted that may be: what stays lies so that nowhere is enough
// between. Until some of that may go, a want of this size or more is refused without an eviction, or each that comes would
// have the pool emptied for nothing. What came since counts as room: it lies where there was too little.
type vain struct {
	units  uint32 // that were wanted; 0: nothing is known
	before uint64 // the object that came last before
}

// vains are what is known of wants for which softly pinned objects may not go, and may.
type vains struct {
	of    [2]vain
	since uint64 // the latest before of them, 0 if nothing is known
	looks int    // at blocks, to see whether what is known still holds
}

// vainLooks bounds them, about a millisecond in all: what an emptied pool has cost more than. Then nothing is known any more.
const vainLooks = 1 << 15

// nobody is the number of an object after which none comes.
const nobody uint64 = math.MaxUint64

// kind is where in vains it is.
func kind(soft bool) int {
	if soft {
		return 1
	}
	return 0
}

// inVain says whether it is known that so many bytes cannot be had.
func (t *Table) inVain(need int64, soft bool) bool {
	v := &t.vains.of[kind(soft)]
	return v.units != 0 && need >= int64(v.units)*Unit
}

// wasVain notes that so many bytes are not to be had now, whatever is evicted that may be.
func (t *Table) wasVain(need int64, soft bool) {
	units := uint32(need / Unit)
	for i := range t.vains.of {
		if i == kind(true) && !soft && t.sums.yielding > 0 {
			break // softly pinned objects may make room for those for whom they go
		}
		if v := &t.vains.of[i]; v.units == 0 || units <= v.units {
			*v = vain{units: units, before: t.births}
		}
	}
	t.vains.since, t.vains.looks = t.births, 0
}

// parted is called when an object became evictable or free. Born is its number, and the block at a unit has its memory.
// What is known ends where there is room by that, as far as a bounded look can tell.
func (t *Table) parted(born uint64, at uint32) {
	if born > t.vains.since || at == nowhere { // most often nothing is known
		return
	}
	t.vains.since = 0
	for i := range t.vains.of {
		v, soft := &t.vains.of[i], i == kind(true)
		if v.units != 0 && t.yields(at, soft, v.before) {
			wide, looks := t.wide(at, int64(v.units)*Unit, soft, v.before)
			if t.vains.looks += looks; wide || t.vains.looks > vainLooks {
				v.units = 0
			}
		}
		if v.units != 0 {
			t.vains.since = max(t.vains.since, v.before)
		}
	}
}

// checkVains looks for room that there should not be.
func (t *Table) checkVains() error {
	for i := range t.vains.of {
		v := &t.vains.of[i]
		if v.units == 0 {
			continue
		}
		if v.before > t.vains.since {
			return fmt.Errorf("l1/table: a want was vain after object %d, the last was after %d", v.before, t.vains.since)
		}
		run := uint32(0)
		for at := uint32(0); at < t.memory.ready; at += t.memory.length(at) {
			if !t.yields(at, i == kind(true), v.before) {
				run = 0
				continue
			}
			if run += t.memory.length(at); run >= v.units {
				return fmt.Errorf("l1/table: %d units end at %d, and %d are taken not to be had", run, at+t.memory.length(at), v.units)
			}
		}
	}
	return nil
}
