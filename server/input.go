package server

import (
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server/engine"
)

// Bounds on input.
const (
	// inputShare is what is stepped of one connection in a turn, in bytes of frames, so that
	// one that sends thousands of requests at once does not keep the others waiting.
	inputShare = 4 << 10
	// inputTurn is what is stepped in a turn of all connections that have new input, and again
	// of those that waited: each half a tenth of a millisecond of small requests.
	inputTurn = 8 << 10
	// inputLight is what a connection may always have in the turn in which it comes: who sends
	// little does not wait for those who send much.
	inputLight = 1 << 10
	// frameCost is what a frame counts beside its body.
	frameCost = 128
	// inputAhead is how much a connection may have received and not stepped, until no more
	// is received.
	inputAhead = 64 << 10
	// inputBudget bounds the reassembly buffers of all connections, those kept for the next
	// included. See [reactor.account] for who gives way when more would be needed.
	inputBudget = 64 << 20
	// tableTurn is what a request counts that looks at a whole table: a turn has one of a connection.
	tableTurn = 8 << 10
	// partsKeep is how many parts of a payload a connection has room for at rest.
	partsKeep = 16
)

// tableCost is what requests count besides that look at whole tables, however short they are: about what a body costs
// that takes as long.
func tableCost(op proto.Op) int {
	switch op { //nolint:exhaustive // the others cost what they carry
	case proto.OpTransfers:
		return tableTurn
	case proto.OpInstances, proto.OpEvict, proto.OpRegister:
		return tableTurn / 4
	case proto.OpStats:
		return tableTurn / 16
	}
	return 0
}

// continued says whether who asks this is likely to ask for more at once: a worker that stores or retrieves values has
// been given slots, and comes back when it has copied.
func continued(f *proto.Frame) bool {
	switch f.Op { //nolint:exhaustive // nothing follows from the others
	case proto.OpPrepareStore, proto.OpCommitStore, proto.OpPut, proto.OpPrepareRetrieve, proto.OpCommitRetrieve, proto.OpRelease:
		return true
	case proto.OpLookup:
		return proto.LookupHolds(f.Body)
	}
	return false
}

// asksOnly says that a request changes nothing: it is not stepped for a peer that takes no reply.
func asksOnly(op proto.Op) bool {
	switch op { //nolint:exhaustive // the others may give something back, or publish it
	case proto.OpPing, proto.OpStats, proto.OpInstances, proto.OpTransfers:
		return true
	}
	return false
}

// received takes a completion of a receive. The piece becomes an event, so that pieces,
// the end of the stream and everything else are handled in the order they came.
func (r *reactor) received(done *ring.Completion) {
	c := r.connTagged(done.Tag)
	ev := engine.Event{Kind: engine.EventFrame, Conn: c.id, Body: done.Data}
	if done.Res > 0 {
		r.post(ev)
	}
	if done.More {
		return
	}
	r.touch(c)
	errno := unix.Errno(-done.Res)
	switch {
	case done.Res > 0, errno == unix.ECANCELED, errno == unix.ENOBUFS, errno == unix.EINTR, errno == unix.EAGAIN:
		c.recvTo(recvOff)
	case done.Res == 0:
		c.recvTo(recvEnded)
		r.post(ev)
	default:
		c.recvTo(recvBroken)
		r.post(ev)
	}
}

// feed steps the frames that a received piece completes. A nil piece is the end of the
// stream.
func (r *reactor) feed(id engine.ConnID, piece []byte) {
	c := &r.conns[id.Index()]
	if c.id != id || c.state != connOpen {
		return // what comes after a hangup is thrown away
	}
	r.stats.Received += uint64(len(piece))
	if piece != nil {
		c.in.Feed(piece)
	}
	if c.flow == flowRuns || c.flow == flowMessage {
		r.pump(c)
		return
	}
	c.in.Hold() // behind what waits already
	r.account(c)
}

// pump steps frames of c until there is none, the peer must read first, or its share of the
// turn is used up. What is left of the piece is kept.
func (r *reactor) pump(c *conn) {
	if c.turn != r.stats.Turns {
		c.turn, c.share = r.stats.Turns, 0
	}
	c.flow = flowRuns
	for c.flow == flowRuns {
		if c.payload.state != payloadNone && !r.takePayload(c) {
			c.flow = flowMessage
			break
		}
		if c.state == connOpen {
			r.pumpFrame(c)
		}
		if c.state != connOpen {
			return // closed or hung up by what was stepped
		}
	}
	switch {
	case c.flow == flowMessage && (c.recv == recvEnded || c.recv == recvBroken):
		r.end(c)
		return
	case c.recv == recvBroken && c.flow == flowOutput:
		r.lose(c) // it would wait for ever
	case c.flow == flowTurn:
		r.resume(c)
	case c.flow == flowOutput, c.flow == flowMessage, c.flow == flowRuns:
	}
	c.in.Hold()
	c.in.Trim()
	r.account(c)
	r.touch(c)
}

