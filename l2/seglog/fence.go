package seglog

// fenceState is where a fence is in its life.
//
//	      Delete, Clear         group            header written, puts of
//	free ---------------> queued -----> writing --------+ the key in flight
//	 ^                      ^  ^ failed    |            v
//	 |                      |  +-----------+         waiting
//	 |        failed sync   |              v            |
//	 +-- syncing -----------+          unsynced <-------+
//	 ^      ^                              |
//	 |      +------------------------------+
//	 +--- synced
type fenceState uint8

const (
	fenceFree     fenceState = iota
	fenceQueued              // in Log.fenceQueue: has no place on disk
	fenceWriting             // in a group whose header is being written
	fenceWaiting             // in Log.fenceWaiting: written; a put it overtook is still in flight
	fenceUnsynced            // in Log.fenceUnsynced: answered; lost if the power fails
	fenceSyncing             // in Log.fenceSyncing
)

var fenceMoves = moves{
	fenceFree:     to(fenceQueued),
	fenceQueued:   to(fenceWriting, fenceFree),
	fenceWriting:  to(fenceQueued, fenceWaiting, fenceUnsynced),
	fenceWaiting:  to(fenceUnsynced),
	fenceUnsynced: to(fenceSyncing),
	fenceSyncing:  to(fenceFree, fenceQueued),
}

