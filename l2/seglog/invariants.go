package seglog

import (
	"fmt"
	"time"
)

// CheckInvariants walks everything the log holds, the whole index included, and reports the first contradiction.
func (l *Log) CheckInvariants() error {
	for _, check := range []func() error{
		l.checkIndex, l.checkSegments, l.checkPuts, l.checkGroups, l.checkFences, l.checkReads, l.checkOps, l.checkStalled,
		l.checkCopies, l.checkPacks,
	} {
		if err := check(); err != nil {
			return fmt.Errorf("l2/seglog: %w", err)
		}
	}
	return nil
}

func (l *Log) checkIndex() error {
	x := &l.index
	used, ghosts, bytes := 0, 0, int64(0)
	for i := uint32(1); i < x.high; i++ {
		e := &x.entries[i]
		if !e.used() {
			continue
		}
		used++
		if x.find(e.digest) != i {
			return fmt.Errorf("index: entry %d is not found by its key", i)
		}
		if e.seq >= l.seq {
			return fmt.Errorf("index: entry %d has sequence %d, the next is %d", i, e.seq, l.seq)
		}
		if e.ghost() {
			ghosts++
			continue
		}
		bytes += e.size()
		if int64(e.at)*unit+e.size() > l.cfg.SegmentSize {
			return fmt.Errorf("index: entry %d ends beyond its segment", i)
		}
	}
	if used != x.used() || ghosts != x.ghosts || bytes != x.bytes || used+l.reserved > x.limit {
		return fmt.Errorf("index: %d entries, %d ghosts, %d bytes counted; %d, %d, %d kept; %d reserved of %d",
			used, ghosts, bytes, x.used(), x.ghosts, x.bytes, l.reserved, x.limit)
	}
	spaces := uint32(0)
	for _, i := range x.spaceOf {
		spaces += x.spaces[i].entries
	}
	if int(spaces) != used || len(x.spaceOf)+len(x.spaceFree)+1 != len(x.spaces) {
		return fmt.Errorf("index: %d entries are in %d namespaces of %d", spaces, len(x.spaceOf), len(x.spaces)-1)
	}
	listed, counts, sums := 0, make([]uint32, len(x.heads)), make([]heats, len(x.heads))
	for s, i := range x.heads {
		for prev := uint32(0); i != 0; prev, i = i, x.entries[i].next {
			e := &x.entries[i]
			if !e.used() || int(e.segment) != s || e.prev != prev {
				return fmt.Errorf("index: entry %d is listed under segment %d wrongly", i, s)
			}
			if !e.ghost() {
				sums[s][e.heat()] += int64(units(e.size()))
			}
			counts[s]++
			listed++
		}
		if counts[s] != x.counts[s] || sums[s] != x.heats[s] {
			return fmt.Errorf("index: segment %d: %d entries and units %v counted, %d and %v kept", s, counts[s], sums[s], x.counts[s], x.heats[s])
		}
	}
	if w := x.walk; w != 0 && (!x.entries[w].used() || uint32(x.entries[w].segment) != l.evicting) {
		return fmt.Errorf("index: the eviction stands at entry %d, which is not in its segment", w)
	}
	if listed != used {
		return fmt.Errorf("index: %d of %d entries are listed by segment", listed, used)
	}
	return nil
}

func (l *Log) checkSegments() error {
	stale, bytes := 0, int64(0)
	groups, readers := make([]uint32, len(l.segs)), make([]uint32, len(l.segs))
	for i := range l.groups {
		if g := &l.groups[i]; g.state != groupFree {
			groups[g.segment]++
		}
	}
	for i := 1; i < len(l.reads.items); i++ {
		if r := &l.reads.items[i]; r.state != readFree {
			readers[r.segment]++
		}
	}
	for i := 1; i < len(l.puts.items); i++ {
		if p := &l.puts.items[i]; p.copied && p.state != putFree {
			readers[p.from]++
		}
	}
	for i := range l.segs {
		s := &l.segs[i]
		bytes += s.bytes
		if s.stale {
			stale++
		}
		if s.groups != groups[i] || s.readers != readers[i] {
			return fmt.Errorf("segment %d: %d groups and %d readers kept, %d and %d counted", i, s.groups, s.readers, groups[i], readers[i])
		}
		if err := l.checkSegment(uint32(i)); err != nil {
			return fmt.Errorf("segment %d (%v): %w", i, s.state, err)
		}
	}
	if stale != l.stale || bytes != l.diskBytes {
		return fmt.Errorf("segments: %d stale and %d bytes counted, %d and %d kept", stale, bytes, l.stale, l.diskBytes)
	}
	return nil
}

