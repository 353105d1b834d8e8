package server

// A connList is a list of connections, the one that has been in it for longest first; index + 1; 0: none.
type connList struct{ first, last uint32 }

// A connPlace is a connection's place in a list; index + 1; 0: none.
type connPlace struct{ next, prev uint32 }

// placeKind says which of a connection's places a list goes through: it can be in one list of each kind.
type placeKind uint8

const (
	placeWait placeKind = iota // of those that wait for the same, see waits
	placeHeld                  // of those with a buffer of the same holder, see holder

	placeKinds = iota
)

// enlist puts c at the end of a list.
func (r *reactor) enlist(list *connList, kind placeKind, c *conn) {
	x := c.id.Index() + 1
	c.places[kind] = connPlace{prev: list.last}
	if list.last == 0 {
		list.first = x
	} else {
		r.conns[list.last-1].places[kind].next = x
	}
	list.last = x
}

// delist takes c off the list that it is in.
func (r *reactor) delist(list *connList, kind placeKind, c *conn) {
	p := c.places[kind]
	if p.prev == 0 {
		list.first = p.next
	} else {
		r.conns[p.prev-1].places[kind].next = p.next
	}
	if p.next == 0 {
		list.last = p.prev
	} else {
		r.conns[p.next-1].places[kind].prev = p.prev
	}
	c.places[kind] = connPlace{}
}
