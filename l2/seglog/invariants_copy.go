package seglog

import "fmt"

func (l *Log) checkCopies() error {
	free := 0
	for i := range l.buffers {
		b := &l.buffers[i]
		if b.state == bufferFree {
			free++
		} else if p := &l.puts.items[b.put]; !p.copied || p.state != putWriting && p.state != putDying || p.flying == 0 {
			return fmt.Errorf("buffer %d (%v) is not of a reinsertion under way", i, b.state)
		}
	}
	if free != len(l.bufferFree) {
		return fmt.Errorf("buffers: %d free counted, %d kept", free, len(l.bufferFree))
	}
	for i := 1; i < len(l.puts.items); i++ {
		p := &l.puts.items[i]
		if !p.copied || p.state == putFree || p.state == putOvertaken || p.state == putDying {
			continue
		}
		if l.evicting != p.from || l.segs[p.from].state != segmentEvicting && l.segs[p.from].state != segmentDraining {
			return fmt.Errorf("reinsertion %d is of segment %d, which is not being evicted", i, p.from)
		}
	}
	return nil
}

// checkPacks checks the memory that packed values pass through.
func (l *Log) checkPacks() error {
	heads := len(l.headFree)
	for i := range l.ops {
		if o := &l.ops[i]; o.busy && o.task.use == useCopyKey {
			heads++
		}
	}
	free, left, waiting := 0, make([]int, len(l.packs)), make([]int, len(l.packs))
	for i := 1; i < len(l.puts.items); i++ {
		p := &l.puts.items[i]
		if p.state != putWriting && p.state != putDying || !packed(p.rec.size) {
			continue
		}
		if p.packWait {
			waiting[p.pack]++
		}
		if p.packLeft {
			left[p.pack]++
		}
	}
	for i := range l.packs {
		pk := &l.packs[i]
		switch {
		case pk.state == packFree:
			free++
		case left[i] != pk.left || waiting[i] != pk.waiting:
			return fmt.Errorf("pack %d (%v): %d to copy and %d waiting counted, %d and %d kept", i, pk.state, left[i], waiting[i], pk.left, pk.waiting)
		case (pk.state == packFilling) != (l.packing == uint32(i)) || pk.state == packFilling && pk.group != l.open:
			return fmt.Errorf("pack %d (%v): the one being filled is %d", i, pk.state, l.packing)
		case pk.state == packClosed && left[i] == 0:
			return fmt.Errorf("pack %d was left behind", i)
		}
	}
	covers := len(l.coverFree)
	for i := 1; i < len(l.reads.items); i++ {
		if r := &l.reads.items[i]; r.state != readFree && r.cover != none {
			covers++
		}
		if r := &l.reads.items[i]; r.state != readFree && r.headBuf != none {
			heads++
		}
	}
	if heads != int(l.heads) {
		return fmt.Errorf("blocks for headers: %d of %d", heads, l.heads)
	}
	if free != len(l.packFree) || covers != int(l.covers) {
		return fmt.Errorf("packs: %d free counted, %d kept; %d covers of %d", free, len(l.packFree), covers, l.covers)
	}
	return nil
}
