package engine

import (
	"fmt"

	"github.com/slotcache/slotcache/server/access"
)

// An owner is who registers: a process, or, where the kernel does not tell which, whoever has a token.
type owner struct {
	pid     int32
	process uint64
	token   access.Digest // if both are 0
}

// owner is who is at the other end of c.
func (c *conn) owner() owner {
	if c.peer.known() {
		return owner{pid: c.peer.PID, process: c.peer.Process}
	}
	return owner{token: c.token}
}

// A claim is what one owner has of what is bounded, and of all the sum. All but connections are its instances' together, ended ones
// that own something still among them.
type claim struct {
	conns     uint32 // connections that registered
	insts     uint32 // instances
	transfers uint32 // open ones
	entries   uint32 // of them
	parked    uint32 // waiting requests
	fences    uint32 // deletes and clears under way
	written   int64  // bytes of slots that are written, or were and are quarantined
	held      int64  // bytes kept from eviction, quarantined or not: those of an object for each hold
}

// add adds what is to be had in the one sum and in the other.
func (c *claim) add(d claim) {
	c.conns += d.conns
	c.insts += d.insts
	c.transfers += d.transfers
	c.entries += d.entries
	c.parked += d.parked
	c.fences += d.fences
	c.written += d.written
	c.held += d.held
}

// claims are what owners have, by index. Those who registered never give way to others, so one alone must not have
// all there is, however many instances it makes of itself.
type claims struct {
	sum  claim
	list []claim
	free []uint32
	of   map[owner]uint32 // those with a connection or an instance
}

// move changes what o has, and says which of the list that is.
func (s *claims) move(o owner, conns, insts int32) uint32 {
	x, ok := s.of[o]
	switch n := len(s.free); {
	case ok:
	case n > 0:
		x = s.free[n-1]
		s.free = s.free[:n-1]
	default:
		x = uint32(len(s.list))
		s.list = append(s.list, claim{})
	}
	s.of[o] = x
	c := &s.list[x]
	s.change(x, claim{conns: uint32(conns), insts: uint32(insts)})
	if c.conns == 0 && c.insts == 0 {
		if *c != (claim{}) {
			panic(fmt.Sprintf("engine: an owner goes and has %+v", *c))
		}
		delete(s.of, o)
		s.free = append(s.free, x)
	}
	return x
}

// change adds to what the owner with an index has. What is taken off is added with a sign that wraps around.
func (s *claims) change(x uint32, d claim) {
	s.list[x].add(d)
	s.sum.add(d)
}

// counted is change for what changes with each key of a request.
func (s *claims) counted(x, entries uint32, written, held int64) {
	c := &s.list[x]
	c.entries += entries
	c.written += written
	c.held += held
	s.sum.entries += entries
	s.sum.written += written
	s.sum.held += held
}

// claimOf is what an owner has.
func (s *claims) claimOf(o owner) claim {
	if x, ok := s.of[o]; ok {
		return s.list[x]
	}
	return claim{}
}

// crowds says that an owner of mine out of all places must not have one more: it has half of them, and three quarters are
// taken.
func crowds(mine, taken uint32, places int) bool {
	return mine >= uint32(places)/2 && taken >= uint32(places)/4*3 && places >= 4
}

// crowdsConns says that c must not be the connection of an instance, for the sake of others.
func (e *Engine) crowdsConns(c *conn) bool {
	return c.inst == none && crowds(e.claims.claimOf(c.owner()).conns, e.claims.sum.conns, len(e.conns))
}

// crowdsInstances says that the peer of c must not have one more instance, for the sake of others.
func (e *Engine) crowdsInstances(c *conn) bool {
	return crowds(e.claims.claimOf(c.owner()).insts, e.claims.sum.insts, len(e.insts))
}

// exceeds says that i must not have one more entry, of size bytes, for the sake of others: it has what one may have of the pool, or
// its owner has, with all its instances together, and three quarters are taken; or the owner has half of the entries.
//
// What many hold is taken once, however many leases are on it. So an instance, or an owner, has no more than it alone has to write, and
// what is held in all; and what is taken is what the table says, not the sum of what owners have.
func (e *Engine) exceeds(i *instance, size int64) bool {
	mine, all := &e.claims.list[i.claim], &e.claims.sum
	if crowds(mine.entries, all.entries, min(e.cfg.Entries, e.cfg.Objects)) {
		return true
	}
	if mine.written+mine.held+size <= e.cfg.InstanceCap {
		return false
	}
	u := e.table.Usage()
	own := i.written + min(i.owned()-i.written, u.Held)
	ours := mine.written + min(mine.held, u.Held)
	taken := u.Staged + u.Quarantined + u.Held
	return own > 0 && own+size > e.cfg.InstanceCap || ours > 0 && ours+size > e.cfg.InstanceCap && taken+size > e.size/4*3
}

// crowdsTransfers says that the owner of i must not have one more transfer, for the sake of others.
func (e *Engine) crowdsTransfers(i *instance) bool {
	return crowds(e.claims.list[i.claim].transfers, e.claims.sum.transfers, e.cfg.Transfers)
}

// crowdsParked says that the owner of i must not have one more waiting request, for the sake of others.
func (e *Engine) crowdsParked(i *instance) bool {
	return crowds(e.claims.list[i.claim].parked, e.claims.sum.parked, e.cfg.Parked)
}

// crowdsFences says that the owner of i must not have one more delete or clear under way, for the sake of others.
func (e *Engine) crowdsFences(i *instance) bool {
	return crowds(e.claims.list[i.claim].fences, e.claims.sum.fences, len(e.ops)/opShare[opFence])
}
