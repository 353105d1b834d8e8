package engine

import (
	"fmt"

	"github.com/slotcache/slotcache/l1/table"
)

// An entry is one object in a transfer: a slot being written, or a hold.
type entry struct {
	ref      table.Ref
	state    entryState
	fromDisk bool   // it was on disk only when the request came
	transfer uint32 // its owner
	prev     uint32 // in the transfer
	next     uint32
	waitPrev uint32 // among those that wait for the same load
	waitNext uint32
	pos      uint32 // index of its key in the request
	size     int64
}

// entryState is what an entry stands for.
//
//	free -> staged -> free          a slot its owner writes
//	free -> held -> free            a hold on a ready object
//	free -> waiting -> held -> free a hold on an object that is being loaded
//	        waiting -> failed -> free
type entryState uint8

const (
	entryFree entryState = iota
	entryStaged
	entryWaiting
	entryHeld
	entryFailed
)

func (s entryState) String() string {
	switch s {
	case entryFree:
		return "free"
	case entryStaged:
		return "staged"
	case entryWaiting:
		return "waiting"
	case entryHeld:
		return "held"
	case entryFailed:
		return "failed"
	}
	return fmt.Sprintf("entryState(%d)", uint8(s))
}

var entryMoves = [...]uint8{
	entryFree:    1<<entryStaged | 1<<entryWaiting | 1<<entryHeld,
	entryStaged:  1 << entryFree,
	entryWaiting: 1<<entryHeld | 1<<entryFailed | 1<<entryFree,
	entryHeld:    1 << entryFree,
	entryFailed:  1 << entryFree,
}

func (n *entry) moveTo(s entryState) {
	if entryMoves[n.state]&(1<<s) == 0 {
		n.badMove(s)
	}
	n.state = s
}

// badMove is apart, so that moveTo costs no call.
//
//go:noinline
func (n *entry) badMove(s entryState) {
	panic(fmt.Sprintf("engine: entry moves from %v to %v", n.state, s))
}

// set fills in all but the state and the place in the transfer, one by one: a whole entry is made elsewhere and copied, and the copy waits
// for all that was just written there.
func (n *entry) set(t uint32, ref table.Ref, size int64, pos uint32) {
	n.ref, n.size = ref, size
	n.transfer, n.pos = t, pos
	n.waitPrev, n.waitNext = none, none
	n.fromDisk = false
}

// addEntry appends an entry to t, or returns none when the table is full.
func (e *Engine) addEntry(t uint32, ref table.Ref, s entryState, pos uint32) uint32 {
	n := e.entryFree
	if n == none {
		return none
	}
	q := &e.entries[n]
	e.entryFree = q.next
	p := &e.transfers[t]
	q.moveTo(s)
	q.set(t, ref, e.table.Extent(ref).Len, pos)
	q.prev, q.next = p.last, none
	if p.last == none {
		p.first = n
	} else {
		e.entries[p.last].next = n
	}
	p.last = n
	p.count++
	p.bytes += q.size
	i := &e.insts[p.inst]
	if s == entryStaged {
		e.counted(i, 1, q.size, 0)
		i.staged += q.size
	} else {
		e.counted(i, 1, 0, q.size)
		i.held += q.size
		e.table.Hold(ref)
	}
	return n
}

// addHeld is addEntry for objects that are held already, of the keys from pos on. There is room for them in the table.
func (e *Engine) addHeld(t uint32, refs []table.Ref, sizes []int64, pos uint32) {
	p := &e.transfers[t]
	n, last, bytes := e.entryFree, p.last, int64(0)
	if last == none {
		p.first = n
	} else {
		e.entries[last].next = n
	}
	for i, ref := range refs { // the free ones are in a list by the same links
		q := &e.entries[n]
		q.moveTo(entryHeld)
		q.set(t, ref, sizes[i], pos+uint32(i))
		q.prev = last
		bytes += sizes[i]
		last, n = n, q.next
	}
	e.entries[last].next = none
	e.entryFree, p.last = n, last
	p.count += uint32(len(refs))
	p.bytes += bytes
	i := &e.insts[p.inst]
	i.held += bytes
	e.counted(i, int32(len(refs)), 0, bytes)
}

// freeEntries gives back the entries of t from n to its end, the last first: the tail of
// a prefix becomes less recently used than its head.
func (e *Engine) freeEntries(t, n uint32) {
	if n == none {
		return
	}
	p := &e.transfers[t]
	e.ending = e.ending[:0]
	first := e.entries[n].prev
	for q := p.last; q != first; q = e.entries[q].prev {
		e.ending = append(e.ending, e.entries[q].ref)
	}
	var f freed
	q := p.last
	for i := range e.ending {
		if i%table.Batch == 0 {
			e.table.Ahead(e.ending, i)
		}
		prev := e.entries[q].prev
		e.freeEntry(p, q, &f)
		q = prev
	}
	if p.last = first; first == none {
		p.first = none
	} else {
		e.entries[first].next = none
	}
	e.freed(p, &f)
}

// freed is what was given back.
type freed struct {
	entries                   uint32
	staged, held, quarantined int64 // bytes, as an instance counts them
	written                   int64 // bytes of slots that were written
}

// freeEntry gives back what entry n of p, already unlinked or about to be, stands for. Behind the last of several comes [Engine.freed].
func (e *Engine) freeEntry(p *transfer, n uint32, f *freed) {
	e.settleUses()
	q := &e.entries[n]
	f.entries++
	switch {
	case q.state == entryStaged && p.state == transferQuarantined:
		f.quarantined += q.size
		f.written += q.size
		e.table.FreeQuarantined(q.ref)
	case q.state == entryStaged:
		f.staged += q.size
		f.written += q.size
		e.table.Abort(q.ref)
	case p.state == transferQuarantined:
		f.quarantined += q.size
		e.table.Release(q.ref)
	default:
		if q.state == entryWaiting {
			e.unwait(n)
		}
		f.held += q.size
		e.table.Release(q.ref)
	}
	q.moveTo(entryFree)
	q.next = e.entryFree
	e.entryFree = n
}

// freed takes from the sums of p and its instance what was given back.
func (e *Engine) freed(p *transfer, f *freed) {
	i := &e.insts[p.inst]
	i.staged -= f.staged
	i.held -= f.held
	i.quarantined -= f.quarantined
	bytes := f.staged + f.held + f.quarantined
	e.counted(i, -int32(f.entries), -f.written, f.written-bytes)
	p.count -= f.entries
	p.bytes -= bytes
	e.memoryFreed = true
}

// unlinkEntry takes entry n out of its transfer's list.
func (e *Engine) unlinkEntry(p *transfer, n uint32) {
	q := &e.entries[n]
	if q.prev == none {
		p.first = q.next
	} else {
		e.entries[q.prev].next = q.next
	}
	if q.next == none {
		p.last = q.prev
	} else {
		e.entries[q.next].prev = q.prev
	}
}
