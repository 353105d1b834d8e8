package server

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server/engine"
)

// Bounds on how long a connection that ends may take.
const (
	// endedTime is how long a peer that has sent its last byte is waited for, until the
	// replies it is owed have come and gone out.
	endedTime = 30 * time.Second
	// drainTime is how long a connection that was hung up may take to take its replies.
	drainTime = 5 * time.Second
)

// connState is where a connection is in its life.
//
//	        accept            end of stream
//	free ------------> open ----------------> ended
//	 ^                  |  \                  /  |
//	 |           failed |   \ hangup   hangup/   | replies are out, or failed
//	 |                  |    v              v    |
//	 |                  |       draining         |
//	 |                  |          | output is out, or failed
//	 |                  v          v             v
//	 +--------------- closing <------------------+
//	   nothing of it is
//	   in the ring
type connState uint8

const (
	connFree     connState = iota // no connection
	connOpen                      // frames are stepped, replies go out
	connEnded                     // no more input; the replies that are owed go out
	connDraining                  // hung up: what is queued goes out, what comes in is dropped
	connClosing                   // nothing goes in or out; the ring's last completions are awaited
)

var connNames = [...]string{"free", "open", "ended", "draining", "closing"}

// String names the state.
func (s connState) String() string {
	if int(s) < len(connNames) {
		return connNames[s]
	}
	return fmt.Sprintf("connState(%d)", uint8(s))
}

var connMoves = [...]uint8{
	connFree:     1 << connOpen,
	connOpen:     1<<connEnded | 1<<connDraining | 1<<connClosing,
	connEnded:    1<<connDraining | 1<<connClosing,
	connDraining: 1 << connClosing,
	connClosing:  1 << connFree,
}

// recvState says what of a connection's input is in the ring.
//
//	off --arm--> armed --pause--> pausing
//	 ^             |                 |
//	 +-- it ended -+-----------------+--> ended (end of stream), broken (an error)
type recvState uint8

const (
	recvOff     recvState = iota // nothing; may be armed
	recvArmed                    // a receive
	recvPausing                  // a receive that was asked to end
	recvEnded                    // nothing, and nothing will come
	recvBroken                   // the same, and what is sent arrives no more
)

var recvNames = [...]string{"off", "armed", "pausing", "ended", "broken"}

// String names the state.
func (s recvState) String() string {
	if int(s) < len(recvNames) {
		return recvNames[s]
	}
	return fmt.Sprintf("recvState(%d)", uint8(s))
}

var recvMoves = [...]uint8{
	recvOff:     1 << recvArmed,
	recvArmed:   1<<recvOff | 1<<recvPausing | 1<<recvEnded | 1<<recvBroken,
	recvPausing: 1<<recvOff | 1<<recvEnded | 1<<recvBroken,
	recvEnded:   0,
	recvBroken:  0,
}

// flowState says whether frames that have arrived are stepped.
type flowState uint8

const (
	flowRuns    flowState = iota // as they come
	flowOutput                   // not before the peer has taken some of its replies
	flowTurn                     // in the next turn: this turn's share is used up
	flowMessage                  // there is no whole frame; what there is of one waits for its rest
)

// marks says in which of the reactor's lists a connection is.
type marks uint8

const (
	markTouched marks = 1 << iota // settled at the end of the turn
	markResumed                   // its frames are looked at in the next step phase
)

// payloadState says where the payload of the last frame goes.
type payloadState uint8

const (
	payloadNone payloadState = iota
	payloadSkip              // is thrown away
	payloadCopy              // into the pool; the engine waits for it
)

// payload directs the bytes that follow a frame.
type payload struct {
	state payloadState
	op    engine.OpID
	parts []table.Extent // where the rest goes; the first is cut as it fills
	next  int            // of parts
	res   int64          // 0, or what went wrong
}

