package engine

import (
	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
)

// stalled says that the disk hangs: an I/O has been under way for too long. Nothing waits for it then. What it has its
// hands on stays where it is until it lets go.
func (e *Engine) stalled() bool { return e.log != nil && e.log.Stalled() }

// Stalled says that the disk hangs, also while the engine stops.
func (e *Engine) Stalled() bool { return e.stalled() }

// watchDisk answers those who wait for loads when the disk comes to hang. The loads go on: an object whose bytes arrive
// after all is as good as any.
func (e *Engine) watchDisk() {
	is := e.stalled()
	if is == e.wasStalled {
		return
	}
	e.wasStalled = is
	e.memoryFreed = true // some will not come, and who waits for it is told so
	if !is {
		return
	}
	for i := range e.ops {
		if o := &e.ops[i]; o.kind == opLoad {
			e.tellWaiters(e.waiters(o.ref), false)
		}
	}
}

const (
	// refusedMax is how many objects that the disk would not take are remembered at most: the last ones.
	refusedMax = 1 << 16
	// refusedTurn is how many of them a turn looks at.
	refusedTurn = 256
)

// A refusedQueue has objects that the disk would not take, the oldest first. They are clean, and may be evicted like
// others: some are gone when their turn comes.
type refusedQueue struct{ itemRing }

func newRefusedQueue(objects int) refusedQueue {
	return refusedQueue{itemRing{items: make([]dirtyItem, min(objects, refusedMax))}}
}

// push adds an item, in the place of the oldest if there is no other.
func (q *refusedQueue) push(d dirtyItem) {
	if q.count == len(q.items) {
		q.pop()
	}
	q.append(d)
}

// spillRefused gives an object to the disk again, if it is still there and the disk does not have it. False: not now.
func (e *Engine) spillRefused(d dirtyItem) bool {
	if e.table.State(d.ref) != table.StateReady || e.table.Dirty(d.ref) {
		return true
	}
	key, ok := e.diskKey(e.table.Key(d.ref))
	if !ok {
		return true
	}
	if _, there := e.log.Find(&key); there {
		return true
	}
	switch e.put(d, &key) {
	case putBegun:
		if d.again {
			e.counters.SpillsRetried++
		} else {
			e.counters.Admitted++
		}
		return true
	case putLater:
		return false
	case putRefused:
		d.again = true
		e.refused.push(d)
	}
	return true
}

// diskWell says that the disk takes what it is given.
func (e *Engine) diskWell() bool { return e.log != nil && e.log.State() == seglog.StateOK }