// checkSegment checks what the segment's state says of it.
func (l *Log) checkSegment(i uint32) error {
	s := &l.segs[i]
	idle, entries := s.groups == 0 && s.readers == 0, l.index.heads[i] != 0
	switch s.state {
	case segmentAbsent, segmentAlien, segmentFree:
		if !idle || entries || l.spare == i || l.evicting == i {
			return fmt.Errorf("in use")
		}
		if s.state == segmentAbsent && (s.bytes != 0 || s.stale) {
			return fmt.Errorf("%d bytes, stale %t", s.bytes, s.stale)
		}
	case segmentRemoving, segmentCreating, segmentPreparing, segmentSyncing, segmentReady:
		if !idle || entries || l.spare != i || s.state == segmentReady && s.stale {
			return fmt.Errorf("in use, or not the spare")
		}
	case segmentActive:
		if l.active != i || s.stale || !l.fitsActive(0, 0) {
			return fmt.Errorf("not the active one, stale or too full")
		}
	case segmentSealing, segmentSealed:
	case segmentFooting, segmentTrailing, segmentSettling:
		if l.footing != i || s.groups != 0 {
			return fmt.Errorf("not the one being sealed")
		}
	case segmentEvicting, segmentDraining:
		if l.evicting != i || s.groups != 0 || !s.stale || s.state == segmentDraining && (entries || s.readers == 0) {
			return fmt.Errorf("not the one being evicted, or drained")
		}
	}
	for k := 1; k < len(s.early); k++ {
		if s.early[k-1] >= s.early[k] {
			return fmt.Errorf("early values out of order: %d", s.early)
		}
	}
	if uint32(len(s.log)) > s.planned {
		return fmt.Errorf("%d records in the log, %d planned", len(s.log), s.planned)
	}
	return nil
}

func (l *Log) checkPuts() error {
	var queued, writing, issuing, keyed, copies, copying int
	for i := 1; i < len(l.puts.items); i++ {
		p := &l.puts.items[i]
		if p.state != putFree {
			keyed++
		}
		switch p.state {
		case putFree:
		case putQueued, putDropped:
			queued++
		case putWriting, putDying, putListed, putOvertaken:
			if p.copied {
				copies++
			} else {
				writing++
			}
			g := &l.groups[p.group]
			if g.state == groupFree || g.kind != groupPuts || g.items[p.slot] != uint32(i) {
				return fmt.Errorf("put %d (%v) is not in its group", i, p.state)
			}
			listed := p.state == putListed || p.state == putOvertaken
			if listed != (g.state == groupHeader || g.state == groupValues) || g.state == groupValues && p.ready() || p.state == putDying && p.flying == 0 {
				return fmt.Errorf("put %d (%v, %d I/Os) in a group %v", i, p.state, p.flying, g.state)
			}
			switch {
			case p.state == putDying || !p.issuing():
			case p.copied:
				copying++
			default:
				issuing++
			}
		}
	}
	if copies != l.copies || copying != l.copyWork.n {
		return fmt.Errorf("puts: %d reinsertions, %d issuing counted; %d, %d kept", copies, copying, l.copies, l.copyWork.n)
	}
	if queued != l.queue.n || issuing != l.work.n || writing != l.reserved || keyed != l.puts.used() {
		return fmt.Errorf("puts: %d queued, %d issuing, %d writing, %d in all counted; %d, %d, %d, %d kept",
			queued, issuing, writing, keyed, l.queue.n, l.work.n, l.reserved, l.puts.used())
	}
	return nil
}

func (l *Log) checkGroups() error {
	free := 0
	for i := range l.groups {
		g := &l.groups[i]
		if g.state == groupFree {
			free++
			continue
		}
		live, waiting := uint32(0), uint32(0)
		for _, it := range g.items[:g.count] {
			if it == 0 {
				continue
			}
			live++
			if p := l.puts.items; g.kind == groupPuts && (p[it].state == putDying || !p[it].ready()) {
				waiting++
			}
		}
		if live != g.live || g.state != groupFailing && waiting != g.waiting {
			return fmt.Errorf("group %d (%v): %d live and %d waiting counted, %d and %d kept", i, g.state, live, waiting, g.live, g.waiting)
		}
		if (g.state == groupOpen) != (l.open == uint32(i)) || g.block+g.length > l.segs[g.segment].tail {
			return fmt.Errorf("group %d (%v): open is %d, blocks [%d, +%d)", i, g.state, l.open, g.block, g.length)
		}
		if g.state == groupClosed && (waiting == 0 || l.early(g)) || (g.state == groupFailing || g.state == groupValues) && live == 0 {
			return fmt.Errorf("group %d (%v) was left behind", i, g.state)
		}
	}
	if free != len(l.groupFree) {
		return fmt.Errorf("groups: %d free counted, %d kept", free, len(l.groupFree))
	}
	return nil
}

