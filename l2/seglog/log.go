// Package seglog is the disk store's pure core: the format of the segment files, the index of what is in them, recovery, and the
// decision what to read and write. It does no I/O, reads no clock and starts no goroutine.
//
// A [Log] is a state machine between its caller and a driver. [Log.Put], [Log.Read], [Log.Delete] and [Log.Clear] queue work;
// [Log.NextIO] hands out I/Os, which the driver carries out in any order and side by side; [Log.Done] takes their results;
// [Log.Outcome] answers the caller. A turn of the driver is
//
//	Done for every completion; Put, Read, Delete, Clear as asked; Flush; NextIO until it says no; Outcome until it says no
//
// with a [Log.Tick] about once a second. All on one goroutine.
//
// The store is a log of segment files of one size, written one after the other and reclaimed whole, oldest first, but for what
// was read most, which is written anew. Records are
// written in groups: values first, then a header block that makes them exist. Every record has a sequence, and the highest
// counts, wherever it lies. Every life of a segment has a generation and a random nonce, which its blocks are sealed with, so
// that nothing of a former life, and no value, is ever taken for a record. docs/FORMAT.md has the bytes; group.go, segment.go,
// fence.go and read.go each begin with the life of what they are named for.
package seglog

import "time"

// A State is the state of a [Log] as a whole.
type State uint8

// The states of a log.
const (
	// StateOK: all works.
	StateOK State = iota
	// StateDegraded: the disk refused a write. Puts are refused, deletes are not durable; retried by itself.
	StateDegraded
	// StateClosing: BeginClose was called; run I/Os until Idle.
	StateClosing
	// StateClosed: all is written and sealed.
	StateClosed
	// StateStalled: an I/O takes too long. Puts and reads are refused, deletes are not durable; it ends by itself with that I/O.
	StateStalled
)

// String names the state.
func (s State) String() string {
	switch s {
	case StateOK:
		return "ok"
	case StateDegraded:
		return "degraded"
	case StateClosing:
		return "closing"
	case StateClosed:
		return "closed"
	case StateStalled:
		return "stalled"
	}
	return "unknown"
}

// A Log is the state machine of the disk store. It belongs to one goroutine.
type Log struct {
	cfg    Config
	stats  Stats
	damage Damage // the last

	phase  phaseState
	health healthState

	now      time.Duration
	clock    time.Duration // time as I/Os age, see stall.go
	retryAt  time.Duration // degraded: when to try again
	backoff  time.Duration
	fileAt   time.Duration // before it no file is created
	removeAt time.Duration // before it none that holds nothing of ours is removed
	freeAt   time.Duration // from it on what SetFree told is too old to do without a file for
	asking   bool          // an IOSpace is on its way
	cramped  bool          // see Cramped
	prepare  bool          // degraded: a new segment may be made, to try the disk

	seq        uint64 // the next one
	generation uint64 // the last one given

	// Segments.
	segs      []segment
	segBlocks uint32
	active    uint32 // or none
	spare     uint32 // being made ready, or ready; or none
	evicting  uint32 // or none
	footing   uint32 // whose footer is being written; or none
	syncing   uint32 // being synced for what a former process wrote; or none
	unsynced  int    // segments for which that is to be done
	stale     int    // segments whose records on disk the index does not know: see fence.go
	diskBytes int64
	logs      [][]record // free buffers for segment.log
	starved   bool       // a put waits for room in the index

	// The arena's blocks: 0 is zero, first for a segment's first block, footBlocks from foot for footers, the rest for headers.
	first, foot, footBlocks, headers uint32
	footMem                          Mem    // the footer part being written
	footAt                           uint32 // and its block

	index    index
	reserved int // entries kept for puts in flight

	// Puts.
	puts    pool[put]
	putKeys chain
	queue   list // puts without a place, in order
	work    list // puts with I/Os to hand out, in order

	groups    []group
	groupFree []uint32
	open      uint32 // or none

	// Packed values.
	packs     []pack
	packFree  []uint32
	packing   uint32 // the open group's, or none
	packBase  int64  // where the first lies in the arena
	covers    uint32 // how many there are
	coverFree []uint32
	coverBase int64
	// Blocks for the headers of groups that are read.
	heads    uint32
	headFree []uint32
	headBase int64

	// Deletes and clears.
	fences          pool[fence]
	fenceKeys       chain // tombstones
	fenceQueue      list
	fenceWaiting    list
	fenceUnsynced   list
	fenceSyncing    list
	fencesWriting   int
	clearsUnwritten int    // clear fences queued or being written
	fetched         uint64 // keeps loads that are for the processor's caches alone
	owed            int    // fences answered not durable and not written
	acks            pool[ack]
	cleared         map[uint64]uint64 // by namespace: records below this sequence are gone, and may still be in the index
	clearedAll      uint64            // the same for all
	sweeps          ring[sweep]
	cursor          uint32 // of the sweeps' walk through the index
	round           uint64

	// Reinsertions.
	copies     int  // puts that are reinsertions
	copyWork   list // of them, those with pieces to read
	buffers    []buffer
	bufferFree []uint32
	bufferSize int64 // bytes of a buffer
	bufferBase int64 // where the first lies in the arena
	keep       keep

	// Reads.
	reads    pool[read]
	readWork readQueue // with pieces to hand out
	readSums list      // to be verified

	// I/Os.
	ops      []op
	opFree   []uint32
	opLinks  []link
	flight   list // ops handed out, the oldest first: by index and one
	control  ring[task]
	loads    load
	stores   load
	outcomes ring[Outcome]
	limit    bucket
	free     int64 // bytes of the file system, or freeUnknown
}