// conn is one connection and its place in the table. The reactor owns it.
//
// The file descriptor is closed, and the place given to another connection, only when
// nothing of it is in the ring: neither a receive nor a send.
type conn struct {
	id       engine.ConnID
	fd       int
	state    connState
	recv     recvState
	flow     flowState
	marks    marks
	local    bool          // a Unix socket
	deaf     bool          // its peer takes nothing more: replies are thrown away
	owed     int           // replies that the engine will still send
	share    int           // of this turn's input, in bytes
	turn     uint64        // to which share belongs
	deadline time.Duration // of the states ended and draining
	pid      int32         // of the process that connected; 0: not known
	met      time.Duration // when that was seen, since the machine started
	in       proto.Splitter
	held     held // what in holds
	places   [placeKinds]connPlace
	payload  payload
	out      output
	wait     wait
	enrolled bool   // it has registered an instance
	passed   uint8  // descriptors of the pool that its peer may not have read yet
	taken    uint64 // frames stepped
	given    uint64 // sends that ended well
}

// moveTo changes the state.
func (c *conn) moveTo(s connState) {
	if connMoves[c.state]&(1<<s) == 0 {
		panic(fmt.Sprintf("server: connection moves from %v to %v", c.state, s))
	}
	c.state = s
}

// recvTo changes the state of the input.
func (c *conn) recvTo(s recvState) {
	if recvMoves[c.recv]&(1<<s) == 0 {
		panic(fmt.Sprintf("server: receive moves from %v to %v", c.recv, s))
	}
	c.recv = s
}

// tag names the connection to the ring.
func (c *conn) tag() ring.Tag { return ring.NewTag(c.id.Index(), c.id.Generation()) }

// receiving says that a receive is in the ring.
func (c *conn) receiving() bool { return c.recv == recvArmed || c.recv == recvPausing }

// blocked says that the peer must take replies before more of its frames are stepped. A
// payload on its way out of the pool blocks too: so a connection needs one op at a time
// for what it sends.
func (r *reactor) blocked(c *conn) bool {
	if c.out.pools > 0 {
		return true
	}
	most := outputMax
	if r.output > outputBudget {
		most = outputLow
	}
	if c.flow == flowOutput {
		most /= 2 // so that it doesn't stop and go with every reply
	}
	return c.out.bytes > most
}

// connOf finds a connection that is not closing, or nil.
func (r *reactor) connOf(id engine.ConnID) *conn {
	c := &r.conns[id.Index()]
	if c.id != id || c.state == connFree || c.state == connClosing {
		return nil
	}
	return c
}

// connTagged finds the connection that a completion is for. Places are not reused before
// the last completion, so it is there.
func (r *reactor) connTagged(t ring.Tag) *conn {
	c := &r.conns[t.Index()]
	if c.state == connFree || c.id != engine.NewConnID(t.Index(), t.Generation()) {
		panic(fmt.Sprintf("server: completion for connection %#x, which is not there", uint64(t)))
	}
	return c
}

// opened gives a new connection a place. The engine hears of it in this turn.
func (r *reactor) opened(fd int, local bool) {
	r.makeRoom()
	if len(r.connsFree) == 0 {
		r.stats.Refused++
		r.complain("too many connections; one was closed: raise the limits on connections and open files", "limit", len(r.conns))
		closeFd(fd)
		return
	}
	index := r.connsFree[len(r.connsFree)-1]
	r.connsFree = r.connsFree[:len(r.connsFree)-1]
	c := &r.conns[index]
	c.id = engine.NewConnID(index, c.id.Generation()+1)
	c.fd = fd
	c.local = local
	c.in.Init(nil, &r.spares)
	c.moveTo(connOpen)
	r.stats.Accepted++
	r.touch(c)
	r.post(engine.Event{Kind: engine.EventOpen, Conn: c.id, Peer: r.identify(c)})
}

// touch has c settled at the end of the turn.
func (r *reactor) touch(c *conn) {
	if c.marks&markTouched == 0 {
		c.marks |= markTouched
		r.touched = append(r.touched, c.id.Index())
	}
}

// resume has c's frames looked at in the next step phase.
func (r *reactor) resume(c *conn) {
	if c.marks&markResumed == 0 {
		c.marks |= markResumed
		r.resumed = append(r.resumed, c.id.Index())
	}
}

// leave puts c, which has left the state open, among those whose end is awaited.
func (r *reactor) leave(c *conn, s connState, limit time.Duration) {
	if c.state == connOpen {
		r.leaving = append(r.leaving, c.id.Index())
	}
	c.moveTo(s)
	c.deadline = r.now + limit
	r.touch(c)
}

