package seglog

// segmentState is where a segment is in its life.
//
//	            create               first block, old      fdatasync
//	                                 trailer erased
//	absent --> creating --> free --> preparing --> syncing --> ready
//	 ^            |          ^           |            |          |
//	 |<-----------+ failed   |           v  failed    |          v
//	 +<-- removing <----- alien <---------------------+        active
//	                         |                                   | full
//	                         |                                   v
//	      draining <-- evicting <-- sealed <-- settling <--   sealing
//	      (readers)    (<= 256          ^      (fdatasync)       | groups ended
//	                    entries a       |          ^             v
//	                    step, and       |       trailing <--  footing
//	                    reinsertions)   |          |  failed     | failed
//	                                    +----------+-------------+
//
// What is evicted becomes free: its records verify on the disk until the next life's first block is synced, and that is what
// the field stale remembers. A failed footer is no loss, the segment is scanned at the next start.
type segmentState uint8

const (
	segmentAbsent    segmentState = iota // no file
	segmentAlien                         // a file that must be removed before it is anything
	segmentRemoving                      // being removed
	segmentCreating                      // being created
	segmentFree                          // a file of the right size that nobody needs
	segmentPreparing                     // its first block and the erased trailer are being written
	segmentSyncing                       // these are being synced
	segmentReady                         // the spare: the next to become active
	segmentActive                        // groups are appended
	segmentSealing                       // full; groups may still be in flight
	segmentFooting                       // the footer blocks are being written
	segmentTrailing                      // the trailer is
	segmentSettling                      // all of it is being synced
	segmentSealed                        // read only
	segmentEvicting                      // its entries are leaving the index
	segmentDraining                      // reads are in flight
)

var segmentMoves = moves{
	segmentAbsent:    to(segmentCreating),
	segmentAlien:     to(segmentRemoving),
	segmentRemoving:  to(segmentAbsent, segmentAlien),
	segmentCreating:  to(segmentFree, segmentAbsent),
	segmentFree:      to(segmentPreparing),
	segmentPreparing: to(segmentSyncing, segmentAlien),
	segmentSyncing:   to(segmentReady, segmentAlien),
	segmentReady:     to(segmentActive),
	segmentActive:    to(segmentSealing),
	segmentSealing:   to(segmentFooting),
	segmentFooting:   to(segmentTrailing, segmentSealed),
	segmentTrailing:  to(segmentSettling, segmentSealed),
	segmentSettling:  to(segmentSealed),
	segmentSealed:    to(segmentEvicting),
	segmentEvicting:  to(segmentDraining),
	segmentDraining:  to(segmentFree),
}