// String names the state.
func (s fenceState) String() string {
	names := [...]string{"free", "queued", "writing", "waiting", "unsynced", "syncing"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// A fence is a tombstone or clear record on its way to the disk. It keeps the sequence that Delete or Clear gave it however
// often it is written.
type fence struct {
	rec     record
	hash    uint64 // of the key
	ack     uint32 // whom to tell; 0: nobody, or told already
	segment uint32 // where it was written
	state   fenceState
	owed    bool // it was answered not durable and is not written: nothing is served
}

// An ack is one Delete or Clear to be answered.
type ack struct {
	tok  Token
	left uint32 // fences that hold it
	told bool
}

// Why a delete of a key that has no entry may do without a tombstone.
//
// The disk must then hold no put record of the key that a recovery would bring back. Puts get their sequences in the order of
// Put and their places in the same order, segments get their generations when they are opened, and are reclaimed (which means:
// the new first block is on disk and synced, so that no record of the former life verifies any more) strictly by generation.
// So of two puts of a key the older lies in the same segment or one that is reclaimed earlier. An entry goes away
//
//   - by a delete or clear: its fence has a higher sequence than all puts of the key before it, and lies in a segment that is
//     reclaimed after theirs, because the place of a fence is given after that of every put it overtakes (queued ones never
//     get a place);
//   - by eviction of its segment, if it is not reinserted (reinsert.go), all older ones being reclaimed already. Until this one is reclaimed too, Log.stale is not
//     zero, and deletes write tombstones without looking further;
//   - not by a failed verification, nor by a header write whose result is unknown: these leave a ghost.
//
// An entry that is replaced by a newer put stands for all older ones: they go before it does. A put that failed before its
// header went out left no record. Fences not yet written are in memory and are looked at. What recovery could not read or did
// not index counts as stale.

// Delete makes the keys invisible at once. False, and no outcome: the disk holds no record of any, and none is on its way.
// Else one OutcomeFence comes when the tombstones are written and puts of the keys that were in flight have ended: ResultOK, or
// ResultNotDurable when they are owed.
func (l *Log) Delete(keys []Key, tok Token) (fenced bool) {
	a := uint32(0)
	for i := range keys {
		k := &keys[i]
		d := l.index.digest(k)
		h := l.index.hash(d)
		need, owed := l.forget(k, d, h)
		if !need {
			continue
		}
		if a == 0 {
			a = l.acks.take()
			l.acks.at(a).tok = tok
		}
		if !owed {
			l.addFence(record{key: *k, kind: recordTombstone}, h, a)
		}
	}
	if a == 0 {
		return false
	}
	l.answerFence(a)
	return true
}

// Clear is Delete for all keys of a namespace.
func (l *Log) Clear(namespace uint64, tok Token) (fenced bool) {
	if l.index.used() == 0 && l.puts.used() == 0 && l.fenceQueue.n == 0 && l.fencesWriting == 0 && l.stale == 0 {
		return false
	}
	a := l.acks.take()
	l.acks.at(a).tok = tok
	i := l.addFence(record{key: Key{Namespace: namespace}, kind: recordClear}, 0, a)
	l.beginSweep(namespace, l.fences.at(i).rec.seq, false)
	l.answerFence(a)
	return true
}

// forget makes key k, of digest d and hash h, invisible and overtakes its puts. need: a tombstone must be written; owed: one that says all of
// it is owed to the disk already.
func (l *Log) forget(k *Key, d digest, h uint64) (need, owed bool) {
	need = l.stale > 0 || l.clearsUnwritten > 0
	found := false
	if e := l.index.find(d); e != 0 {
		l.index.remove(e)
		found = true
	}
	for i := l.putKeys.first(h); i != 0; {
		next := l.putKeys.after(i)
		if l.isOf(l.puts.at(i), k) {
			found = l.overtake(i) || found
		}
		i = next
	}
	for i := l.fenceKeys.first(h); i != 0; i = l.fenceKeys.after(i) {
		f := l.fences.at(i)
		if f.rec.key == *k && f.rec.kind == recordTombstone && (f.state == fenceQueued || f.state == fenceWriting) {
			need = true
			owed = owed || f.owed && f.state == fenceQueued
		}
	}
	// With stale records about, one younger than the fence that is owed might be among them.
	return need || found, owed && !found && l.stale == 0 && l.health != healthOK
}

// isOf says whether p is of key k. The key of a reinsertion is not known at first; its digest is.
func (l *Log) isOf(p *put, k *Key) bool {
	if p.copied {
		return p.digest == l.index.digest(k)
	}
	return p.rec.key == *k
}

// overtake keeps put i from becoming visible, and says whether it has a place on the disk.
func (l *Log) overtake(i uint32) bool {
	p := l.puts.at(i)
	switch p.state {
	case putQueued:
		move(putMoves, "put", &p.state, putDropped)
		l.outcome(p.tok, OutcomePut, ResultSuperseded)
		l.stats.Superseded++
		return false
	case putWriting:
		g := p.group
		l.kill(i, ResultSuperseded)
		l.advance(g)
	case putListed:
		move(putMoves, "put", &p.state, putOvertaken)
	case putDying, putOvertaken:
	case putFree, putDropped:
		return false
	}
	return true
}

// addFence queues a fence.
func (l *Log) addFence(r record, h uint64, a uint32) uint32 {
	i := l.fences.take()
	f := l.fences.at(i)
	r.seq = l.nextSeq()
	f.rec, f.hash, f.ack = r, h, a
	l.acks.at(a).left++
	move(fenceMoves, "fence", &f.state, fenceQueued)
	if r.kind == recordTombstone {
		l.fenceKeys.add(h, i)
	} else {
		l.clearsUnwritten++
	}
	l.fenceQueue.push(l.fences.links, i)
	return i
}

// answerFence answers ack a now if the disk cannot be written or there is nothing to write.
func (l *Log) answerFence(a uint32) {
	if l.acks.at(a).left == 0 { // all of it is owed already
		l.tell(a, ResultNotDurable)
		l.acks.give(a)
		return
	}
	if l.health == healthOK && l.phase != phaseClosed {
		return
	}
	l.oweFences()
	if l.fenceQueue.n > l.cfg.MaxFences {
		l.collapse()
	}
}

// oweFences answers not durable for every queued fence that is not answered.
func (l *Log) oweFences() {
	// New ones are at the tail, and those before them are answered.
	for i := l.fenceQueue.tail; i != 0 && l.fences.at(i).ack != 0; i = l.fences.links[i].prev {
		l.oweFence(i)
	}
}

// oweFence answers not durable for fence i.
func (l *Log) oweFence(i uint32) {
	f := l.fences.at(i)
	l.tell(f.ack, ResultNotDurable)
	l.dropAck(i)
	f.owed = true
	l.owed++
}

// collapse replaces all queued fences, none of which anybody waits for, by one that clears everything: a peer that deletes
// without end while the disk is away shall not fill the memory, and what is stored is a cache.
func (l *Log) collapse() {
	for l.fenceQueue.n > 0 {
		i := l.fenceQueue.head
		l.fenceQueue.remove(l.fences.links, i)
		if l.fences.at(i).rec.kind != recordTombstone {
			l.clearsUnwritten--
		}
		l.unowe(i)
		l.freeFence(i)
	}
	a := l.acks.take()
	l.acks.at(a).told = true
	i := l.addFence(record{kind: recordClearAll}, 0, a)
	l.oweFences()
	l.beginSweep(0, l.fences.at(i).rec.seq, true)
}

// writeFences gives queued fences their place: as many as the groups allow, 50 a block.
func (l *Log) writeFences() {
	for l.fenceQueue.n > 0 {
		l.closeGroup()
		g, ok := l.openGroup(groupFences, 0, blockRecords)
		if !ok {
			return
		}
		l.fillFences(g)
	}
}

// fillFences puts queued fences into the open group i and sends it off.
func (l *Log) fillFences(i uint32) {
	g := &l.groups[i]
	for l.fenceQueue.n > 0 && g.count < blockRecords {
		fi := l.fenceQueue.head
		l.fenceQueue.remove(l.fences.links, fi)
		move(fenceMoves, "fence", &l.fences.at(fi).state, fenceWriting)
		l.fencesWriting++
		g.items[g.count] = fi
		g.count++
		g.live++
	}
	l.segs[g.segment].planned += g.count
	move(groupMoves, "group", &g.state, groupClosed)
	l.advance(i)
}

// fenceListed takes the result of writing fence i.
func (l *Log) fenceListed(i, segment uint32, ok bool) {
	f := l.fences.at(i)
	l.fencesWriting--
	if !ok {
		// It may be on the disk all the same, which does no harm: it will be there twice.
		move(fenceMoves, "fence", &f.state, fenceQueued)
		l.fenceQueue.push(l.fences.links, i)
		if f.ack != 0 {
			l.oweFence(i)
		}
		return
	}
	if f.rec.kind == recordTombstone {
		l.stats.Tombstones++
	} else {
		l.stats.Clears++
		l.clearsUnwritten--
	}
	s := &l.segs[segment]
	s.log = append(s.log, f.rec)
	f.segment = segment
	l.unowe(i)
	if l.overtaking(f) {
		move(fenceMoves, "fence", &f.state, fenceWaiting)
		l.fenceWaiting.push(l.fences.links, i)
		return
	}
	l.fenceHolds(i)
}

// overtaking says whether a put that the fence overtook is still in flight.
func (l *Log) overtaking(f *fence) bool {
	if f.rec.kind != recordTombstone {
		return l.lowestFlyingPut() < f.rec.seq
	}
	for i := l.putKeys.first(f.hash); i != 0; i = l.putKeys.after(i) {
		p := l.puts.at(i)
		if l.isOf(p, &f.rec.key) && p.rec.seq < f.rec.seq && p.state != putQueued && p.state != putDropped {
			return true
		}
	}
	return false
}

// wakeFences looks at the tombstones that may have waited for a put whose key has hash h.
func (l *Log) wakeFences(h uint64) {
	for i := l.fenceKeys.first(h); i != 0; i = l.fenceKeys.after(i) {
		f := l.fences.at(i)
		if f.state == fenceWaiting && !l.overtaking(f) {
			l.fenceWaiting.remove(l.fences.links, i)
			l.fenceHolds(i)
		}
	}
}

// wakeClears looks at the clears that waited for groups.
func (l *Log) wakeClears() {
	for i := l.fenceWaiting.head; i != 0; {
		next := l.fences.links[i].next
		if f := l.fences.at(i); f.rec.kind != recordTombstone && !l.overtaking(f) {
			l.fenceWaiting.remove(l.fences.links, i)
			l.fenceHolds(i)
		}
		i = next
	}
}

// fenceHolds answers for fence i, which is written, and leaves it to the next sync.
func (l *Log) fenceHolds(i uint32) {
	f := l.fences.at(i)
	if f.ack != 0 {
		if a := l.acks.at(f.ack); a.left == 1 {
			l.tell(f.ack, ResultOK)
		}
		l.dropAck(i)
	}
	move(fenceMoves, "fence", &f.state, fenceUnsynced)
	l.fenceUnsynced.push(l.fences.links, i)
}

// syncFences starts a sync of a segment that holds unsynced fences. One at a time, so that fences gather meanwhile.
func (l *Log) syncFences() {
	if l.fenceSyncing.n > 0 || l.fenceUnsynced.n == 0 {
		return
	}
	segment := l.fences.at(l.fenceUnsynced.head).segment
	for i := l.fenceUnsynced.head; i != 0; {
		next := l.fences.links[i].next
		if f := l.fences.at(i); f.segment == segment {
			l.fenceUnsynced.remove(l.fences.links, i)
			move(fenceMoves, "fence", &f.state, fenceSyncing)
			l.fenceSyncing.push(l.fences.links, i)
		}
		i = next
	}
	l.control.push(task{use: useFenceSync, owner: segment})
}

// fencesSynced takes the result of a sync. After a failed one the pages may be gone: the fences are written again.
func (l *Log) fencesSynced(segment uint32, ok bool) {
	for l.fenceSyncing.n > 0 {
		i := l.fenceSyncing.head
		l.fenceSyncing.remove(l.fences.links, i)
		if ok {
			l.freeFence(i)
			continue
		}
		f := l.fences.at(i)
		move(fenceMoves, "fence", &f.state, fenceQueued)
		l.fenceQueue.push(l.fences.links, i)
		if f.rec.kind != recordTombstone {
			l.clearsUnwritten++
		}
	}
	if !ok {
		l.fail(segment)
	}
}

// freeFence ends fence i.
func (l *Log) freeFence(i uint32) {
	f := l.fences.at(i)
	if f.ack != 0 {
		panic("l2/seglog: fence ends unanswered")
	}
	move(fenceMoves, "fence", &f.state, fenceFree)
	if f.rec.kind == recordTombstone {
		l.fenceKeys.remove(f.hash, i)
	}
	l.fences.give(i)
}

// unowe notes that fence i is written, or replaced.
func (l *Log) unowe(i uint32) {
	if f := l.fences.at(i); f.owed {
		f.owed = false
		l.owed--
	}
}

// tell answers ack a once.
func (l *Log) tell(a uint32, res Result) {
	k := l.acks.at(a)
	if k.told {
		return
	}
	k.told = true
	l.outcome(k.tok, OutcomeFence, res)
	if res == ResultNotDurable {
		l.stats.NotDurable++
	}
}

// dropAck lets fence i's ack go.
func (l *Log) dropAck(i uint32) {
	f := l.fences.at(i)
	a := l.acks.at(f.ack)
	a.left--
	if a.left == 0 {
		l.acks.give(f.ack)
	}
	f.ack = 0
}
