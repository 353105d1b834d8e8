package engine

import (
	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// finishLookup answers a lookup or retrieval with what is ready now and gives back the
// rest. It is called once for each: when nothing is waited for, or at the deadline.
func (e *Engine) finishLookup(t uint32) {
	e.timers.clear(t)
	e.dropUnready(t)
	e.answerLookup(t)
}

// answerLookup answers a lookup or retrieval with what it has.
func (e *Engine) answerLookup(t uint32) {
	p := &e.transfers[t]
	if p.kind == kindRetrieve {
		e.answerRetrieve(t)
		return
	}
	w := &p.wait
	out := &e.rep.lookup
	resetLookup(out, w.mode, int(w.keys))
	for n := p.first; n != none; n = e.entries[n].next {
		q := &e.entries[n]
		out.Hits++
		if q.fromDisk {
			out.FromDisk++
		} else {
			out.FromMemory++
		}
		if w.mode == proto.ModeAny {
			out.Bitmap[q.pos/8] |= 1 << (q.pos % 8)
		}
		if p.slotsTold {
			x := e.table.Extent(q.ref)
			out.Slots = append(out.Slots, proto.Slot{Off: uint64(x.Off), Len: uint64(x.Len)})
		}
	}
	e.countHits(p.inst, out)
	r := w.req
	if w.options&proto.LookupHold == 0 || p.count == 0 || e.unheard(&r) {
		e.endTransfer(t)
	} else {
		out.Lease = e.handle(t)
		p.moveTo(transferOpen)
		if !p.slotsTold {
			e.timers.set(t, e.now+e.cfg.LeaseTime)
		}
	}
	e.begin(&r, proto.StatusOK)
	e.out = proto.AppendLookupReply(e.out, out)
	e.send(&r)
}

// there says whether entry n of t can be answered: it is held, and was not deleted while t
// waited for others.
func (e *Engine) there(p *transfer, n uint32) bool {
	q := &e.entries[n]
	return q.state == entryHeld && e.table.State(q.ref) == table.StateReady && p.space == e.spaces[e.insts[p.inst].space].key
}

// dropUnready leaves t with what can be answered: of a prefix the leading entries that are
// there, in whole groups; otherwise all that are.
func (e *Engine) dropUnready(t uint32) {
	p := &e.transfers[t]
	if p.wait.mode == proto.ModePrefix {
		n, whole := p.first, p.first
		for pos := uint32(0); n != none && e.there(p, n); pos++ {
			n = e.entries[n].next
			if (pos+1)%p.wait.group == 0 {
				whole = n
			}
		}
		e.freeEntries(t, whole)
		return
	}
	var f freed
	for n := p.last; n != none; {
		prev := e.entries[n].prev
		if !e.there(p, n) {
			e.unlinkEntry(p, n)
			e.freeEntry(p, n, &f)
		}
		n = prev
	}
	e.freed(p, &f)
}

// answerRetrieve tells the slots of a retrieval, or sends the bytes themselves.
func (e *Engine) answerRetrieve(t uint32) {
	p := &e.transfers[t]
	r := p.wait.req
	switch {
	case e.unheard(&r):
		e.endTransfer(t)
		e.refuse(&r, proto.StatusNotRegistered) // nobody reads it, but the host waits for as many replies as there were requests
		return
	case p.wait.all && p.count < p.wait.keys:
		st := proto.StatusMiss
		switch {
		case p.wait.over:
			st = proto.StatusTooLarge
		case p.wait.capped:
			st = proto.StatusBusy
		case p.wait.short: // it is there
			st = proto.StatusNoSpace
		}
		e.endTransfer(t)
		e.refuse(&r, st)
		return
	case p.inline && p.bytes > proto.MaxPayload:
		e.endTransfer(t)
		e.refuse(&r, proto.StatusTooLarge)
		return
	}
	out := &e.rep.retrieve
	out.Transfer, out.Slots = 0, out.Slots[:0]
	e.parts = e.parts[:0]
	for n := p.first; n != none; n = e.entries[n].next {
		x := e.table.Extent(e.entries[n].ref)
		if p.inline {
			out.Slots = append(out.Slots, proto.Slot{Len: uint64(x.Len)})
			e.parts = append(e.parts, x)
			continue
		}
		out.Slots = append(out.Slots, proto.Slot{Off: uint64(x.Off), Len: uint64(x.Len)})
	}
	e.counters.RetrievedBytes += uint64(p.bytes)
	e.countersOf(p.inst).RetrievedBytes += uint64(p.bytes)
	switch {
	case p.count == 0:
		e.endTransfer(t)
	case p.inline:
		e.sendTransfer(&r, t, out)
		return
	default:
		p.moveTo(transferOpen)
		p.slotsTold = true
		out.Transfer = e.handle(t)
	}
	e.begin(&r, proto.StatusOK)
	e.out = proto.AppendPrepareRetrieveReply(e.out, out)
	e.send(&r)
}

// sendTransfer answers a retrieval with the bytes, straight from the pool. The holds end
// when they are out.
func (e *Engine) sendTransfer(r *request, t uint32, out *proto.PrepareRetrieveReply) {
	o := e.newOp(opSend)
	if o == none {
		e.endTransfer(t)
		e.refuse(r, proto.StatusBusy)
		return
	}
	p := &e.transfers[t]
	e.ops[o].transfer = t
	e.timers.set(t, e.now+e.cfg.TransferTime)
	p.moveTo(transferOpen)
	p.moveTo(transferMoving)
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendPrepareRetrieveReply(e.out, out)
	e.out = proto.EndFrame(e.out, 0, uint32(p.bytes))
	e.host.SendPool(r.conn, e.out, e.parts, e.opID(o))
}

// onSent ends a retrieval whose bytes are out, or whose connection broke.
func (e *Engine) onSent(id OpID) {
	o := e.endOp(id, opSend)
	e.endTransfer(o.transfer)
}
