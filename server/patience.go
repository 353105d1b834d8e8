package server

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// How long a peer may keep the server waiting. What it waits for costs memory, or a place in
// the table of connections; an idle peer, which has sent whole frames and taken all replies,
// is waited for without end.
const (
	helloTime  = 10 * time.Second // for the first frame
	frameTime  = 30 * time.Second // for the rest of a frame, or the next payloadPace of a payload
	readerTime = 30 * time.Second // for it to take some of its replies

	// payloadPace is how much of a payload has to arrive in frameTime, in bytes.
	payloadPace = 64 << 10
)

// waitKind says what of its peer a connection waits for.
type waitKind uint8

const (
	waitNothing waitKind = iota // it is idle, or the server's turn
	waitHello                   // its first frame
	waitFrame                   // the rest of a frame or payload
	waitReader                  // that it takes replies
	waitEnrol                   // that it registers, or sends anything; without end

	waitKinds = iota
)

var waitNames = [waitKinds]string{"nothing", "hello", "frame", "reader", "enrol"}

// String names the kind.
func (k waitKind) String() string {
	if k < waitKinds {
		return waitNames[k]
	}
	return fmt.Sprintf("waitKind(%d)", uint8(k))
}

// wait is a connection's place in the list of those that wait for the same. As long as
// nothing moves on it stays there; with each step of its peer it goes to the end.
type wait struct {
	kind  waitKind
	since time.Duration
	moved uint64 // the peer's progress by then
}

// waits are the connections that wait for their peers, by kind, the longest first.
type waits struct {
	limits [waitKinds]time.Duration // 0: without end
	lists  [waitKinds]connList
}

// awaited is what c waits for, and a number that changes with each step of its peer.
func (c *conn) awaited() (waitKind, uint64) {
	switch {
	case c.state != connOpen: // it has a deadline of its own
	case c.out.state == sendBusy || c.out.state == sendFull:
		if c.out.pools == 0 { // else the engine has a deadline for it
			return waitReader, c.given
		}
	case c.taken == 0:
		return waitHello, 0
	case c.flow == flowMessage && (c.in.Unread() > 0 || c.payload.state != payloadNone):
		return waitFrame, c.taken<<16 | uint64(c.in.Payload()/payloadPace)
	case !c.enrolled:
		return waitEnrol, c.taken
	}
	return waitNothing, 0
}

// await puts c on the list of what it waits for now.
func (r *reactor) await(c *conn) {
	kind, moved := c.awaited()
	w := &c.wait
	if kind == w.kind && moved == w.moved {
		return
	}
	r.unwait(c)
	if kind == waitNothing {
		return
	}
	*w = wait{kind: kind, since: r.now, moved: moved}
	r.enlist(&r.waits.lists[kind], placeWait, c)
}

// unwait takes c off its list.
func (r *reactor) unwait(c *conn) {
	w := &c.wait
	if w.kind == waitNothing {
		return
	}
	r.delist(&r.waits.lists[w.kind], placeWait, c)
	*w = wait{}
}

// losePatience closes the connections that have waited too long. It comes when all that had
// arrived was looked at, for a server that was held up must not blame its peers.
func (r *reactor) losePatience() {
	if !r.drained {
		return
	}
	for kind := waitHello; kind < waitKinds; kind++ {
		list := &r.waits.lists[kind]
		for r.waits.limits[kind] > 0 && list.first != 0 {
			c := &r.conns[list.first-1]
			if c.wait.since+r.waits.limits[kind] > r.now {
				break
			}
			r.stats.SlowPeers++
			r.complain("connection closed: its peer keeps the server waiting", "for", kind.String(), "seconds", r.waits.limits[kind].Seconds())
			r.unwait(c)
			r.abandon(c)
		}
	}
}

// quiet is [engine.Host.Quiet]. What lies in the socket has arrived, too.
func (r *reactor) quiet(c *conn) bool {
	if !r.drained || c.owed > 0 || !c.out.empty() || c.in.Unread() > 0 || c.payload.state != payloadNone || c.recv != recvArmed {
		return false
	}
	r.pollfd[0] = unix.PollFd{Fd: int32(c.fd), Events: unix.POLLIN}
	n, err := unix.Poll(r.pollfd[:], 0)
	return err == nil && n == 0
}

// nextImpatience is when the first connection will have waited too long.
func (r *reactor) nextImpatience() (time.Duration, bool) {
	var next earliest
	for kind := waitHello; kind < waitKinds; kind++ {
		if x := r.waits.lists[kind].first; x != 0 && r.waits.limits[kind] > 0 {
			next.add(r.conns[x-1].wait.since+r.waits.limits[kind], true)
		}
	}
	return next.at, next.found
}