// String names the state.
func (s segmentState) String() string {
	names := [...]string{
		"absent", "alien", "removing", "creating", "free", "preparing", "syncing", "ready",
		"active", "sealing", "footing", "trailing", "settling", "sealed", "evicting", "draining",
	}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// A segment is a file of Config.SegmentSize bytes.
type segment struct {
	life
	log      []record // what is on disk since it became active, until it is sealed
	early    []uint32 // where the values are, ascending, that may never have been there whole, and were not read yet: see early.go
	bytes    int64    // of the file
	id       SegmentID
	tail     uint32 // first block without an owner
	values   uint32 // units of the values it has records of
	planned  uint32 // records appended, those in flight included: the footer's room is kept for them
	groups   uint32 // in flight
	readers  uint32 // reads and reinsertions that hold it
	footed   uint32 // records of log in footer blocks handed out
	pending  uint32 // preparing: writes to come back
	failures uint32 // writes failed since the last that did not
	state    segmentState
	failed   bool // preparing: one of the writes failed
	stale    bool // the disk may hold valid records that the index does not know
	unknown  bool // recovery did not read all of it, and it is stale
	unsynced bool // found at start: what it holds may not have been synced before the last process died
}

const (
	// failuresMax is how many writes in a row may fail in the active segment before a spare that is ready takes its place.
	failuresMax = 3
	// evictFailures is the same for when there is none, and the oldest segment must be evicted for it: about three minutes.
	evictFailures = 12
)

func (l *Log) moveSegment(i uint32, next segmentState) {
	move(segmentMoves, "segment", &l.segs[i].state, next)
}

// setStale notes whether the disk may hold records of segment i that the index does not know.
func (l *Log) setStale(i uint32, stale bool) {
	s := &l.segs[i]
	if s.stale == stale {
		return
	}
	s.stale = stale
	s.unknown = s.unknown && stale
	if stale {
		l.stale++
	} else {
		l.stale--
	}
}

// setUnsynced notes whether segment i is to be synced because of what a former process wrote.
func (l *Log) setUnsynced(i uint32, unsynced bool) {
	s := &l.segs[i]
	if s.unsynced == unsynced {
		return
	}
	s.unsynced = unsynced
	if unsynced {
		l.unsynced++
	} else {
		l.unsynced--
	}
}

// syncOld starts the sync of a segment found at start. One at a time.
func (l *Log) syncOld() {
	if l.unsynced == 0 || l.syncing != none || l.health != healthOK {
		return
	}
	for i := range l.segs {
		if l.segs[i].unsynced {
			l.syncing = uint32(i)
			l.control.push(task{use: useOldSync, owner: l.syncing})
			return
		}
	}
}

// oldSynced takes the result. After a failed one it is tried again when the disk works.
func (l *Log) oldSynced(i uint32, ok bool) {
	l.syncing = none
	if ok {
		l.setUnsynced(i, false)
		return
	}
	l.fail(i)
}

// syncsIn says whether a sync of segment i is in flight that its state does not tell of.
func (l *Log) syncsIn(i uint32) bool {
	return l.syncing == i || l.fenceSyncing.n > 0 && l.fences.at(l.fenceSyncing.head).segment == i
}

// fitsActive says whether the active segment has blocks more for records more, and still its footer.
func (l *Log) fitsActive(blocks, records uint32) bool {
	s := &l.segs[l.active]
	return uint64(s.tail)+uint64(blocks)+uint64(footerBlocks(s.planned+records))+1 <= uint64(l.segBlocks)
}

// room makes sure of an active segment with that room, if one can be had now.
func (l *Log) room(blocks, records uint32) bool {
	if l.active != none && !l.fitsActive(blocks, records) {
		l.sealActive()
	}
	if l.active == none && !l.activate() {
		return false
	}
	return l.fitsActive(blocks, records)
}

// activate makes the spare the active segment, if it is ready.
func (l *Log) activate() bool {
	if l.spare == none || l.segs[l.spare].state != segmentReady {
		return false
	}
	l.active, l.spare = l.spare, none
	l.moveSegment(l.active, segmentActive)
	s := &l.segs[l.active]
	if n := len(l.logs); n > 0 {
		s.log, l.logs = l.logs[n-1], l.logs[:n-1]
	}
	return true
}

// sealActive ends the life of the active segment as such.
func (l *Log) sealActive() {
	l.closeGroup()
	l.moveSegment(l.active, segmentSealing)
	l.active = none
	l.sealSome()
}

// sealSome starts the footer of the oldest segment that waits for it. One at a time: they share the arena's footer blocks.
func (l *Log) sealSome() {
	if l.footing != none {
		return
	}
	best := none
	for i := range l.segs {
		s := &l.segs[i]
		if s.state == segmentSealing && s.groups == 0 && (best == none || s.generation < l.segs[best].generation) {
			best = uint32(i)
		}
	}
	if best == none {
		return
	}
	s := &l.segs[best]
	if s.tail+footerBlocks(uint32(len(s.log)))+1 > l.segBlocks {
		panic("l2/seglog: no room for the footer")
	}
	l.footing = best
	s.footed = 0
	l.moveSegment(best, segmentFooting)
	l.footSome(best)
}

// footSome writes the next footer blocks of segment i, or its trailer after the last.
func (l *Log) footSome(i uint32) {
	s := &l.segs[i]
	total := uint32(len(s.log))
	first := l.segBlocks - 1 - footerBlocks(total)
	chunk := l.cfg.Arena[l.foot*BlockSize:]
	if s.footed == total {
		l.moveSegment(i, segmentTrailing)
		h := blockHead{magic: trailerMagic, count: footerBlocks(total), position: l.segBlocks - 1, length: total}
		clear(chunk[:BlockSize])
		sealBlock(chunk, &h, &s.life)
		l.footMem = Mem{Off: int64(l.foot) * BlockSize, Len: BlockSize, Own: true}
		l.footAt = l.segBlocks - 1
		l.control.push(task{use: useTrailer, owner: i})
		return
	}
	part := s.footed / blockRecords
	n := uint32(0)
	for ; n < l.footBlocks && s.footed < total; n++ {
		p := chunk[n*BlockSize:][:BlockSize]
		h := blockHead{magic: footerMagic, position: first + part + n, length: part + n}
		for ; h.count < blockRecords && s.footed < total; h.count++ {
			putRecord(p, int(h.count), &s.log[s.footed])
			s.footed++
		}
		sealBlock(p, &h, &s.life)
	}
	l.footMem = Mem{Off: int64(l.foot) * BlockSize, Len: int64(n) * BlockSize, Own: true}
	l.footAt = first + part
	l.control.push(task{use: useFooter, owner: i})
}

// footerDone takes the result of writing footer blocks or the trailer.
func (l *Log) footerDone(i uint32, ok bool) {
	switch {
	case !ok:
		l.sealed(i)
		l.fail(i)
	case l.segs[i].state == segmentFooting:
		l.footSome(i)
	default:
		l.moveSegment(i, segmentSettling)
		l.control.push(task{use: useSealSync, owner: i})
	}
}

// sealed ends the sealing of segment i, with a footer or without.
func (l *Log) sealed(i uint32) {
	l.moveSegment(i, segmentSealed)
	s := &l.segs[i]
	if len(l.logs) < 4 {
		l.logs = append(l.logs, s.log[:0])
	}
	s.log = nil
	l.footing = none
	l.sealSome()
}

// sealSyncDone takes the result of the last sync of a sealed segment.
func (l *Log) sealSyncDone(i uint32, ok bool) {
	l.sealed(i)
	if !ok {
		l.fail(i)
	}
}