// newLog makes a log of n segments, all absent. cfg has its defaults.
func newLog(cfg Config, n int) *Log {
	l := &Log{
		cfg: cfg, segs: make([]segment, n), segBlocks: uint32(cfg.SegmentSize / BlockSize),
		active: none, spare: none, evicting: none, footing: none, syncing: none, open: none, packing: none,
		index: newIndex(&cfg, n), cursor: 1, cleared: make(map[uint64]uint64),
		putKeys: newChain(min(cfg.MaxQueue, 1<<16)), fenceKeys: newChain(1 << 13),
		ops: make([]op, cfg.MaxInFlight), opFree: make([]uint32, 0, cfg.MaxInFlight),
		opLinks: make([]link, cfg.MaxInFlight+1),
	}
	l.limit = bucket{rate: cfg.WriteLimit, tokens: cfg.WriteLimit}
	l.free = freeUnknown
	for i := range l.ops {
		l.opFree = append(l.opFree, uint32(i))
	}
	arena := uint32(len(cfg.Arena) / BlockSize)
	// The arena: the log's blocks, headers that are read, packs, covers, and buffers for reinsertions.
	own := min(arenaBlocks, arena/4)
	rest := arena - own
	l.heads, l.headBase = min(64, max(rest/8, 1)), int64(own)*BlockSize
	for i := range l.heads {
		l.headFree = append(l.headFree, i)
	}
	rest -= l.heads
	packs := max(rest/4/packBlocks, 1)
	covers := max(rest/5/coverBlocks, 1)
	copies := rest - packs*packBlocks - covers*coverBlocks
	arena = own
	l.first, l.foot = 1, 2
	l.footBlocks = min(max(arena/4, 1), 16)
	l.headers = l.foot + l.footBlocks
	clear(cfg.Arena[:BlockSize])
	l.groups = make([]group, arena-l.headers)
	l.makePacks(l.headBase+int64(l.heads)*BlockSize, packs, covers)
	l.makeBuffers(l.coverBase+int64(covers)*coverBlocks*BlockSize, copies)
	for i := range l.groups {
		l.groupFree = append(l.groupFree, uint32(i))
	}
	return l
}

// nextSeq gives the next sequence.
func (l *Log) nextSeq() uint64 {
	s := l.seq
	l.seq++
	return s
}

// Flush lets queued records go out, and does a bounded step of background work. The driver calls it once a turn, before it takes
// I/Os.
func (l *Log) Flush() {
	l.closeGroup()
	l.evictSome()
	l.sweepSome()
	l.step()
	for l.stuck() {
		l.evictSome()
		l.step()
	}
	l.closeGroup()
}

// step does what has become possible.
func (l *Log) step() {
	l.reclaim()
	if l.health == healthOK && l.phase != phaseClosed {
		l.writeFences()
	}
	l.pump()
	l.sealSome()
	l.syncFences()
	l.syncOld()
	l.closeSome()
}

// stuck says that work waits for an eviction, and that there is no I/O whose end would bring the driver back: then the eviction
// is not done a step a turn, because there may be no next turn.
func (l *Log) stuck() bool {
	return l.evicting != none && l.segs[l.evicting].state == segmentEvicting &&
		(l.queue.n > 0 || l.fenceQueue.n > 0 && l.health == healthOK) &&
		len(l.opFree) == len(l.ops) && l.control.n+l.work.n+l.copyWork.n+l.readWork.n+l.readSums.n == 0
}

// Pending says whether background work is left that no completion will trigger: the driver should call Flush again soon rather
// than block. Nothing waits for it, so that ignoring it is not wrong.
func (l *Log) Pending() bool {
	return l.sweeping() || l.index.walk != 0 && !l.keep.blocked
}

// outcome queues an outcome.
func (l *Log) outcome(tok Token, kind OutcomeKind, res Result) {
	l.outcomes.push(Outcome{Token: tok, Kind: kind, Result: res})
}

// Outcome returns the next outcome. The driver drains it after every call that may make one.
func (l *Log) Outcome() (Outcome, bool) { return l.outcomes.pop() }
