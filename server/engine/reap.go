package engine

import (
	"time"

	"github.com/slotcache/slotcache/proto"
)

// reapRetry is when an instance is looked at again that was silent for its time, but for a
// reason.
const reapRetry = time.Second

// silence is the timer of instance x.
func (e *Engine) silence(x uint32) uint32 {
	return uint32(len(e.transfers)+len(e.parked)) + x
}

// watchSilence has instance x looked at when it may have been silent for too long. A request
// does not move the timer: it is when the timer comes that the last one is looked at.
func (e *Engine) watchSilence(x uint32) {
	if e.cfg.ReapAfter > 0 {
		e.timers.set(e.silence(x), e.now+e.cfg.ReapAfter)
	}
}

// reap ends instance x if it has sent nothing for too long: its process hangs, or its machine
// is gone. It is judged when all that had arrived was stepped, so that a server which was
// held up blames nobody, and one that waits for the server is not silent. As its process may
// live, it keeps the slots that it was told of until that ends.
func (e *Engine) reap(x uint32) {
	i := &e.insts[x]
	switch {
	case i.state != instLive: // it is ending, or has no connection to send on
		return
	case i.seen+e.cfg.ReapAfter > e.now:
		e.timers.set(e.silence(x), i.seen+e.cfg.ReapAfter)
		return
	case i.parked > 0 || !e.quiet(x):
		e.timers.set(e.silence(x), e.now+reapRetry)
		return
	}
	e.counters.Reaped++
	e.host.Tell(&Notice{
		Kind: NoticeReaped, Peer: Peer{PID: i.pid}, Instance: i.id, Incarnation: i.incarnation,
		Name: i.name, Namespace: e.spaces[i.space].name, Transport: i.transport, Shm: proto.ShmNone,
	})
	e.supersede(x)
}

// quiet says that nothing is under way on any connection of instance x.
func (e *Engine) quiet(x uint32) bool {
	for n := range e.conns {
		c := &e.conns[n]
		if c.state != connFree && e.boundInstance(c) == x && !e.host.Quiet(c.id) {
			return false
		}
	}
	return true
}
