package seglog

import "github.com/zeebo/xxh3"

// readState is where a read is in its life.
//
//	                  +---- another sum, once: all but the header again -----+
//	                  v                                                      |
//	free --Read--> reading --all pieces in--> summing --sum handed out--> checking --> free
//	 ^                | failed I/O                                           ^
//	 +---- failing <--+  (waits for the other pieces)                        |
//	                                                          the sum's completion
//
// The header of its group is read with the value, and must say that it is that of the key. A packed value is read into memory of the log's own and verified there, which may end it; then its copy is handed out in the
// place of the sum.
type readState uint8

const (
	readFree     readState = iota
	readReading            // pieces are to be handed out (then in Log.readWork) or in flight
	readFailing            // a piece failed; others are in flight
	readSumming            // in Log.readSums
	readChecking           // its checksum is being computed
)

var readMoves = moves{
	readFree:     to(readReading),
	readReading:  to(readFailing, readSumming, readFree),
	readFailing:  to(readFree),
	readSumming:  to(readChecking),
	readChecking: to(readFree, readReading),
}

// String names the state.
func (s readState) String() string {
	names := [...]string{"free", "reading", "failing", "summing", "checking"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// A read is a value on its way from the disk. It holds its segment, which is not reused before it ends.
type read struct {
	key      Key
	seq      uint64 // of the record found: another one is another value
	sum      uint64
	dst      Mem
	tok      Token
	size     int64
	issued   int64 // bytes handed out, up to AlignUp(size)
	flying   int32
	segment  uint32
	at       uint32 // in units
	fromHead uint16
	headBuf  uint32 // where its group's header comes; none: that is not asked for
	cover    uint32 // of a packed value that is being read: its memory; else none
	state    readState
	class    uint8
	spared   bool // it fails for no fault of its record
	again    bool // it is read once more, because what came did not have the record's checksum
}

// issuing says that reads are still to be handed out.
func (r *read) issuing() bool { return r.headBuf == none || r.issued < AlignUp(r.size) }

// visible returns the key's entry if it may be seen, or 0.
func (l *Log) visible(k *Key) uint32 {
	i := l.index.find(l.index.digest(k))
	if i == 0 {
		return 0
	}
	if e := &l.index.entries[i]; e.ghost() || l.coveredEntry(e) {
		return 0
	}
	return i
}

// Find says whether the key's record is on disk, and its value's size in bytes.
func (l *Log) Find(k *Key) (size int64, ok bool) {
	if l.owed > 0 || l.health == healthStalled {
		return 0, false
	}
	i := l.visible(k)
	if i == 0 {
		return 0, false
	}
	return l.index.entries[i].size(), true
}

// findBatch is how many keys FindAll takes at a time.
const findBatch = 32

// FindAll is Find for many keys, without the sizes: found[i] becomes whether the record of keys[i] is on disk. It takes a fraction
// of the time where the index is larger than the processor's caches: it goes along the buckets of several keys in steps, in each of
// which no key waits for what another one's brings from memory.
func (l *Log) FindAll(keys []Key, found []bool) {
	clear(found[:len(keys)])
	if l.owed > 0 || l.health == healthStalled {
		return
	}
	for len(keys) > findBatch {
		l.findSome(keys[:findBatch], found[:findBatch])
		keys, found = keys[findBatch:], found[findBatch:]
	}
	l.findSome(keys, found)
}

func (l *Log) findSome(keys []Key, found []bool) {
	x := &l.index
	var ds [findBatch]digest
	var at [findBatch]uint32   // where a key's search is
	var open [findBatch]uint32 // keys whose search goes on
	for i := range keys {
		ds[i] = x.digest(&keys[i])
	}
	for i := range keys {
		at[i] = x.keys.first(x.hash(ds[i]))
		open[i] = uint32(i)
	}
	for n := len(keys); n > 0; {
		var sum uint64
		for _, i := range open[:n] { // entry 0 is none, and there
			e := at[i]
			sum |= x.entries[e].seq | uint64(x.keys.next[e])
		}
		l.fetched = sum
		left := 0
		for _, i := range open[:n] {
			e := &x.entries[at[i]]
			switch {
			case at[i] == 0:
			case e.digest == ds[i]:
				found[i] = !e.ghost() && !l.coveredEntry(e)
			default:
				at[i] = x.keys.after(at[i])
				open[left] = i
				left++
			}
		}
		n = left
	}
}

// Read reads the key's value into dst, which is aligned to BlockSize and AlignUp(size) long at least, and is the log's until
// the OutcomeRead. False, and no outcome: the key is not visible, or the log is closing.
func (l *Log) Read(k *Key, dst Mem, tok Token) bool { return l.ReadFor(0, k, dst, tok) }

// ReadFor is Read for a class of readers, one below ReadClasses: classes take turns.
func (l *Log) ReadFor(class uint8, k *Key, dst Mem, tok Token) bool {
	if l.owed > 0 || l.phase != phaseOpen || l.health == healthStalled {
		return false
	}
	ei := l.visible(k)
	if ei == 0 {
		return false
	}
	e := &l.index.entries[ei]
	checkMem("read", dst, e.size())
	l.index.touch(ei)
	i := l.reads.take()
	r := l.reads.at(i)
	*r = read{
		key: *k, seq: e.seq, sum: e.sum, dst: dst, tok: tok, size: e.size(), segment: uint32(e.segment), at: e.at,
		fromHead: e.head, headBuf: none, cover: none, class: class,
	}
	move(readMoves, "read", &r.state, readReading)
	l.segs[r.segment].readers++
	l.readWork.push(&l.reads, i)
	return true
}

// readDone takes the result of reading a piece of read i.
func (l *Log) readDone(i uint32, ok bool) {
	r := l.reads.at(i)
	r.flying--
	if !ok && r.state == readReading {
		if r.issuing() {
			l.readWork.remove(&l.reads, i)
		}
		move(readMoves, "read", &r.state, readFailing)
	}
	if r.flying > 0 {
		return
	}
	switch r.state {
	case readFailing:
		if !r.spared {
			l.badRecord(r)
		}
		l.endRead(i, ResultIO)
	case readReading:
		if !r.issuing() {
			l.readIn(i)
		}
	case readFree, readSumming, readChecking:
		panic("l2/seglog: read completes in state " + r.state.String())
	}
}

// readIn looks at read i, all of which is in.
func (l *Log) readIn(i uint32) {
	r := l.reads.at(i)
	rec, ok := l.listedAt(l.own(l.headMem(r.headBuf)), r.segment, r.at, r.fromHead, r.seq)
	switch {
	case ok && rec.key != r.key: // another one that has the same digest
		l.endRead(i, ResultMiss)
	case !ok, packed(r.size) && xxh3.Hash(l.coverValue(r)) != r.sum, r.size == 0 && r.sum != emptySum:
		l.badRecord(r)
		l.endRead(i, ResultMiss)
	default:
		move(readMoves, "read", &r.state, readSumming)
		if r.size > 0 {
			l.readSums.push(l.reads.links, i)
			return
		}
		move(readMoves, "read", &r.state, readChecking)
		l.readSumDone(i, r.sum, true)
	}
}

// listedAt looks for the record of a put in block p, which is its group's header.
func (l *Log) listedAt(p []byte, segment, at uint32, head uint16, seq uint64) (record, bool) {
	block := at/blockUnits - uint32(head)
	h, err := parseBlock(p, groupMagic, &l.segs[segment].life, block)
	if err != nil {
		return record{}, false
	}
	for i := range int(h.count) {
		r, err := parseRecord(p, i, block, block+h.length)
		if err == nil && r.kind == recordPut && r.seq == seq && r.at == at {
			return r, true
		}
	}
	return record{}, false
}

// takeHead takes a block for a header that is read.
func (l *Log) takeHead() uint32 {
	h := l.headFree[len(l.headFree)-1]
	l.headFree = l.headFree[:len(l.headFree)-1]
	return h
}

// headMem is where block h for a header is.
func (l *Log) headMem(h uint32) Mem {
	return Mem{Off: l.headBase + int64(h)*BlockSize, Len: BlockSize, Own: true}
}

// headAddr is where the header of the group is that has a value at place at.
func (l *Log) headAddr(segment, at uint32, head uint16) Addr {
	return Addr{Segment: l.segs[segment].id, Off: (int64(at/blockUnits) - int64(head)) * BlockSize}
}

// nextReadLen is the length of the read that would start next, or 0 for a sum or copy.
func (l *Log) nextReadLen() int64 {
	if l.readSums.n > 0 {
		return 0
	}
	r := l.reads.at(l.readWork.head())
	if r.headBuf == none {
		return BlockSize
	}
	if packed(r.size) {
		_, n := cover(r.at, r.size)
		return n
	}
	return min(AlignUp(r.size)-r.issued, l.cfg.IOSize)
}

// readSumDone takes the checksum of what read i read.
func (l *Log) readSumDone(i uint32, sum uint64, ok bool) {
	r := l.reads.at(i)
	switch {
	case !ok: // the memory could not be read: no fault of the record
		l.endRead(i, ResultIO)
	case sum != r.sum && !r.again && l.health != healthStalled && l.unchanged(r):
		l.readAgain(i)
	case sum != r.sum && !r.again && l.health == healthStalled: // it cannot be read once more, and may be whole
		l.endRead(i, ResultIO)
	case sum != r.sum:
		l.badRecord(r)
		l.endRead(i, ResultMiss)
	case l.owed > 0 || !l.unchanged(r):
		l.endRead(i, ResultMiss)
	default:
		if r.again {
			l.stats.Rereads++
		}
		l.stats.ReadBytes += uint64(r.size)
		l.isWhole(r.segment, r.at)
		l.endRead(i, ResultOK)
	}
}

// readAgain reads the value of read i once more, into the memory that it was read to: that is others' too, who may have
// exchanged its pages while the disk wrote to the former ones. Its record would go for that.
func (l *Log) readAgain(i uint32) {
	r := l.reads.at(i)
	move(readMoves, "read", &r.state, readReading)
	r.again, r.issued = true, 0
	l.readWork.push(&l.reads, i)
}

// readCopied takes the result of copying what read i read to where it is wanted.
func (l *Log) readCopied(i uint32, ok bool) {
	l.readSumDone(i, l.reads.at(i).sum, ok)
}

// readable says whether a read has pieces that can be handed out.
func (l *Log) readable() bool {
	if l.readWork.n == 0 {
		return false
	}
	r := l.reads.at(l.readWork.head())
	if r.headBuf == none {
		return len(l.headFree) > 0
	}
	return !packed(r.size) || len(l.coverFree) > 0
}

// coverMem is where n bytes of cover c are.
func (l *Log) coverMem(c uint32, n int64) Mem {
	return Mem{Off: l.coverBase + int64(c)*coverBlocks*BlockSize, Len: n, Own: true}
}

// coverValue is the packed value in r's cover.
func (l *Log) coverValue(r *read) []byte { return l.own(l.coverFrom(r)) }

// coverFrom is where it is.
func (l *Log) coverFrom(r *read) Mem {
	off, n := cover(r.at, r.size)
	m := l.coverMem(r.cover, n)
	m.Off += int64(r.at)*unit - off
	m.Len = r.size
	return m
}

// startRead hands out a read's next piece, or its sum or copy.
func (l *Log) startRead() *IO {
	if i := l.readSums.head; i != 0 {
		l.readSums.remove(l.reads.links, i)
		r := l.reads.at(i)
		move(readMoves, "read", &r.state, readChecking)
		if packed(r.size) {
			return l.startOp(task{use: useReadCopy, owner: i}, IO{
				Kind: IOCopy, From: l.coverFrom(r), Mem: Mem{Off: r.dst.Off, Len: r.size}, Load: true,
			})
		}
		return l.startOp(task{use: useReadSum, owner: i}, IO{
			Kind: IOSum, Mem: Mem{Off: r.dst.Off, Len: r.size}, Load: true,
		})
	}
	i := l.readWork.head()
	r := l.reads.at(i)
	n := l.nextReadLen()
	l.readWork.pass()
	if r.headBuf == none {
		r.headBuf = l.takeHead()
		r.flying++
		if !r.issuing() {
			l.readWork.remove(&l.reads, i)
		}
		return l.startOp(task{use: useReadHead, owner: i}, IO{
			Kind: IORead, Load: true, Mem: l.headMem(r.headBuf), Addr: l.headAddr(r.segment, r.at, r.fromHead),
		})
	}
	io := IO{
		Kind: IORead, Load: true, Again: r.again, Mem: Mem{Off: r.dst.Off + r.issued, Len: n},
		Addr: Addr{Segment: l.segs[r.segment].id, Off: int64(r.at)*unit + r.issued},
	}
	r.issued += n
	if packed(r.size) {
		r.cover = l.coverFree[len(l.coverFree)-1]
		l.coverFree = l.coverFree[:len(l.coverFree)-1]
		io.Mem = l.coverMem(r.cover, n)
		io.Addr.Off, _ = cover(r.at, r.size)
		r.issued = AlignUp(r.size)
	}
	r.flying++
	if !r.issuing() {
		l.readWork.remove(&l.reads, i)
	}
	return l.startOp(task{use: useRead, owner: i}, io)
}

// unchanged says that the record read is still the one that counts.
func (l *Log) unchanged(r *read) bool {
	e := l.visible(&r.key)
	return e != 0 && l.index.entries[e].seq == r.seq
}

// badRecord makes the record invisible for good, unless it was replaced meanwhile.
func (l *Log) badRecord(r *read) {
	l.damaged(r.segment, r.at, r.size)
	if e := l.index.find(l.index.digest(&r.key)); e != 0 && l.index.entries[e].seq == r.seq {
		l.index.bury(e)
	}
}

// endRead ends read i, none of whose I/Os is in flight.
func (l *Log) endRead(i uint32, res Result) {
	r := l.reads.at(i)
	if r.headBuf != none {
		l.headFree = append(l.headFree, r.headBuf)
	}
	if r.cover != none {
		l.coverFree = append(l.coverFree, r.cover)
	}
	move(readMoves, "read", &r.state, readFree)
	if res == ResultOK {
		l.stats.Reads++
	} else {
		l.stats.ReadMisses++
	}
	l.outcome(r.tok, OutcomeRead, res)
	segment := r.segment
	l.reads.give(i)
	l.segs[segment].readers--
	l.drained(segment)
}
