package server

import "time"

const (
	// connsSpare is how many places for connections are kept free for newcomers, at the cost of those that do nothing;
	// fewer where there are few in all.
	connsSpare = 256
	// greetTime is for how long a connection that has not said hello goes after those that are idle.
	greetTime = 100 * time.Millisecond
	// idleTime is for how long a connection that came in must have been of no use until a newcomer takes its place.
	idleTime = time.Second
)

// displaced are the connections that newcomers may take the places of, and how long they must have waited, the first
// to go before the others. Who is registered and has sent whole requests is never among them.
var displaced = [...]struct {
	kind  waitKind
	after time.Duration
}{
	{waitHello, greetTime},     // it may be anybody's, and thousands of them cost nothing to make
	{waitEnrol, idleTime},      // it has nothing to lose, and its client connects again
	{waitFrame, idleTime},      // a frame is sent in one piece by who means well
	{waitReader, 2 * idleTime}, // it asks for what it does not take
	{waitHello, 0},
	{waitEnrol, 0}, // it sends requests, and could register
}

// makeRoom ends a connection that is of no use, if there are hardly any places left: whoever fills the table with
// connections that do nothing must not keep out the others. Its place is free when the ring is done with it, which is
// why some are kept.
func (r *reactor) makeRoom() {
	if len(r.connsFree) > min(connsSpare, len(r.conns)/4) {
		return
	}
	for _, d := range displaced {
		c := r.longest(d.kind)
		if c == nil || c.wait.since+d.after > r.now {
			continue
		}
		r.stats.Displaced++
		r.complain("connection closed: newcomers need its place: raise the limits on connections and open files", "for", d.kind.String(), "limit", len(r.conns))
		r.unwait(c)
		r.abandon(c)
		return
	}
}

// longest is the connection that waits for so long as no other one for its peer to do something, or nil.
func (r *reactor) longest(kind waitKind) *conn {
	for list := &r.waits.lists[kind]; list.first != 0; {
		c := &r.conns[list.first-1]
		if c.state == connOpen {
			return c
		}
		r.unwait(c) // it is ending already
	}
	return nil
}
