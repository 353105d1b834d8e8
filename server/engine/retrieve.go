package engine

import (
	"time"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// onPrepareRetrieve holds objects for reading and tells where they are. They are named by
// their keys, or as a range of a lease, which any instance of the namespace may use.
func (e *Engine) onPrepareRetrieve(c *conn, r *request, body []byte) {
	in := &e.in.retrieve
	if proto.ParsePrepareRetrieve(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	l, ok := c.layoutOf(in.Layout)
	if !ok {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	if in.Lease != 0 {
		e.retrieveLease(c, r, in)
		return
	}
	a := e.retrieveAcquisition(c, r, l, in)
	e.acquireOrPark(&a, body)
}

// retrieveAcquisition reads from disk what is only there if the requester waits for it.
func (e *Engine) retrieveAcquisition(c *conn, r *request, l layout, in *proto.PrepareRetrieve) acquisition {
	a := acquisition{
		c: c, inst: e.liveInstance(c), layout: l, keys: in.Keys, kind: kindRetrieve,
		wait:  lookupWait{req: *r, group: 1, keys: uint32(len(in.Keys)), all: in.Mode == proto.RetrieveAll},
		until: e.now + time.Duration(in.WaitMs)*time.Millisecond,
		slots: true,
	}
	if in.WaitMs > 0 {
		a.wait.options = proto.LookupLoad
	}
	return a
}

// retrieveLease takes holds of its own on a range of a lease's objects.
func (e *Engine) retrieveLease(c *conn, r *request, in *proto.PrepareRetrieve) {
	x := e.liveInstance(c)
	from := e.transferOf(in.Lease)
	switch {
	case from == none || e.transfers[from].kind != kindLease || e.transfers[from].state != transferOpen || !e.seesTransfer(c, from):
		e.refuse(r, proto.StatusStale)
		return
	case e.insts[e.transfers[from].inst].space != e.insts[x].space:
		e.refuse(r, proto.StatusDenied)
		return
	case len(in.Keys) != 0 || uint64(in.First)+uint64(in.Count) > uint64(e.transfers[from].count) || in.Count == 0:
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	t := e.beginTransfer(x, kindRetrieve)
	if t == none {
		e.refuse(r, proto.StatusBusy)
		return
	}
	p := &e.transfers[t]
	p.wait = lookupWait{req: *r, group: 1, keys: in.Count, all: true}
	p.inline = c.inline || r.flags&proto.FlagInline != 0
	p.slotsTold = !p.inline
	i := &e.insts[x]
	n := e.transfers[from].first
	for range in.First {
		n = e.entries[n].next
	}
	for pos := range in.Count {
		q := &e.entries[n]
		if !e.mayOwn(i, q.size) {
			e.endTransfer(t)
			e.refuse(r, proto.StatusBusy)
			return
		}
		e.addEntry(t, q.ref, entryHeld, pos)
		n = q.next
	}
	e.answerRetrieve(t)
}

func (e *Engine) onCommitRetrieve(c *conn, r *request, body []byte) {
	var in proto.CommitRetrieve
	if proto.ParseCommitRetrieve(body, &in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	if in.Transfer == 0 { // nothing was held
		e.refuse(r, proto.StatusOK)
		return
	}
	e.refuse(r, e.giveBack(c, in.Transfer, kindRetrieve))
}

// onRelease ends leases. One that has ended already changes nothing; one that the
// instance does not own is refused, and the others are released all the same.
func (e *Engine) onRelease(c *conn, r *request, body []byte) {
	in := &e.in.release
	if proto.ParseRelease(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	st := proto.StatusOK
	for _, h := range in.Leases {
		if s := e.giveBack(c, h, kindLease); s != proto.StatusOK && s != proto.StatusStale {
			st = s
		}
	}
	e.refuse(r, st)
}

// giveBack ends a retrieval or lease of c's instance.
func (e *Engine) giveBack(c *conn, handle uint64, kind transferKind) proto.Status {
	t, st := e.ownTransfer(c, handle, kind)
	if st != proto.StatusOK {
		return st
	}
	switch e.transfers[t].state {
	case transferOpen, transferQuarantined:
		e.endTransfer(t)
		return proto.StatusOK
	case transferFree, transferBuilding, transferLoading, transferMoving, transferAbandoned:
	}
	return proto.StatusStale
}

// onTouch makes objects the most recently used, tail first.
func (e *Engine) onTouch(c *conn, r *request, body []byte) {
	in := &e.in.touch
	if proto.ParseTouch(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	l, ok := c.layoutOf(in.Layout)
	if !ok {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	key := e.keyIn(e.liveInstance(c), l)
	e.table.Chain()
	var touched uint32
	for i := len(in.Keys); i > 0; i-- {
		key.Hash = in.Keys[i-1]
		if ref, st, found := e.table.Find(&key); found && st == table.StateReady {
			e.touch(ref)
			touched++
		}
	}
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendTouchReply(e.out, &proto.TouchReply{Touched: touched})
	e.send(r)
}
