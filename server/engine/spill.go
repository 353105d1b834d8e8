package engine

import (
	"time"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
)

// A dirtyQueue has the objects the disk is still to have, in the order they were
// published. Objects that were deleted meanwhile stay in it until their turn comes or
// the queue is full.
type dirtyQueue struct{ itemRing }

// A dirtyItem is one object; sum is the xxh3-64 of its bytes if its writer told it. There is one for
// each place in the table, so that what else is known of the object is not here.
type dirtyItem struct {
	ref    table.Ref
	sum    uint64
	at     moment // since when it is dirty
	summed bool
	again  bool // the disk did not take it before
}

// A moment is a time to the millisecond. It comes again after 49 days, and serves to tell how long
// ago something was that cannot be as long ago.
type moment uint32

// momentOf cuts a time to a moment.
func momentOf(t time.Duration) moment { return moment(t / time.Millisecond) }

// since is how long ago m was.
func (m moment) since(now time.Duration) time.Duration {
	return time.Duration(momentOf(now)-m) * time.Millisecond
}

// An itemRing is a queue of a fixed number of places.
type itemRing struct {
	items []dirtyItem
	first int
	count int
}

// append adds an item; there has to be room.
func (q *itemRing) append(d dirtyItem) {
	if q.count == 0 {
		q.first = 0 // memory that was not in use stays so
	}
	q.items[(q.first+q.count)%len(q.items)] = d
	q.count++
}

func (q *itemRing) pop() dirtyItem {
	d := q.items[q.first]
	q.first = (q.first + 1) % len(q.items)
	q.count--
	return d
}

// unpop puts the item just popped back.
func (q *itemRing) unpop() {
	q.first = (q.first + len(q.items) - 1) % len(q.items)
	q.count++
}

// newDirtyQueue returns a queue for n objects in memory: each is in it once at most.
func newDirtyQueue(n int) dirtyQueue {
	return dirtyQueue{itemRing{items: make([]dirtyItem, n)}}
}

func (q *dirtyQueue) len() int { return q.count }

func (q *dirtyQueue) push(e *Engine, ref table.Ref, sum *uint64) {
	if q.count == len(q.items) {
		q.compact(e)
	}
	d := dirtyItem{ref: ref, at: momentOf(e.now)}
	if sum != nil {
		d.sum, d.summed = *sum, true
	}
	q.append(d)
}

// compact drops what is not dirty any more. There are as many places as objects, so at
// least one becomes free.
func (q *dirtyQueue) compact(e *Engine) {
	kept := 0
	for i := range q.count {
		d := q.items[(q.first+i)%len(q.items)]
		if e.table.Alive(d.ref) && e.table.Dirty(d.ref) {
			q.items[(q.first+kept)%len(q.items)] = d
			kept++
		}
	}
	if kept == len(q.items) {
		panic("engine: more dirty objects than objects")
	}
	q.count = kept
}

// How many puts the log has at most, and how many bytes: enough to keep the disk busy and
// to fill its groups, few enough that the rest may still be dropped by a delete.
const (
	spillsMax      = 1024
	spillBytesMax  = 128 << 20
	cleanAheadPart = 4 // with write-back, cleaning begins when a fourth of the pool is dirty
)

// spill gives the log what is to go to disk: everything with write-through; with
// write-back only when memory runs short or the server stops. Then what the disk would not
// take when it was not well, and what is still in memory.
func (e *Engine) spill() {
	if e.log == nil {
		return
	}
	for e.dirty.len() > 0 && e.spillRoom() && e.hasToSpill() {
		e.settleUses()
		if !e.spillOne(e.dirty.pop()) {
			e.dirty.unpop()
			return
		}
	}
	if e.dirty.len() == 0 {
		e.short = false
	}
	for n := refusedTurn; n > 0 && e.refused.count > 0 && e.spillRoom() && e.diskWell(); n-- {
		e.settleUses()
		if !e.spillRefused(e.refused.pop()) {
			e.refused.unpop()
			return
		}
	}
	if e.refused.count > 0 && e.spillRoom() && e.diskWell() {
		e.again = true
	}
}

// spillRoom says whether the log is to have more puts.
func (e *Engine) spillRoom() bool {
	return e.spilling < spillsMax && e.spillingBytes < spillBytesMax
}

