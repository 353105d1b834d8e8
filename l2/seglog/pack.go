package seglog

import "github.com/zeebo/xxh3"

// Values below PackMax share blocks: they lie one behind the other, at multiples of unit. They are copied into memory of the
// log's own and written from there, many at a time; read back, the blocks that cover one come into such memory, too.
const (
	// PackMax is the size in bytes from which on a value has blocks of its own.
	PackMax = 32 << 10
	unit    = 64 // bytes
	// blockUnits are the units of a block.
	blockUnits = BlockSize / unit
	// coverBlocks is the most blocks that cover a packed value.
	coverBlocks = PackMax/BlockSize + 1
	// packBlocks is the length of a pack.
	packBlocks = 16
)

// packed says whether a value of this size shares its blocks.
func packed(size int64) bool { return size > 0 && size < PackMax }

// units is the number of units that a value takes.
func units(size int64) uint32 {
	if packed(size) {
		return uint32((size + unit - 1) / unit)
	}
	return blocks(size) * blockUnits
}

// cover returns the range of whole blocks that a packed value lies in, in bytes from the segment's start.
func cover(at uint32, size int64) (off, n int64) {
	from := int64(at) * unit
	off = from &^ (BlockSize - 1)
	return off, AlignUp(from+size) - off
}

// packState is where a pack is in its life.
//
//	free --> filling --group closes, or full--> closed --all copied in--> writing --> free
//	                                              |                                    ^
//	                                              +--- nobody waits for it ------------+
type packState uint8

const (
	packFree    packState = iota
	packFilling           // values are placed in it; it is Log.packing
	packClosed            // waits for values to be copied in
	packWriting           // all is in and on its way to the disk
)

var packMoves = moves{
	packFree:    to(packFilling),
	packFilling: to(packClosed),
	packClosed:  to(packWriting, packFree),
	packWriting: to(packFree),
}

