package engine

import (
	"slices"
	"time"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// A lookupWait is what a lookup or retrieval needs to answer once its loads have ended.
type lookupWait struct {
	req     request
	mode    proto.LookupMode
	options proto.LookupOptions
	all     bool   // a retrieval of all keys or none
	group   uint32 // keys that count together
	keys    uint32 // of the request
	waiting uint32 // entries whose loads have not ended
	capped  bool   // cut by the instance's cap
	over    bool   // cut by it, though the instance had nothing else
	short   bool   // cut by want of memory for a load
}

// An acquisition is one lookup or retrieval by keys, as it is carried out.
type acquisition struct {
	c      *conn
	inst   uint32
	layout layout
	keys   []proto.Key
	kind   transferKind
	wait   lookupWait
	until  time.Duration // when it has to be answered; now or earlier: it does not wait
	slots  bool          // the reply tells where the slots are
	from   *origins
}

// origins are where the keys of a lookup were when it came, or when it came to them: it may be tried again when
// what it had read from disk is in memory. However often it is tried it uses each object once.
type origins struct {
	disk   [proto.MaxKeys / 64]uint64
	known  int  // leading keys that are settled
	spared bool // what comes behind the first load was made the most recently used
}

// note says whether the key at pos was on disk only. Now it is, or is not.
func (o *origins) note(pos int, disk bool) bool {
	word, bit := &o.disk[pos/64], uint64(1)<<(pos%64)
	if pos >= o.known {
		o.known = pos + 1
		if disk {
			*word |= bit
		}
	}
	return *word&bit != 0
}

// wholeGroups leaves off the keys behind the last whole group, which cannot count.
func wholeGroups(keys []proto.Key, m proto.LookupMode, group uint32) []proto.Key {
	if m == proto.ModePrefix {
		return keys[:len(keys)-len(keys)%int(group)]
	}
	return keys
}

// onLookup says how much of a request is there; it may also hold it and read it from disk.
func (e *Engine) onLookup(c *conn, r *request, body []byte) {
	in := &e.in.lookup
	if proto.ParseLookup(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	l, ok := c.layoutOf(in.Layout)
	if !ok {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	e.counters.Lookups++
	e.counters.LookupKeys += uint64(len(in.Keys))
	n := e.countersOf(e.liveInstance(c))
	n.Lookups++
	n.LookupKeys += uint64(len(in.Keys))
	if in.Options&(proto.LookupHold|proto.LookupLoad) == 0 {
		e.count(c, l, r, in)
		return
	}
	a := e.lookupAcquisition(c, r, l, in)
	e.acquireOrPark(&a, body)
}

func (e *Engine) lookupAcquisition(c *conn, r *request, l layout, in *proto.Lookup) acquisition {
	return acquisition{
		c: c, inst: e.liveInstance(c), layout: l, keys: in.Keys, kind: kindLease,
		wait: lookupWait{
			req: *r, mode: in.Mode, options: in.Options,
			group: uint32(in.Group), keys: uint32(len(in.Keys)),
		},
		until: e.now + time.Duration(in.WaitMs)*time.Millisecond,
		slots: in.Options&proto.LookupSlots != 0 && !c.inline,
	}
}

// count answers a lookup that neither holds nor loads.
func (e *Engine) count(c *conn, l layout, r *request, in *proto.Lookup) {
	out := &e.rep.lookup
	resetLookup(out, in.Mode, len(in.Keys))
	key := e.keyIn(e.liveInstance(c), l)
	var disk, memory, memoryAt, diskAt uint32
	e.refs = e.refs[:0]
	keys := wholeGroups(in.Keys, in.Mode, uint32(in.Group))
	for i := range keys {
		w := i % windowKeys
		if w == 0 {
			e.look(&key, keys[i:], true)
		}
		ref := e.window.refs[w]
		switch st := e.table.State(ref); {
		case st == table.StateReady:
			memory++
			e.refs = append(e.refs, ref)
		case st == table.StateLoading && !e.stalled(), e.window.disk[w]:
			disk++
		case in.Mode == proto.ModeAny:
			continue
		default:
			goto end
		}
		if in.Mode == proto.ModeAny {
			out.Bitmap[i/8] |= 1 << (i % 8)
		}
		if in.Mode == proto.ModeAny || (i+1)%int(in.Group) == 0 {
			memoryAt, diskAt = memory, disk
		}
	}
end:
	slices.Reverse(e.refs) // tail first: a prefix's tail is to go before its head
	e.useLater(in.Mode == proto.ModeAny)
	out.FromMemory, out.FromDisk = memoryAt, diskAt
	out.Hits = memoryAt + diskAt
	e.countHits(e.liveInstance(c), out)
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendLookupReply(e.out, out)
	e.send(r)
}

func (e *Engine) countHits(x uint32, out *proto.LookupReply) {
	e.counters.HitsMemory += uint64(out.FromMemory)
	e.counters.HitsDisk += uint64(out.FromDisk)
	n := e.countersOf(x)
	n.HitsMemory += uint64(out.FromMemory)
	n.HitsDisk += uint64(out.FromDisk)
}

// resetLookup empties a reply for a request of n keys.
func resetLookup(out *proto.LookupReply, m proto.LookupMode, n int) {
	out.Hits, out.FromMemory, out.FromDisk, out.Lease = 0, 0, 0, 0
	out.Slots = out.Slots[:0]
	out.Bitmap = out.Bitmap[:0]
	if m == proto.ModeAny {
		for range (n + 7) / 8 {
			out.Bitmap = append(out.Bitmap, 0)
		}
	}
}

// acquireOrPark carries out a lookup or retrieval, or has it wait, holding nothing, for
// memory that its loads need and that spills under way will free.
func (e *Engine) acquireOrPark(a *acquisition, body []byte) {
	t := e.beginTransfer(a.inst, a.kind)
	if t == none {
		e.refuse(&a.wait.req, proto.StatusBusy)
		return
	}
	e.origins = origins{}
	a.from = &e.origins
	if short := e.acquire(t, a, patience{wait: a.until > e.now, behind: true, load: true}); short > 0 {
		had := e.handBack(t)
		if n := e.park(&a.wait.req, a.inst, none, a.layout, a.until, body); n != none {
			e.parked[n].from = e.origins
			e.mustFree(n, had, short)
			e.endTransfer(t)
			return
		}
		e.acquire(t, a, patience{turned: true})
	}
	e.acquired(t, a)
}

// acquired goes on with a transfer whose entries are all there.
func (e *Engine) acquired(t uint32, a *acquisition) {
	p := &e.transfers[t]
	w := p.wait.waiting
	p.wait = a.wait
	p.wait.waiting = w
	p.inline = a.c.inline || a.wait.req.flags&proto.FlagInline != 0
	p.slotsTold = a.slots && !p.inline
	if w == 0 || a.until <= e.now {
		if w > 0 || p.count%p.wait.group != 0 { // else all are held, and nothing has come between
			e.dropUnready(t)
		}
		e.answerLookup(t)
		return
	}
	p.moveTo(transferLoading)
	e.timers.set(t, a.until)
}

// acquire adds an entry for each key that is there, in the order of the keys: held when
// it is in memory, waiting when it is being loaded. Loads take their memory here, leading
// keys first; where none can be had the answer is cut, so that nothing is ever held while
// waiting for memory. It returns 0, or how many bytes are short for a load when pa has the
// request wait for them.
func (e *Engine) acquire(t uint32, a *acquisition, pa patience) int64 {
	defer e.useFew()
	e.settleUses()
	e.uses.apart = true // they come the head first here, so that each stands for itself
	p := &e.transfers[t]
	p.wait.waiting = 0
	key := table.Key{Namespace: p.space, Layout: a.layout.id}
	keys := wholeGroups(a.keys, a.wait.mode, a.wait.group)
	for from := 0; from < len(keys); from += windowKeys {
		n := min(len(keys)-from, windowKeys)
		e.look(&key, keys[from:], a.wait.options&proto.LookupLoad != 0)
		for i := e.holdRun(t, a, from, 0, n); i < n; i += 1 + e.holdRun(t, a, from, i+1, n) {
			key.Hash = keys[from+i]
			short, ok := e.acquireOne(t, a, &key, keys, from+i, pa)
			if short > 0 {
				return short
			}
			if !ok && a.wait.mode == proto.ModePrefix {
				return 0
			}
		}
	}
	return 0
}

// holdRun adds entries for those of the window's keys, from the i-th on and before the n-th, that are in memory and surely may be
// held: up to the first of which that is not so. It returns how many. The window's first key is the request's from-th.
func (e *Engine) holdRun(t uint32, a *acquisition, from, i, n int) int {
	if n = min(n, i+e.surely(a.inst)); n <= i || from+i < a.from.known {
		return 0
	}
	w := &e.window
	n = e.table.HoldAll(w.refs[i:n], w.sizes[:], e.surelyBytes(a.inst))
	if n == 0 {
		return 0
	}
	e.addHeld(t, w.refs[i:i+n], w.sizes[:n], uint32(from+i))
	if !a.from.spared { // touchTail has used what is behind the first load
		e.uses.refs = append(e.uses.refs, w.refs[i:i+n]...)
	}
	a.from.known = from + i + n
	return n
}

// acquireOne adds an entry for the key at pos, which key is, if it is there and may be held. It returns
// what [Engine.acquire] does, and whether it did.
func (e *Engine) acquireOne(t uint32, a *acquisition, key *table.Key, keys []proto.Key, pos int, pa patience) (short int64, ok bool) {
	p := &e.transfers[t]
	i := &e.insts[a.inst]
	loads := a.wait.options&proto.LookupLoad != 0
	ref, st, ok := e.find(pos%windowKeys, key)
	switch {
	case !ok && loads:
		if !a.from.spared { // a load must not evict what comes behind it in this request
			e.settleUses()
			e.touchTail(*key, keys[pos+1:])
			a.from.spared = true
		}
		e.settleUses() // nor what has come
		var refused int64
		if ref, short, refused = e.startLoad(key, a.inst, pa); short > 0 && e.mustWait(pa, short) {
			return short, false
		}
		ok = ref != 0
		a.wait.short = a.wait.short || short > 0
		a.wait.capped = a.wait.capped || refused > 0 || short > 0 && pa.turned
		a.wait.over = a.wait.over || refused > 0 && e.overCap(p, refused)
	case ok && st == table.StateLoading:
		ok = loads && !e.stalled()
	case ok && st == table.StateStaged:
		ok = false
	}
	if ok {
		size := e.table.Extent(ref).Len
		ok = e.mayOwn(i, size)
		a.wait.capped = a.wait.capped || !ok
		a.wait.over = a.wait.over || !ok && e.overCap(p, size)
	}
	if !ok {
		return 0, false
	}
	if e.table.State(ref) == table.StateReady {
		n := e.addEntry(t, ref, entryHeld, uint32(pos))
		if pos >= a.from.known && !a.from.spared {
			e.uses.refs = append(e.uses.refs, ref)
		}
		e.entries[n].fromDisk = a.from.note(pos, false)
		return 0, true
	}
	n := e.addEntry(t, ref, entryWaiting, uint32(pos))
	e.entries[n].fromDisk = a.from.note(pos, true)
	e.waitFor(n)
	p.wait.waiting++
	return 0, true
}

// touchTail uses those of the keys that are in memory, the last first. Each stands for itself. It returns which they are, zero for
// those that are not there, until it is called again.
func (e *Engine) touchTail(key table.Key, keys []proto.Key) []table.Ref {
	refs := e.tail[:len(keys)]
	table.FindAll(e.table, key, keys, refs)
	slices.Reverse(refs)
	for i, ref := range refs {
		if i%table.Batch == 0 {
			e.table.Ahead(refs, i)
		}
		if ref != 0 {
			e.table.Chain()
			e.touch(ref)
		}
	}
	slices.Reverse(refs)
	return refs
}

const (
	// loadsATurn bounds the loads that are begun between two flushes, each of which may
	// evict: a request for thousands of keys on disk must not hold up the others for
	// milliseconds. It goes on with the next flush.
	loadsATurn = 128
	// loadsMost bounds them for requests that do not wait, and so get no second chance.
	loadsMost = 512
)

// startLoad begins to read an object from disk for instance x, if it is there; else ref is 0. short
// is its size, 1 at least, when it is there and cannot be loaded now: there is no memory for it,
// others wait for what there is, or enough loads were begun. refused is the same when x may not hold it.
func (e *Engine) startLoad(k *table.Key, x uint32, pa patience) (ref table.Ref, short, refused int64) {
	if e.log == nil || e.stopping {
		return 0, 0, 0
	}
	d, ok := e.diskKey(k)
	if !ok {
		return 0, 0, 0
	}
	size, ok := e.log.Find(&d)
	if !ok {
		return 0, 0, 0
	}
	if !e.mayOwn(&e.insts[x], size) { // what cannot be held is not read, and nothing evicted for it
		return 0, 0, max(size, 1)
	}
	e.loadDue = e.now + loadTime
	if e.awaited(pa) {
		return 0, max(size, 1), 0
	}
	if e.loadsBegun >= loadsATurn && (pa.wait || e.loadsBegun >= loadsMost) {
		e.evicting, e.memoryFreed = true, true
		return 0, max(size, 1), 0
	}
	o := e.newOp(opLoad)
	if o == none {
		return 0, max(size, 1), 0 // too many loads at once
	}
	e.loadsBegun++
	ref, ext, got := e.place(k, size, table.StateLoading, pa)
	if got != table.Staged {
		e.endOp(e.opID(o), opLoad)
		if got == table.NoSpace || got == table.Again {
			return 0, max(size, 1), 0
		}
		return 0, 0, 0
	}
	e.ops[o].ref, e.ops[o].size = ref, size
	mem := seglog.Mem{Off: ext.Off, Len: seglog.AlignUp(size)}
	if !e.log.ReadFor(uint8(x%seglog.ReadClasses), &d, mem, seglog.Token(e.opID(o))) {
		e.endOp(e.opID(o), opLoad)
		e.table.LoadFailed(ref)
		return 0, 0, 0
	}
	e.counters.Loads++
	return ref, 0, 0
}

// loadEnded makes an object ready whose bytes are there and verified, or frees it, and
// tells those who wait for it.
func (e *Engine) loadEnded(o op, res seglog.Result) {
	n := e.waiters(o.ref)
	ok := false
	if res == seglog.ResultOK {
		e.table.Chain() // loads end in any order
		ok = e.table.Loaded(o.ref)
		e.counters.LoadedBytes += uint64(o.size)
	} else {
		e.table.LoadFailed(o.ref)
		e.counters.LoadsFailed++
	}
	e.memoryFreed = true
	e.tellWaiters(n, ok)
}

// waiters takes the list of those who wait for an object's load.
func (e *Engine) waiters(ref table.Ref) uint32 {
	n := none
	if d := e.table.Data(ref); d != 0 {
		n = d - 1
	}
	e.table.SetData(ref, 0)
	return n
}

// tellWaiters tells a list of waiters, from n on, that their object is there, or will not be in time.
func (e *Engine) tellWaiters(n uint32, ok bool) {
	for n != none {
		q := &e.entries[n]
		next := q.waitNext
		q.waitNext, q.waitPrev = none, none
		if ok {
			q.moveTo(entryHeld)
		} else {
			q.moveTo(entryFailed)
		}
		p := &e.transfers[q.transfer]
		p.wait.waiting--
		if p.wait.waiting == 0 && p.state == transferLoading {
			e.finishLookup(q.transfer)
		}
		n = next
	}
}

// waitFor puts entry n on the list of those who wait for its object's load.
func (e *Engine) waitFor(n uint32) {
	q := &e.entries[n]
	q.waitPrev, q.waitNext = none, none
	if head := e.table.Data(q.ref); head != 0 {
		q.waitNext = head - 1
		e.entries[head-1].waitPrev = n
	}
	e.table.SetData(q.ref, n+1)
}

// unwait takes entry n off that list.
func (e *Engine) unwait(n uint32) {
	q := &e.entries[n]
	if q.waitPrev != none {
		e.entries[q.waitPrev].waitNext = q.waitNext
	} else {
		next := uint32(0)
		if q.waitNext != none {
			next = q.waitNext + 1
		}
		e.table.SetData(q.ref, next)
	}
	if q.waitNext != none {
		e.entries[q.waitNext].waitPrev = q.waitPrev
	}
	q.waitPrev, q.waitNext = none, none
	e.transfers[q.transfer].wait.waiting--
}
