package client

import (
	"context"
	"fmt"
	"sync"
)

// An identity is what a server knows this process by: an instance id at one start of a server, the boot id of which tells
// servers apart. The namespace is no part of it: a process that registers an id in another
// namespace gives up what it was, and may end what it had.
type identity struct{ boot, instance uint64 }

// A sharing tells which workers of this process have sessions of an identity. Handles are
// the instance's, so that no worker may end one that it does not know while it is not
// alone; and UNREGISTER ends what all of them have.
type sharing struct {
	mu sync.Mutex
	of map[identity]*sharers
}

// sharers are the sessions of one identity.
type sharers struct {
	sessions map[*Worker]*presence
	parting  chan struct{} // closed when the one that unregisters just now has; nil: nobody does
}

// A presence is the sessions that a worker has as one identity.
type presence struct {
	count int
	left  chan struct{} // closed when there are none any more
}

var present = sharing{of: make(map[identity]*sharers)}

// enter counts one more session of w, which is about to register. It waits until nobody
// unregisters the identity.
func (x *sharing) enter(ctx context.Context, id identity, w *Worker) error {
	for {
		x.mu.Lock()
		s := x.get(id)
		if s.parting == nil {
			p := s.sessions[w]
			if p == nil {
				p = &presence{left: make(chan struct{})}
				s.sessions[w] = p
			}
			p.count++
			x.mu.Unlock()
			return nil
		}
		parting := s.parting
		x.mu.Unlock()
		select {
		case <-parting:
		case <-w.base.Done():
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("client: register: %w", ctx.Err())
		}
	}
}

// leave counts one session less.
func (x *sharing) leave(id identity, w *Worker) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.of[id]
	p := s.sessions[w]
	if p.count--; p.count > 0 {
		return
	}
	delete(s.sessions, w)
	x.drop(id)
	close(p.left)
}

// left returns what is closed when w has no session of the identity any more.
func (x *sharing) left(id identity, w *Worker) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.of[id]; s != nil && s.sessions[w] != nil {
		return s.sessions[w].left
	}
	c := make(chan struct{})
	close(c)
	return c
}

// alone reports whether no other worker has sessions of the identity.
func (x *sharing) alone(id identity, w *Worker) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.of[id]
	return s == nil || s.alone(w)
}

// only returns the one worker that has sessions of the identity, or nil.
func (x *sharing) only(id identity) *Worker {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.of[id]; s != nil && len(s.sessions) == 1 {
		for w := range s.sessions {
			return w
		}
	}
	return nil
}

func (s *sharers) alone(w *Worker) bool {
	n := len(s.sessions)
	return n == 0 || n == 1 && s.sessions[w] != nil
}

// part is for w, which has no session of the identity any more. It reports whether nobody
// else has, in which case nobody enters until done is called.
func (x *sharing) part(id identity, w *Worker) (done func(), alone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.get(id)
	if s.parting != nil || !s.alone(w) { // who parts just now ends all that there is
		x.drop(id)
		return func() {}, false
	}
	s.parting = make(chan struct{})
	return func() {
		x.mu.Lock()
		close(s.parting)
		s.parting = nil
		x.drop(id)
		x.mu.Unlock()
	}, true
}

// get finds the sharers of an identity, or makes them. The caller holds the mutex.
func (x *sharing) get(id identity) *sharers {
	s := x.of[id]
	if s == nil {
		s = &sharers{sessions: make(map[*Worker]*presence)}
		x.of[id] = s
	}
	return s
}

// drop forgets an identity that nobody has. The caller holds the mutex.
func (x *sharing) drop(id identity) {
	if s := x.of[id]; s != nil && len(s.sessions) == 0 && s.parting == nil {
		delete(x.of, id)
	}
}
