package seglog

// groupState is where a group is in its life.
//
//	       open         close             parts done, or early   header's completion
//	free --------> open -----> closed --------------------> header -----------------> free
//	                 |            |                            |                       ^
//	                 |            |                            | values in flight      |
//	                 |            |                            +-------> values -------+
//	                 |            |  (nothing left to list)                 last ended |
//	                 | failed I/O |--------------------------------------------------->|
//	                 +------------+-----> failing --- last I/O ended ------------------+
//
// A group's header block alone makes its values exist, and it has their checksums. As a rule it goes out when the last of them has
// come back. It goes out beside them, early, where nothing depends on that order (Log.early).
type groupState uint8

const (
	groupFree    groupState = iota
	groupOpen               // puts may be appended; it is Log.open
	groupClosed             // waits for its puts' I/Os
	groupHeader             // the header block is being written
	groupValues             // it is written, or was not, and values that it lists are in flight
	groupFailing            // an I/O failed: the header will not be written
)

var groupMoves = moves{
	groupFree:    to(groupOpen),
	groupOpen:    to(groupClosed, groupFailing),
	groupClosed:  to(groupHeader, groupFailing, groupFree),
	groupHeader:  to(groupFree, groupValues),
	groupValues:  to(groupFree),
	groupFailing: to(groupFree),
}

