package engine

import (
	"math/bits"
	"time"

	"github.com/slotcache/slotcache/l1/table"
)

// againMax bounds how often one allocation may go on evicting within a step.
const againMax = 64

// place makes an object in state s, staged or loading, and evicts what it has to. What is
// pinned softly goes last: a request that waits for memory has dirty objects spilled first.
func (e *Engine) place(k *table.Key, size int64, s table.State, pa patience) (ref table.Ref, ext table.Extent, got table.Result) {
	ref, ext, got = e.start(k, size, s, false)
	if got == table.NoSpace && (!pa.wait || !e.mayFree(size, unpinned)) {
		e.short = true // it is: what is pinned goes while other things are dirty
		ref, ext, got = e.start(k, size, s, true)
	}
	if got == table.NoSpace || got == table.Again {
		e.wasShort(got)
	}
	return ref, ext, got
}

// start asks the table for an object, as long as it evicts for it and that is not too long.
func (e *Engine) start(k *table.Key, size int64, s table.State, soft bool) (ref table.Ref, ext table.Extent, got table.Result) {
	ref, ext, got = e.table.Start(k, size, s, soft)
	for n := 0; got == table.Again && n < againMax; n++ {
		ref, ext, got = e.table.Start(k, size, s, soft)
	}
	return ref, ext, got
}

// shrink has the shares of the pool be those of what it has become, when it does not grow any more: half of what it was meant to
// be may be more than all there is.
func (e *Engine) shrink() {
	share := func(n int64) int64 {
		if n <= 0 {
			return n
		}
		high, low := bits.Mul64(uint64(n), uint64(e.ready))
		part, _ := bits.Div64(high, low, uint64(e.size)) // no more than n, as ready is no more than size
		return int64(part)
	}
	u := e.table.Usage()
	e.cfg.InstanceCap = share(e.cfg.InstanceCap)
	e.cfg.PinBudget = max(share(e.cfg.PinBudget), min(u.PinnedSoft+u.PinnedHard, e.cfg.PinBudget)) // what is pinned stays so
	e.size = e.ready
}

// toBeHad is how many bytes can be allocated now, if they lie together, and leave what is
// pinned alone.
func toBeHad(u *table.Usage) int64 { return u.Ready - u.Used + u.Evictable }

// Which objects a request may have the memory of.
const (
	unpinned = false
	softToo  = true // those that are pinned softly too, when nothing else is left
)

// mayFree says whether work under way could free size bytes: what remains is held, pinned
// or staged, and waiting for it would be waiting for other clients.
func (e *Engine) mayFree(size int64, soft bool) bool {
	u := e.table.Usage()
	if e.evicting || e.lapsing() || len(e.clears) > 0 || u.Ready < u.Capacity && !e.populated {
		return true // evictions, the ends of pins or the sweep of a namespace go on in the next turn, or the pool grows
	}
	// Objects of no length are no bytes, but they take a place in the table.
	return (e.coming(&u) > 0 || e.dirty.len() > 0 || e.spilling > 0 && !e.stalled()) && e.most(&u, soft) >= size
}

// most is how many bytes can be had now or when the work under way has ended.
func (e *Engine) most(u *table.Usage, soft bool) int64 {
	n := toBeHad(u) + e.coming(u)
	if soft {
		n += u.Yielding
	}
	if soft && !e.stalled() {
		n += u.Softening
	}
	return n
}

// coming is how many bytes work under way can free. What a stalled disk has its hands on comes when it does.
func (e *Engine) coming(u *table.Usage) int64 {
	if e.stalled() {
		return u.Unspilled
	}
	return u.Unspilled + u.Spilling + u.Loading
}

// wasShort notes that an allocation failed.
func (e *Engine) wasShort(got table.Result) {
	e.short = true
	if got == table.Again { // what was evicted is not enough yet
		e.evicting, e.memoryFreed = true, true
	}
}