// String names the state.
func (s packState) String() string {
	names := [...]string{"free", "filling", "closed", "writing"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// A pack is the image of some blocks of a group that hold packed values. It is a part of the arena, packBlocks long.
type pack struct {
	group   uint32
	block   uint32 // where it begins, in blocks from the segment's start
	used    int64  // bytes
	left    int    // values that are to be copied in
	waiting int    // values in it whose puts wait for the write
	state   packState
}

// makePacks cuts the arena from base on into n packs and, behind them, m covers.
func (l *Log) makePacks(base int64, n, m uint32) {
	l.packBase = base
	l.packs = make([]pack, n)
	for i := range n {
		l.packFree = append(l.packFree, i)
	}
	l.coverBase = base + int64(n)*packBlocks*BlockSize
	for i := range m {
		l.coverFree = append(l.coverFree, i)
	}
	l.covers = m
}

// packMem is where size bytes at off in pack b are.
func (l *Log) packMem(b uint32, off, size int64) Mem {
	return Mem{Off: l.packBase + int64(b)*packBlocks*BlockSize + off, Len: size, Own: true}
}

// own returns memory of the log's own.
func (l *Log) own(m Mem) []byte { return l.cfg.Arena[m.Off:][:m.Len] }

// packGrowth says how many blocks a packed value adds to the open group, and whether it needs a new pack.
func (l *Log) packGrowth(size int64) (n uint32, fresh bool) {
	if l.packing == none {
		return blocks(size), true
	}
	pk := &l.packs[l.packing]
	end := packEnd(pk, size)
	if end > packBlocks*BlockSize {
		return blocks(size), true
	}
	return blocks(end) - blocks(pk.used), false
}

// packEnd is where a value would end in pk.
func packEnd(pk *pack, size int64) int64 { return (pk.used+unit-1)&^(unit-1) + size }

// placePacked gives put i its place in the open group's pack, and returns by how many blocks that has grown. There is room.
func (l *Log) placePacked(i, tail uint32) uint32 {
	p := l.puts.at(i)
	n, fresh := l.packGrowth(p.rec.size)
	if fresh {
		l.sealPack()
		b := l.packFree[len(l.packFree)-1]
		l.packFree = l.packFree[:len(l.packFree)-1]
		move(packMoves, "pack", &l.packs[b].state, packFilling)
		l.packs[b] = pack{group: l.open, block: tail, state: packFilling}
		l.packing = b
	}
	pk := &l.packs[l.packing]
	end := packEnd(pk, p.rec.size)
	p.pack, p.packOff = l.packing, end-p.rec.size
	p.rec.at = pk.block*blockUnits + uint32(p.packOff/unit)
	clear(l.own(l.packMem(l.packing, pk.used, p.packOff-pk.used)))
	pk.used = end
	pk.left++
	p.packLeft = true
	return n
}

// sealPack ends the filling of the open group's pack, if it has one.
func (l *Log) sealPack() {
	if l.packing == none {
		return
	}
	b := l.packing
	l.packing = none
	move(packMoves, "pack", &l.packs[b].state, packClosed)
	l.packAdvance(b)
}

// packAdvance writes pack b if all is in it, or frees it if nobody waits or the disk is stalled.
func (l *Log) packAdvance(b uint32) {
	pk := &l.packs[b]
	if pk.state != packClosed || pk.left > 0 {
		return
	}
	if pk.waiting == 0 {
		l.freePack(b)
		return
	}
	if l.health == healthStalled {
		l.packWritten(b, false)
		return
	}
	clear(l.own(l.packMem(b, pk.used, AlignUp(pk.used)-pk.used)))
	move(packMoves, "pack", &pk.state, packWriting)
	l.control.push(task{use: usePack, owner: b})
}

func (l *Log) freePack(b uint32) {
	move(packMoves, "pack", &l.packs[b].state, packFree)
	l.packFree = append(l.packFree, b)
}

// packLost notes that put p's value will not be copied into its pack.
func (l *Log) packLost(p *put) {
	p.packLeft = false
	l.packs[p.pack].left--
	l.packAdvance(p.pack)
}

// packIn notes that the value of put p, which has an I/O in flight until its pack is written, is in its pack.
func (l *Log) packIn(p *put) {
	if p.sum == sumWanted {
		p.rec.sum, p.sum = xxh3.Hash(l.own(l.packMem(p.pack, p.packOff, p.rec.size))), sumDone
	}
	p.packLeft, p.packWait = false, true
	pk := &l.packs[p.pack]
	pk.waiting++
	pk.left--
	l.packAdvance(p.pack)
}

// putCopied takes the result of copying put i's value into its pack.
func (l *Log) putCopied(i uint32, ok bool) {
	p := l.puts.at(i)
	if ok && p.state == putWriting {
		l.packIn(p)
		return
	}
	p.flying--
	l.packLost(p)
	if p.state == putWriting {
		l.drop(i) // the memory could not be read: this value's trouble, not the disk's
		return
	}
	l.putAdvance(i, p.group)
}

// startPack hands out the write of a pack.
func (l *Log) startPack(t task) *IO {
	pk := &l.packs[t.owner]
	return l.startOp(t, IO{
		Kind: IOWrite, Mem: l.packMem(t.owner, 0, AlignUp(pk.used)),
		Addr: Addr{Segment: l.segs[l.groups[pk.group].segment].id, Off: int64(pk.block) * BlockSize},
	})
}

// packWritten takes the result of writing pack b.
func (l *Log) packWritten(b uint32, ok bool) {
	gi := l.packs[b].group
	g := &l.groups[gi]
	var waited [blockRecords]uint32
	n := 0
	for _, it := range g.items[:g.count] {
		if it == 0 {
			continue
		}
		if p := l.puts.at(it); p.packWait && p.pack == b {
			p.packWait = false
			p.flying--
			waited[n] = it
			n++
		}
	}
	l.freePack(b)
	if !ok {
		segment := g.segment
		l.failGroup(gi)
		l.fail(segment)
	}
	for _, it := range waited[:n] {
		l.putAdvance(it, gi)
	}
}