func (l *Log) checkFences() error {
	var by [fenceSyncing + 1]int
	owed, clears, acked := 0, 0, 0
	for i := 1; i < len(l.fences.items); i++ {
		f := &l.fences.items[i]
		by[f.state]++
		if f.ack != 0 {
			acked++
		}
		unwritten := f.state == fenceQueued || f.state == fenceWriting
		if f.owed {
			owed++
			if !unwritten {
				return fmt.Errorf("fence %d (%v) is owed", i, f.state)
			}
		}
		if unwritten && f.rec.kind != recordTombstone {
			clears++
		}
		if f.state == fenceQueued && f.ack != 0 && l.health != healthOK {
			return fmt.Errorf("fence %d is unanswered while the disk is away", i)
		}
		if (f.state == fenceUnsynced || f.state == fenceSyncing || f.state == fenceFree) && f.ack != 0 {
			return fmt.Errorf("fence %d (%v) is unanswered", i, f.state)
		}
	}
	if by[fenceQueued] != l.fenceQueue.n || by[fenceWriting] != l.fencesWriting || by[fenceWaiting] != l.fenceWaiting.n ||
		by[fenceUnsynced] != l.fenceUnsynced.n || by[fenceSyncing] != l.fenceSyncing.n || owed != l.owed || clears != l.clearsUnwritten {
		return fmt.Errorf("fences: %v counted, %d owed, %d clears; %d owed, %d clears kept", by, owed, clears, l.owed, l.clearsUnwritten)
	}
	left := 0
	for i := 1; i < len(l.acks.items); i++ {
		left += int(l.acks.items[i].left)
	}
	if left != acked {
		return fmt.Errorf("fences: %d hold an ack, acks say %d", acked, left)
	}
	return nil
}

func (l *Log) checkReads() error {
	var work, sums, used int
	for i := 1; i < len(l.reads.items); i++ {
		r := &l.reads.items[i]
		if r.state != readFree {
			used++
		}
		switch r.state {
		case readFree, readChecking:
		case readReading:
			if r.issuing() {
				work++
			} else if r.flying == 0 {
				return fmt.Errorf("read %d was left behind", i)
			}
		case readFailing:
			if r.flying == 0 {
				return fmt.Errorf("failed read %d was left behind", i)
			}
		case readSumming:
			sums++
		}
	}
	if work != l.readWork.n || sums != l.readSums.n || used != l.reads.used() {
		return fmt.Errorf("reads: %d to read, %d to verify, %d in all counted; %d, %d, %d kept",
			work, sums, used, l.readWork.n, l.readSums.n, l.reads.used())
	}
	return nil
}

func (l *Log) checkOps() error {
	var loads, stores load
	busy, asked := 0, 0
	for i := range l.control.n {
		if l.control.at(i).use == useSpace {
			asked++
		}
	}
	for i := range l.ops {
		o := &l.ops[i]
		if !o.busy {
			continue
		}
		busy++
		if o.task.use == useSpace {
			asked++
		}
		side := &stores
		if o.io.Load {
			side = &loads
		}
		side.ops++
		if o.io.Kind == IORead {
			side.reads++
		}
		side.bytes += ioBytes(&o.io)
	}
	if busy+len(l.opFree) != len(l.ops) || loads != l.loads || stores != l.stores {
		return fmt.Errorf("I/Os: %d in flight, %d free of %d; loads %v, kept %v; stores %v, kept %v",
			busy, len(l.opFree), len(l.ops), loads, l.loads, stores, l.stores)
	}
	if asked > 1 || l.asking != (asked == 1) {
		return fmt.Errorf("I/Os: %d ask for the free space, asking %t", asked, l.asking)
	}
	if l.flight.n != busy || l.health == healthStalled && busy == 0 {
		return fmt.Errorf("I/Os: %d in flight counted, %d in order of age, %v", busy, l.flight.n, l.health)
	}
	since := time.Duration(0)
	for i := l.flight.head; i != 0; i = l.opLinks[i].next {
		if o := &l.ops[i-1]; !o.busy || o.since < since {
			return fmt.Errorf("I/O %d (busy %t) is out of the order of age", i, o.busy)
		}
		since = l.ops[i-1].since
	}
	if [BlockSize]byte(l.cfg.Arena) != [BlockSize]byte{} {
		return fmt.Errorf("arena: the zero block is not zero")
	}
	return nil
}
