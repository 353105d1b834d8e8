package seglog

import "math/bits"

// none is no index: of a segment or a group. In pools, index 0 is never used and means none.
const none = ^uint32(0)

// A link joins an item of a pool into one list at a time.
type link struct{ prev, next uint32 }

// A list is a doubly linked list through the links of a pool.
type list struct {
	head, tail uint32
	n          int
}

// push appends item i.
func (l *list) push(ls []link, i uint32) {
	ls[i] = link{prev: l.tail}
	if l.tail != 0 {
		ls[l.tail].next = i
	} else {
		l.head = i
	}
	l.tail = i
	l.n++
}

// remove takes item i out; it must be in this list.
func (l *list) remove(ls []link, i uint32) {
	k := ls[i]
	if k.prev != 0 {
		ls[k.prev].next = k.next
	} else {
		l.head = k.next
	}
	if k.next != 0 {
		ls[k.next].prev = k.prev
	} else {
		l.tail = k.prev
	}
	ls[i] = link{}
	l.n--
}

// A pool hands out items by index, from 1. It grows by doubling and never shrinks; pointers into it are valid until the next take.
type pool[T any] struct {
	items []T
	links []link
	free  []uint32
}

// take returns the index of an item in its zero value.
func (p *pool[T]) take() uint32 {
	var zero T
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		p.items[i] = zero
		return i
	}
	if len(p.items) == 0 {
		p.items, p.links = append(p.items, zero), append(p.links, link{})
	}
	p.items, p.links = append(p.items, zero), append(p.links, link{})
	return uint32(len(p.items) - 1)
}

// give takes item i back.
func (p *pool[T]) give(i uint32) { p.free = append(p.free, i) }

// at returns item i.
func (p *pool[T]) at(i uint32) *T { return &p.items[i] }

// used counts the items out.
func (p *pool[T]) used() int { return max(len(p.items)-1, 0) - len(p.free) }

// A chain finds items of a pool by hash: several may share one.
type chain struct {
	heads, next []uint32
}

// newChain makes a chain with n buckets.
func newChain(n int) chain { return chain{heads: make([]uint32, max(n, 1))} }

// bucket is where hash h belongs.
func (c *chain) bucket(h uint64) uint64 {
	b, _ := bits.Mul64(h, uint64(len(c.heads)))
	return b
}

// first returns the first item that may have hash h, or 0.
func (c *chain) first(h uint64) uint32 { return c.heads[c.bucket(h)] }

// after returns the next such item, or 0.
func (c *chain) after(i uint32) uint32 { return c.next[i] }

// add enters item i under hash h.
func (c *chain) add(h uint64, i uint32) {
	for int(i) >= len(c.next) {
		c.next = append(c.next, 0)
	}
	b := c.bucket(h)
	c.next[i] = c.heads[b]
	c.heads[b] = i
}

// remove takes item i, entered under hash h, out.
func (c *chain) remove(h uint64, i uint32) {
	at := &c.heads[c.bucket(h)]
	for *at != i {
		if *at == 0 {
			panic("l2/seglog: chain: item is not in its bucket")
		}
		at = &c.next[*at]
	}
	*at = c.next[i]
	c.next[i] = 0
}

// A ring is a first-in first-out queue that grows by doubling.
type ring[T any] struct {
	buf     []T
	head, n int
}

// push appends v.
func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		bigger := make([]T, max(2*len(r.buf), 64))
		for i := range r.n {
			bigger[i] = r.buf[(r.head+i)%len(r.buf)]
		}
		r.buf, r.head = bigger, 0
	}
	r.buf[(r.head+r.n)%len(r.buf)] = v
	r.n++
}

// at returns the i-th oldest value, valid until the next push.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)%len(r.buf)] }

// pop removes the oldest value.
func (r *ring[T]) pop() (v T, ok bool) {
	if r.n == 0 {
		return v, false
	}
	v = r.buf[r.head]
	r.head = (r.head + 1) % len(r.buf)
	r.n--
	return v, true
}