// patience says what a request does when memory is short.
type patience struct {
	wait   bool // it waits for what work under way may free
	behind bool // it is new, and lines up behind those who wait already,
	load   bool // but not behind stores
	turned bool // it would have waited, and was turned away: too many do
}

// mustWait says that a request for which size bytes are short waits for them.
func (e *Engine) mustWait(pa patience, size int64) bool {
	return pa.wait && (e.awaited(pa) || e.mayFree(size, softToo))
}

// awaited says that a request has to line up: somebody waits for memory, and the work under
// way will free enough for the first who does. Others who can wait must not take it away
// bit by bit.
func (e *Engine) awaited(pa patience) bool {
	if !pa.wait || !pa.behind || e.parkedFirst == none || pa.load && e.parkedLoad == none {
		return false
	}
	u := e.table.Usage()
	return e.most(&u, softToo) >= e.parked[e.parkedFirst].need
}

const (
	// loadPart is the part of the pool that stores leave to loads while others are being written, or are to be.
	loadPart = 8
	// loadTime is for how long, after there was one.
	loadTime = 10 * time.Second
)

// spared is how many bytes that can be had a store that may wait leaves alone, for loads: they would wait for writes like
// stores whenever these come faster than the disk takes them. When nothing is being written that a store could wait
// for, it takes what there is.
func (e *Engine) spared(u *table.Usage) int64 {
	if e.loadDue <= e.now || e.stalled() || u.Unspilled+u.Spilling == 0 {
		return 0
	}
	return u.Ready / loadPart
}

// sparing says that a store of size bytes waits, though it could have memory, because loads may need it.
func (e *Engine) sparing(size int64) bool {
	u := e.table.Usage()
	s := e.spared(&u)
	if s == 0 || toBeHad(&u) >= table.Footprint(size)+s || !e.mayFree(size, unpinned) {
		return false
	}
	e.short = true // what is dirty has to be written: nothing else would have it so for a put, which never waits
	return true
}

// retryParts bounds how often a request that needs much memory is tried while it comes bit
// by bit: each try walks all its keys.
const retryParts = 16

// handBack frees the entries of transfer t, and says how many bytes can be had by that, now or when the work under way has ended:
// what others hold, or is pinned hard, is not among what comes free for who waits.
func (e *Engine) handBack(t uint32) int64 {
	var loads int64 // of those that others wait for, too, the others keep what is read
	for n := e.transfers[t].first; n != none; n = e.entries[n].next {
		if q := &e.entries[n]; q.state == entryWaiting && e.table.Holds(q.ref) == 1 {
			loads += table.Footprint(q.size)
		}
	}
	before := e.table.Usage()
	e.freeEntries(t, e.transfers[t].first)
	after := e.table.Usage()
	return loads + comes(&after) - comes(&before)
}

// comes is how many bytes are free, or can be evicted now or when the disk has them.
func comes(u *table.Usage) int64 {
	return toBeHad(u) + u.Yielding + u.Unspilled + u.Spilling + u.Softening
}

// mustFree notes what waiting request n needs: the memory that it had and gave back, which may be counted among what is to
// be had, and that for its next object, of so many bytes.
func (e *Engine) mustFree(n uint32, had, next int64) {
	u := e.table.Usage()
	p := &e.parked[n]
	short := table.Footprint(next)
	need := had + short
	p.need = need
	p.enough = min(need, toBeHad(&u)+max(short, need/retryParts))
	if e.loadsBegun >= loadsATurn {
		p.enough = 0 // it may not be memory that it lacks
	}
}

// worthATry says whether waiting request n may get further than when it was last tried: it
// has the memory, or nothing that is under way would give it.
func (e *Engine) worthATry(n uint32) bool {
	u := e.table.Usage()
	p := &e.parked[n]
	enough := p.enough
	if p.transfer != none {
		enough += e.spared(&u)
	}
	switch {
	case toBeHad(&u) >= enough:
		return true
	case e.mayFree(p.need, unpinned):
		return false
	}
	return toBeHad(&u)+u.Yielding >= enough || !e.mayFree(p.need, softToo)
}
