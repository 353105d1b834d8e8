package seglog

import "time"

const (
	// evictStep is the most entries that one step takes out of the index.
	evictStep = 256
	// fileRetry is how long a file that could not be created or removed is left alone.
	fileRetry = 30 * time.Second
)

// reclaim keeps one segment ready ahead of need, and evicts for the index's sake.
func (l *Log) reclaim() {
	if l.phase != phaseOpen && (l.queue.n == 0 && l.fenceQueue.n == 0 || l.phase == phaseClosed) {
		return // nothing more will be written
	}
	if l.starved && l.evicting == none {
		l.relieve()
	}
	if l.spare != none || l.health != healthOK && !l.prepare {
		return
	}
	if i := l.pick(segmentAlien); i != none && (l.segs[i].generation != 0 || l.now >= l.removeAt) {
		// Those that hold records of ours are older than all others, and go first.
		if l.syncsIn(i) {
			return // no file is removed under an I/O
		}
		l.spare = i
		l.moveSegment(i, segmentRemoving)
		l.control.push(task{use: useRemove, owner: i})
		return
	}
	if i := l.pick(segmentFree); i != none {
		l.spare = i
		l.startLife(i)
		return
	}
	if i := l.pick(segmentAbsent); i != none && l.now >= l.fileAt && l.roomInSize() && (l.makeFile(i) || l.askFree()) {
		return
	}
	if l.evicting == none && !l.evictOldest() && l.oldest() == none && (l.queue.n > 0 || l.fenceQueue.n > 0) {
		l.fail(none) // there is not one file to write to
	}
}

// makeFile begins to create segment i's file, if the file system has room for it.
func (l *Log) makeFile(i uint32) bool {
	l.cramped = !l.freeForFile()
	if l.cramped {
		return false
	}
	if l.free != freeUnknown {
		l.free -= l.cfg.SegmentSize // until it is told again
	}
	l.spare = i
	l.moveSegment(i, segmentCreating)
	l.control.push(task{use: useCreate, owner: i})
	return true
}

// relieve makes room in the index.
func (l *Log) relieve() {
	if l.index.used()+l.reserved < l.cfg.MaxEntries {
		l.starved = false
		return
	}
	if !l.evictOldest() && l.active != none && l.segs[l.active].planned > 0 && l.oldest() == l.active {
		l.sealActive()
	}
}

// pick returns the segment of the lowest generation in a state, or none.
func (l *Log) pick(state segmentState) uint32 {
	best := none
	for i := range l.segs {
		s := &l.segs[i]
		if s.state == state && (best == none || s.generation < l.segs[best].generation) {
			best = uint32(i)
		}
	}
	return best
}

// oldest returns the segment of the lowest generation among those that hold records, or none.
func (l *Log) oldest() uint32 {
	best := none
	for i := range l.segs {
		s := &l.segs[i]
		switch s.state {
		case segmentActive, segmentSealing, segmentFooting, segmentTrailing, segmentSettling, segmentSealed:
			if best == none || s.generation < l.segs[best].generation {
				best = uint32(i)
			}
		case segmentAbsent, segmentAlien, segmentRemoving, segmentCreating, segmentFree, segmentPreparing, segmentSyncing,
			segmentReady, segmentEvicting, segmentDraining:
		}
	}
	return best
}

// evictOldest begins to evict the oldest segment, if it is sealed: never a younger one in its stead.
func (l *Log) evictOldest() bool {
	i := l.oldest()
	if i == none || l.segs[i].state != segmentSealed {
		return false
	}
	l.evicting = i
	l.moveSegment(i, segmentEvicting)
	l.setStale(i, true)
	l.stats.EvictedSegments++
	l.beginKeep(i)
	return true
}

// evictSome takes a bounded step of the eviction under way.
func (l *Log) evictSome() {
	if l.index.walk == 0 {
		l.evicted()
		return
	}
	l.keep.blocked = false
	l.closeGroup() // reinsertions have groups of their own: no put should wait for them
	for n := evictStep; n > 0 && l.index.walk != 0; n-- {
		e := l.index.walk
		if l.worthKeeping(e) {
			switch l.reinsert(e) {
			case reinsertPlaced:
				l.index.walk = l.index.entries[e].next
				continue
			case reinsertBlocked:
				l.keep.blocked = true
				l.closeGroup()
				return
			case reinsertRefused:
			}
		}
		l.evict(e)
	}
	l.closeGroup()
	l.evicted()
}

