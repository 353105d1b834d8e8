// Package engine decides everything the cache server does: connections, instances, open
// transfers, what is in memory and what is on disk. It is pure: no I/O, no goroutine, no
// clock. Events come in through [Engine.Step], work goes out through a [Host], time is
// what the events say, and the same events always give the same work.
//
// Who owns what:
//
//  1. A slot has one owner: the free list, a transfer (staged or quarantined), a load
//     (loading), or the table (ready).
//  2. A slot whose bytes are being moved, by the disk or by a connection, is freed by the
//     end of that move, never before. Moves have an op; an op lives until its event.
//  3. Transfers and leases hang on their instance, entries on their transfer: the end of an
//     instance costs what the instance holds.
//  4. A store ends by commit or by abort, and only an explicit commit ever publishes.
//  5. Handles, refs, op and connection ids are index and generation, so that what is late is
//     recognised.
//  6. Nothing in the pool's bytes is read as a length, an offset or a state.
//
// What a peer gets wrong is a status in its reply; what this package gets wrong is a panic.
package engine

import (
	"time"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// An Engine is one cache server's state. It belongs to one goroutine.
type Engine struct {
	cfg   Config
	host  Host
	table *table.Table
	log   *seglog.Log // nil: no disk tier
	now   time.Duration
	ready int64 // bytes of the pool that are populated

	conns         []conn
	insts         []instance
	instUsed      uint32 // places of insts ever used
	incarnation   uint32 // last given
	claims        claims
	transfers     []transfer
	transferFree  uint32 // list through instNext
	transfersOpen int
	quarantined   int // of them
	entries       []entry
	entryFree     uint32 // list through next
	ops           []op
	opFree        uint32 // list through next
	opsBusy       int
	opsOf         [opKinds]int // of them, by kind
	spaces        []space
	spaceEpoch    uint64
	parked        []parked
	parkedFree    uint32 // list through next
	parkedFirst   uint32 // waiting: loads before stores, each first come first served
	parkedLast    uint32
	parkedLoad    uint32 // the last that waits to load
	timers        timers // of transfers, then of parked requests, then of instances
	pins          timers // of pinned objects, by entry
	dirty         dirtyQueue
	admission     admission
	refused       refusedQueue  // what the disk would not take, to be tried again
	spilling      int           // puts the log has not ended
	spillingBytes int64         // of them
	memoryFreed   bool          // since parked requests were last tried
	short         bool          // memory was, since all that is dirty last went to disk
	evicting      bool          // an allocation or a load of this turn found that the next one may succeed
	loadsBegun    int           // since the last flush
	loadDue       time.Duration // until when stores spare memory for loads
	again         bool          // the next turn has work that no event will announce
	size          int64         // bytes the pool has, or is to have: less than Config.Pool.Size if no more could be populated
	populated     bool          // the pool does not grow any more
	clears        []clearing
	fencing       fencing // of peers that are no instance
	stopping      bool
	wasStalled    bool // the disk was, in the last turn

	ioEngine string // its name among the counters
	counters Counters
	in       requests // parsed requests, used again and again
	rep      replies
	out      []byte // the frame being built
	parts    []table.Extent
	refs     []table.Ref
	window   window
	tail     []table.Ref // objects that touchTail found
	ending   []table.Ref // objects of the entries that are given back
	uses     uses
	origins  origins // of the lookup that is carried out
}

// requests holds one of each request with long lists, so that parsing allocates nothing
// in steady state.
type requests struct {
	lookup   proto.Lookup
	prepare  proto.PrepareStore
	commit   proto.CommitStore
	put      proto.Put
	retrieve proto.PrepareRetrieve
	release  proto.Release
	remove   proto.Delete
	pin      proto.Pin
	unpin    proto.Unpin
	touch    proto.Touch
	diskKeys []seglog.Key
}

// replies is the same for replies.
type replies struct {
	lookup    proto.LookupReply
	prepare   proto.PrepareStoreReply
	retrieve  proto.PrepareRetrieveReply
	pin       proto.PinReply
	stats     proto.StatsReply
	instances proto.InstancesReply
	transfers proto.TransfersReply
}

// outSize holds every reply: the longest is that of a PREPARE_STORE of all keys, 18 bytes
// each.
const outSize = 128 << 10

// New returns an engine with the given sizes. All its memory is allocated here, but for
// namespaces.
func New(cfg Config, host Host) (*Engine, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:  cfg,
		host: host,
		log:  cfg.Disk,
		size: cfg.Pool.Size,
		table: table.New(table.Config{
			Size: cfg.Pool.Size, MaxObjects: cfg.Objects, Policy: cfg.Policy, Seed: cfg.Seed, HashMask: cfg.HashMask,
			Advise: cfg.Advise,
		}),
		conns:       make([]conn, cfg.Conns),
		insts:       make([]instance, cfg.Instances),
		transfers:   make([]transfer, cfg.Transfers),
		entries:     make([]entry, cfg.Entries),
		ops:         make([]op, cfg.Ops),
		parked:      make([]parked, cfg.Parked),
		parkedFirst: none,
		parkedLast:  none,
		parkedLoad:  none,
		timers:      newTimers(cfg.Transfers + cfg.Parked + cfg.Instances),
		pins:        newTimers(cfg.Objects + 1),
		dirty:       newDirtyQueue(cfg.Objects),
		refused:     newRefusedQueue(cfg.Objects),
		admission:   newAdmission(cfg.Admit),
		out:         make([]byte, 0, outSize),
		refs:        make([]table.Ref, 0, proto.MaxKeys),
		tail:        make([]table.Ref, proto.MaxKeys),
		ending:      make([]table.Ref, 0, proto.MaxKeys),
		uses:        uses{refs: make([]table.Ref, 0, proto.MaxKeys)},
	}
	if cfg.IOEngine != "" {
		e.ioEngine = `io_engine{engine="` + cfg.IOEngine + `"}`
	}
	for i := range e.conns {
		e.conns[i].inst = none
	}
	e.claims.of = make(map[owner]uint32)
	for i := range e.transfers {
		e.transfers[i].instNext = listNext(i, len(e.transfers))
	}
	for i := range e.entries {
		e.entries[i].next = listNext(i, len(e.entries))
	}
	for i := range e.ops {
		e.ops[i].next = listNext(i, len(e.ops))
	}
	for i := range e.parked {
		e.parked[i].next = listNext(i, len(e.parked))
	}
	return e, nil
}

