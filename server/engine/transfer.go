package engine

import (
	"fmt"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// transferKind is what a transfer is for. The values are those of the protocol.
type transferKind uint8

const (
	kindStore    transferKind = 1 // slots one instance writes
	kindRetrieve transferKind = 2 // slots one instance reads
	kindLease    transferKind = 3 // objects one instance keeps from eviction
)

// transferState is where a transfer or lease is in its life.
//
//	       begin
//	free --------> building ------------------------------+----> free
//	                 |  |         loads under way         |
//	                 |  +--------------> loading ---------+
//	         granted |                     | all ended, or deadline
//	                 v                     |
//	free <--------- open <-----------------+
//	      commit,   |  |  payload in or out
//	      abort,    |  +-----------------> moving ------------> free
//	      release   | owner lost,             | owner gone       ^
//	                v expired                 v                  | moved
//	free <----- quarantined               abandoned -------------+
//	    owner acknowledges or ends
//
// building: entries are being added, in one step or by a parked request; its owner has
// not been told of it. loading: a request waits for disk loads. open: its owner knows the
// handle. moving: the host moves bytes between the slots and a connection. abandoned: the
// same, but the owner has ended. quarantined: refused at commit, but the process may
// still touch the slots.
type transferState uint8

const (
	transferFree transferState = iota
	transferBuilding
	transferLoading
	transferOpen
	transferMoving
	transferAbandoned
	transferQuarantined
)

func (s transferState) String() string {
	switch s {
	case transferFree:
		return "free"
	case transferBuilding:
		return "building"
	case transferLoading:
		return "loading"
	case transferOpen:
		return "open"
	case transferMoving:
		return "moving"
	case transferAbandoned:
		return "abandoned"
	case transferQuarantined:
		return "quarantined"
	}
	return fmt.Sprintf("transferState(%d)", uint8(s))
}

// transferMoves has a bit for each state that may follow.
var transferMoves = [...]uint8{
	transferFree:        1 << transferBuilding,
	transferBuilding:    1<<transferLoading | 1<<transferOpen | 1<<transferFree,
	transferLoading:     1<<transferOpen | 1<<transferFree,
	transferOpen:        1<<transferMoving | 1<<transferQuarantined | 1<<transferFree,
	transferMoving:      1<<transferAbandoned | 1<<transferFree,
	transferAbandoned:   1 << transferFree,
	transferQuarantined: 1 << transferFree,
}

// A transfer is an open store, an open retrieval or a lease. It hangs on its instance
// and owns its entries.
type transfer struct {
	generation uint32
	state      transferState
	kind       transferKind
	slotsTold  bool   // the owner's process knows where the slots are
	inline     bool   // the bytes travel in frames
	inst       uint32 // owner
	instPrev   uint32
	instNext   uint32
	space      uint64 // its namespace's key in memory when it began
	first      uint32 // entries, in the order of the request's keys
	last       uint32
	count      uint32
	bytes      int64 // of the entries' slots
	created    time.Duration
	since      time.Duration // when it was quarantined
	wait       lookupWait    // while building or loading
}

// handle is what the owner knows the transfer by; never 0.
func (e *Engine) handle(t uint32) uint64 {
	return uint64(e.transfers[t].generation)<<32 | uint64(t)
}

// transferOf finds the live transfer of a handle, or none.
func (e *Engine) transferOf(handle uint64) uint32 {
	x := uint32(handle)
	if uint64(x) >= uint64(len(e.transfers)) {
		return none
	}
	t := &e.transfers[x]
	if t.generation != uint32(handle>>32) || t.state == transferFree || t.state == transferBuilding {
		return none
	}
	return x
}

func (t *transfer) moveTo(s transferState) {
	if transferMoves[t.state]&(1<<s) == 0 {
		panic(fmt.Sprintf("engine: transfer moves from %v to %v", t.state, s))
	}
	t.state = s
}

// beginTransfer makes an empty transfer of instance x, or none when the table is full, or
// half of it the instance's.
func (e *Engine) beginTransfer(x uint32, kind transferKind) uint32 {
	t := e.transferFree
	i := &e.insts[x]
	if t == none || i.open >= uint32(e.cfg.Transfers/2) || e.crowdsTransfers(i) {
		return none
	}
	p := &e.transfers[t]
	e.transferFree = p.instNext
	*p = transfer{
		generation: p.generation + 1, kind: kind, inst: x,
		instPrev: i.last, instNext: none,
		space: e.spaces[i.space].key,
		first: none, last: none, created: e.now,
	}
	if p.generation == 0 {
		p.generation = 1 // a handle is never 0
	}
	p.moveTo(transferBuilding)
	if i.last == none {
		i.first = t
	} else {
		e.transfers[i.last].instNext = t
	}
	i.last = t
	i.open++
	e.claims.change(i.claim, claim{transfers: 1})
	e.transfersOpen++
	return t
}

// publishEntries ends the staging of all slots of t: they become objects that readers
// find, the last first, as the tail of a prefix is to be evicted before its head. The disk gets
// them in the same order, since it is when it has them that they can be evicted, and since it gives
// them up in the order in which it got them. It returns how many did; the rest were deleted while they were written.
func (e *Engine) publishEntries(t uint32, sums []uint64) (published uint32) {
	p := &e.transfers[t]
	i := &e.insts[p.inst]
	e.table.Chain()
	for n := p.last; n != none; n = e.entries[n].prev {
		q := &e.entries[n]
		switch {
		case p.space != e.spaces[i.space].key:
			e.table.Abort(q.ref)
			q.ref = 0
		case e.publish(q.ref):
			published++
			e.counters.StoredBytes += uint64(q.size)
			e.countersOf(p.inst).StoredBytes += uint64(q.size)
		default:
			q.ref = 0
		}
	}
	k := int(p.count) - 1
	for n := p.last; n != none; k-- {
		q := &e.entries[n]
		prev := q.prev
		if q.ref != 0 && e.table.Dirty(q.ref) {
			var sum *uint64
			if k < len(sums) {
				sum = &sums[k]
			}
			e.dirty.push(e, q.ref, sum)
			e.stored(q.ref)
		}
		i.staged -= q.size
		e.counted(i, -1, -q.size, 0)
		p.count--
		p.bytes -= q.size
		q.moveTo(entryFree)
		q.next = e.entryFree
		e.entryFree = n
		n = prev
	}
	e.memoryFreed = true
	p.first, p.last = none, none
	return published
}

// endTransfer gives back everything t still has and frees it.
func (e *Engine) endTransfer(t uint32) {
	p := &e.transfers[t]
	e.freeEntries(t, p.first)
	if p.bytes != 0 || p.count != 0 {
		panic(fmt.Sprintf("engine: transfer %d ends with %d entries of %d bytes", t, p.count, p.bytes))
	}
	e.timers.clear(t)
	i := &e.insts[p.inst]
	if p.instPrev == none {
		i.first = p.instNext
	} else {
		e.transfers[p.instPrev].instNext = p.instNext
	}
	if p.instNext == none {
		i.last = p.instPrev
	} else {
		e.transfers[p.instNext].instPrev = p.instPrev
	}
	if p.state == transferQuarantined {
		e.quarantined--
	}
	p.moveTo(transferFree)
	p.instNext = e.transferFree
	e.transferFree = t
	i.open--
	e.claims.change(i.claim, claim{transfers: ^uint32(0)})
	e.transfersOpen--
	e.join(p.inst)
}

// quarantine refuses t at commit and keeps its slots out of everyone's reach: its
// owner's process may still touch them.
func (e *Engine) quarantine(t uint32) {
	p := &e.transfers[t]
	i := &e.insts[p.inst]
	for n := p.first; n != none; n = e.entries[n].next {
		q := &e.entries[n]
		if q.state == entryStaged {
			i.staged -= q.size
			e.table.Quarantine(q.ref)
		} else {
			i.held -= q.size
		}
		i.quarantined += q.size
	}
	p.moveTo(transferQuarantined)
	p.since = e.now
	e.quarantined++
	e.timers.clear(t)
	e.counters.Quarantined++
}

// detachTransfer is for a transfer whose owner has no connection but a living process.
// It ends, unless the process knows the slots.
func (e *Engine) detachTransfer(t uint32) {
	p := &e.transfers[t]
	switch p.state {
	case transferFree:
		panic("engine: a free transfer hangs on an instance")
	case transferBuilding:
		e.endTransfer(t)
	case transferLoading:
		e.endLoading(t, proto.StatusNotRegistered)
	case transferOpen:
		if p.slotsTold {
			e.quarantine(t)
		} else {
			e.endTransfer(t)
		}
	case transferMoving:
		p.moveTo(transferAbandoned)
	case transferAbandoned, transferQuarantined:
	}
}

// endLoading ends a lookup that waits and whose instance, or the engine, ends.
func (e *Engine) endLoading(t uint32, st proto.Status) {
	r := e.transfers[t].wait.req
	e.endTransfer(t)
	e.refuse(&r, st)
}

// abandonTransfer is for a transfer whose slots its owner cannot touch any more.
func (e *Engine) abandonTransfer(t uint32) {
	p := &e.transfers[t]
	switch p.state {
	case transferFree:
		panic("engine: a free transfer hangs on an instance")
	case transferLoading:
		e.endLoading(t, proto.StatusNotRegistered)
	case transferBuilding, transferOpen, transferQuarantined:
		e.endTransfer(t)
	case transferMoving:
		p.moveTo(transferAbandoned)
	case transferAbandoned:
	}
}

// expire is for a transfer whose time is over.
func (e *Engine) expire(t uint32) {
	p := &e.transfers[t]
	switch p.state {
	case transferLoading:
		e.finishLookup(t)
	case transferOpen:
		e.counters.Expired++
		if p.slotsTold {
			e.quarantine(t)
			return
		}
		e.endTransfer(t)
	case transferMoving, transferAbandoned:
		// The peer does not send or take its bytes. The end of the connection is the end of
		// the move.
		e.counters.Expired++
		if c := e.connOf(p.wait.req.conn); c != nil {
			c.hangup(e)
		}
	case transferFree, transferBuilding, transferQuarantined:
		panic("engine: a transfer has a deadline while it is " + p.state.String())
	}
}
