package engine

import (
	"fmt"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// instState is where an instance is in its life.
//
//	         register                 last connection closed
//	free -----------------> live ------------------------------> detached
//	 ^                     ^ |  <--------------------------------   |
//	 |                     | |        same process registers       |
//	 |      unregister, evicted, process gone, its id is taken     |
//	 |                       v                                     |
//	 +------------------ draining <--------------------------------+
//	   nothing left               process gone, evicted
//
// live: at least one connection, may do everything. detached: no connection, but the
// process lives and may still touch the slots it was given, so they stay its own.
// draining: nothing new can start; it waits for bytes that are being moved, for its deletes and, when
// another process took its id or it was evicted, for its process to end.
type instState uint8

const (
	instFree instState = iota
	instLive
	instDetached
	instDraining
)

func (s instState) String() string {
	switch s {
	case instFree:
		return "free"
	case instLive:
		return "live"
	case instDetached:
		return "detached"
	case instDraining:
		return "draining"
	}
	return fmt.Sprintf("instState(%d)", uint8(s))
}

// instMoves has a bit for each state that may follow.
var instMoves = [...]uint8{
	instFree:     1 << instLive,
	instLive:     1<<instDetached | 1<<instDraining,
	instDetached: 1<<instLive | 1<<instDraining,
	instDraining: 1 << instFree,
}

// An instance is one life of one registered worker process. It owns its transfers and
// leases; when it ends they end with it, each exactly once.
type instance struct {
	generation  uint32
	state       instState
	watched     bool // Host.Watch is in force
	transport   proto.Transport
	readOnly    bool
	conns       uint32 // bound connections
	id          uint64
	incarnation uint32
	pid         int32
	process     uint64 // as in Peer
	owner       owner  // who registered it
	claim       uint32 // what that has, in Engine.claims
	created     time.Duration
	seen        time.Duration // when its last request was read
	space       uint32        // index of its namespace
	layouts     uint64        // a hash of all it registered, in their order
	parked      uint32        // waiting requests
	fencing     fencing       // deletes and clears under way
	open        uint32        // its transfers
	entries     uint32        // of them
	first, last uint32        // its transfers, in order of creation
	staged      int64         // bytes of slots it may write
	held        int64         // bytes it keeps from eviction
	quarantined int64         // bytes it may still touch though it must not
	written     int64         // of staged and quarantined, bytes of slots that it writes or wrote; the rest is held
	name        string
}

// none marks the end of a list of indexes.
const none = ^uint32(0)

func (i *instance) moveTo(s instState) {
	if instMoves[i.state]&(1<<s) == 0 {
		panic(fmt.Sprintf("engine: instance moves from %v to %v", i.state, s))
	}
	i.state = s
}

func (i *instance) owned() int64 { return i.staged + i.held + i.quarantined }

// sameProcess says whether a peer is the process that registered i, and not one that has its PID by now. Where the kernel does
// not tell processes apart two that share memory are never taken for the same: each is
// to be watched by itself.
func (i *instance) sameProcess(p *Peer, shared bool) bool {
	return i.pid == p.PID && i.process == p.Process && (p.known() || !shared && !i.watched)
}

// mayOwn says whether instance i may have one more entry, of size bytes. One instance gets
// half of the tables of entries and of objects at most, so that one that never gives back does not keep out the rest:
// objects of no bytes, or of few, fill these and not the pool. When most is taken, all instances of a process count as one.
func (e *Engine) mayOwn(i *instance, size int64) bool {
	return e.entryFree != none && i.entries < uint32(min(e.cfg.Entries, e.cfg.Objects)/2) && !e.exceeds(i, size)
}

// surely is how many entries more instance x may have whatever [Engine.mayOwn] looks at besides bytes, and surelyBytes how many bytes
// they may have together. It may have more, of which that has the last word.
func (e *Engine) surely(x uint32) int {
	mine, half := e.claims.list[e.insts[x].claim].entries, uint32(min(e.cfg.Entries, e.cfg.Objects)/2)
	if mine >= half {
		return 0
	}
	return int(min(half-mine, uint32(e.cfg.Entries)-e.claims.sum.entries))
}

func (e *Engine) surelyBytes(x uint32) int64 {
	mine := &e.claims.list[e.insts[x].claim]
	return e.cfg.InstanceCap - mine.written - mine.held
}

// overCap says that p with one more entry, of size bytes, is more than an instance may have that has nothing else: that it
// gives something back does not change that.
func (e *Engine) overCap(p *transfer, size int64) bool {
	return p.bytes > 0 && p.bytes+size > e.cfg.InstanceCap
}

// counted notes that i has so many entries more, and so many bytes of slots to write or of holds; less if they are negative.
// Quarantine changes neither.
func (e *Engine) counted(i *instance, entries int32, written, held int64) {
	i.entries += uint32(entries)
	i.written += written
	e.claims.counted(i.claim, uint32(entries), written, held)
}

// watchID names the instance to the host.
func (e *Engine) watchID(x uint32) WatchID {
	return WatchID(uint64(e.insts[x].generation)<<32 | uint64(x))
}

// liveInstance is the instance a connection acts for, or none when it has not
// registered or the registration has ended.
func (e *Engine) liveInstance(c *conn) uint32 {
	if c.inst == none {
		return none
	}
	i := &e.insts[c.inst]
	if i.generation != c.instGen || i.state != instLive {
		return none
	}
	return c.inst
}

// instanceByID finds the instance that has an id in a namespace now, the one neither free nor draining.
func (e *Engine) instanceByID(id uint64, s uint32) uint32 {
	for x := range e.instUsed {
		if i := &e.insts[x]; i.id == id && i.space == s && i.present() {
			return x
		}
	}
	return none
}

// present says whether i has its id now.
func (i *instance) present() bool { return i.state == instLive || i.state == instDetached }

// supersedeFormer is for an id that c has registered anew in namespace s: who had it there goes, and so does, elsewhere, what
// c's process was by that id. Others may have it in other namespaces: they have nothing to do with it.
func (e *Engine) supersedeFormer(c *conn, id uint64, s uint32) {
	for x := range e.instUsed {
		i := &e.insts[x]
		if i.id != id || !i.present() {
			continue
		}
		own := i.sameProcess(&c.peer, true) && c.grant.Allows(e.spaces[i.space].name)
		if i.space == s || own {
			e.supersede(x)
		}
	}
}

// newInstance takes a free place. The caller binds a connection.
func (e *Engine) newInstance(o owner) uint32 {
	for x := range e.insts {
		if e.insts[x].state != instFree {
			continue
		}
		i := &e.insts[x]
		*i = instance{generation: i.generation + 1, first: none, last: none, created: e.now, seen: e.now, owner: o}
		i.moveTo(instLive)
		i.claim = e.claims.move(o, 0, 1)
		e.watchSilence(uint32(x))
		e.instUsed = max(e.instUsed, uint32(x)+1)
		return uint32(x)
	}
	return none
}

// bind makes c a connection of instance x, which has shown by it that it lives.
func (e *Engine) bind(c *conn, x uint32) {
	e.insts[x].seen = e.now
	c.inst, c.instGen = x, e.insts[x].generation
	e.claims.move(c.owner(), 1, 0)
	e.insts[x].conns++
}

// unbind takes c from its instance, if that still is the one it registered, and says
// which it was and whether c was its last connection.
func (e *Engine) unbind(c *conn) (x uint32, last bool) {
	x = c.inst
	c.inst = none
	if x == none {
		return none, false
	}
	e.claims.move(c.owner(), -1, 0)
	if e.insts[x].generation != c.instGen || e.insts[x].state == instFree {
		return none, false
	}
	i := &e.insts[x]
	i.conns--
	return x, i.conns == 0
}

// detach is for an instance that lost its last connection. What it was only waiting for
// ends. Slots its process was told of stay out of everyone's reach while it lives.
func (e *Engine) detach(x uint32) {
	i := &e.insts[x]
	if i.state != instLive {
		e.join(x)
		return
	}
	if !i.watched {
		e.endInstance(x)
		return
	}
	e.part(x, instDetached)
}

// endInstance starts the end of an instance: nothing new begins, all that no longer can
// be touched comes back now, and [Engine.join] finishes when bytes being moved are done.
func (e *Engine) endInstance(x uint32) {
	i := &e.insts[x]
	if i.state == instLive || i.state == instDetached {
		i.moveTo(instDraining)
	}
	e.cancelParkedOf(x)
	for t := i.first; t != none; {
		next := e.transfers[t].instNext
		e.abandonTransfer(t)
		t = next
	}
	e.join(x)
}

// supersede is for an instance whose id another process has registered: its process
// lives, so the slots it was told of stay with it until that ends.
func (e *Engine) supersede(x uint32) {
	i := &e.insts[x]
	if !i.watched {
		e.endInstance(x)
		return
	}
	e.part(x, instDraining)
}

// part moves an instance to a state in which it begins nothing and its process lives: what
// it was only waiting for ends, and slots the process was told of stay with it.
func (e *Engine) part(x uint32, s instState) {
	i := &e.insts[x]
	i.moveTo(s)
	e.cancelParkedOf(x)
	for t := i.first; t != none; {
		next := e.transfers[t].instNext
		e.detachTransfer(t)
		t = next
	}
	e.join(x)
}

// join frees an instance that is draining, or detached, once it owns nothing and waits for
// nothing. It is called after everything that may have been the last. Connections that are
// still bound to it know by its generation that it has ended.
func (e *Engine) join(x uint32) {
	i := &e.insts[x]
	if i.state != instDraining && i.state != instDetached || i.first != none || i.parked != 0 {
		return
	}
	if i.fencing.requests != 0 {
		if i.state == instDraining {
			e.unwatch(x) // its process can touch nothing of it: it may be another instance by now, and is not to be killed for this one
		}
		return
	}
	if i.owned() != 0 || i.written != 0 || i.entries != 0 || i.open != 0 {
		panic(fmt.Sprintf("engine: instance %d ends with %d bytes staged, %d held, %d quarantined, %d entries, %d transfers",
			i.id, i.staged, i.held, i.quarantined, i.entries, i.open))
	}
	if i.state == instDetached {
		i.moveTo(instDraining)
	}
	e.unwatch(x)
	e.timers.clear(e.silence(x))
	e.claims.move(i.owner, 0, -1)
	e.leaveSpace(i.space)
	i.name = ""
	i.moveTo(instFree)
}

// unwatch is for an instance whose process has nothing of it any more.
func (e *Engine) unwatch(x uint32) {
	if i := &e.insts[x]; i.watched {
		e.host.Unwatch(e.watchID(x))
		i.watched = false
	}
}
