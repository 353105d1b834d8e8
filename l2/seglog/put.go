package seglog

import "github.com/zeebo/xxh3"

// putState is where a put is in its life.
//
//	        Put            append             header goes out, maybe early
//	free -----> queued ----------> writing ------------------> listed
//	 ^            |                   | delete, clear,            | delete
//	 |            | delete            | failed I/O                v
//	 |            v                   v                       overtaken
//	 +------- dropped <--      -- dying                           |
//	 +-- (each of the three right, when its last I/O has ended) --+
//
// A reinsertion (reinsert.go) is a put that begins as writing. The header of its group lists a put that is listed or overtaken, and never one that is dying.
type putState uint8

const (
	putFree      putState = iota
	putQueued             // in Log.queue
	putDropped            // in Log.queue, its outcome given
	putWriting            // in a group; value and checksum under way, or done
	putDying              // in a group; nothing more goes out for it, it ends with its last I/O
	putListed             // in a group whose header is being written
	putOvertaken          // the same, but it must not become visible
)

var putMoves = moves{
	putFree:      to(putQueued, putWriting),
	putQueued:    to(putDropped, putWriting, putFree),
	putDropped:   to(putFree),
	putWriting:   to(putDying, putListed),
	putDying:     to(putFree),
	putListed:    to(putOvertaken, putFree),
	putOvertaken: to(putFree),
}

