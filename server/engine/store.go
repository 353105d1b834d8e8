package engine

import (
	"time"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// onPrepareStore reserves slots for the keys that are not there yet. It answers at once,
// unless memory is short, the requester waits, and work under way will free some.
func (e *Engine) onPrepareStore(c *conn, r *request, body []byte) {
	x := e.liveInstance(c)
	in := &e.in.prepare
	if proto.ParsePrepareStore(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	l, t := e.beginStore(c, r, x, in.Layout)
	if t == none {
		return
	}
	e.transfers[t].inline = c.inline || r.flags&proto.FlagInline != 0
	out := &e.rep.prepare
	out.Results = out.Results[:0]
	until := e.now + time.Duration(in.WaitMs)*time.Millisecond
	if short := e.reserve(t, l, in, out, patience{wait: in.WaitMs > 0, behind: true}); short > 0 {
		n := e.park(r, x, t, l, until, body)
		if n != none {
			e.parked[n].results = append(e.parked[n].results[:0], out.Results...)
			e.mustFree(n, 0, short)
			return
		}
		e.reserve(t, l, in, out, patience{turned: true})
	}
	e.granted(r, t, out)
}

// beginStore begins the transfer of a store of instance x, or refuses the request.
func (e *Engine) beginStore(c *conn, r *request, x uint32, index uint16) (layout, uint32) {
	l, st := e.layoutToChange(c, x, index)
	if st != proto.StatusOK {
		e.refuse(r, st)
		return l, none
	}
	t := e.beginTransfer(x, kindStore)
	if t == none {
		e.refuse(r, proto.StatusBusy)
	}
	return l, t
}

// reserve goes on with a prepare from the first key that has no result. It returns 0, or
// how many bytes are short for one when pa has it wait for them.
func (e *Engine) reserve(t uint32, l layout, in *proto.PrepareStore, out *proto.PrepareStoreReply, pa patience) int64 {
	p := &e.transfers[t]
	first := len(out.Results)
	var refs []table.Ref
	if pa.behind { // it is new: who stores what exists has computed it, so that it was in demand, and what is new must not evict it
		refs = e.touchTail(table.Key{Namespace: p.space, Layout: l.id}, in.Keys)
	}
	for i := first; i < len(in.Keys); i++ {
		res := proto.StoreResult{}
		size := int64(min(in.Sizes[i], 1<<62))
		key := table.Key{Namespace: p.space, Layout: l.id, Hash: in.Keys[i]}
		w := (i - first) % windowKeys
		switch {
		case w > 0:
		case pa.behind:
			e.lookAgain(&key, in.Keys[i:], refs[i:])
		default:
			e.look(&key, in.Keys[i:], true)
		}
		switch {
		case size > l.size || size > e.size || (p.inline && size > proto.MaxPayload):
			res.Status = proto.StatusTooLarge
		case e.onDiskOnly(w, &key):
			res.Status = proto.StatusExists
		default:
			var full bool
			if res, full = e.stage(t, w, &key, size, uint32(i), pa); full {
				if e.mustWait(pa, size) {
					return max(size, 1)
				}
				res.Status = proto.StatusNoSpace
				if pa.turned {
					res.Status = proto.StatusBusy
				}
			}
		}
		out.Results = append(out.Results, res)
	}
	return 0
}

// stage reserves one slot for the w-th key of the window. full says that there is no memory for it now, or that others wait
// for what there is.
func (e *Engine) stage(t uint32, w int, key *table.Key, size int64, pos uint32, pa patience) (res proto.StoreResult, full bool) {
	p := &e.transfers[t]
	i := &e.insts[p.inst]
	if _, st, ok := e.find(w, key); !ok {
		switch {
		case !e.mayOwn(i, size), p.inline && p.bytes+size > proto.MaxPayload:
			return proto.StoreResult{Status: proto.StatusBusy}, false
		case e.awaited(pa), pa.wait && e.sparing(size):
			return proto.StoreResult{}, true
		}
	} else if st == table.StateReady {
		return proto.StoreResult{Status: proto.StatusExists}, false
	} else if st == table.StateLoading && !e.stalled() { // it is on disk
		return proto.StoreResult{Status: proto.StatusExists}, false
	}
	ref, ext, got := e.place(key, size, table.StateStaged, pa)
	switch got {
	case table.Staged:
		e.addEntry(t, ref, entryStaged, pos)
		return proto.StoreResult{Status: proto.StatusReserved, Slot: proto.Slot{Off: uint64(ext.Off), Len: uint64(ext.Len)}}, false
	case table.ExistsReady:
		return proto.StoreResult{Status: proto.StatusExists}, false
	case table.ExistsBusy:
		return proto.StoreResult{Status: proto.StatusBusy}, false
	case table.TooLarge:
		return proto.StoreResult{Status: proto.StatusTooLarge}, false
	case table.NoSpace, table.Again:
	}
	return proto.StoreResult{}, true
}

// granted answers a prepare.
func (e *Engine) granted(r *request, t uint32, out *proto.PrepareStoreReply) {
	p := &e.transfers[t]
	out.Transfer = 0
	if p.count == 0 || e.unheard(r) {
		e.endTransfer(t)
	} else {
		out.Transfer = e.handle(t)
		p.slotsTold = !p.inline
		p.moveTo(transferOpen)
		e.timers.set(t, e.now+e.cfg.TransferTime)
		if p.inline {
			for i := range out.Results {
				out.Results[i].Slot.Off = 0
			}
		}
	}
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendPrepareStoreReply(e.out, out)
	e.send(r)
}

// ownTransfer finds the transfer of a handle that c's instance owns, or says why not.
func (e *Engine) ownTransfer(c *conn, handle uint64, kind transferKind) (uint32, proto.Status) {
	x := e.boundInstance(c)
	if x == none {
		return none, proto.StatusNotRegistered
	}
	t := e.transferOf(handle)
	if t == none || e.transfers[t].kind != kind || !e.seesTransfer(c, t) {
		return none, proto.StatusStale
	}
	if o := e.transfers[t].inst; o != x && !e.isFormerLife(o, x, &c.peer) {
		return none, proto.StatusDenied
	}
	return t, proto.StatusOK
}

// onCommitStore publishes what was staged. With a payload it first takes the bytes.
func (e *Engine) onCommitStore(c *conn, r *request, payload uint32, body []byte) {
	in := &e.in.commit
	if proto.ParseCommitStore(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	if in.Transfer == 0 { // nothing was reserved, so nothing is to be done
		e.committed(r, 0)
		return
	}
	t, st := e.ownTransfer(c, in.Transfer, kindStore)
	if st != proto.StatusOK {
		e.refuse(r, st)
		return
	}
	p := &e.transfers[t]
	switch {
	case p.state != transferOpen:
		e.refuse(r, proto.StatusStale)
		return
	case len(in.Sums) != 0 && len(in.Sums) != int(p.count):
		e.refuse(r, proto.StatusBadRequest)
		return
	case p.inline && (int64(payload) != p.bytes || r.flags&proto.FlagInline == 0),
		!p.inline && payload > 0:
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	if payload > 0 {
		if !e.receive(c, r, t) {
			e.refuse(r, proto.StatusBusy)
		}
		return
	}
	e.publishTransfer(r, t, in.Sums)
}

// receive takes a payload into the staged slots, or says that too much is under way.
func (e *Engine) receive(c *conn, r *request, t uint32) bool {
	o := e.newOp(opReceive)
	if o == none {
		return false
	}
	e.ops[o].transfer, e.ops[o].req = t, *r
	p := &e.transfers[t]
	p.wait.req = *r
	e.timers.set(t, e.now+e.cfg.TransferTime)
	p.moveTo(transferMoving)
	e.parts = e.parts[:0]
	for n := p.first; n != none; n = e.entries[n].next {
		e.parts = append(e.parts, e.table.Extent(e.entries[n].ref))
	}
	e.host.Receive(c.id, e.parts, e.opID(o))
	return true
}

// onPayload goes on with a commit or put whose bytes are in the pool, or are not and never will.
func (e *Engine) onPayload(id OpID, res int64) {
	o := e.endOp(id, opReceive)
	t := o.transfer
	switch {
	case e.transfers[t].state == transferAbandoned:
		e.endTransfer(t)
		e.refuse(&o.req, proto.StatusStale)
	case res < 0:
		e.endTransfer(t)
		e.refuse(&o.req, proto.StatusIO)
	default:
		e.publishTransfer(&o.req, t, nil)
	}
}

func (e *Engine) publishTransfer(r *request, t uint32, sums []uint64) {
	count := e.transfers[t].count
	published := e.publishEntries(t, sums)
	e.endTransfer(t)
	if published < count {
		e.refuse(r, proto.StatusStale) // deleted or cleared while it was written
		return
	}
	e.committed(r, published)
}

func (e *Engine) committed(r *request, published uint32) {
	if r.op == proto.OpPut {
		e.refuse(r, proto.StatusOK) // without a body
		return
	}
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendCommitStoreReply(e.out, &proto.CommitStoreReply{Published: published})
	e.send(r)
}

func (e *Engine) onAbortStore(c *conn, r *request, body []byte) {
	var in proto.AbortStore
	if proto.ParseAbortStore(body, &in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	t, st := e.ownTransfer(c, in.Transfer, kindStore)
	if st == proto.StatusOK {
		switch e.transfers[t].state {
		case transferOpen, transferQuarantined:
			e.endTransfer(t)
		case transferFree, transferBuilding, transferLoading, transferMoving, transferAbandoned:
			st = proto.StatusStale
		}
	}
	e.refuse(r, st)
}

// publish makes one staged object ready, and dirty if the disk is to have it.
func (e *Engine) publish(ref table.Ref) bool {
	size := e.table.Extent(ref).Len
	dirty := e.log != nil && e.cfg.Write != WriteOff && e.log.Fits(size)
	if !e.table.Publish(ref, dirty) {
		return false
	}
	if !dirty && e.log != nil && e.cfg.Write != WriteOff {
		e.counters.TooLargeForDisk++
	}
	return true
}

// onDisk says whether an object is on disk and not in memory: then it need not be stored.
func (e *Engine) onDisk(k *table.Key) bool {
	if e.log == nil {
		return false
	}
	if _, _, ok := e.table.Find(k); ok {
		return false
	}
	d, ok := e.diskKey(k)
	if !ok {
		return false
	}
	_, ok = e.log.Find(&d)
	return ok
}

// diskKey is an object's key on disk; false when its namespace was cleared since.
func (e *Engine) diskKey(k *table.Key) (seglog.Key, bool) {
	s := e.spaceByKey(k.Namespace)
	if s == none {
		return seglog.Key{}, false
	}
	return seglog.Key{Namespace: e.spaces[s].id, Layout: k.Layout, Hash: k.Hash}, true
}