// listNext links n places into a free list.
func listNext(i, n int) uint32 {
	if i+1 == n {
		return none
	}
	return uint32(i + 1)
}

// Step handles one event. It queues work on the host and is never called from within it.
func (e *Engine) Step(ev *Event) {
	e.now = ev.Now
	if ev.Kind != EventFrame || ev.Header.Op != proto.OpPing { // which waits for nothing
		e.settleUses()
	}
	e.lapse(lapseStep) // a pin that is over keeps nothing from this event
	switch ev.Kind {
	case EventOpen:
		e.onOpen(ev.Conn, ev.Peer)
	case EventFrame:
		e.onFrame(ev.Conn, &ev.Header, ev.Body)
	case EventPayload:
		e.onPayload(ev.Op, ev.Res)
	case EventSent:
		e.onSent(ev.Op)
	case EventClosed:
		e.onClosed(ev.Conn)
	case EventDisk:
		e.log.Done(ev.Disk, ev.Res, ev.Sum)
		e.drainOutcomes()
	case EventGone:
		e.onGone(ev.Watch)
	case EventReady:
		e.ready = max(e.ready, ev.Res)
		e.table.Grow(e.ready)
		e.memoryFreed = true
	case EventPopulated:
		if !e.populated {
			e.shrink()
		}
		e.populated = true
		e.memoryFreed = true
	case EventSighted:
		e.onSighted(int(ev.Op), ev.Sum)
	case EventTick:
	}
}

// Flush does once a turn what is cheaper or fairer done for all events together:
// deadlines, waiting requests, spills, and handing the log's I/Os to the host.
func (e *Engine) Flush(now time.Duration) {
	e.now = now
	e.again, e.evicting, e.loadsBegun = false, false, 0
	e.lapse(keysATurn)
	e.fireTimers()
	e.stepClears()
	if e.log != nil {
		e.log.Tick(now)
		e.drainOutcomes()
		e.watchDisk()
	}
	e.spill()
	e.retryParked()
	if e.log == nil {
		return
	}
	e.log.Flush()
	e.startDisk()
	if e.drainOutcomes() {
		e.again = true // memory may be free, and room in the log's queue
	}
	e.askHost() // behind all that uses objects: no later turn need come
}

