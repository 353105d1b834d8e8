package seglog

import "time"

// A use says what an I/O is for.
type use uint8

const (
	useHeader    use = iota + 1 // owner: a group
	useFirst                    // owner of this and all to useRemove: a segment
	useErase                    // the former life's trailer
	useLifeSync                 // the new life begins
	useFooter                   // footer blocks
	useTrailer                  // the trailer
	useSealSync                 // the sealed segment
	useFenceSync                // tombstones and clears
	useOldSync                  // what a former process wrote
	useCreate                   // the file
	useRemove                   // the file
	useSpace                    // owner: nothing
	usePayload                  // owner: a put
	usePutSum                   // owner: a put
	useRead                     // owner: a read
	useReadSum                  // owner: a read
	usePutCopy                  // owner: a put
	usePack                     // owner: a pack
	useReadCopy                 // owner: a read
	useReadHead                 // owner: a read
	useCopyKey                  // owner: a put
	useCopyRead                 // owner: a buffer
	useCopyWrite                // owner: a buffer
)

// A task is an I/O that has no slot yet.
type task struct {
	use   use
	owner uint32
}

// An op is a slot for an I/O that is handed out.
type op struct {
	io         IO
	task       task
	since      time.Duration // handed out, by Log.clock
	generation uint32
	busy       bool
}

// load is what one side, reads or writes, has in flight.
type load struct {
	ops   int
	reads int // of the ops
	bytes int64
}

// NextIO returns the next I/O to start, if one may be started now. The driver calls it until it says no.
func (l *Log) NextIO() (*IO, bool) {
	if len(l.opFree) == 0 {
		return nil, false
	}
	if l.health == healthStalled {
		if l.readSums.n > 0 { // which the disk has no part in
			return l.startRead(), true
		}
		return nil, false
	}
	// Headers, footers and the like are few, and others wait for them.
	if t, ok := l.control.pop(); ok {
		return l.startTask(t), true
	}
	// Loads go before stores, but where both wait neither takes more than three quarters.
	limited := l.limited()
	copies := !limited && l.copyable()
	reads, writes := l.readSums.n > 0 || l.readable(), !limited && l.work.n > 0
	if reads && l.share(&l.loads, l.nextReadLen(), writes || copies) {
		return l.startRead(), true
	}
	// Reinsertions are few, and bounded by their buffers: puts may soon wait for the segment that they leave.
	if copies && l.share(&l.stores, l.nextCopyLen(), true) {
		return l.startCopy(), true
	}
	if writes && l.share(&l.stores, l.nextWriteLen(), true) {
		return l.startWrite(), true
	}
	return nil, false
}

// share says whether one side may start an I/O of n bytes. contended: it must leave a quarter to the other.
func (l *Log) share(side *load, n int64, contended bool) bool {
	if side.ops == 0 || n == 0 && side.ops < l.cfg.MaxInFlight*3/4 {
		return true // progress for either side, whatever the limits
	}
	opsMax, bytesMax := l.cfg.MaxInFlight, l.cfg.MaxInFlightBytes
	if contended {
		opsMax, bytesMax = opsMax*3/4, bytesMax*3/4
	}
	return side.ops < opsMax && side.bytes+n <= bytesMax &&
		l.loads.bytes+l.stores.bytes+n <= l.cfg.MaxInFlightBytes
}

// nextWriteLen is the same for puts.
func (l *Log) nextWriteLen() int64 {
	p := l.puts.at(l.work.head)
	if p.sum == sumWanted || packed(p.rec.size) {
		return 0
	}
	return min(AlignUp(p.rec.size)-p.issued, l.cfg.IOSize)
}

// startWrite hands out the sum of a put's value, or its next piece.
func (l *Log) startWrite() *IO {
	i := l.work.head
	p := l.puts.at(i)
	t := task{use: usePutSum, owner: i}
	io := IO{Kind: IOSum, Mem: Mem{Off: p.src.Off, Len: p.rec.size}}
	switch {
	case packed(p.rec.size):
		t.use = usePutCopy
		io = IO{Kind: IOCopy, From: io.Mem, Mem: l.packMem(p.pack, p.packOff, p.rec.size)}
		p.issued = AlignUp(p.rec.size)
	case p.sum == sumWanted:
		p.sum = sumFlying
	default:
		n := l.nextWriteLen()
		t.use = usePayload
		io = IO{
			Kind: IOWrite, Mem: Mem{Off: p.src.Off + p.issued, Len: n},
			Addr: Addr{Segment: l.segs[l.groups[p.group].segment].id, Off: int64(p.rec.at)*unit + p.issued},
		}
		p.issued += n
	}
	p.flying++
	if !p.issuing() {
		l.work.remove(l.puts.links, i)
	}
	return l.startOp(t, io)
}

