package server

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// A holder is who has connections with input that waits for its rest, and so has the server keep it: a process, on Unix
// sockets, or an address, on TCP. Those of another PID namespace, whom the kernel does not name, are one.
type holder struct {
	key      holderKey
	held     int // bytes of the reassembly buffers of its connections
	conns    int // that name it
	connList     // those of them that have a buffer, the one whose frame began longest ago first
}

// holderKey tells holders apart.
type holderKey struct {
	pid  int32        // on a Unix socket
	from netip.Prefix // on TCP: an address, or the part of an IPv6 address that names a network: its hosts choose the rest
}

// hostBits is how much of an IPv6 address names a network.
const hostBits = 64

// holders are who has unfinished input here, by index. The first is not used: 0 means none.
type holders struct {
	list []holder
	free []uint32
	of   map[holderKey]uint32
}

// held is a connection's place with its holder, which is looked up when it first needs a buffer.
type held struct {
	holder uint32 // 0: not looked up
	bytes  int    // of reassembly buffer, as accounted
	taken  uint64 // frames stepped by the time it came to the end of its holder's list
}

// account keeps the sums of the reassembly buffers. When they are more than there may be beside those kept for the next, who holds most gives way:
// its connection whose frame began longest ago is closed. So nobody keeps the frame of another out who holds less, and who
// sends a frame in one go outlasts those that do not, also when they share an address.
func (r *reactor) account(c *conn) {
	now := c.in.Buffered()
	if now == c.held.bytes && (now == 0 || c.held.taken == c.taken) {
		return
	}
	grown := now - c.held.bytes
	r.hold(c, now)
	for grown > 0 && r.input > inputBudget-proto.SparesMax {
		r.giveWay()
	}
}

// hold notes that c has so many bytes of buffers.
func (r *reactor) hold(c *conn, bytes int) {
	h := &c.held
	if h.holder == 0 {
		h.holder = r.holders.find(holderOf(c))
	}
	o := &r.holders.list[h.holder]
	was := h.bytes
	r.input += bytes - was
	o.held += bytes - was
	h.bytes = bytes
	if was > 0 && bytes > 0 && h.taken == c.taken {
		return // the same frame goes on
	}
	if was > 0 {
		r.delist(&o.connList, placeHeld, c)
	}
	if bytes > 0 {
		h.taken = c.taken
		r.enlist(&o.connList, placeHeld, c)
	}
}

// giveWay closes the connection of the holder of most whose frame began longest ago. Its buffer is free at once. Of no
// connection with a buffer a frame is being stepped.
func (r *reactor) giveWay() {
	most := &r.holders.list[0]
	for i := range r.holders.list {
		if o := &r.holders.list[i]; o.held > most.held {
			most = o
		}
	}
	if most.first == 0 {
		panic("server: nobody holds the reassembly buffers that there are")
	}
	c := &r.conns[most.first-1]
	r.stats.OverBudget++
	r.complain("connection closed: the memory for unfinished frames is used up, and its peer has most of it", "budget", inputBudget, "held", most.held, "pid", most.key.pid, "from", most.key.from)
	r.letGo(c)
	r.unwait(c)
	r.abandon(c)
}

// letGo gives back c's buffer, whatever is in it.
func (r *reactor) letGo(c *conn) {
	if c.held.bytes > 0 {
		r.hold(c, 0)
	}
	c.in.Reset() // what is large of it is for others
}

// part ends c's being one of its holder's connections.
func (r *reactor) part(c *conn) {
	x := c.held.holder
	if x == 0 {
		return
	}
	o := &r.holders.list[x]
	if o.conns--; o.conns == 0 {
		delete(r.holders.of, o.key)
		r.holders.free = append(r.holders.free, x)
	}
	c.held = held{}
}

// find returns the holder that k names, with one connection more.
func (s *holders) find(k holderKey) uint32 {
	x, ok := s.of[k]
	switch n := len(s.free); {
	case ok:
	case n > 0:
		x = s.free[n-1]
		s.free = s.free[:n-1]
	default:
		if s.of == nil {
			s.list, s.of = make([]holder, 1), make(map[holderKey]uint32)
		}
		x = uint32(len(s.list))
		s.list = append(s.list, holder{})
	}
	if !ok {
		s.of[k] = x
		s.list[x] = holder{key: k}
	}
	s.list[x].conns++
	return x
}

// holderOf says who holds what c has. Who is not known any more is nobody in particular.
func holderOf(c *conn) holderKey {
	if c.local {
		return holderKey{pid: c.pid}
	}
	at, err := unix.Getpeername(c.fd)
	if err != nil {
		return holderKey{}
	}
	var from netip.Addr
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		from = netip.AddrFrom4(at.Addr)
	case *unix.SockaddrInet6:
		from = netip.AddrFrom16(at.Addr).Unmap()
	}
	bits := from.BitLen()
	if from.Is6() {
		bits = hostBits
	}
	network, err := from.Prefix(bits)
	if err != nil {
		return holderKey{}
	}
	return holderKey{from: network}
}
