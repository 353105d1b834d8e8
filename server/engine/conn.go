package engine

import (
	"fmt"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server/access"
)

// connState is where a connection is in its life, as the engine sees it.
//
//	free --open--> new --HELLO--> ready --hangup--> closing --closed--> free
//	                |                |                           ^
//	                +---- hangup ----|---------------------------+
//	                +---- closed ----+--> free
type connState uint8

const (
	connFree connState = iota
	connNew
	connReady
	connClosing
)

func (s connState) String() string {
	switch s {
	case connFree:
		return "free"
	case connNew:
		return "new"
	case connReady:
		return "ready"
	case connClosing:
		return "closing"
	}
	return fmt.Sprintf("connState(%d)", uint8(s))
}

var connMoves = [...]uint8{
	connFree:    1 << connNew,
	connNew:     1<<connReady | 1<<connClosing | 1<<connFree,
	connReady:   1<<connClosing | 1<<connFree,
	connClosing: 1 << connFree,
}

// A conn is one open connection. inst and instGen name the instance it registered.
type conn struct {
	id      ConnID
	state   connState
	inline  bool // registered for inline transport
	learnt  bool // peer.Process was asked for: what owns it does not change after that
	peer    Peer
	token   access.Digest // that HELLO carried
	grant   *access.Grant // since HELLO
	inst    uint32
	instGen uint32
	layouts [proto.MaxLayouts]layout
	nlayout uint16
}

// A layout is what the engine keeps of a registered one.
type layout struct {
	id   uint64
	size int64 // largest object, in bytes
}

func (c *conn) moveTo(s connState) {
	if connMoves[c.state]&(1<<s) == 0 {
		panic(fmt.Sprintf("engine: connection moves from %v to %v", c.state, s))
	}
	c.state = s
}

// hangup closes c after its last replies. What waits on it ends: what it were granted now its peer might never hear of.
func (c *conn) hangup(e *Engine) {
	if c.state == connClosing {
		return
	}
	c.moveTo(connClosing)
	if x := e.boundInstance(c); x != none {
		e.cancelWaiting(x, c.id)
	}
	e.host.Hangup(c.id)
}

// connOf finds an open connection, or nil when id is of an earlier life.
func (e *Engine) connOf(id ConnID) *conn {
	c := &e.conns[id.Index()]
	if c.state == connFree || c.id != id {
		return nil
	}
	return c
}

func (e *Engine) onOpen(id ConnID, peer Peer) {
	c := &e.conns[id.Index()]
	*c = conn{id: id, peer: peer, inst: none, state: c.state}
	c.moveTo(connNew)
	e.counters.Connections++
	if e.stopping {
		c.hangup(e)
	}
}

func (e *Engine) onClosed(id ConnID) {
	c := e.connOf(id)
	if c == nil {
		panic("engine: an unknown connection closed")
	}
	c.moveTo(connFree)
	e.leave(c)
}

// leave takes c from its instance, as it closed or acts for another one.
func (e *Engine) leave(c *conn) {
	x, last := e.unbind(c)
	switch {
	case x == none:
	case last:
		e.detach(x)
	default:
		e.cancelWaiting(x, c.id)
	}
}

// cancelWaiting ends what instance x waits for on one connection that is not its own any more while others are, or is hung up, be it
// its only one.
func (e *Engine) cancelWaiting(x uint32, id ConnID) {
	for p := e.parkedFirst; p != none; {
		next := e.parked[p].next
		if r := e.parked[p].req; r.conn == id {
			e.cancelParked(p)
			e.refuse(&r, proto.StatusNotRegistered)
		}
		p = next
	}
	for t := e.insts[x].first; t != none; {
		next := e.transfers[t].instNext
		if p := &e.transfers[t]; p.state == transferLoading && p.wait.req.conn == id {
			e.endLoading(t, proto.StatusNotRegistered)
		}
		t = next
	}
}

func (e *Engine) onGone(w WatchID) {
	x := uint32(w)
	i := &e.insts[x]
	if i.state == instFree || i.generation != uint32(w>>32) {
		return
	}
	i.watched = false
	e.host.Unwatch(w)
	e.endInstance(x) // nobody can touch its slots
}

// A request is what a reply needs to find its way.
type request struct {
	conn  ConnID
	id    uint64
	op    proto.Op
	flags proto.Flags
}

func requestOf(c *conn, h *proto.Header) request {
	return request{conn: c.id, id: h.Request, op: h.Op, flags: h.Flags}
}

// silent says that the requester wants no reply.
func (r *request) silent() bool { return r.flags&proto.FlagNoReply != 0 }

// unheard says that nobody will learn of a handle in the reply to r, and so nobody would give back what it stands for.
func (e *Engine) unheard(r *request) bool { return r.silent() || !e.host.Hears(r.conn) }

// begin starts a reply in e.out. The caller appends its body and calls send.
func (e *Engine) begin(r *request, s proto.Status) {
	e.out = proto.BeginFrame(e.out[:0], proto.Header{
		Op: r.op, Flags: proto.FlagReply, Status: s, Request: r.id, Boot: e.cfg.Boot,
	})
}

// send ends the reply that begin started and queues it, unless the requester wants none.
func (e *Engine) send(r *request) {
	if r.silent() {
		return
	}
	e.out = proto.EndFrame(e.out, 0, 0)
	e.host.Send(r.conn, e.out)
}

// refuse answers with a status and no body.
func (e *Engine) refuse(r *request, s proto.Status) {
	e.begin(r, s)
	e.send(r)
}
