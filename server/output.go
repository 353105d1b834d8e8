package server

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server/engine"
)

// Bounds on output. They stop a connection's requests, not its replies: what the engine
// sends is always taken.
const (
	// outputMax is how much a connection may have queued until no more of its requests are
	// stepped, in bytes.
	outputMax = 1 << 20
	// outputBudget is what all connections may have queued until outputLow holds for each.
	outputBudget = 4 << 20
	outputLow    = 16 << 10
	// copyMax is up to which length a payload is copied behind its frame: to send it from
	// the pool takes another turn, which costs more than the copy.
	copyMax = 32 << 10
)

// sendState says what of a connection's output is in the ring.
//
//	        try                      all went
//	idle ----------> tried --------------------------> idle
//	  |                |  some went           send
//	  |                +-----------> full ------------> busy
//	  |     send, the completion matters                 |
//	  +------------------------------------------------->+--> idle
//	                                           completed
type sendState uint8

const (
	sendIdle  sendState = iota // nothing
	sendTried                  // a try, which completes only if it fails or is short
	sendFull                   // nothing; the socket was full, so that trying is no use
	sendBusy                   // a send, which completes
)

var sendNames = [...]string{"idle", "tried", "full", "busy"}

// String names the state.
func (s sendState) String() string {
	if int(s) < len(sendNames) {
		return sendNames[s]
	}
	return fmt.Sprintf("sendState(%d)", uint8(s))
}

var sendMoves = [...]uint8{
	sendIdle:  1<<sendTried | 1<<sendBusy,
	sendTried: 1<<sendIdle | 1<<sendFull,
	sendFull:  1 << sendBusy,
	sendBusy:  1 << sendIdle,
}

// segmentKind says what a segment consists of.
type segmentKind uint8

const (
	segmentBytes segmentKind = iota // bytes of frames
	segmentFile                     // a frame with the pool's descriptor beside it
	segmentPool                     // a part of the pool
)

// A segment is one piece of a connection's output. Segments are nodes of lists within
// segments.nodes.
type segment struct {
	next   uint32
	kind   segmentKind
	access engine.PoolAccess // of a file
	final  bool              // the last part of what op sends
	head   int               // of buf, or of the pool
	tail   int               // not including
	buf    []byte            // of bytes and files; the segment's until it is freed
	op     engine.OpID       // of a final part
}

// output is the queue of what goes to one connection. Its first segment is what the ring
// has, if it has something.
type output struct {
	first, last uint32 // segments; 0: none
	state       sendState
	size        int // of the send in the ring
	bytes       int // of frames that have not gone out
	pools       int // SendPools that have not ended
}

// moveTo changes the state.
func (o *output) moveTo(s sendState) {
	if sendMoves[o.state]&(1<<s) == 0 {
		panic(fmt.Sprintf("server: send moves from %v to %v", o.state, s))
	}
	o.state = s
}

// sending says that a send is in the ring.
func (o *output) sending() bool { return o.state == sendTried || o.state == sendBusy }

// empty says that everything has gone out.
func (o *output) empty() bool { return o.bytes == 0 && o.pools == 0 && !o.sending() }

// room returns n bytes at the end of c's output, to be filled at once, or nil if c had to be
// closed for want of memory, or takes nothing.
func (r *reactor) room(c *conn, n int) []byte {
	o := &c.out
	if c.deaf {
		return nil
	}
	if o.last != 0 {
		s := &r.segments[o.last]
		if s.kind == segmentBytes && len(s.buf)-s.tail < n && (o.last != o.first || !o.sending()) && s.tail-s.head+n <= bufferStep {
			r.growSegment(s, n)
		}
		if s.kind == segmentBytes && len(s.buf)-s.tail >= n {
			s.tail += n
			r.queued(c, n)
			return s.buf[s.tail-n : s.tail]
		}
	}
	return r.newSegment(c, segmentBytes, n)
}

// queued accounts n bytes more of frames.
func (r *reactor) queued(c *conn, n int) {
	c.out.bytes += n
	r.output += n
	r.touch(c)
}

// growSegment moves a segment that the kernel does not read into a buffer with n bytes of
// room, if there is memory.
func (r *reactor) growSegment(s *segment, n int) {
	used := s.tail - s.head
	buf, err := r.buffers.take(used + max(n, used))
	if err != nil {
		return // the caller will fail too
	}
	copy(buf, s.buf[s.head:s.tail])
	r.buffers.give(s.buf)
	s.buf, s.head, s.tail = buf, 0, used
}