// String names the state.
func (s groupState) String() string {
	names := [...]string{"free", "open", "closed", "header", "values", "failing"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// groupKind says what a group holds.
type groupKind uint8

const (
	groupPuts   groupKind = iota
	groupFences           // tombstones and clears: the header is all of it
	groupProbe            // the same, possibly none: a write that finds out whether the disk works again
)

// groupBytesMax closes a group: a put should not wait long for its neighbours.
const groupBytesMax = 8 << 20

// A group is a run of blocks in a segment, header first, on its way to the disk. Group i writes its header from arena block
// Log.headerMem + i.
type group struct {
	items   [blockRecords]uint32 // puts or fences by index; 0: settled early
	seq     uint64               // the lowest that one of its puts had when it came: of the first
	segment uint32
	block   uint32 // of the header
	length  uint32 // blocks, header included
	count   uint32 // items ever
	live    uint32 // items not settled
	waiting uint32 // puts that are not ready, or dying (of no meaning once it is failing)
	state   groupState
	kind    groupKind
	late    bool // the header waits for the values
	failed  bool // values: the header was not written
}

// openGroup opens a group at the active segment's tail, with room for blocks more and records items behind its header.
func (l *Log) openGroup(kind groupKind, blocks, records uint32) (uint32, bool) {
	if l.open != none {
		panic("l2/seglog: a group is open")
	}
	if len(l.groupFree) == 0 || !l.room(1+blocks, records) {
		return none, false
	}
	i := l.groupFree[len(l.groupFree)-1]
	l.groupFree = l.groupFree[:len(l.groupFree)-1]
	s := &l.segs[l.active]
	g := &l.groups[i]
	*g = group{segment: l.active, block: s.tail, length: 1, kind: kind, state: g.state}
	move(groupMoves, "group", &g.state, groupOpen)
	s.tail++
	s.groups++
	return i, true
}

// appendPut gives put i, the queue's head, its place. False: there is none now.
func (l *Log) appendPut(i uint32) bool {
	p := l.puts.at(i)
	if !l.inGroup(p.rec.size, p.rec.seq) {
		return false
	}
	l.queue.remove(l.puts.links, i)
	l.reserved++
	l.placePut(i)
	return true
}

// inGroup makes sure that a group is open in which a value of this size has room; seq is for a new one. False: there is none now.
func (l *Log) inGroup(size int64, seq uint64) bool {
	if l.open != none {
		n, fresh := blocks(size), false
		if packed(size) {
			n, fresh = l.packGrowth(size)
		}
		if l.fitsActive(n, 1) {
			return !fresh || len(l.packFree) > 0
		}
		l.closeGroup()
	}
	if packed(size) && len(l.packFree) == 0 {
		return false
	}
	g, ok := l.openGroup(groupPuts, blocks(size), 1)
	if !ok {
		return false
	}
	l.open = g
	l.groups[g].seq = seq
	return true
}

// placePut gives put i its place in the open group, which has room for it.
func (l *Log) placePut(i uint32) {
	p := l.puts.at(i)
	g := &l.groups[l.open]
	s := &l.segs[g.segment]
	move(putMoves, "put", &p.state, putWriting)
	p.group, p.slot = l.open, uint8(g.count)
	n := uint32(0)
	switch {
	case p.rec.size == 0:
		p.rec.at = g.block * blockUnits // of no meaning but that it is not 0
	case packed(p.rec.size):
		n = l.placePacked(i, s.tail)
	default:
		l.sealPack()
		n = blocks(p.rec.size)
		p.rec.at = s.tail * blockUnits
	}
	p.rec.head = uint16(p.rec.at/blockUnits - g.block)
	g.items[g.count] = i
	g.count++
	g.live++
	g.length += n
	s.tail += n
	s.planned++
	g.late = g.late || p.copied || packed(p.rec.size)
	if !p.ready() {
		g.waiting++
		l.workOf(p).push(l.puts.links, i)
	}
	if g.count == blockRecords || int64(g.length)*BlockSize > groupBytesMax {
		l.closeGroup()
	}
}

// closeGroup closes the open group, if there is one.
func (l *Log) closeGroup() {
	if l.open == none {
		return
	}
	l.sealPack()
	i := l.open
	l.open = none
	move(groupMoves, "group", &l.groups[i].state, groupClosed)
	l.advance(i)
}

// advance does what group i is ripe for.
func (l *Log) advance(i uint32) {
	g := &l.groups[i]
	switch g.state {
	case groupClosed:
		if g.waiting == 0 || l.early(g) {
			l.list(i)
		}
	case groupFailing, groupValues:
		if g.live == 0 {
			l.releaseGroup(i)
		}
	case groupFree, groupOpen, groupHeader:
	}
}

// early says whether the header of group g, which is closed, may go out beside its values. If the process dies before they are
// written it lists what is not there, which the checksums tell: a read finds nothing. So all of them have to be known, and there
// must be nothing that the record of such a value would hide, neither a record of its key nor one on its way.
func (l *Log) early(g *group) bool {
	if g.kind != groupPuts || g.late {
		return false
	}
	for _, it := range g.items[:g.count] {
		if p := l.puts.at(it); it != 0 && (p.state != putWriting || p.sum != sumDone) {
			return false
		}
	}
	for _, it := range g.items[:g.count] {
		if it != 0 && !l.alone(it) {
			g.late = true
			return false
		}
	}
	return true
}

// alone says whether neither the index nor another put has the key of put i.
func (l *Log) alone(i uint32) bool {
	p := l.puts.at(i)
	if e := l.index.find(p.digest); e != 0 && !l.index.entries[e].ghost() {
		return false
	}
	for k := l.putKeys.first(p.hash); k != 0; k = l.putKeys.after(k) {
		if k != i && l.puts.at(k).digest == p.digest && l.puts.at(k).state != putQueued && l.puts.at(k).state != putDropped {
			return false
		}
	}
	return true
}

// list queues the header of group i, all of whose parts are on disk, or go there beside it. Puts that died meanwhile are not in it.
func (l *Log) list(i uint32) {
	g := &l.groups[i]
	if g.kind == groupPuts && g.live == 0 {
		l.releaseGroup(i)
		return
	}
	p := l.headerBlock(i)
	h := blockHead{magic: groupMagic, position: g.block, length: g.length}
	for _, it := range g.items[:g.count] {
		if it == 0 {
			continue
		}
		if g.kind == groupPuts {
			pu := l.puts.at(it)
			move(putMoves, "put", &pu.state, putListed)
			rec := pu.rec // in the footer it is as good as the others
			rec.early = rec.early || !pu.ready()
			putRecord(p, int(h.count), &rec)
		} else {
			putRecord(p, int(h.count), &l.fences.at(it).rec)
		}
		h.count++
	}
	sealBlock(p, &h, &l.segs[g.segment].life)
	move(groupMoves, "group", &g.state, groupHeader)
	l.control.push(task{use: useHeader, owner: i})
}

// headerBlock is the arena block that group i writes its header from.
func (l *Log) headerBlock(i uint32) []byte { return l.cfg.Arena[l.headerMem(i).Off:][:BlockSize] }

func (l *Log) headerMem(i uint32) Mem {
	return Mem{Off: int64(l.headers+i) * BlockSize, Len: BlockSize, Own: true}
}

// failGroup gives up group i, if it is not given up already, because one of its values could not be written.
func (l *Log) failGroup(i uint32) {
	g := &l.groups[i]
	if g.state == groupFailing {
		return
	}
	if g.state == groupHeader || g.state == groupValues {
		panic("l2/seglog: a group fails whose header is out")
	}
	if l.open == i {
		l.sealPack()
		l.open = none
	}
	move(groupMoves, "group", &g.state, groupFailing)
	for _, pi := range g.items[:g.count] {
		if pi != 0 && l.puts.at(pi).state == putWriting {
			l.kill(pi, ResultIO)
		}
	}
	l.advance(i)
}

// headerDone takes the result of writing group i's header.
func (l *Log) headerDone(i uint32, ok bool) {
	g := &l.groups[i]
	s := &l.segs[g.segment]
	if ok {
		s.failures = 0
	}
	kind, segment := g.kind, g.segment
	if g.waiting > 0 {
		move(groupMoves, "group", &g.state, groupValues)
		g.failed = !ok
	}
	for slot := range g.count {
		it := g.items[slot]
		switch {
		case it == 0:
		case g.kind != groupPuts:
			l.fenceListed(it, segment, ok)
			g.live--
		case l.puts.at(it).ready():
			l.putListed(it, segment, ok && !l.puts.at(it).failed)
			g.items[slot] = 0
			g.live--
		case !ok:
			l.forsake(it, i)
		}
	}
	if g.live == 0 {
		l.releaseGroup(i)
	}
	switch {
	case !ok:
		l.fail(segment)
	case kind == groupProbe:
		l.heal()
	}
}

// forsake hands out no more I/Os for put i of group gi, which a header lists. It ends without success, with the last of those in flight.
func (l *Log) forsake(i, gi uint32) {
	p := l.puts.at(i)
	p.failed = true
	if !p.issuing() {
		return
	}
	l.work.remove(l.puts.links, i)
	p.issued = AlignUp(p.rec.size)
	l.listedAdvance(i, gi)
}

// listedAdvance looks at put i of group gi, which a header lists, after one of its I/Os has ended, or is not to be handed out any more.
func (l *Log) listedAdvance(i, gi uint32) {
	p, g := l.puts.at(i), &l.groups[gi]
	if !p.ready() {
		return
	}
	g.waiting--
	if g.state != groupValues {
		return // it ends with the header
	}
	g.items[p.slot] = 0
	g.live--
	l.putListed(i, g.segment, !g.failed && !p.failed)
}

// putListed ends put i, whose group's header was written, or may have been.
func (l *Log) putListed(i, segment uint32, ok bool) {
	p := l.puts.at(i)
	if ok {
		s := &l.segs[segment]
		s.log = append(s.log, p.rec)
		s.values += units(p.rec.size)
		if p.rec.early {
			l.copiedEarly(segment, &p.rec)
		}
	}
	e := l.index.find(p.digest)
	stale := p.state == putOvertaken || l.covered(&p.rec) || e != 0 && l.index.entries[e].seq > p.rec.seq ||
		e == 0 && p.copied // it went while it was being reinserted
	res := ResultOK
	switch {
	case !ok:
		// The header may be on the disk all the same. A ghost remembers that, so that a delete writes a tombstone.
		p.rec.at = 0
		res = ResultIO
	case stale:
		res = ResultSuperseded
	case p.copied && l.index.entries[e].ghost():
		p.rec.at = 0 // it was found to be bad meanwhile, and is no better here
		res = ResultIO
	}
	switch {
	case stale:
	case e != 0:
		l.index.replace(e, &p.rec, segment)
	default:
		l.index.insert(p.digest, &p.rec, segment)
	}
	l.putEnded(p, res)
	l.freePut(i)
}

// releaseGroup frees group i, none of whose items is live.
func (l *Log) releaseGroup(i uint32) {
	g := &l.groups[i]
	if g.live != 0 {
		panic("l2/seglog: released group has live items")
	}
	move(groupMoves, "group", &g.state, groupFree)
	l.groupFree = append(l.groupFree, i)
	l.segs[g.segment].groups--
	if l.fenceWaiting.n > 0 {
		l.wakeClears()
	}
}

// lowestPut is the lowest sequence of the puts not yet ended, or the next sequence.
func (l *Log) lowestPut() uint64 {
	low := l.lowestFlyingPut()
	if h := l.queue.head; h != 0 {
		low = min(low, l.puts.at(h).rec.seq)
	}
	return low
}

// lowestFlyingPut is the same for puts that have a place.
func (l *Log) lowestFlyingPut() uint64 {
	low := l.seq
	for i := range l.groups {
		if g := &l.groups[i]; g.state != groupFree && g.kind == groupPuts {
			low = min(low, g.seq)
		}
	}
	return low
}
