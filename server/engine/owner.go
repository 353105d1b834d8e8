package engine

import "github.com/slotcache/slotcache/server/access"

// An owner is who registers: a process, or, where the kernel does not tell which, whoever has a token.
type owner struct {
	pid   int32
	token access.Digest // if pid is 0
}

// owner is who is at the other end of c.
func (c *conn) owner() owner {
	if c.peer.PID != 0 {
		return owner{pid: c.peer.PID}
	}
	return owner{token: c.token}
}

// A claim is how many places in the tables one owner has, and of all the sum.
type claim struct {
	conns uint32 // connections that registered
	insts uint32 // instances, ended ones included that own something still
}

// claims are the places that owners have. Those who registered never give way to others, so one alone must not have
// all there are.
type claims struct {
	sum claim
	of  map[owner]claim
}

// move changes what o has.
func (s *claims) move(o owner, conns, insts int32) {
	c := s.of[o]
	for _, at := range []*claim{&c, &s.sum} {
		at.conns += uint32(conns)
		at.insts += uint32(insts)
	}
	if c == (claim{}) {
		delete(s.of, o)
		return
	}
	s.of[o] = c
}

// crowds says that an owner of mine out of all places must not have one more: it has half of them, and three quarters are
// taken.
func crowds(mine, taken uint32, places int) bool {
	return mine >= uint32(places)/2 && taken >= uint32(places)/4*3 && places >= 4
}

// crowdsConns says that c must not be the connection of an instance, for the sake of others.
func (e *Engine) crowdsConns(c *conn) bool {
	return c.inst == none && crowds(e.claims.of[c.owner()].conns, e.claims.sum.conns, len(e.conns))
}

// crowdsInstances says that the peer of c must not have one more instance, for the sake of others.
func (e *Engine) crowdsInstances(c *conn) bool {
	return crowds(e.claims.of[c.owner()].insts, e.claims.sum.insts, len(e.insts))
}
