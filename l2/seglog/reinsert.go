package seglog

// Reinsertion: an eviction writes up to a quarter of the victim's bytes anew, those that were read since they were placed, the
// most read first. The rest goes.
//
// A reinsertion is a put from its place on: it is entered under its key, overtaken by deletes and clears and waited for by their
// fences like any other. It keeps the record's sequence and checksum, and its value goes through buffers of the log's own. What
// makes that right, beyond what fence.go says of puts:
//
//   - It gets its place in the step in which it is chosen: until then it is just an entry, which a delete removes.
//   - It gets one only if its entry counts and no other put of the key has a place. So whatever stands against it (a tombstone, a
//     clear, a newer put) gets its place later, lies behind it in the log, and is not reclaimed before it.
//   - Its victim is reclaimed only when it has ended: its entry stays in the victim's list until it is replaced or removed, and it
//     counts among the victim's readers.
//   - Nothing is reinserted while there is a segment whose records recovery could not read: a tombstone in it might be older in the
//     log than what it stands against.
//   - A value that does not verify is written as it is, with the checksum that it differs from, and stays unreadable.
//
// Room for it is kept free in the active segment, which has just been opened when an eviction begins: puts leave it that until
// the victim's entries have been looked at. If there is no room all the same, the record goes.

// keepShare is the part of a victim's values that may be reinserted.
const keepShare = 4

const (
	// copiesMax is how many reinsertions may have a place and not have ended.
	copiesMax = 64
	// bufferMax is the most bytes of a value that go through one buffer at a time.
	bufferMax = 256 << 10
)

// A keep says what the eviction under way reinserts.
type keep struct {
	units   int64 // of values it may still reinsert
	heat    uint8 // of entries at least so hot,
	margin  int64 // and of those that are just so hot, not more units than this
	records int   // and not more than this
	blocked bool  // it goes on when an I/O has ended
}

// beginKeep decides what the eviction of segment i, which begins, reinserts.
func (l *Log) beginKeep(i uint32) {
	l.keep = keep{heat: heatMax + 1}
	l.index.walk = l.index.heads[i]
	for k := range l.segs {
		if l.segs[k].unknown {
			return
		}
	}
	s := &l.segs[i]
	n := int(l.index.counts[i])
	l.keep.records = n
	if l.starved {
		l.keep.records = n / keepShare // what is short is places in the index
	}
	// Three quarters, and what is not for values, are what the writes of puts are multiplied by: the latter are taken off here, but
	// for a half in a hundred. (In segments of a few blocks that would be all there is.)
	budget := int64(s.values) / keepShare
	overhead := (4 + 2*int64(footerBlocks(uint32(n)))) * blockUnits
	budget -= min(max(overhead-int64(s.values)/200, 0)*3/4, budget/4)
	for h := heatMax; h > 0; h-- {
		hot := l.index.heats[i][h]
		if hot == 0 {
			continue
		}
		l.keep.heat = uint8(h)
		l.keep.margin = min(hot, budget-l.keep.units)
		l.keep.units += l.keep.margin
		if l.keep.margin < hot {
			break
		}
	}
	if l.keep.units <= 0 {
		l.keep = keep{heat: heatMax + 1}
	}
}

// kept says whether a put of size bytes must wait because the room is kept for reinsertions.
func (l *Log) kept(size int64) bool {
	k, n := l.keep.units, blocks(size)
	if k == 0 || l.index.walk == 0 || l.active == none || !l.fitsActive(n, 1) {
		return false
	}
	records := uint32(min(k, int64(l.keep.records)))
	return !l.fitsActive(n+uint32(k/blockUnits)+3+records/8, 1+records)
}

// worthKeeping says whether entry i, of the segment being evicted, is to be reinserted.
func (l *Log) worthKeeping(i uint32) bool {
	e := &l.index.entries[i]
	n := int64(units(e.size()))
	switch k := &l.keep; {
	case e.heat() < k.heat || e.ghost() || n > k.units || k.records == 0 || e.heat() == k.heat && n > k.margin:
		return false
	case l.coveredEntry(e) || l.health != healthOK || l.phase != phaseOpen:
		return false
	}
	for p := l.putKeys.first(l.index.hash(e.digest)); p != 0; p = l.putKeys.after(p) {
		if q := l.puts.at(p); q.digest == e.digest && q.state != putQueued && q.state != putDropped {
			return false
		}
	}
	return true
}

// reinsertResult says what came of reinsert.
type reinsertResult uint8