// evict takes entry e out of the index because of its segment.
func (l *Log) evict(e uint32) {
	if !l.index.entries[e].ghost() {
		l.stats.EvictedRecords++
	}
	l.index.remove(e)
}

// evicted ends the eviction under way once all entries are out of the segment.
func (l *Log) evicted() {
	if l.index.walk != 0 {
		return
	}
	l.keep.units = 0
	if i := l.evicting; i != none && l.segs[i].state == segmentEvicting && l.index.heads[i] == 0 {
		l.moveSegment(i, segmentDraining)
		l.drained(i)
	}
}

// drained frees segment i when it is out of the index and neither a read nor a reinsertion holds it.
func (l *Log) drained(i uint32) {
	if s := &l.segs[i]; s.state == segmentDraining && s.readers == 0 {
		l.moveSegment(i, segmentFree)
		l.evicting = none
	}
}

// startLife writes segment i's first block for a new life, and erases the old one's trailer.
func (l *Log) startLife(i uint32) {
	l.moveSegment(i, segmentPreparing)
	l.generation++
	l.setUnsynced(i, false)
	s := &l.segs[i]
	s.generation, s.nonce = l.generation, l.cfg.Nonce()
	s.tail, s.planned, s.values, s.failures, s.footed = 1, 0, 0, 0, 0
	s.pending, s.failed, s.early = 2, false, nil
	putSegmentHead(l.cfg.Arena[l.first*BlockSize:][:BlockSize], &segmentHead{
		storeID: l.cfg.StoreID, nonce: s.nonce, generation: s.generation, size: l.cfg.SegmentSize, seq: l.seq, oldest: l.lowest(), id: s.id,
	})
	l.control.push(task{use: useFirst, owner: i})
	l.control.push(task{use: useErase, owner: i})
}

// lowest is the lowest generation of the segments that may count, as far as they are known. What is older has been reclaimed, and what
// stood against it may have been, too: a file that could not be read, and can be the next time, is not believed if it is.
func (l *Log) lowest() uint64 {
	low := l.generation
	for i := range l.segs {
		if g := l.segs[i].generation; g != 0 {
			low = min(low, g)
		}
	}
	return low
}

// lifeWritten takes the result of one of the two writes.
func (l *Log) lifeWritten(i uint32, ok bool) {
	s := &l.segs[i]
	s.pending--
	s.failed = s.failed || !ok
	switch {
	case s.pending > 0:
	case s.failed:
		l.lifeFailed(i)
	default:
		l.moveSegment(i, segmentSyncing)
		l.control.push(task{use: useLifeSync, owner: i})
	}
}

// lifeSynced takes the result of the sync: from now on nothing of the former life verifies.
func (l *Log) lifeSynced(i uint32, ok bool) {
	if !ok {
		l.lifeFailed(i)
		return
	}
	l.moveSegment(i, segmentReady)
	l.setStale(i, false)
	if l.prepare {
		l.heal()
	}
}

// lifeFailed gives the file up: it is removed and made anew.
func (l *Log) lifeFailed(i uint32) {
	l.moveSegment(i, segmentAlien)
	l.spare = none
	l.fail(i)
}

// removeDone takes the result of removing a file.
func (l *Log) removeDone(i uint32, ok bool) {
	s := &l.segs[i]
	l.spare = none
	if ok {
		l.diskBytes -= s.bytes
		s.bytes, s.generation = 0, 0
		l.moveSegment(i, segmentAbsent)
		l.setStale(i, false)
		l.setUnsynced(i, false)
		return
	}
	l.moveSegment(i, segmentAlien)
	if s.generation != 0 {
		// While it may come back, nothing younger may be reclaimed.
		l.fail(i)
		return
	}
	l.removeAt = l.now + fileRetry
}

// createDone takes the result of creating a file. If it fails and there are others, the store just stays smaller.
func (l *Log) createDone(i uint32, ok bool) {
	l.spare = none
	if ok {
		s := &l.segs[i]
		s.bytes = l.cfg.SegmentSize
		l.diskBytes += s.bytes
		l.moveSegment(i, segmentFree)
		return
	}
	l.moveSegment(i, segmentAbsent)
	l.fileAt = l.now + fileRetry
	if l.oldest() == none {
		l.fail(i)
	}
}