// end is what the end of the stream means once all frames before it were stepped. Replies
// that are under way are sent still, unless nobody is there to read them.
func (r *reactor) end(c *conn) {
	if c.deaf || c.recv == recvBroken || c.payload.state != payloadNone || r.hungUp(c) {
		r.abandon(c)
		return
	}
	r.leave(c, connEnded, endedTime)
}

// hungUp says that the peer has closed the socket, rather than one half of it. On TCP that
// is not known before something is sent.
func (r *reactor) hungUp(c *conn) bool {
	if !c.local {
		return false
	}
	r.pollfd[0] = unix.PollFd{Fd: int32(c.fd)}
	n, err := unix.Poll(r.pollfd[:], 0)
	return err == nil && n > 0 && r.pollfd[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// hears is [engine.Host.Hears]. Frames that are stepped behind the end of the stream may be those of a peer that has gone.
func (r *reactor) hears(c *conn) bool {
	return !c.deaf && c.recv != recvBroken && (c.recv != recvEnded || !r.hungUp(c))
}

// deafen is for a peer that takes no replies any more. What it sent before it went is
// stepped still, for it may give back what would be kept for its process else; then the
// stream ends. The ring has nothing of c's output.
func (r *reactor) deafen(c *conn) {
	c.deaf = true
	r.dropOutput(c)
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // what has arrived can be read, and then nothing more comes
	if c.flow == flowOutput {
		r.resume(c)
	}
	r.touch(c)
}

// lose is for a peer that is gone while its requests wait for it to read.
func (r *reactor) lose(c *conn) {
	if !c.out.sending() {
		r.deafen(c)
		return
	}
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // the send fails by this, if it has not yet
}

// abandon closes c without sending anything more.
func (r *reactor) abandon(c *conn) {
	if c.state == connClosing {
		return
	}
	r.leave(c, connClosing, 0)
	r.breakPayload(c, -int64(unix.EPIPE))
	// What is in the ring ends soon after this, whatever the peer does.
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // fails when the peer was quicker
	if c.recv == recvArmed {
		c.recvTo(recvPausing)
		r.ring.Pause(c.tag())
	}
}

// reapLeaving moves connections on that are on their way out: those whose output has gone
// or whose time is up are closed, and those that the ring is done with are freed. Their
// number is that of the connections at most, and usually 0.
func (r *reactor) reapLeaving() {
	kept := r.leaving[:0]
	for _, index := range r.leaving {
		c := &r.conns[index]
		if (c.state == connEnded && c.owed == 0 || c.state == connDraining) && c.out.empty() {
			r.abandon(c)
		}
		if c.state != connClosing && r.now >= c.deadline {
			r.abandon(c)
		}
		if c.state == connClosing && !c.receiving() && !c.out.sending() {
			r.closed(c)
			continue
		}
		kept = append(kept, index)
	}
	r.leaving = kept
}

// nextDeadline is when the first of the connections on their way out is out of time.
func (r *reactor) nextDeadline() (time.Duration, bool) {
	var at time.Duration
	found := false
	for _, index := range r.leaving {
		c := &r.conns[index]
		if c.state != connClosing && (!found || c.deadline < at) {
			at, found = c.deadline, true
		}
	}
	return at, found
}

// closed frees c, of which nothing is in the ring any more, and tells the engine.
func (r *reactor) closed(c *conn) {
	r.dropOutput(c)
	r.unwait(c)
	c.moveTo(connFree)
	closeFd(c.fd)
	r.letGo(c)
	r.part(c)
	id := c.id
	parts := c.payload.parts[:0]
	if cap(parts) > partsKeep {
		parts = nil
	}
	*c = conn{id: id, marks: c.marks, payload: payload{parts: parts}}
	r.connsFree = append(r.connsFree, id.Index())
	r.stats.Closed++
	r.post(engine.Event{Kind: engine.EventClosed, Conn: id})
}

// closeFd closes a descriptor of ours. An error would tell of a failed write-back, of which
// sockets and pidfds have none.
func closeFd(fd int) { _ = unix.Close(fd) }
