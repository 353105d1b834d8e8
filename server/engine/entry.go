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

func (n *entry) badMove(s entryState) {
	panic(fmt.Sprintf("engine: entry moves from %v to %v", n.state, s))
}

// addEntry appends an entry to t, or returns none when the table is full.
func (e *Engine) addEntry(t uint32, ref table.Ref, s entryState, pos uint32) uint32 {
	n := e.entryFree
	if n == none {
		return none
	}
	q := &e.entries[n]
	e.entryFree = q.next
	*q = entry{ref: ref, transfer: t, prev: e.transfers[t].last, next: none, waitPrev: none, waitNext: none, pos: pos, size: e.table.Extent(ref).Len}
	q.moveTo(s)
	p := &e.transfers[t]
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
		if q.state != entryFree {
			q.badMove(entryHeld)
		}
		*q = entry{
			ref: ref, state: entryHeld, transfer: t, prev: last, next: q.next, waitPrev: none, waitNext: none,
			pos: pos + uint32(i), size: sizes[i],
		}
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
	p := &e.transfers[t]
	e.ending = e.ending[:0]
	for q := p.last; n != none && q != none; q = e.entries[q].prev {
		e.ending = append(e.ending, e.entries[q].ref)
		if q == n {
			break
		}
	}
	for i := 0; n != none; i++ {
		if i%table.Batch == 0 {
			e.table.Ahead(e.ending, i)
		}
		last := p.last
		p.last = e.entries[last].prev
		if p.last == none {
			p.first = none
		} else {
			e.entries[p.last].next = none
		}
		e.freeEntry(p, last)
		if last == n {
			return
		}
	}
}

// freeEntry gives back what entry n of p, already unlinked, stands for.
func (e *Engine) freeEntry(p *transfer, n uint32) {
	e.settleUses()
	q := &e.entries[n]
	i := &e.insts[p.inst]
	switch {
	case q.state == entryStaged && p.state == transferQuarantined:
		i.quarantined -= q.size
		e.table.FreeQuarantined(q.ref)
	case q.state == entryStaged:
		i.staged -= q.size
		e.table.Abort(q.ref)
	case p.state == transferQuarantined:
		i.quarantined -= q.size
		e.table.Release(q.ref)
	default:
		if q.state == entryWaiting {
			e.unwait(n)
		}
		i.held -= q.size
		e.table.Release(q.ref)
	}
	e.memoryFreed = true
	if q.state == entryStaged {
		e.counted(i, -1, -q.size, 0)
	} else {
		e.counted(i, -1, 0, -q.size)
	}
	p.count--
	p.bytes -= q.size
	q.moveTo(entryFree)
	q.next = e.entryFree
	e.entryFree = n
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