// newSegment queues a segment with a buffer of its own and returns n bytes of it.
func (r *reactor) newSegment(c *conn, kind segmentKind, n int) []byte {
	if c.deaf {
		return nil
	}
	want := n
	if kind == segmentBytes && c.out.bytes > 0 {
		want = max(n, min(c.out.bytes, bufferStep))
	}
	buf, err := r.buffers.take(want)
	if err != nil {
		r.complain("connection closed: no memory for its replies", "err", err)
		r.abandon(c)
		return nil
	}
	r.push(c, segment{kind: kind, buf: buf, tail: n})
	r.queued(c, n)
	return buf[:n]
}

// push appends a segment to c's output.
func (r *reactor) push(c *conn, s segment) {
	var x uint32
	if n := len(r.segmentsFree); n > 0 {
		x = r.segmentsFree[n-1]
		r.segmentsFree = r.segmentsFree[:n-1]
		r.segments[x] = s
	} else {
		x = uint32(len(r.segments))
		r.segments = append(r.segments, s)
	}
	if c.out.last == 0 {
		c.out.first = x
	} else {
		r.segments[c.out.last].next = x
	}
	c.out.last = x
}

// pop removes the first segment of c's output, which the ring does not have any more, and
// reports the end of what it is the last part of.
func (r *reactor) pop(c *conn, res int64) {
	x := c.out.first
	s := &r.segments[x]
	c.out.first = s.next
	if c.out.first == 0 {
		c.out.last = 0
	}
	if s.buf != nil {
		r.buffers.give(s.buf)
	}
	if s.final {
		c.out.pools--
		r.post(engine.Event{Kind: engine.EventSent, Op: s.op, Res: res})
	}
	*s = segment{}
	r.segmentsFree = append(r.segmentsFree, x)
}

// sendFrame is [engine.Host.Send].
func (r *reactor) sendFrame(c *conn, frame []byte) bool {
	p := r.room(c, len(frame))
	if p == nil {
		return false
	}
	copy(p, frame)
	c.owed = max(c.owed-1, 0)
	return true
}

// sendPool is [engine.Host.SendPool].
func (r *reactor) sendPool(c *conn, frame []byte, parts []table.Extent, op engine.OpID) {
	var sum int64
	for _, p := range parts {
		sum += p.Len
	}
	if !r.sendFrame(c, frame) {
		r.later(engine.Event{Kind: engine.EventSent, Op: op, Res: -int64(unix.ENOMEM)})
		return
	}
	if sum <= copyMax {
		r.later(engine.Event{Kind: engine.EventSent, Op: op, Res: r.sendCopy(c, parts, int(sum))})
		return
	}
	c.out.pools++
	last := len(parts) - 1
	for parts[last].Len == 0 {
		last--
	}
	for i, p := range parts[:last+1] {
		if p.Len > 0 {
			r.push(c, segment{kind: segmentPool, head: int(p.Off), tail: int(p.Off + p.Len), final: i == last, op: op})
		}
	}
}

// sendCopy queues a copy of parts, sum bytes together, and says what came of it.
func (r *reactor) sendCopy(c *conn, parts []table.Extent, sum int) int64 {
	if sum == 0 {
		return 0
	}
	dst := r.room(c, sum)
	if dst == nil {
		return -int64(unix.ENOMEM)
	}
	for _, p := range parts {
		if err := l1.CopyOut(dst[:p.Len], r.pool.Bytes(p.Off, p.Len)); err != nil {
			r.stats.Faults++
			r.complain("connection closed: the pool's memory is damaged", "err", err)
			r.abandon(c) // the peer awaits bytes that are not there
			return -int64(unix.EFAULT)
		}
		dst = dst[p.Len:]
	}
	return 0
}

// passedMax is how many descriptors of the pool a peer may be passed that it does not read. The kernel lets a user who
// is not root have as many under way as files open, and nobody else can be passed one then.
const passedMax = 2

// passable is [engine.Host.Passable].
func (r *reactor) passable(c *conn) bool {
	if c.passed < passedMax {
		return true
	}
	unread, err := unix.IoctlGetInt(c.fd, unix.SIOCOUTQ)
	if err != nil || unread > 0 || !c.out.empty() {
		return false
	}
	c.passed = 0
	return true
}

// sendFile is [engine.Host.SendPoolFD].
func (r *reactor) sendFile(c *conn, frame []byte, access engine.PoolAccess) {
	p := r.newSegment(c, segmentFile, len(frame))
	if p == nil {
		return
	}
	copy(p, frame)
	r.segments[c.out.last].access = access
	c.passed++
	c.owed = max(c.owed-1, 0)
}