const (
	reinsertPlaced  reinsertResult = iota
	reinsertBlocked                // not now, but once an I/O in flight has ended
	reinsertRefused                // there is no room, and none will come before the victim is gone
)

// reinsert gives entry i a new place.
func (l *Log) reinsert(i uint32) reinsertResult {
	e := &l.index.entries[i]
	size := e.size()
	if l.copies >= copiesMax {
		return reinsertBlocked
	}
	if !l.inGroup(size, l.seq) {
		switch {
		case l.open != none, len(l.groupFree) == 0, packed(size) && len(l.packFree) == 0, l.spare != none:
			return reinsertBlocked // by groups, packs or the spare, which are under way
		}
		return reinsertRefused
	}
	l.seq++ // so that no clear to come has the group's
	pi := l.puts.take()
	p := l.puts.at(pi)
	p.rec = record{seq: e.seq, sum: e.sum, size: size, kind: recordPut, early: l.isEarly(uint32(e.segment), e.at)}
	p.rec.key.Namespace = l.index.namespace(e) // the rest of the key comes from the disk
	p.digest, p.hash, p.sum, p.copied, p.keyWanted = e.digest, l.index.hash(e.digest), sumDone, true, true
	p.from, p.fromAt, p.fromHead = uint32(e.segment), e.at, e.head
	l.putKeys.add(p.hash, pi)
	l.copies++
	l.segs[p.from].readers++
	n := int64(units(size))
	l.keep.units -= n
	l.keep.records--
	if e.heat() == l.keep.heat {
		l.keep.margin -= n
	}
	l.placePut(pi)
	return reinsertPlaced
}

// endCopy lets the reinsertion p go. If it did not succeed, the record goes with the victim.
func (l *Log) endCopy(p *put) {
	l.copies--
	if e := l.index.find(p.digest); e != 0 {
		if x := &l.index.entries[e]; x.seq == p.rec.seq && uint32(x.segment) == p.from && l.segs[p.from].state == segmentEvicting {
			l.evict(e)
		}
	}
	l.segs[p.from].readers--
	l.evicted()
	l.drained(p.from)
}

// bufferState is where a buffer is in its life.
//
//	free --> reading --> writing --> free
//	 ^          | failed read, the reinsertion was given up, or the value went into a pack
//	 +----------+
type bufferState uint8

const (
	bufferFree    bufferState = iota
	bufferReading             // from the victim
	bufferWriting             // to the new place
)

var bufferMoves = moves{
	bufferFree:    to(bufferReading),
	bufferReading: to(bufferWriting, bufferFree),
	bufferWriting: to(bufferFree),
}

