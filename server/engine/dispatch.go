package engine

import "github.com/slotcache/slotcache/proto"

// onFrame is where a request enters: the one switch from op to method.
func (e *Engine) onFrame(id ConnID, h *proto.Header, body []byte) {
	c := e.connOf(id)
	if c == nil || c.state == connClosing {
		return
	}
	e.counters.Requests++
	if x := e.liveInstance(c); x != none {
		e.insts[x].seen = e.now
	}
	r := requestOf(c, h)
	if h.Op == proto.OpHello && !h.Reply() {
		e.onHello(c, &r, h.Payload(), body)
		return
	}
	if st := e.admit(c, h); st != proto.StatusOK {
		e.refuse(&r, st)
		if c.state == connNew {
			c.hangup(e)
		}
		return
	}
	switch h.Op {
	case proto.OpHello: // above
	case proto.OpRegister:
		e.onRegister(c, &r, body)
	case proto.OpUnregister:
		e.onUnregister(c, &r, body)
	case proto.OpPing:
		e.onPing(&r, body)
	case proto.OpLookup:
		e.onLookup(c, &r, body)
	case proto.OpPrepareStore:
		e.onPrepareStore(c, &r, body)
	case proto.OpCommitStore:
		e.onCommitStore(c, &r, h.Payload(), body)
	case proto.OpAbortStore:
		e.onAbortStore(c, &r, body)
	case proto.OpPrepareRetrieve:
		e.onPrepareRetrieve(c, &r, body)
	case proto.OpCommitRetrieve:
		e.onCommitRetrieve(c, &r, body)
	case proto.OpRelease:
		e.onRelease(c, &r, body)
	case proto.OpDelete:
		e.onDelete(c, &r, body)
	case proto.OpClear:
		e.onClear(c, &r, body)
	case proto.OpPin:
		e.onPin(c, &r, body)
	case proto.OpUnpin:
		e.onUnpin(c, &r, body)
	case proto.OpTouch:
		e.onTouch(c, &r, body)
	case proto.OpStats:
		e.onStats(c, &r, body)
	case proto.OpInstances:
		e.onInstances(c, &r, body)
	case proto.OpTransfers:
		e.onTransfers(c, &r, body)
	case proto.OpEvict:
		e.onEvict(c, &r, body)
	case proto.OpPut:
		e.onPut(c, &r, h.Payload(), body)
	}
}

// admit checks what all requests but HELLO have in common.
func (e *Engine) admit(c *conn, h *proto.Header) proto.Status {
	switch {
	case h.Reply():
		return proto.StatusBadRequest
	case c.state == connNew: // whatever it asks for
		return proto.StatusBadRequest
	case !h.Op.Valid():
		return proto.StatusUnsupported
	case h.Boot != e.cfg.Boot:
		return proto.StatusStaleEpoch
	case h.Payload() > 0 && h.Op != proto.OpCommitStore && h.Op != proto.OpPut:
		return proto.StatusBadRequest
	case needsInstance[h.Op] && e.liveInstance(c) == none:
		return proto.StatusNotRegistered
	}
	return proto.StatusOK
}

// needsInstance has the ops that act for a live instance. Ops that only give back are
// not among them: they work for an instance that is ending too.
var needsInstance = [...]bool{
	proto.OpLookup:          true,
	proto.OpPrepareStore:    true,
	proto.OpPrepareRetrieve: true,
	proto.OpDelete:          true,
	proto.OpPin:             true,
	proto.OpUnpin:           true,
	proto.OpTouch:           true,
	proto.OpPut:             true, // the last op: the array has a place for each
}

// layoutOf checks a request's layout index.
func (c *conn) layoutOf(i uint16) (layout, bool) {
	if i >= c.nlayout {
		return layout{}, false
	}
	return c.layouts[i], true
}

// layoutToChange is layoutOf for a request of instance x that changes what is stored: it
// also says why there may be none now.
func (e *Engine) layoutToChange(c *conn, x uint32, n uint16) (layout, proto.Status) {
	l, ok := c.layoutOf(n)
	switch {
	case !ok:
		return l, proto.StatusBadRequest
	case e.insts[x].readOnly:
		return l, proto.StatusDenied
	case e.stopping:
		return l, proto.StatusDraining
	}
	return l, proto.StatusOK
}
