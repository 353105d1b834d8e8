package engine

import "github.com/slotcache/slotcache/proto"

// onEvict ends every life of an instance for an operator. It gives back what nobody can
// touch, and says how much the processes keep; with kill it ends those that have shared
// memory, and the rest comes back by their end.
func (e *Engine) onEvict(c *conn, r *request, body []byte) {
	var in proto.Evict
	if proto.ParseEvict(body, &in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	own := e.liveInstance(c)
	if !c.grant.Admin || own != none && e.insts[own].readOnly || in.Kill && !c.peer.Local {
		e.refuse(r, proto.StatusDenied)
		return
	}
	st := proto.StatusStale
	var out proto.EvictReply
	for x := range e.instUsed {
		i := &e.insts[x]
		if i.state == instFree || i.id != in.Instance {
			continue
		}
		if st == proto.StatusStale {
			st = proto.StatusOK
		}
		if in.Kill && i.watched && !e.host.Kill(e.watchID(x)) {
			st = proto.StatusDenied
		}
		before := i.owned()
		e.evict(x)
		out.Freed += uint64(before - i.owned())
		out.Draining += uint64(i.owned())
	}
	if st != proto.StatusOK {
		e.refuse(r, st)
		return
	}
	e.counters.Evicted++
	e.begin(r, st)
	e.out = proto.AppendEvictReply(e.out, &out)
	e.send(r)
}

// evict ends an instance whose process was not asked: it keeps the slots that its process
// was told of. One that drains does so already.
func (e *Engine) evict(x uint32) {
	if e.insts[x].state != instDraining {
		e.supersede(x)
	}
}

// isFormerLife says whether instance o was, for the process of p, what x is now: that
// process alone may still touch the slots of o, and so may say that it does not.
func (e *Engine) isFormerLife(o, x uint32, p *Peer) bool {
	i := &e.insts[o]
	return i.id == e.insts[x].id && i.wasOf(p)
}

// wasOf says that i has ended and that the process of p may still touch its slots.
func (i *instance) wasOf(p *Peer) bool {
	return i.state == instDraining && i.watched && i.sameProcess(p, true)
}

// endFormerLives ends what the process of p had under an id before it registered it anew.
func (e *Engine) endFormerLives(id uint64, p *Peer) {
	for x := range e.instUsed {
		i := &e.insts[x]
		if i.id == id && i.wasOf(p) {
			e.endInstance(x)
		}
	}
}
