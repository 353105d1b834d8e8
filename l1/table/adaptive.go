package table

import (
	"math"
	"math/bits"
)

// adaptive follows the rule that serves a sample of the objects best, see shadow.
// It keeps the evictable objects such that each rule finds its victim at once: in
// a list for each step of a frequency, each in the order of the last use, and in
// the two queues of S3-FIFO.
type adaptive struct {
	traits []trait
	lists  rings         // list rate*grades+g, the order of uses in each
	used   [rates]uint64 // bit g: such a list may have members
	queues queues
	ghosts ghosts
	scale  scale
	shadow *shadow
	now    uint32 // uses so far
	count  int
}

func newAdaptive(objects int) *adaptive {
	return &adaptive{
		traits: make([]trait, objects+1), lists: newRings(objects, rates*grades),
		queues: newQueues(objects), ghosts: newGhosts(objects), shadow: newShadow(objects),
	}
}

func (p *adaptive) admit(i, hash uint32, room int) {
	p.scale.fit(room)
	p.shadow.fit(p.scale.room)
	gh, ok := p.ghosts.take(hash)
	p.queues.admit(i, ok && p.ghosts.recent(gh))
	if ok {
		p.traits[i] = p.ghosts.trait(gh, &p.scale, p.now)
		p.use(i, hash, false)
		return
	}
	p.tick()
	p.traits[i] = newTrait(p.now)
	p.sample(i, hash, false)
}

// use counts a use of an object that is known, which the pool had or not.
func (p *adaptive) use(i, hash uint32, had bool) {
	p.tick()
	p.scale.use(&p.traits[i], p.now)
	p.sample(i, hash, had)
}

func (p *adaptive) tick() {
	p.now++
	p.ghosts.uses.tick(p.scale.room, ghostSteps)
}

// sample tells the shadow of the use that was counted last, if the object is one of the sample.
func (p *adaptive) sample(i, hash uint32, had bool) {
	if p.shadow.wants(hash) {
		p.shadow.use(hash, &p.traits[i], p.now, &p.scale, had)
	}
}

func (p *adaptive) touch(i, hash uint32, linked bool) {
	p.use(i, hash, true)
	p.queues.use(i)
	if linked {
		p.lists.remove(i)
		p.list(i)
	}
}

func (p *adaptive) list(i uint32) {
	k := p.shadow.bestRate
	g := p.traits[i].grade(k)
	p.lists.push(uint32(k)*grades+g, i)
	p.used[k] |= 1 << g
}

func (p *adaptive) link(i uint32) {
	p.count++
	p.traits[i].setStamp(p.now) // the lists are in the order of stamps
	p.list(i)
	p.queues.push(i)
}

func (p *adaptive) unlink(i uint32) {
	p.count--
	p.lists.remove(i)
	p.queues.remove(i)
}

func (p *adaptive) victim() uint32 {
	if p.count == 0 {
		return 0
	}
	rule := p.shadow.rule(&p.scale)
	switch rule {
	case ruleQueues:
		return p.queues.victim()
	case ruleRecency:
		rule = byAge
	}
	var least uint32
	low := int64(math.MaxInt64)
	for k := range p.used {
		for w := p.used[k]; w != 0; w &= w - 1 {
			g := uint32(bits.TrailingZeros64(w))
			i := p.lists.last(uint32(k)*grades + g)
			if i == 0 {
				p.used[k] &^= 1 << g
				continue
			}
			if v := p.scale.value(&p.traits[i], rule, p.now); v < low {
				least, low = i, v
			}
		}
	}
	return least
}

func (p *adaptive) after(i uint32) uint32 { return p.lists.before(i) }

func (p *adaptive) chain() { p.shadow.chain(p.now, &p.scale) }

func (p *adaptive) evict(i, hash uint32) {
	p.forget(hash)
	small := p.queues.flags[i]&inMain == 0
	if small && p.queues.flags[i]&inOut == 0 {
		p.ghosts.evictions.tick(p.scale.room, turnSteps)
	}
	if p.shadow.rule(&p.scale) != ruleQueues && p.queues.demote() {
		p.ghosts.evictions.tick(p.scale.room, turnSteps)
	}
	p.ghosts.put(hash, &p.traits[i], small, &p.scale, ghostRate, p.now)
}

func (p *adaptive) forget(hash uint32) {
	if p.shadow.wants(hash) {
		p.shadow.gone(hash)
	}
}

func (p *adaptive) fetch(objects []uint32) {
	fetch(p.traits, objects)
	fetch(p.lists.at, objects)
	p.queues.fetch(objects)
}

func (p *adaptive) fetchNeighbours(objects []uint32) {
	p.lists.fetchNeighbours(objects)
	p.queues.order.fetchNeighbours(objects)
}

func (p *adaptive) eachArray(do func([]byte)) {
	do(bytesOf(p.traits))
	do(bytesOf(p.lists.at))
	do(bytesOf(p.ghosts.at))
	p.queues.eachArray(do)
}

func (p *adaptive) check(linked func(uint32) bool) error {
	if err := p.lists.check(linked); err != nil {
		return err
	}
	if err := p.queues.check(linked); err != nil {
		return err
	}
	return p.shadow.check()
}
