package client

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// Where the handle is in the bodies of replies that grant something: a prepare's begins
// with it, a lookup's has three counts before it.
const (
	grantAtPrepare = 0
	grantAtLookup  = 12
)

// grantOf returns the handle that a reply grants, or 0. The reader notes it before the
// caller sees the reply, so that no grant is unknown once a link has ended.
func grantOf(c *call) uint64 {
	at := -1
	if c.op == proto.OpPrepareStore || c.op == proto.OpPrepareRetrieve {
		at = grantAtPrepare
	}
	if c.op == proto.OpLookup {
		at = grantAtLookup
	}
	if at < 0 || c.err != nil || !c.header.Status.Done() || len(c.body) < at+8 {
		return 0
	}
	return binary.LittleEndian.Uint64(c.body[at:])
}

// enderOf returns the request that ends what a request of the given op was granted.
func enderOf(op proto.Op) proto.Op {
	if op == proto.OpPrepareStore {
		return proto.OpAbortStore
	}
	if op == proto.OpPrepareRetrieve {
		return proto.OpCommitRetrieve
	}
	if op == proto.OpLookup {
		return proto.OpRelease
	}
	panic(fmt.Sprintf("client: %s grants nothing", op))
}

// giveBack ends what an unwanted reply has granted.
func (l *link) giveBack(c *call) {
	if c.fd >= 0 {
		_ = unix.Close(c.fd) // nothing was written through it
	}
	if c.op == proto.OpCommitStore && !c.header.Status.Done() {
		l.end(proto.OpAbortStore, c.handle)
	}
	if h := grantOf(c); h != 0 {
		l.end(enderOf(c.op), h)
	}
}

// end asks the server, without waiting, to abort a store or to end a retrieve or lease.
// Handle 0 is none. On a link that has failed it does nothing.
func (l *link) end(op proto.Op, handle uint64) {
	if handle == 0 {
		return
	}
	c := newCall(op)
	if op == proto.OpRelease {
		c.frame = proto.AppendRelease(c.frame, &proto.Release{Leases: []uint64{handle}})
	} else {
		c.frame = binary.LittleEndian.AppendUint64(c.frame, handle) // the whole body of the others
	}
	if op == proto.OpAbortStore {
		l.post(c)
		return
	}
	l.postLate(c) // if it is lost with the link, it is as if its reply had been
}

// forget takes a handle off the grants: this process does not use it any more.
func (l *link) forget(handle uint64) {
	l.mu.Lock()
	delete(l.grants, handle)
	l.mu.Unlock()
}

// granted reports whether a caller was given the handle and has not ended it.
func (l *link) granted(handle uint64) bool {
	l.mu.Lock()
	_, ok := l.grants[handle]
	l.mu.Unlock()
	return ok
}

// grantsNothing reports whether callers have ended all that they were given.
func (l *link) grantsNothing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.grants) == 0
}

// settle ends a grant that this process does not use any more: op is abort_store,
// commit_retrieve or release. Where the session's link is lost but the server is the same,
// the server still keeps the slots for this process, and is told over the present link; if
// there is none yet, [Worker.sweep] does it later.
func (s *session) settle(op proto.Op, handle uint64) {
	s.link.forget(handle)
	l := s.link
	if now := s.worker.session.Load(); !l.alive() && now != nil && now.link.boot == l.boot {
		l = now.link
	}
	l.end(op, handle)
}