// hasToSpill says whether the oldest dirty object is to go to disk now.
func (e *Engine) hasToSpill() bool {
	if e.cfg.Write != WriteBack || e.stopping || e.short || e.parkedFirst != none {
		return true
	}
	u := e.table.Usage()
	return u.Dirty-e.spillingBytes >= u.Ready/cleanAheadPart
}

// spillOne starts one put, or drops an item that needs none. False: not now.
func (e *Engine) spillOne(d dirtyItem) bool {
	if !e.table.Alive(d.ref) || !e.table.Dirty(d.ref) {
		e.memoryFreed = true // who waits may have waited for this
		return true
	}
	key, ok := e.diskKey(e.table.Key(d.ref))
	if !ok { // cleared
		e.table.Cleaned(d.ref)
		e.memoryFreed = true
		return true
	}
	switch e.worthDisk(&d) {
	case verdictWait:
		return false
	case verdictRefuse:
		e.table.Cleaned(d.ref)
		e.counters.AdmitRefused++
		e.memoryFreed = true
		return true
	case verdictAdmit:
	}
	switch e.put(d, &key) {
	case putBegun:
		e.counters.Admitted++
		return true
	case putLater:
		return false
	case putRefused:
	}
	// The disk takes nothing now. The object stays in memory as long as there is room for it, like one without a
	// disk tier.
	e.table.Cleaned(d.ref)
	e.counters.SpillsDropped++
	d.again = true
	e.refused.push(d)
	e.memoryFreed = true
	return true
}

// putResult says what came of an attempt to give an object to the log.
type putResult uint8

const (
	putBegun   putResult = iota
	putLater             // its queue is full
	putRefused           // the disk takes nothing now
)

// put gives a ready object to the log, and holds it until that is done with it.
func (e *Engine) put(d dirtyItem, key *seglog.Key) putResult {
	o := e.newOp(opSpill)
	if o == none {
		return putLater
	}
	x := e.table.Extent(d.ref)
	mem := seglog.Mem{Off: x.Off, Len: seglog.AlignUp(x.Len)}
	tok := seglog.Token(e.opID(o))
	ok := false
	if d.summed {
		ok = e.log.PutSummed(key, mem, x.Len, d.sum, tok)
	} else {
		ok = e.log.Put(key, mem, x.Len, tok)
	}
	if !ok {
		e.endOp(e.opID(o), opSpill)
		if e.diskWell() {
			return putLater
		}
		return putRefused
	}
	e.table.Spill(d.ref)
	e.ops[o].ref, e.ops[o].size, e.ops[o].sum, e.ops[o].summed = d.ref, x.Len, d.sum, d.summed
	e.spilling++
	e.spillingBytes += x.Len
	return putBegun
}

// spillEnded makes an object clean, whether or not the disk has it now: what the disk
// refused is dropped when memory is needed, or tried again when the disk is well.
func (e *Engine) spillEnded(o op, res seglog.Result) {
	e.spilling--
	e.spillingBytes -= o.size
	switch res {
	case seglog.ResultOK:
		e.counters.Spills++
		e.counters.SpilledBytes += uint64(o.size)
	case seglog.ResultSuperseded:
	case seglog.ResultMiss, seglog.ResultFull, seglog.ResultNotDurable:
		e.counters.SpillsDropped++
	case seglog.ResultIO:
		e.counters.SpillsDropped++
		e.refused.push(dirtyItem{ref: o.ref, sum: o.sum, summed: o.summed, again: true})
	}
	e.table.Spilled(o.ref)
	e.memoryFreed = true
}

// drainOutcomes takes what the log has finished: the one switch from its outcomes to
// methods. It says whether there was one.
func (e *Engine) drainOutcomes() bool {
	for n := 0; ; n++ {
		out, ok := e.log.Outcome()
		if !ok {
			return n > 0
		}
		e.settleUses()
		id := OpID(out.Token)
		switch out.Kind {
		case seglog.OutcomePut:
			e.spillEnded(e.endOp(id, opSpill), out.Result)
		case seglog.OutcomeRead:
			e.loadEnded(e.endOp(id, opLoad), out.Result)
		case seglog.OutcomeFence:
			e.fenceWritten(id, out.Result)
		}
	}
}
