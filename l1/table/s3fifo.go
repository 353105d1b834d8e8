package table

import "fmt"

const (
	// smallShare is the part of the members that the small queue may have before
	// it gives.
	smallShare = 10
	// stepsMax bounds how many members one search for a victim moves.
	stepsMax = 512
	usesMax  = 3

	// demotionsMax bounds how many members one demotion moves on.
	demotionsMax = 8

	listSmall = 0
	listMain  = 1
	listOut   = 2
)

// queues are the two queues of S3-FIFO (Yang et al., SOSP 2023) without the
// memory of what was evicted. A use only counts; it moves nothing.
//
// When another rule says who is evicted, what the small queue would have evicted goes into
// a list of its own: it goes first when S3-FIFO is followed again, and is in the main
// queue after a use, like an evicted one that comes back. Otherwise nearly all that is
// there could be in the small queue by then, and it would evict that in the order of its
// coming.
type queues struct {
	order rings
	flags []uint8 // inMain or inOut | uses
	small int     // members of the small queue
	count int     // members
}

const (
	inMain uint8 = 4
	inOut  uint8 = 8
)

func newQueues(members int) queues {
	return queues{order: newRings(members, 3), flags: make([]uint8, members+1)}
}

// admit says in which queue i goes when it is pushed.
func (q *queues) admit(i uint32, toMain bool) {
	q.flags[i] = 0
	if toMain {
		q.flags[i] = inMain
	}
}

func (q *queues) use(i uint32) {
	if q.flags[i]&inOut != 0 {
		q.flags[i] = inMain
		if q.order.has(i) {
			q.order.remove(i)
			q.order.push(listMain, i)
		}
		return
	}
	if q.flags[i]&usesMax < usesMax {
		q.flags[i]++
	}
}

// demote does to the small queue what an eviction would, and says whether a member is out
// of it by that, which stays.
func (q *queues) demote() bool {
	for range demotionsMax {
		j := q.order.last(listSmall)
		if j == 0 || q.small*smallShare < q.count {
			return false
		}
		q.order.remove(j)
		q.small--
		if q.flags[j]&usesMax < 2 {
			q.flags[j] = inOut
			q.order.push(listOut, j)
			return true
		}
		q.flags[j] = inMain
		q.order.push(listMain, j)
	}
	return false
}

func (q *queues) push(i uint32) {
	q.count++
	switch {
	case q.flags[i]&inMain != 0:
		q.order.push(listMain, i)
	case q.flags[i]&inOut != 0:
		q.order.push(listOut, i)
	default:
		q.small++
		q.order.push(listSmall, i)
	}
}

func (q *queues) remove(i uint32) {
	q.count--
	if q.flags[i]&(inMain|inOut) == 0 {
		q.small--
	}
	q.order.remove(i)
}

// check compares the queues with who should be in one, and the numbers with a recount.
func (q *queues) check(linked func(uint32) bool) error {
	if err := q.order.check(linked); err != nil {
		return err
	}
	small, count := 0, 0
	for i := range q.order.base {
		if !q.order.has(i) {
			continue
		}
		count++
		if q.flags[i]&(inMain|inOut) == 0 {
			small++
		}
	}
	if small != q.small || count != q.count {
		return fmt.Errorf("l1/table: %d of %d members are in the small queue, counted are %d of %d", small, count, q.small, q.count)
	}
	return nil
}

func (q *queues) fetch(members []uint32) {
	fetch(q.flags, members)
	fetch(q.order.at, members)
}

func (q *queues) eachArray(do func([]byte)) {
	do(bytesOf(q.order.at))
	do(bytesOf(q.flags))
}

// victim moves on those that have earned it and returns the first that has not,
// 0 if there is no member.
func (q *queues) victim() uint32 {
	if i := q.order.last(listOut); i != 0 {
		return i
	}
	for range stepsMax {
		i := q.order.last(listMain)
		if j := q.order.last(listSmall); j != 0 && (i == 0 || q.small*smallShare >= q.count) {
			if q.flags[j]&usesMax < 2 {
				return j
			}
			q.order.remove(j)
			q.small--
			q.flags[j] = inMain
			q.order.push(listMain, j)
			continue
		}
		if i == 0 || q.flags[i]&usesMax == 0 {
			return i
		}
		q.flags[i]--
		q.order.remove(i)
		q.order.push(listMain, i)
	}
	if i := q.order.last(listSmall); i != 0 {
		return i
	}
	return q.order.last(listMain)
}

// s3fifo is S3-FIFO. An object that was evicted from the small queue and comes
// back before a room of others was evicted from there goes
// to the main one at once.
type s3fifo struct {
	queues queues
	ghosts ghosts
	scale  scale
}

func newS3FIFO(objects int) *s3fifo {
	return &s3fifo{queues: newQueues(objects), ghosts: newGhosts(objects)}
}

func (p *s3fifo) admit(i, hash uint32, room int) {
	p.scale.fit(room)
	gh, ok := p.ghosts.take(hash)
	p.queues.admit(i, ok && p.ghosts.recent(gh))
}

func (p *s3fifo) touch(i, _ uint32, _ bool) { p.queues.use(i) }
func (p *s3fifo) link(i uint32)             { p.queues.push(i) }
func (p *s3fifo) unlink(i uint32)           { p.queues.remove(i) }
func (p *s3fifo) victim() uint32            { return p.queues.victim() }
func (p *s3fifo) after(i uint32) uint32     { return p.queues.order.before(i) }

func (p *s3fifo) chain()        {}
func (p *s3fifo) forget(uint32) {}

func (p *s3fifo) evict(i, hash uint32) {
	if p.queues.flags[i]&inMain == 0 {
		p.ghosts.evictions.tick(p.scale.room, turnSteps)
		p.ghosts.uses.tick(p.scale.room, ghostSteps) // nothing else here has a time
		p.ghosts.put(hash, &trait{}, true, &p.scale, byAge, 0)
	}
}

func (p *s3fifo) fetch(objects []uint32)           { p.queues.fetch(objects) }
func (p *s3fifo) fetchNeighbours(objects []uint32) { p.queues.order.fetchNeighbours(objects) }

func (p *s3fifo) eachArray(do func([]byte)) {
	p.queues.eachArray(do)
	do(bytesOf(p.ghosts.at))
}

func (p *s3fifo) check(linked func(uint32) bool) error { return p.queues.check(linked) }
