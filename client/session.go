package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// A session is one registration: a worker on one link, with the mapping it got. When the
// link is lost the session ends, and the worker's next call makes another; the mapping of
// the old one stays until nothing uses it any more. References are held by the worker (one), each call under way,
// each open handle and the populator.
type session struct {
	link        *link
	worker      *Worker
	transport   proto.Transport
	incarnation uint32
	pool        *mapping // nil when inline
	poolSize    int64
	layouts     []Layout
	ready       atomic.Int64
	refs        atomic.Int64
	ended       atomic.Bool   // unregistered, closed, replaced or its link lost
	left        chan struct{} // closed when the last has left
}

// identity is what the server knows the session's process by.
func (s *session) identity() identity {
	return identity{boot: s.link.boot, instance: s.worker.reg.Instance}
}

// live reports whether requests can be made in this session.
func (s *session) live() bool { return !s.ended.Load() && s.link.alive() }

// inline reports whether bytes travel in frames.
func (s *session) inline() bool { return s.transport == proto.TransportInline }

// retain takes another reference. The caller has one.
func (s *session) retain() *session {
	s.refs.Add(1)
	return s
}

// enter takes a reference if the session has not been torn down.
func (s *session) enter() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave drops a reference; the last one unmaps the memory.
func (s *session) leave() {
	n := s.refs.Add(-1)
	if n < 0 {
		panic("client: session left more often than entered")
	}
	if n > 0 {
		return
	}
	if s.pool != nil {
		if err := s.pool.close(); err != nil {
			panic(fmt.Sprintf("client: unmap the pool: %v", err))
		}
	}
	close(s.left)
	s.worker.leave(s.identity())
}

// roundTrip makes a call that ends when the worker is closed, too.
func (s *session) roundTrip(ctx context.Context, c *call) error {
	c.stop = s.worker.base.Done()
	return s.link.roundTrip(ctx, c)
}

// gone returns the error of a handle whose session is not live any more.
func (s *session) gone() error {
	if s.worker.base.Err() != nil {
		return ErrClosed
	}
	return ErrStale
}

// end retires the session and drops the worker's reference. The second end does nothing.
func (s *session) end() {
	if s.ended.CompareAndSwap(false, true) {
		s.leave()
	}
}

// follow ends the session when its link is lost, rather than with the worker's next call,
// which may be long in coming: if the server has been killed, its successor needs the
// memory that is mapped here. It runs in a goroutine of its own, without a reference.
func (s *session) follow() {
	select {
	case <-s.link.read:
		s.end()
	case <-s.left:
	case <-s.worker.base.Done():
	}
}

// keepAliveTime is how long a worker is silent until it shows that it is there. A server ends
// instances that are silent for long, 2 minutes unless it is told otherwise.
const keepAliveTime = 20 * time.Second

// keepAlive pings when nothing else was sent for a while. Like follow it has no reference.
func (s *session) keepAlive() {
	for last := s.link.sent(); s.pause(keepAliveTime); last = s.link.sent() {
		if s.link.sent() != last {
			continue
		}
		if _, err := s.ping(s.worker.base); err != nil && s.live() {
			s.link.log.Debug("client: ping", "err", err)
		}
	}
}

// slots turns the reply's slots into slices. A slot outside of the pool ends the link.
func (s *session) slots(op proto.Op, slots []proto.Slot) ([][]byte, error) {
	list := make([][]byte, len(slots))
	for i := range slots {
		b, err := s.slot(op, slots[i])
		if err != nil {
			return nil, err
		}
		list[i] = b
	}
	return list, nil
}

func (s *session) slot(op proto.Op, slot proto.Slot) ([]byte, error) {
	if s.pool == nil {
		return nil, s.link.broken(op, "a slot without shared memory")
	}
	b, ok := s.pool.slice(slot)
	if !ok {
		return nil, s.link.broken(op, "slot of %d bytes at %d in a pool of %d", slot.Len, slot.Off, len(s.pool.data))
	}
	return b, nil
}

// maxKeys is how many keys a request may have here.
func (s *session) maxKeys() int {
	most := min(s.link.hello.MaxKeys, proto.MaxKeys)
	if frame := s.link.hello.MaxFrame; frame > frameRest+keyCost {
		most = min(most, (frame-frameRest)/keyCost)
	}
	return int(most)
}

const (
	// keyCost is the most that a key takes in a request, its size included, in bytes.
	keyCost = proto.KeySize + 8
	// frameRest is more than all else in a frame with keys takes, in bytes.
	frameRest = proto.HeaderSize + 64
)

// maxPayload is how many bytes a payload may have here.
func (s *session) maxPayload() uint64 {
	if n := s.link.hello.MaxPayload; n > 0 && n < proto.MaxPayload {
		return n
	}
	return proto.MaxPayload
}

// inlineKeys is how many objects of the layout are sure to fit into one payload. A
// negative layout stands for any.
func (s *session) inlineKeys(layout int) int {
	var size uint64
	for i := range s.layouts {
		if layout < 0 || layout == i {
			size = max(size, s.layouts[i].Size)
		}
	}
	return int(min(max(s.maxPayload()/max(size, 1), 1), uint64(s.maxKeys())))
}

const (
	// populateStep is how much is populated between two looks at whether to stop.
	populateStep = 16 << 20
	// populateWait is the time between two pings that ask for more.
	populateWait = 250 * time.Millisecond
)

// populate follows what the server announces as ready until all of it is present here or
// the session ends. It runs in its own goroutine and owns a reference.
func (s *session) populate() {
	defer s.leave()
	var done int64
	for s.live() && s.worker.base.Err() == nil {
		if ready := s.ready.Load(); done < ready {
			next := min(done+populateStep, ready)
			if err := s.pool.populate(done, next); err != nil {
				// Only a first touch that is slower than it could be.
				s.link.log.Debug("client: pool not populated", "from", done, "to", next, "err", err)
				return
			}
			done = next
			continue
		}
		if done >= s.poolSize {
			return
		}
		if !s.pause(populateWait) {
			return
		}
		if _, err := s.ping(s.worker.base); err != nil && s.live() {
			s.link.log.Debug("client: ping", "err", err)
			return
		}
	}
}

// ping asks how much of the pool is ready.
func (s *session) ping(ctx context.Context) (Pong, error) {
	p, err := s.link.ping(ctx, s.worker.base.Done())
	if err == nil {
		s.announce(p.Ready)
	}
	return p, err
}

// announce notes that the server has populated the first ready bytes.
func (s *session) announce(ready int64) {
	ready = min(max(ready, 0), s.poolSize)
	for {
		old := s.ready.Load()
		if ready <= old || s.ready.CompareAndSwap(old, ready) {
			return
		}
	}
}
