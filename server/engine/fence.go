package engine

import (
	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// fencing is how much of the deletes and clears under way is one peer's: behind a slow disk they would else take what is
// there for all of them.
type fencing struct{ requests, keys uint32 }

// fencingOf is the count of instance x, or of all peers that are none. An instance ends when those it has have ended.
func (e *Engine) fencingOf(x uint32) *fencing {
	if x == none {
		return &e.fencing
	}
	return &e.insts[x].fencing
}

// newFence takes an op for a request of instance x, or of a peer that is none, about so many keys. None: too many are
// under way.
func (e *Engine) newFence(x uint32, r *request, keys int) uint32 {
	f := e.fencingOf(x)
	if f.requests >= uint32(e.cfg.FenceCap) || f.requests > 0 && int(f.keys)+keys > e.cfg.FenceKeysCap ||
		x != none && e.crowdsFences(&e.insts[x]) {
		return none
	}
	o := e.newOp(opFence)
	if o == none {
		return none
	}
	p := &e.ops[o]
	p.req, p.waits = *r, 1
	p.inst, p.keys = x, uint32(keys)
	f.requests++
	f.keys += p.keys
	if x != none {
		e.claims.change(e.insts[x].claim, claim{fences: 1})
	}
	return o
}

// endFence takes off what newFence has counted.
func (e *Engine) endFence(p *op) {
	f := e.fencingOf(p.inst)
	f.requests--
	f.keys -= p.keys
	if p.inst != none {
		e.claims.change(e.insts[p.inst].claim, claim{fences: ^uint32(0)})
		e.join(p.inst)
	}
}

// onDelete removes objects from memory and disk. Readers miss them at once; the reply
// comes when a restart cannot bring them back.
func (e *Engine) onDelete(c *conn, r *request, body []byte) {
	x := e.liveInstance(c)
	in := &e.in.remove
	if proto.ParseDelete(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	l, st := e.layoutToChange(c, x, in.Layout)
	if st != proto.StatusOK {
		e.refuse(r, st)
		return
	}
	o := e.newFence(x, r, len(in.Keys))
	if o == none {
		e.refuse(r, proto.StatusBusy)
		return
	}
	key := e.keyIn(x, l)
	keys := e.in.diskKeys[:0]
	for i := range in.Keys {
		key.Hash = in.Keys[i]
		there := e.onDisk(&key)
		if ref, _, found := e.table.Find(&key); found {
			there = e.table.Delete(ref)
		}
		if there {
			e.ops[o].deleted++
		}
		if d, known := e.diskKey(&key); known {
			keys = append(keys, d)
		}
	}
	e.in.diskKeys = keys
	e.memoryFreed = true
	e.counters.Deletes += e.ops[o].deleted
	if e.log != nil && len(keys) > 0 && e.log.Delete(keys, seglog.Token(e.opID(o))) {
		e.drainOutcomes()
		return
	}
	e.fencePartDone(o)
}

// A clearing is the sweep behind a CLEAR: its objects are out of reach already and are
// freed in bounded steps.
type clearing struct {
	key    uint64 // the namespace's key in memory before the CLEAR
	cursor uint32
	op     uint32
}

// onClear removes all objects of a namespace: its own, or one that is named.
func (e *Engine) onClear(c *conn, r *request, body []byte) {
	var in proto.Clear
	if proto.ParseClear(body, &in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	x := e.liveInstance(c)
	var s uint32
	name := in.Namespace
	switch {
	case x != none && e.insts[x].readOnly:
		e.refuse(r, proto.StatusDenied)
		return
	case name != "" && !c.grant.Allows(name):
		e.refuse(r, proto.StatusDenied)
		return
	case e.stopping:
		e.refuse(r, proto.StatusDraining)
		return
	case name != "":
		s = e.findSpace(name)
	case x == none:
		e.refuse(r, proto.StatusNotRegistered)
		return
	default:
		s = e.insts[x].space
		name = e.spaces[s].name
	}
	o := e.newFence(x, r, 1)
	if o == none {
		e.refuse(r, proto.StatusBusy)
		return
	}
	e.counters.Clears++
	if s != none {
		e.ops[o].waits++
		e.clears = append(e.clears, clearing{key: e.spaces[s].key, op: o})
		e.renewSpace(s)
	}
	if e.log != nil && e.log.Clear(spaceID(name), seglog.Token(e.opID(o))) {
		e.ops[o].waits++
		e.drainOutcomes()
	}
	e.fencePartDone(o)
}

// clearStep is how many entries of the table a turn looks at for one CLEAR.
const clearStep = 1024

// stepClears goes on with the sweep of the oldest CLEAR.
func (e *Engine) stepClears() {
	if len(e.clears) == 0 {
		return
	}
	e.settleUses()
	w := &e.clears[0]
	e.refs, w.cursor = e.table.Each(w.key, false, w.cursor, clearStep, e.refs[:0])
	for _, ref := range e.refs {
		if e.table.Delete(ref) {
			e.ops[w.op].deleted++
		}
	}
	e.memoryFreed = true
	if w.cursor != 0 {
		return
	}
	o := w.op
	e.clears = append(e.clears[:0], e.clears[1:]...)
	e.fencePartDone(o)
}

// fenceWritten is for a delete or clear whose record is on disk, or is owed to it.
func (e *Engine) fenceWritten(id OpID, res seglog.Result) {
	o, p := e.opOf(id)
	if res != seglog.ResultOK {
		p.notDurable = true
		e.counters.NotDurable++
	}
	e.fencePartDone(o)
}

// fencePartDone answers a delete or clear once all its parts are done.
func (e *Engine) fencePartDone(o uint32) {
	if e.ops[o].waits--; e.ops[o].waits > 0 {
		return
	}
	p := e.endOp(e.opID(o), opFence)
	e.endFence(&p)
	st := proto.StatusOK
	if p.notDurable {
		st = proto.StatusOKNotDurable
	}
	e.begin(&p.req, st)
	if p.req.op == proto.OpDelete {
		e.out = proto.AppendDeleteReply(e.out, &proto.DeleteReply{Deleted: uint32(p.deleted)})
	} else {
		e.out = proto.AppendClearReply(e.out, &proto.ClearReply{Deleted: p.deleted})
	}
	e.send(&p.req)
}

// keyIn is the key, without its hash, of instance x's objects under a layout.
func (e *Engine) keyIn(x uint32, l layout) table.Key {
	return table.Key{Namespace: e.spaces[e.insts[x].space].key, Layout: l.id}
}
