package server

import (
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/server/engine"
)

// The reactor is the engine's host. The methods only queue: what they find out at once is
// told to the engine after the step that called them.
var _ engine.Host = (*reactor)(nil)

// Send implements [engine.Host].
func (r *reactor) Send(id engine.ConnID, frame []byte) {
	if c := r.connOf(id); c != nil {
		r.sendFrame(c, frame)
	}
}

// SendPool implements [engine.Host].
func (r *reactor) SendPool(id engine.ConnID, frame []byte, parts []table.Extent, op engine.OpID) {
	c := r.connOf(id)
	if c == nil {
		r.later(engine.Event{Kind: engine.EventSent, Op: op, Res: -int64(unix.EPIPE)})
		return
	}
	r.sendPool(c, frame, parts, op)
}

// SendPoolFD implements [engine.Host].
func (r *reactor) SendPoolFD(id engine.ConnID, frame []byte, access engine.PoolAccess) {
	if c := r.connOf(id); c != nil {
		r.sendFile(c, frame, access)
	}
}

// Receive implements [engine.Host].
func (r *reactor) Receive(id engine.ConnID, parts []table.Extent, op engine.OpID) {
	r.receive(id, parts, op)
}

// Hangup implements [engine.Host].
func (r *reactor) Hangup(id engine.ConnID) {
	c := r.connOf(id)
	if c == nil || c.state == connDraining {
		return
	}
	r.leave(c, connDraining, drainTime)
	r.breakPayload(c, -int64(unix.EPIPE))
}

// Passable implements [engine.Host].
func (r *reactor) Passable(id engine.ConnID) bool {
	c := r.connOf(id)
	return c == nil || r.passable(c)
}

// Process implements [engine.Host].
func (r *reactor) Process(id engine.ConnID) (uint64, bool) {
	c := r.connOf(id)
	if c == nil || !c.local {
		return 0, true
	}
	return r.processOf(c)
}

// Watchable implements [engine.Host].
func (r *reactor) Watchable(id engine.ConnID) bool {
	c := r.connOf(id)
	return c != nil && r.watchable(c)
}

// Watch implements [engine.Host].
func (r *reactor) Watch(id engine.ConnID, w engine.WatchID) {
	if c := r.connOf(id); c != nil {
		r.startWatch(c, w)
	}
}

// Unwatch implements [engine.Host].
func (r *reactor) Unwatch(w engine.WatchID) { r.endWatch(w) }

// Kill implements [engine.Host].
func (r *reactor) Kill(w engine.WatchID) bool { return r.kill(w) }

// Quiet implements [engine.Host].
func (r *reactor) Quiet(id engine.ConnID) bool {
	c := r.connOf(id)
	return c == nil || r.quiet(c)
}

// Hears implements [engine.Host].
func (r *reactor) Hears(id engine.ConnID) bool {
	c := r.connOf(id)
	return c != nil && r.hears(c)
}

// Tell implements [engine.Host].
func (r *reactor) Tell(n *engine.Notice) { r.tell(n) }

// Sight implements [engine.Host].
func (r *reactor) Sight(batch int, hashes []uint64) { r.sighter.ask(batch, hashes) }

// DiskRoom implements [engine.Host].
func (r *reactor) DiskRoom() int { return r.diskRoom() }

// Disk implements [engine.Host].
func (r *reactor) Disk(io *seglog.IO) { r.startDisk(io) }

// post queues an event for the step phase of this turn, or of the next one when this
// turn's is over.
func (r *reactor) post(ev engine.Event) { r.events = append(r.events, ev) }

// later queues an event that is stepped as soon as the engine has returned.
func (r *reactor) later(ev engine.Event) { r.deferred = append(r.deferred, ev) }
