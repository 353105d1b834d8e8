package engine

import (
	"time"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server/access"
)

// NoticeKind says what the host is told of, for its log.
type NoticeKind uint8

// The kinds of notices. Each names the fields that are set beside Kind and Peer.
const (
	NoticeDenied     NoticeKind = iota // a peer did not come in: Verdict
	NoticeRegistered                   // an instance was registered, or again: all but Verdict
	NoticeReaped                       // an instance was silent for too long: the same; no Peer but its PID
)

// A Notice tells the host, for its log, what no reply does. It is valid during the call only.
type Notice struct {
	Kind        NoticeKind
	Peer        Peer
	Verdict     access.Verdict
	Instance    uint64
	Incarnation uint32
	Name        string
	Namespace   string
	Transport   proto.Transport
	Shm         proto.ShmKind
	Segment     string // the name of a pool that has one
}

// judge says whether c comes in, and what it may do.
func (e *Engine) judge(c *conn) (*access.Grant, access.Verdict) {
	if e.cfg.Access == nil {
		return access.Everything, access.Granted
	}
	return e.cfg.Access.Find(&access.Peer{Local: c.peer.Local, UID: c.peer.UID, Groups: c.peer.Groups}, c.token)
}

// SetAccess has another list from now on. Connections that it grants something else, or
// nothing, are hung up.
func (e *Engine) SetAccess(now time.Duration, l *access.List) {
	e.now = now
	e.cfg.Access = l
	for x := range e.conns {
		c := &e.conns[x]
		if c.state != connReady {
			continue
		}
		if g, v := e.judge(c); v == access.Granted && g.Equal(c.grant) {
			continue
		}
		c.hangup(e)
	}
}

// seesTransfer says whether transfer t is to exist for c's peer.
func (e *Engine) seesTransfer(c *conn, t uint32) bool {
	return c.grant.Sees(e.spaces[e.insts[e.transfers[t].inst].space].name)
}

// SpaceCounters count what is done in one namespace, since it was first used. They only
// grow.
type SpaceCounters struct {
	Lookups        uint64
	LookupKeys     uint64
	HitsMemory     uint64
	HitsDisk       uint64
	StoredBytes    uint64
	RetrievedBytes uint64
}

// add adds what another namespace counted.
func (s *SpaceCounters) add(o *SpaceCounters) {
	s.Lookups += o.Lookups
	s.LookupKeys += o.LookupKeys
	s.HitsMemory += o.HitsMemory
	s.HitsDisk += o.HitsDisk
	s.StoredBytes += o.StoredBytes
	s.RetrievedBytes += o.RetrievedBytes
}

// countersOf are the counters of instance x's namespace.
func (e *Engine) countersOf(x uint32) *SpaceCounters { return &e.spaces[e.insts[x].space].counters }

// eachOf calls f for the numbers of a grant's namespaces, under the names that they have in
// [Metrics.Each]. Those of the whole server would tell what others do.
func (e *Engine) eachOf(g *access.Grant, f func(name string, value uint64)) {
	var sum SpaceCounters
	for x := range e.spaces {
		if g.Allows(e.spaces[x].name) {
			sum.add(&e.spaces[x].counters)
		}
	}
	var instances, transfers, waiting uint64
	var staged, held, quarantined int64
	for x := range e.insts[:e.instUsed] {
		i := &e.insts[x]
		if i.state == instFree || !g.Allows(e.spaces[i.space].name) {
			continue
		}
		instances++
		transfers += uint64(i.open)
		waiting += uint64(i.parked)
		staged += i.staged
		held += i.held
		quarantined += i.quarantined
	}
	f("instances", instances)
	f("transfers", transfers)
	f("waiting_requests", waiting)
	f("l1_capacity_bytes", uint64(e.size))
	f("l1_ready_bytes", uint64(e.ready))
	f("l1_staged_bytes", uint64(staged))
	f("l1_held_bytes", uint64(held))
	f("l1_quarantined_bytes", uint64(quarantined))
	f("lookups_total", sum.Lookups)
	f("lookup_keys_total", sum.LookupKeys)
	f("hits_l1_total", sum.HitsMemory)
	f("hits_l2_total", sum.HitsDisk)
	f("stored_bytes_total", sum.StoredBytes)
	f("retrieved_bytes_total", sum.RetrievedBytes)
}