// startTask hands out an I/O of the log's own.
func (l *Log) startTask(t task) *IO {
	if t.use == useHeader {
		g := &l.groups[t.owner]
		return l.startOp(t, IO{
			Kind: IOWrite, Mem: l.headerMem(t.owner),
			Addr: Addr{Segment: l.segs[g.segment].id, Off: int64(g.block) * BlockSize},
		})
	}
	if t.use == useCopyWrite {
		return l.startCopyWrite(t)
	}
	if t.use == usePack {
		return l.startPack(t)
	}
	if t.use == useSpace {
		return l.startOp(t, IO{Kind: IOSpace})
	}
	io := IO{Kind: IOWrite, Addr: Addr{Segment: l.segs[t.owner].id}}
	switch t.use {
	case useFirst:
		io.Mem = Mem{Off: int64(l.first) * BlockSize, Len: BlockSize, Own: true}
	case useErase:
		io.Addr.Off = l.cfg.SegmentSize - BlockSize
		io.Mem = Mem{Len: BlockSize, Own: true} // arena block 0 is zero
	case useFooter, useTrailer:
		io.Addr.Off = int64(l.footAt) * BlockSize
		io.Mem = l.footMem
	case useLifeSync, useSealSync, useFenceSync, useOldSync:
		io.Kind = IOSync
	case useCreate:
		io.Kind = IOCreate
		io.Mem.Len = l.cfg.SegmentSize
	case useRemove:
		io.Kind = IORemove
	case useHeader, usePayload, usePutSum, useRead, useReadSum, useCopyRead, useCopyWrite,
		usePutCopy, usePack, useReadCopy, useReadHead, useCopyKey, useSpace:
		panic("l2/seglog: not a segment's task")
	}
	return l.startOp(t, io)
}

// startOp takes a slot for the I/O.
func (l *Log) startOp(t task, io IO) *IO {
	i := l.opFree[len(l.opFree)-1]
	l.opFree = l.opFree[:len(l.opFree)-1]
	o := &l.ops[i]
	o.generation++
	o.busy = true
	o.task = t
	o.since = l.clock
	l.flight.push(l.opLinks, i+1)
	io.ID = uint64(o.generation)<<32 | uint64(i)
	o.io = io
	if io.Kind == IOWrite {
		l.limit.take(io.Mem.Len)
	}
	side := l.side(&io)
	side.ops++
	side.bytes += ioBytes(&io)
	if io.Kind == IORead {
		side.reads++
		if io.Load {
			l.stats.ReadIOs++
			l.stats.ReadDepths += uint64(side.reads)
		}
	}
	return &o.io
}

// side is whose share the I/O counts against.
func (l *Log) side(io *IO) *load {
	if io.Load {
		return &l.loads
	}
	return &l.stores
}

// ioBytes is the length of a read or write.
func ioBytes(io *IO) int64 {
	if io.Kind == IORead || io.Kind == IOWrite {
		return io.Mem.Len
	}
	return 0
}

// wanted is the result of an I/O that succeeds.
func wanted(io *IO) int64 {
	switch io.Kind {
	case IORead, IOWrite, IOSum, IOCopy:
		return io.Mem.Len
	case IOCreate, IOSync, IORemove, IOSpace:
	}
	return 0
}

// Done gives back the result of an I/O: res as [IOKind] says, any other value than the wanted one is an error; sum with IOSum.
// I/Os may end in any order, each once.
func (l *Log) Done(id uint64, res int64, sum uint64) {
	i := uint32(id)
	if int(i) >= len(l.ops) || !l.ops[i].busy || l.ops[i].io.ID != id {
		panic("l2/seglog: completion of an I/O that is not in flight")
	}
	o := &l.ops[i]
	ok := res == wanted(&o.io)
	side := l.side(&o.io)
	side.ops--
	side.bytes -= ioBytes(&o.io)
	if o.io.Kind == IORead {
		side.reads--
	}
	if !ok {
		l.stats.IOErrors++
	} else if o.io.Kind == IOWrite {
		l.stats.WriteBytes += uint64(res)
	}
	o.busy = false
	l.opFree = append(l.opFree, i)
	l.flight.remove(l.opLinks, i+1)
	l.dispatch(o.task, ok, sum)
	l.unstall()
	l.step()
}

// dispatch gives a result to what waits for it.
func (l *Log) dispatch(t task, ok bool, sum uint64) {
	switch t.use {
	case useHeader:
		l.headerDone(t.owner, ok)
	case useFirst, useErase:
		l.lifeWritten(t.owner, ok)
	case useLifeSync:
		l.lifeSynced(t.owner, ok)
	case useFooter, useTrailer:
		l.footerDone(t.owner, ok)
	case useSealSync:
		l.sealSyncDone(t.owner, ok)
	case useFenceSync:
		l.fencesSynced(t.owner, ok)
	case useOldSync:
		l.oldSynced(t.owner, ok)
	case useCreate:
		l.createDone(t.owner, ok)
	case useRemove:
		l.removeDone(t.owner, ok)
	case useSpace:
		l.freeTold()
	case usePayload:
		l.payloadDone(t.owner, ok)
	case usePutSum:
		l.putSumDone(t.owner, sum, ok)
	case useCopyKey:
		l.keyRead(t.owner, ok)
	case useRead, useReadHead:
		l.readDone(t.owner, ok)
	case useReadSum:
		l.readSumDone(t.owner, sum, ok)
	case usePutCopy:
		l.putCopied(t.owner, ok)
	case usePack:
		l.packWritten(t.owner, ok)
	case useReadCopy:
		l.readCopied(t.owner, ok)
	case useCopyRead:
		l.copyRead(t.owner, ok)
	case useCopyWrite:
		l.copyWritten(t.owner, ok)
	}
}