// String names the state.
func (s bufferState) String() string {
	names := [...]string{"free", "reading", "writing"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// A buffer carries a piece of a value to its new place. It is a part of the arena.
type buffer struct {
	put      uint32
	off, len int64 // the piece, in bytes of the value
	state    bufferState
}

// makeBuffers cuts n blocks of the arena, which begin at base, into buffers.
func (l *Log) makeBuffers(base int64, n uint32) {
	size := max(min(int64(n)/2*BlockSize, l.cfg.IOSize, bufferMax), coverBlocks*BlockSize)
	l.bufferBase, l.bufferSize = base, size
	l.buffers = make([]buffer, int64(n)*BlockSize/size)
	for i := range l.buffers {
		l.bufferFree = append(l.bufferFree, uint32(i))
	}
}

// nextCopyLen is the length of the read of a reinsertion that would start next.
func (l *Log) nextCopyLen() int64 {
	p := l.puts.at(l.copyWork.head)
	if p.keyWanted {
		return BlockSize
	}
	if packed(p.rec.size) {
		_, n := cover(p.fromAt, p.rec.size)
		return n
	}
	return min(AlignUp(p.rec.size)-p.issued, l.bufferSize)
}

// bufferMem is where buffer b has its piece.
func (l *Log) bufferMem(b uint32) Mem {
	return Mem{Off: l.bufferBase + int64(b)*l.bufferSize, Len: l.buffers[b].len, Own: true}
}

// startCopy hands out the read of the next piece of a reinsertion.
func (l *Log) startCopy() *IO {
	i := l.copyWork.head
	p := l.puts.at(i)
	if p.keyWanted {
		p.keyWanted, p.keyHead = false, l.takeHead()
		p.flying++
		if !p.issuing() {
			l.copyWork.remove(l.puts.links, i)
		}
		return l.startOp(task{use: useCopyKey, owner: i}, IO{
			Kind: IORead, Mem: l.headMem(p.keyHead), Addr: l.headAddr(p.from, p.fromAt, p.fromHead),
		})
	}
	b := l.bufferFree[len(l.bufferFree)-1]
	l.bufferFree = l.bufferFree[:len(l.bufferFree)-1]
	buf := &l.buffers[b]
	move(bufferMoves, "buffer", &buf.state, bufferReading)
	buf.put, buf.off, buf.len = i, p.issued, l.nextCopyLen()
	from := int64(p.fromAt)*unit + p.issued
	if p.issued += buf.len; packed(p.rec.size) {
		from, _ = cover(p.fromAt, p.rec.size)
		p.issued = AlignUp(p.rec.size)
	}
	p.flying++
	if !p.issuing() {
		l.copyWork.remove(l.puts.links, i)
	}
	return l.startOp(task{use: useCopyRead, owner: b}, IO{
		Kind: IORead, Mem: l.bufferMem(b),
		Addr: Addr{Segment: l.segs[p.from].id, Off: from},
	})
}

// copyable says whether a reinsertion has pieces that can be handed out.
func (l *Log) copyable() bool {
	if l.copyWork.n == 0 {
		return false
	}
	if l.puts.at(l.copyWork.head).keyWanted {
		return len(l.headFree) > 0
	}
	return len(l.bufferFree) > 0
}

// keyRead takes the result of reading the header that has the key of reinsertion i.
func (l *Log) keyRead(i uint32, ok bool) {
	p := l.puts.at(i)
	p.flying--
	var r record
	if ok {
		r, ok = l.listedAt(l.own(l.headMem(p.keyHead)), p.from, p.fromAt, p.fromHead, p.rec.seq)
		ok = ok && l.index.digest(&r.key) == p.digest
	}
	l.headFree = append(l.headFree, p.keyHead)
	p.rec.key = r.key
	l.originRead(i, ok)
}

// copyRead takes the result of reading a piece into buffer b.
func (l *Log) copyRead(b uint32, ok bool) {
	i := l.buffers[b].put
	p := l.puts.at(i)
	if packed(p.rec.size) {
		l.copyPacked(b, ok)
		return
	}
	if ok && p.state == putWriting {
		move(bufferMoves, "buffer", &l.buffers[b].state, bufferWriting)
		l.control.push(task{use: useCopyWrite, owner: b})
		return
	}
	l.freeBuffer(b)
	p.flying--
	l.originRead(i, ok)
}

// originRead goes on with reinsertion i, for which something of the victim was read, or not. What cannot be read goes with that.
func (l *Log) originRead(i uint32, ok bool) {
	p := l.puts.at(i)
	if !ok && p.state == putWriting {
		l.damaged(p.from, p.fromAt, p.rec.size)
		l.drop(i)
		return
	}
	l.putAdvance(i, p.group)
}

// copyPacked takes the result of reading the blocks that cover a packed value into buffer b.
func (l *Log) copyPacked(b uint32, ok bool) {
	i := l.buffers[b].put
	p := l.puts.at(i)
	l.freeBuffer(b)
	if !ok || p.state != putWriting {
		if p.state == putWriting {
			l.damaged(p.from, p.fromAt, p.rec.size)
		}
		l.putCopied(i, false)
		return
	}
	off, _ := cover(p.fromAt, p.rec.size)
	copy(l.own(l.packMem(p.pack, p.packOff, p.rec.size)), l.own(l.bufferMem(b))[int64(p.fromAt)*unit-off:])
	l.packIn(p)
}

// startCopyWrite hands out the write of a buffer.
func (l *Log) startCopyWrite(t task) *IO {
	buf := &l.buffers[t.owner]
	p := l.puts.at(buf.put)
	return l.startOp(t, IO{
		Kind: IOWrite, Mem: l.bufferMem(t.owner),
		Addr: Addr{Segment: l.segs[l.groups[p.group].segment].id, Off: int64(p.rec.at)*unit + buf.off},
	})
}

// copyWritten takes the result of writing a piece.
func (l *Log) copyWritten(b uint32, ok bool) {
	i := l.buffers[b].put
	l.freeBuffer(b)
	l.payloadDone(i, ok)
}

// freeBuffer takes buffer b back.
func (l *Log) freeBuffer(b uint32) {
	move(bufferMoves, "buffer", &l.buffers[b].state, bufferFree)
	l.bufferFree = append(l.bufferFree, b)
}
