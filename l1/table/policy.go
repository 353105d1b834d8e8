package table

import (
	"errors"
	"fmt"
)

// A Policy says which object is evicted first.
type Policy uint8

// The policies.
const (
	// PolicyLRU evicts what was not used for the longest time.
	PolicyLRU Policy = iota
	// PolicyFIFO evicts what was evictable first, used or not since.
	PolicyFIFO
	// PolicyS3FIFO keeps new objects in a small queue of their own, out of which
	// only those that are used again come to the main one.
	PolicyS3FIFO
	// PolicyAdaptive learns from the requests which of several rules to follow.
	PolicyAdaptive
)

var policyNames = [...]string{"lru", "fifo", "s3fifo", "adaptive"}

// String returns the policy's name as a command line has it.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return "unknown"
}

// ParsePolicy returns the policy of a name.
func ParsePolicy(name string) (Policy, error) {
	for i, n := range policyNames {
		if n == name {
			return Policy(i), nil
		}
	}
	return 0, fmt.Errorf("l1/table: no policy is called %q", name)
}

// A policy orders the evictable objects. The table tells it what happens to them
// and asks it who goes. It takes constant time and allocates nothing. An object
// is its index; hash stands for its key, in this life and in later ones.
type policy interface {
	// admit: object i became ready, which is its first use in this life. About
	// room objects like those that are there fit into the pool.
	admit(i, hash uint32, room int)
	// touch: ready object i was used. Linked says whether it is evictable.
	touch(i, hash uint32, linked bool)
	// link: object i became evictable.
	link(i uint32)
	// unlink: object i is not evictable any more.
	unlink(i uint32)
	// victim returns the object that goes first, 0 if none is evictable. It may
	// put the others in order for that.
	victim() uint32
	// after returns an evictable object that goes soon after i, 0 if it knows
	// none.
	after(i uint32) uint32
	// chain: the uses that follow, until the next call, are of objects each of which
	// is of use only with those that are used after it.
	chain()
	// evict: object i, unlinked already, is evicted.
	evict(i, hash uint32)
	// forget: an object, unlinked already, left the pool without having been evicted.
	forget(hash uint32)
	// fetch has the processor bring what the policy keeps of objects into its caches.
	fetch(objects []uint32)
	// fetchNeighbours is fetch for those beside them, of which unlink takes them out.
	fetchNeighbours(objects []uint32)
	// eachArray calls do with the memory of each large array.
	eachArray(do func([]byte))
	// check walks everything; linked says which objects are evictable.
	check(linked func(i uint32) bool) error
}

func newPolicy(cfg Config) policy {
	switch cfg.Policy {
	case PolicyLRU:
		return newRecency(cfg.MaxObjects, true)
	case PolicyFIFO:
		return newRecency(cfg.MaxObjects, false)
	case PolicyS3FIFO:
		return newS3FIFO(cfg.MaxObjects)
	case PolicyAdaptive:
		return newAdaptive(cfg.MaxObjects)
	}
	panic("l1/table: no such policy")
}

// recency is one list, the newest first. It takes 8 bytes an object.
type recency struct {
	order rings
	moves bool // a touch makes an object the newest
}

func newRecency(objects int, moves bool) *recency {
	return &recency{order: newRings(objects, 1), moves: moves}
}

func (p *recency) admit(uint32, uint32, int) {}

func (p *recency) touch(i, _ uint32, linked bool) {
	if linked && p.moves {
		p.order.remove(i)
		p.order.push(0, i)
	}
}

func (p *recency) link(i uint32)         { p.order.push(0, i) }
func (p *recency) unlink(i uint32)       { p.order.remove(i) }
func (p *recency) victim() uint32        { return p.order.last(0) }
func (p *recency) after(i uint32) uint32 { return p.order.before(i) }
func (p *recency) chain()                {}
func (p *recency) evict(uint32, uint32)  {}
func (p *recency) forget(uint32)         {}

func (p *recency) fetch(objects []uint32)           { fetch(p.order.at, objects) }
func (p *recency) fetchNeighbours(objects []uint32) { p.order.fetchNeighbours(objects) }

func (p *recency) eachArray(do func([]byte)) { do(bytesOf(p.order.at)) }

func (p *recency) check(linked func(uint32) bool) error { return p.order.check(linked) }

// rings are doubly linked lists of the same members, each of which is in at most
// one of them. A list is a ring through a node of its own behind the members.
type rings struct {
	at   []ringLink // at[0] is not used: a zero link means that a member is in no list
	base uint32     // node of list 0
}

type ringLink struct{ next, prev uint32 }

func newRings(members, lists int) rings {
	r := rings{at: make([]ringLink, members+1+lists), base: uint32(members + 1)}
	for i := r.base; int(i) < len(r.at); i++ {
		r.at[i] = ringLink{i, i}
	}
	return r
}

// has says whether a member is in a list.
func (r *rings) has(i uint32) bool { return r.at[i].next != 0 }

// push makes i the first of a list.
func (r *rings) push(list, i uint32) {
	if r.at[i].next != 0 {
		panic("l1/table: a member is in a list already")
	}
	node := r.base + list
	first := r.at[node].next
	r.at[i] = ringLink{next: first, prev: node}
	r.at[first].prev = i
	r.at[node].next = i
}

// remove takes i out of its list.
func (r *rings) remove(i uint32) {
	l := r.at[i]
	if l.next == 0 {
		panic("l1/table: a member is in no list")
	}
	r.at[l.prev].next = l.next
	r.at[l.next].prev = l.prev
	r.at[i] = ringLink{}
}

func (r *rings) member(i uint32) uint32 {
	if i >= r.base {
		return 0
	}
	return i
}

// fetchNeighbours has the processor bring the neighbours of members, at most [Batch],
// into its caches.
func (r *rings) fetchNeighbours(members []uint32) {
	var at [2 * Batch]uint32
	for j, i := range members {
		l := r.at[i]
		at[2*j], at[2*j+1] = l.next, l.prev
	}
	fetch(r.at, at[:2*len(members)])
}

// last returns the last member of a list, 0 if it is empty.
func (r *rings) last(list uint32) uint32 { return r.member(r.at[r.base+list].prev) }

// before returns the member ahead of i, 0 if i is the first.
func (r *rings) before(i uint32) uint32 { return r.member(r.at[i].prev) }

// check walks the lists and compares them with who should be in one.
func (r *rings) check(linked func(uint32) bool) error {
	want := 0
	for i := uint32(1); i < r.base; i++ {
		if linked(i) != r.has(i) {
			return fmt.Errorf("l1/table: object %d is listed: %v", i, r.has(i))
		}
		if r.has(i) {
			want++
		}
	}
	n := 0
	for node := r.base; int(node) < len(r.at); node++ {
		for i, prev := r.at[node].next, node; ; i, prev = r.at[i].next, i {
			if r.at[i].prev != prev {
				return fmt.Errorf("l1/table: list %d is broken at %d", node-r.base, i)
			}
			if i == node {
				break
			}
			if n++; n > want {
				return errors.New("l1/table: the lists have more members than there are")
			}
		}
	}
	if n != want {
		return fmt.Errorf("l1/table: the lists have %d members, want %d", n, want)
	}
	return nil
}