// pumpFrame steps the next frame of c, or says in flow why it can't.
func (r *reactor) pumpFrame(c *conn) {
	switch {
	case r.blocked(c):
		c.flow = flowOutput
		return
	case c.in.Unread() < proto.HeaderSize: // no turn is needed for what is not there
		c.in.Hold()
		c.flow = flowMessage
		return
	case c.share >= inputShare || r.share >= inputTurn && c.share >= inputLight:
		c.flow = flowTurn
		return
	}
	f, ok, err := c.in.Next()
	if err != nil {
		r.stats.BadFrames++
		r.complain("connection closed: not a frame", "conn", uint64(c.id), "err", err)
		r.abandon(c)
		return
	}
	if !ok {
		c.flow = flowMessage
		return
	}
	if c.deaf && asksOnly(f.Op) && f.Payload() == 0 {
		c.taken++
		c.share += frameCost
		r.share += frameCost
		return
	}
	cost := frameCost + tableCost(f.Op) + len(f.Body)
	c.share += cost
	r.share += cost
	r.stats.Frames++
	c.taken++
	if f.Flags&proto.FlagNoReply == 0 {
		c.owed++
	}
	if f.Payload() > 0 {
		c.payload.state = payloadSkip
	}
	if continued(&f) {
		r.ring.Expect()
	}
	r.ev = engine.Event{Kind: engine.EventFrame, Now: r.now, Conn: c.id, Header: f.Header, Body: f.Body}
	r.stepping = c
	r.core.Step(&r.ev)
	r.stepping = nil
	r.stepDeferred()
}

// receive is [engine.Host.Receive].
func (r *reactor) receive(id engine.ConnID, parts []table.Extent, op engine.OpID) {
	c := r.stepping
	if c == nil || c.id != id {
		panic("server: a payload is claimed outside of its frame's step")
	}
	if c.state != connOpen || c.payload.state == payloadNone {
		r.later(engine.Event{Kind: engine.EventPayload, Op: op, Res: -int64(unix.EPIPE)})
		return
	}
	var sum int64
	c.payload.parts = c.payload.parts[:0]
	for _, p := range parts {
		if p.Len > 0 {
			c.payload.parts = append(c.payload.parts, p)
		}
		sum += p.Len
	}
	if c.payload.state != payloadSkip || sum != int64(c.in.Payload()) {
		panic("server: a payload is claimed twice or not in its length")
	}
	c.payload.state = payloadCopy
	c.payload.op = op
	c.payload.next = 0
	c.payload.res = 0
}

// takePayload moves what has arrived of the payload to where it goes, and says whether it
// was all.
func (r *reactor) takePayload(c *conn) bool {
	for {
		p := c.in.Take()
		if len(p) == 0 {
			break
		}
		if c.payload.state == payloadCopy {
			r.copyPayload(&c.payload, p)
		}
	}
	if c.in.Payload() > 0 {
		return false
	}
	r.endPayload(c)
	return true
}

// copyPayload copies p into the pool. A worker can punch holes into the pool or truncate
// it, so this may fault; the payload has failed then, and what is left of it is skipped.
func (r *reactor) copyPayload(d *payload, p []byte) {
	for len(p) > 0 && d.res == 0 {
		part := &d.parts[d.next]
		n := min(int64(len(p)), part.Len)
		if err := l1.CopyIn(r.pool.Bytes(part.Off, n), p[:n]); err != nil {
			r.stats.Faults++
			r.complain("payload lost: the pool's memory is damaged", "err", err)
			d.res = -int64(unix.EFAULT)
			return
		}
		p = p[n:]
		part.Off += n
		part.Len -= n
		if part.Len == 0 {
			d.next++
		}
	}
}

// endPayload reports a payload that is complete.
func (r *reactor) endPayload(c *conn) {
	d := &c.payload
	copied := d.state == payloadCopy
	d.state = payloadNone
	if cap(d.parts) > partsKeep {
		d.parts = nil
	}
	if !copied {
		return
	}
	r.ev = engine.Event{Kind: engine.EventPayload, Now: r.now, Op: d.op, Res: d.res}
	r.core.Step(&r.ev)
	r.stepDeferred()
}

// breakPayload reports a payload that will not be complete, if the engine waits for one.
func (r *reactor) breakPayload(c *conn, res int64) {
	if c.payload.state == payloadCopy {
		r.later(engine.Event{Kind: engine.EventPayload, Op: c.payload.op, Res: res})
	}
	c.payload.state = payloadNone
}

// steer arms the receive of a connection that wants input, and pauses that of one that has
// enough. While it is hung up it goes on receiving, for closing a socket with unread input
// would take the last replies from the peer.
func (r *reactor) steer(c *conn) {
	full := c.state == connOpen && (c.flow == flowOutput || c.flow == flowTurn && c.in.Unread() > inputAhead)
	switch {
	case c.state != connOpen && c.state != connDraining:
	case full && c.recv == recvArmed:
		c.recvTo(recvPausing)
		r.ring.Pause(c.tag())
	case !full && c.recv == recvOff:
		c.recvTo(recvArmed)
		r.ring.Recv(c.tag(), c.fd)
	}
}