// advance starts the next send of c, if none is in the ring. The last of the output is
// tried, which costs no completion if all of it goes, unless somebody waits for that
// completion: the end of a connection, or input that is held back.
func (r *reactor) advance(c *conn) {
	o := &c.out
	if o.sending() || c.state == connClosing || c.state == connFree {
		return
	}
	for o.first != 0 && r.segments[o.first].kind == segmentBytes && r.segments[o.first].head == r.segments[o.first].tail {
		if o.first == o.last && len(r.segments[o.first].buf) == bufferMin {
			return // the buffer it keeps at rest
		}
		r.pop(c, 0)
	}
	if o.first == 0 {
		return
	}
	s := &r.segments[o.first]
	o.size = s.tail - s.head
	switch s.kind {
	case segmentBytes:
		p := s.buf[s.head:s.tail]
		if o.state == sendIdle && o.first == o.last && c.state == connOpen && c.flow != flowOutput {
			o.moveTo(sendTried)
			r.tried = append(r.tried, c.id.Index())
			r.ring.SendNow(c.tag(), c.fd, p)
			return
		}
		r.ring.Send(c.tag(), c.fd, p)
	case segmentFile:
		r.ring.SendFD(c.tag(), c.fd, s.buf[s.head:s.tail], r.poolFds[s.access])
	case segmentPool:
		r.ring.Send(c.tag(), c.fd, r.pool.Bytes(int64(s.head), int64(o.size)))
	}
	o.moveTo(sendBusy)
}

// hasten sends what the turn has led to so far. It comes before frames that had to wait for their turn, and before what the last turn
// left: one of them may be a lookup of thousands of keys, for half a millisecond, and what is queued behind the step phase would wait for that.
func (r *reactor) hasten() {
	started := false
	for _, index := range r.touched {
		if c := &r.conns[index]; c.out.bytes > 0 && !c.out.sending() {
			r.advance(c)
			started = true
		}
	}
	if started {
		r.hastened = true
		_ = r.ring.Submit() // an error is final: the next wait has it too
	}
}

// sent takes the completion of a send, or of a try that did not go whole.
func (r *reactor) sent(done *ring.Completion) {
	c := r.connTagged(done.Tag)
	res := int(done.Res)
	full := c.out.state == sendTried
	if full && (done.Res == -int32(unix.EAGAIN) || done.Res == -int32(unix.EINTR)) {
		res = 0
	}
	if full {
		c.out.moveTo(sendFull)
	} else {
		c.out.moveTo(sendIdle)
	}
	r.touch(c)
	if res < 0 || !full && res != c.out.size {
		r.stats.SendErrors++
		if r.segments[c.out.first].kind == segmentFile && done.Res == -int32(unix.ETOOMANYREFS) {
			r.complain("connection closed: the pool's descriptor cannot be passed: too many of this user are under way: raise the limit on open files", "conn", uint64(c.id))
		}
		switch c.state {
		case connOpen:
			r.deafen(c)
		case connEnded, connDraining:
			r.abandon(c)
		case connFree, connClosing:
		}
		return
	}
	r.went(c, res)
}

// went takes n bytes off the first segment.
func (r *reactor) went(c *conn, n int) {
	s := &r.segments[c.out.first]
	s.head += n
	c.given++
	r.stats.Sent += uint64(n)
	if s.kind != segmentPool {
		c.out.bytes -= n
		r.output -= n
	}
	if s.head == s.tail {
		if s.kind == segmentBytes && c.out.first == c.out.last && len(s.buf) == bufferMin {
			s.head, s.tail = 0, 0
		} else {
			r.pop(c, 0)
		}
	}
	if c.flow == flowOutput && c.state == connOpen && !r.blocked(c) {
		r.resume(c)
	}
}

// resolve settles the tries that did not complete: they went whole. All completions of the
// call that submitted them must have been looked at.
func (r *reactor) resolve() {
	for _, index := range r.tried {
		c := &r.conns[index]
		if c.out.state == sendTried {
			c.out.moveTo(sendIdle)
			r.went(c, c.out.size)
			if c.out.bytes > 0 { // queued behind a try that was made in the step phase
				r.touch(c)
			}
		}
	}
	r.tried = r.tried[:0]
}

// dropOutput throws away what c's peer will not read. The ring has none of it any more.
func (r *reactor) dropOutput(c *conn) {
	r.output -= c.out.bytes
	for c.out.first != 0 {
		r.pop(c, -int64(unix.EPIPE))
	}
	c.out = output{}
}