// String names the state.
func (s putState) String() string {
	names := [...]string{"free", "queued", "dropped", "writing", "dying", "listed", "overtaken"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// sumState is how far a value's checksum is.
type sumState uint8

const (
	sumWanted sumState = iota
	sumFlying
	sumDone
)

// A put is a value on its way to the disk.
type put struct {
	rec    record // its sequence is given by Put, its block by append
	src    Mem
	digest digest
	hash   uint64 // of the digest
	tok    Token
	issued int64 // bytes of src handed out for writing, up to AlignUp(rec.size)
	flying int32 // I/Os handed out and not done
	group  uint32
	slot   uint8 // its place in the group
	state  putState
	sum    sumState
	result Result // of one that is dying
	// A reinsertion: nobody waits for it, and its value comes from place fromAt of segment from by way of Log.buffers.
	copied       bool
	keyWanted    bool // its key is to be read from the group's header in the victim, into head buffer keyHead
	keyHead      uint32
	fromHead     uint16
	from, fromAt uint32
	// Its place in a pack.
	pack     uint32
	packOff  int64
	failed   bool // it is listed, and its value could not be written
	packLeft bool // it is still to be copied into the pack
	packWait bool // it is in the pack, which is not written: that counts as an I/O in flight
}

// issuing says that I/Os are still to be handed out.
func (p *put) issuing() bool {
	return p.keyWanted || p.sum == sumWanted && !packed(p.rec.size) || p.issued < AlignUp(p.rec.size)
}

// ready says that value and checksum are done.
func (p *put) ready() bool { return !p.issuing() && p.flying == 0 }

// Put queues a record of the size bytes at src. src is aligned to BlockSize, AlignUp(size) long at least (what lies behind
// size is written too, and means nothing), and stays untouched until the OutcomePut. False, and no outcome: the queue is full,
// the value too large ([Log.Fits]), or the log not in [StateOK].
func (l *Log) Put(k *Key, src Mem, size int64, tok Token) bool {
	return l.enqueue(k, src, size, 0, sumWanted, tok)
}

// PutSummed is Put for a value whose xxh3-64 is known.
func (l *Log) PutSummed(k *Key, src Mem, size int64, sum uint64, tok Token) bool {
	return l.enqueue(k, src, size, sum, sumDone, tok)
}

// Fits says whether a value of size bytes can be stored at all.
func (l *Log) Fits(size int64) bool {
	// The first block, a group header, the value, a footer block and the trailer.
	return size >= 0 && AlignUp(size) <= l.cfg.SegmentSize-4*BlockSize
}

func (l *Log) enqueue(k *Key, src Mem, size int64, sum uint64, known sumState, tok Token) bool {
	if l.phase != phaseOpen || l.health != healthOK || !l.Fits(size) || l.puts.used()-l.copies >= l.cfg.MaxQueue {
		return false
	}
	checkMem("put", src, size)
	if size == 0 {
		sum, known = emptySum, sumDone
	}
	i := l.puts.take()
	p := l.puts.at(i)
	p.rec = record{key: *k, seq: l.nextSeq(), sum: sum, size: size, kind: recordPut}
	p.src, p.tok, p.sum, p.digest = src, tok, known, l.index.digest(k)
	p.hash = l.index.hash(p.digest)
	move(putMoves, "put", &p.state, putQueued)
	l.putKeys.add(p.hash, i)
	l.queue.push(l.puts.links, i)
	l.pump()
	return true
}

// emptySum is the checksum of no bytes.
var emptySum = xxh3.Hash(nil)

// checkMem panics on memory that the disk cannot be written from or read into.
func checkMem(what string, m Mem, size int64) {
	if m.Own || m.Off < 0 || m.Off%BlockSize != 0 || m.Len < AlignUp(size) {
		panic("l2/seglog: " + what + ": memory is unaligned or too short")
	}
}

// pump gives queued puts their place, in order, as far as groups, segments and the index allow.
func (l *Log) pump() {
	for l.queue.n > 0 {
		i := l.queue.head
		p := l.puts.at(i)
		switch {
		case p.state == putDropped:
		case l.health != healthOK:
			l.outcome(p.tok, OutcomePut, ResultIO)
			l.stats.PutErrors++
		case l.covered(&p.rec):
			l.outcome(p.tok, OutcomePut, ResultSuperseded)
			l.stats.Superseded++
		case l.index.used()+l.reserved >= l.cfg.MaxEntries:
			l.starved = true
			return
		case l.kept(p.rec.size):
			return
		default:
			if !l.appendPut(i) {
				return
			}
			continue
		}
		l.queue.remove(l.puts.links, i)
		l.freePut(i)
	}
}

// freePut ends put i, whose outcome was given.
func (l *Log) freePut(i uint32) {
	p := l.puts.at(i)
	if p.copied {
		l.endCopy(p)
	}
	move(putMoves, "put", &p.state, putFree)
	l.putKeys.remove(p.hash, i)
	hash := p.hash
	l.puts.give(i)
	if l.fenceWaiting.n > 0 {
		l.wakeFences(hash)
	}
}

// kill stops a put that is writing: nothing more goes out for it, and its group's header will not list it. The caller
// advances the group afterwards.
func (l *Log) kill(i uint32, res Result) {
	p := l.puts.at(i)
	if p.issuing() {
		l.workOf(p).remove(l.puts.links, i)
		if p.packLeft && p.issued == 0 {
			l.packLost(p)
		}
	}
	if p.ready() {
		l.groups[p.group].waiting++ // until it is settled, like one that was not
	}
	move(putMoves, "put", &p.state, putDying)
	p.result = res
	l.settle(i)
}

// settle ends a dying put once none of its I/Os is in flight: only then may its memory be used again.
func (l *Log) settle(i uint32) {
	p := l.puts.at(i)
	if p.flying > 0 {
		return
	}
	g := &l.groups[p.group]
	g.items[p.slot] = 0
	g.live--
	g.waiting--
	l.putEnded(p, p.result)
	l.freePut(i)
}

// putEnded gives the outcome of a put that had a place.
func (l *Log) putEnded(p *put, res Result) {
	switch {
	case p.copied:
		if res == ResultOK {
			l.stats.Reinserted++
			l.stats.ReinsertedBytes += uint64(p.rec.size)
		}
		return
	case res == ResultOK:
		l.stats.Puts++
		l.stats.PutBytes += uint64(p.rec.size)
	case res == ResultSuperseded:
		l.stats.Superseded++
	default:
		l.stats.PutErrors++
	}
	l.reserved--
	l.outcome(p.tok, OutcomePut, res)
}

// workOf is the list of those that have I/Os to hand out as p has.
func (l *Log) workOf(p *put) *list {
	if p.copied {
		return &l.copyWork
	}
	return &l.work
}

// payloadDone takes the result of writing a piece of put i's value.
func (l *Log) payloadDone(i uint32, ok bool) {
	p := l.puts.at(i)
	p.flying--
	g := p.group
	if !ok {
		segment := l.groups[g].segment
		if p.state == putListed || p.state == putOvertaken {
			p.failed = true // what was handed out of it was all, or is soon
		} else { // What this block holds now is unknown, and a header that lists it would be a lie.
			l.failGroup(g)
		}
		l.fail(segment)
	}
	l.putAdvance(i, g)
}

// putSumDone takes the checksum of put i's value.
func (l *Log) putSumDone(i uint32, sum uint64, ok bool) {
	p := l.puts.at(i)
	p.flying--
	g := p.group
	p.sum, p.rec.sum = sumDone, sum
	if !ok && p.state == putWriting {
		l.drop(i) // the memory could not be read: this value's trouble, not the disk's
		return
	}
	l.putAdvance(i, g)
}

// drop gives up put i, which is writing and one of whose I/Os has just failed, and nothing else of its group.
func (l *Log) drop(i uint32) {
	p := l.puts.at(i)
	g := p.group
	if p.ready() {
		l.groups[g].waiting-- // as kill expects of one that is ready
	}
	l.kill(i, ResultIO)
	l.advance(g)
}

// putAdvance looks at put i of group g after one of its I/Os has ended. Failing the group may have ended it.
func (l *Log) putAdvance(i, g uint32) {
	p := l.puts.at(i)
	switch p.state {
	case putWriting:
		if p.ready() {
			l.groups[g].waiting--
		}
	case putDying:
		l.settle(i)
	case putListed, putOvertaken:
		l.listedAdvance(i, g)
	case putFree, putQueued, putDropped:
		return
	}
	l.advance(g)
}