// diskATurn bounds the bytes that are given to the disk in a turn: the kernel takes a tenth of a millisecond to begin an I/O, and
// as much for each MiB of memory that it does not know, during which nobody is served. The rest goes out in the next turn.
const diskATurn = 1 << 20

// startDisk hands the host as many of the log's I/Os as it takes.
func (e *Engine) startDisk() {
	begun := int64(0)
	for room := e.host.DiskRoom(); room > 0; room-- {
		if begun >= diskATurn {
			e.again = true
			return
		}
		io, ok := e.log.NextIO()
		if !ok {
			return
		}
		if io.Kind == seglog.IORead || io.Kind == seglog.IOWrite {
			begun += io.Mem.Len
		}
		e.host.Disk(io)
	}
}

// keysATurn bounds the keys of the deadlines handled, and of the waiting requests served,
// in one turn, so that thousands that end together do not stall the loop: less than a
// millisecond.
const keysATurn = proto.MaxKeys

func (e *Engine) fireTimers() {
	for budget := keysATurn; budget > 0; budget-- {
		i, ok := e.timers.due(e.now)
		if !ok {
			return
		}
		e.settleUses()
		if x := int(i) - len(e.transfers) - len(e.parked); x >= 0 {
			budget--
			e.reap(uint32(x))
			continue
		}
		if i >= uint32(len(e.transfers)) {
			n := i - uint32(len(e.transfers))
			budget -= e.parked[n].keys()
			e.parkedTimeout(n)
			continue
		}
		budget -= int(e.transfers[i].count)
		e.expire(i)
	}
}

// degradedTick is how often a disk tier that is not well, or held up by its limit, is looked at.
const degradedTick = 250 * time.Millisecond

// NextTick says when the engine wants an EventTick at the latest, if it wants one.
func (e *Engine) NextTick() (time.Duration, bool) {
	at, ok := e.timers.next()
	if p, pinned := e.pins.next(); pinned && (!ok || p < at) {
		at, ok = p, true
	}
	if e.again || len(e.uses.refs) > 0 || len(e.clears) > 0 || e.log != nil && e.log.Pending() {
		return e.now, true
	}
	if d, waits := e.opinionDue(); waits && (!ok || d < at) {
		at, ok = d, true
	}
	if e.log != nil {
		if d, late := e.log.Overdue(); late && (!ok || d < at) {
			at, ok = d, true
		}
	}
	if e.log != nil && (e.log.State() == seglog.StateDegraded || e.log.Throttled()) {
		if d := e.now + degradedTick; !ok || d < at {
			at, ok = d, true
		}
	}
	return at, ok
}

// BeginStop ends everything open: no new work is taken, requests that wait are answered,
// connections are hung up, dirty objects go to disk and the log is closed. The host goes
// on with its turns until [Engine.Stopped], or gives up.
func (e *Engine) BeginStop(now time.Duration) {
	if e.stopping {
		return
	}
	e.now = now
	e.stopping = true
	for e.parkedFirst != none {
		r := e.parked[e.parkedFirst].req
		e.cancelParked(e.parkedFirst)
		e.refuse(&r, proto.StatusDraining)
	}
	for t := range e.transfers {
		if e.transfers[t].state == transferLoading {
			e.endLoading(uint32(t), proto.StatusDraining)
		}
	}
	for x := range e.conns {
		if c := &e.conns[x]; c.state != connFree {
			c.hangup(e)
		}
	}
}

// Stopped says that nothing is under way any more. The log is told to close once the
// last dirty object has gone to it.
func (e *Engine) Stopped() bool {
	if e.stopping && e.stalled() { // it may never end, and what it has is given back by the end of the process
		return e.opsBusy == e.opsOf[opSpill]+e.opsOf[opLoad]
	}
	if !e.stopping || e.opsBusy > 0 {
		return false
	}
	if e.log == nil {
		return true
	}
	if e.dirty.len() > 0 || e.refused.count > 0 && e.diskWell() {
		return false
	}
	if st := e.log.State(); st != seglog.StateClosing && st != seglog.StateClosed {
		e.log.BeginClose()
	}
	return e.log.Idle()
}
