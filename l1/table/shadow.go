package table

import (
	"fmt"
	"math"
	"math/bits"
)

const (
	// The rules that an adaptive policy chooses from: rates 0 to rates-1 evict
	// what has the least frequency of that half-life.
	ruleRecency = rates
	ruleQueues  = rates + 1
	rules       = rates + 2

	// sampleRoom is how many members a shadow cache has at most.
	sampleRoom = 2048
	// samplesEach is how many samples there are for each member that a cache may
	// have: more than there are caches.
	samplesEach = 12
)

// A sample is one object of the sample, whether or not a shadow cache has it.
type sample struct {
	hash uint32
	next uint32 // of the same bucket
	turn uint32 // s3fifo's count of evictions at that from the small queue; 0: none
	in   uint16 // bit k: the cache of rule k has it; inPool
	live bool
	trait
}

// inPool marks a sample that the pool has.
const inPool = 1 << rules

// shadow follows what each rule would do, on all uses of a sample of the objects:
// those whose hash has its highest bits zero. For each rule it has a cache whose
// share of the pool's room is that of the sample, and counts its hits, and those of the
// pool itself. Only the cache of the least recently used has as many members as the pool
// has objects of the sample: while the pool follows that rule, both have the same.
type shadow struct {
	samples  []sample
	heads    []uint32
	spare    uint32
	touched  uint32
	spent    rings // samples in no cache, the last that left first
	grades   [rates]rings
	used     [rates]uint64 // bit g: the list of grade g may have members
	recency  rings
	queues   queues // never demotes
	turn     uint32
	counts   [rules]int
	level    uint // a sample's hash has so many bits zero
	uses     int  // since the last decision
	resident int  // samples that the pool has
	served   int  // as run, hits of the pool
	debt     debt
	hits     [rules]int // since the last decision
	chained  bool       // chain was called
	stirred  bool       // and since then a sample was used or left the pool
	run      [rules]int // hits of the chain so far that no miss made useless
	life     tally
	long     tally
	short    tally
	best     int     // of all
	bestRate int     // of the rates
	proven   bool    // best is ahead of recency for long
	credit   float64 // hits that S3-FIFO may owe because of its lead, see debt.bound
}

func newShadow(objects int) *shadow {
	n := max(min(objects, sampleRoom), 8) * samplesEach
	s := &shadow{
		samples: make([]sample, n+1), heads: make([]uint32, 1<<bits.Len(uint(n))),
		spent: newRings(n, 1), recency: newRings(n, 1), queues: newQueues(n), turn: 1,
		best: firstRule, bestRate: firstRule,
	}
	for k := range s.grades {
		s.grades[k] = newRings(n, grades)
	}
	return s
}

// fit chooses the share of the sample for a room.
func (s *shadow) fit(room uint64) {
	most := uint64(len(s.samples)-1) / samplesEach
	level := s.level
	for room>>level > most {
		level++
	}
	for level > 0 && room>>(level-1) <= most/2 {
		level--
	}
	if level > s.level {
		s.level = level
		for i := uint32(1); i <= s.touched; i++ {
			if p := &s.samples[i]; p.live && !s.wants(p.hash) {
				s.drop(i)
			}
		}
	}
	s.level = level
}

// wants says whether an object is one of the sample.
func (s *shadow) wants(hash uint32) bool { return uint64(hash)>>(32-s.level) == 0 }

func (s *shadow) head(hash uint32) *uint32 { return &s.heads[hash&uint32(len(s.heads)-1)] }

// use counts a use of an object of the sample, which is t's last one.
func (s *shadow) use(hash uint32, t *trait, now uint32, sc *scale, had bool) {
	i := s.find(hash)
	if i == 0 {
		i = s.add(hash, now, sc)
	}
	s.stirred = true
	p := &s.samples[i]
	p.trait = *t
	if had {
		s.served++
	} else {
		s.served = 0
	}
	for k := range rules { // the last of a chain is used first: a miss makes the hits behind it useless
		if p.in&(1<<k) != 0 {
			s.run[k]++
		} else {
			s.run[k] = 0
		}
	}
	if !s.chained {
		s.endRun()
	}
	if p.in&^inPool == 0 {
		s.spent.remove(i)
	}
	for k := range rates {
		if p.in&(1<<k) != 0 {
			s.grades[k].remove(i)
		} else {
			s.counts[k]++
		}
		g := p.grade(k)
		s.grades[k].push(g, i)
		s.used[k] |= 1 << g
	}
	if p.in&(1<<ruleRecency) != 0 {
		s.recency.remove(i)
	} else {
		s.counts[ruleRecency]++
	}
	s.recency.push(0, i)
	if p.in&(1<<ruleQueues) != 0 {
		s.queues.use(i)
	} else {
		s.counts[ruleQueues]++
		s.queues.admit(i, p.turn != 0 && int(s.turn-p.turn) <= s.room(sc)+s.room(sc)/turnSteps)
		s.queues.push(i)
	}
	if p.in&(1<<ruleRecency) != 0 {
		s.debt.reused++
	}
	if p.in&inPool == 0 {
		s.resident++
		if p.in&(1<<ruleRecency) != 0 {
			s.debt.lacks--
			s.debt.missed++
		}
	}
	p.in = 1<<rules - 1 | inPool
	room := s.room(sc)
	if s.uses++; s.uses >= max(room/32, 16) {
		s.decide(sc)
	}
	if s.chained { // more while a chain is used, as the pool has room for a request
		room += max(room/2, len(s.samples)-1-(rules-1)*room-mostOf(len(s.samples)-1))
	}
	s.trim(room, now, sc)
}

// room is how many members a cache has.
func (s *shadow) room(sc *scale) int { return max(int(sc.room>>s.level), 1) }

// find is the sample of a hash, or 0.
func (s *shadow) find(hash uint32) uint32 {
	i := *s.head(hash)
	for i != 0 && s.samples[i].hash != hash {
		i = s.samples[i].next
	}
	return i
}

// gone: the pool has an object of the sample no more.
func (s *shadow) gone(hash uint32) {
	i := s.find(hash)
	if i != 0 && s.samples[i].in&inPool != 0 {
		s.stirred = true
		s.samples[i].in &^= inPool
		s.resident--
		if s.samples[i].in&(1<<ruleRecency) != 0 {
			s.debt.lacks++
		}
	}
}

// chain begins another chain.
func (s *shadow) chain(now uint32, sc *scale) {
	s.chained = true
	if !s.stirred { // most often, as few objects are samples
		return
	}
	s.stirred = false
	s.endRun()
	s.trim(s.room(sc), now, sc)
}

// endRun counts the hits of the chain that ends.
func (s *shadow) endRun() {
	for k, n := range s.run {
		s.hits[k] += n
	}
	s.debt.hits += float64(s.run[ruleRecency] - s.served)
	s.served = 0
	clear(s.run[:])
}

// mostOf is how many members recency's cache may have, of so many samples.
func mostOf(samples int) int { return 3 * samples / (2 * samplesEach) }

// trim has each cache evict what it has no room for.
func (s *shadow) trim(room int, now uint32, sc *scale) {
	resident := max(min(s.resident, mostOf(len(s.samples)-1)), 1)
	for k := range rules {
		most := room
		if k == ruleRecency {
			most = resident
		}
		for s.counts[k] > most {
			s.leave(s.victim(k, now, sc), k)
		}
	}
}

func (s *shadow) victim(k int, now uint32, sc *scale) uint32 {
	switch k {
	case ruleRecency:
		return s.recency.last(0)
	case ruleQueues:
		i := s.queues.victim()
		if s.queues.flags[i]&inMain == 0 {
			s.turn++
			s.samples[i].turn = s.turn
		}
		return i
	}
	var least uint32
	low := int64(math.MaxInt64)
	for w := s.used[k]; w != 0; w &= w - 1 {
		g := uint32(bits.TrailingZeros64(w))
		i := s.grades[k].last(g)
		if i == 0 {
			s.used[k] &^= 1 << g
			continue
		}
		if v := sc.value(&s.samples[i].trait, k, now); v < low {
			least, low = i, v
		}
	}
	return least
}

// leave takes sample i out of the cache of rule k.
func (s *shadow) leave(i uint32, k int) {
	if s.samples[i].in &^= 1 << k; s.samples[i].in&^inPool == 0 {
		s.spent.push(0, i)
	}
	s.counts[k]--
	switch k {
	case ruleRecency:
		s.recency.remove(i)
		s.debt.left++
		if s.samples[i].in&inPool == 0 {
			s.debt.lacks--
			s.debt.spared++
		}
	case ruleQueues:
		s.queues.remove(i)
	default:
		s.grades[k].remove(i)
	}
}

// add makes a sample, in no cache; the one that left the last cache longest ago
// gives its place if there is no other. In a long chain the caches may come to have all samples among
// them; when they have no more than their rooms they cannot.
func (s *shadow) add(hash, now uint32, sc *scale) uint32 {
	if s.spare == 0 && int(s.touched)+1 == len(s.samples) {
		if s.spent.last(0) == 0 {
			s.trim(s.room(sc), now, sc)
		}
		s.drop(s.spent.last(0))
	}
	i := s.spare
	if i != 0 {
		s.spare = s.samples[i].next
	} else {
		s.touched++
		i = s.touched
	}
	head := s.head(hash)
	s.samples[i] = sample{hash: hash, next: *head, live: true}
	*head = i
	s.spent.push(0, i)
	return i
}

// drop forgets a sample.
func (s *shadow) drop(i uint32) {
	p := &s.samples[i]
	for k := range rules {
		if p.in&(1<<k) != 0 {
			s.leave(i, k)
		}
	}
	if p.in&inPool != 0 {
		s.resident--
	}
	s.spent.remove(i)
	at := s.head(p.hash)
	for *at != i {
		at = &s.samples[*at].next
	}
	*at = p.next
	*p = sample{next: s.spare}
	s.spare = i
}

func (s *shadow) check() error {
	if err := s.spent.check(func(i uint32) bool { return s.samples[i].live && s.samples[i].in&^inPool == 0 }); err != nil {
		return fmt.Errorf("spent samples: %w", err)
	}
	resident, lacks := 0, 0
	for i := uint32(1); i <= s.touched; i++ {
		switch in := s.samples[i].in; {
		case in&inPool != 0:
			resident++
		case in&(1<<ruleRecency) != 0:
			lacks++
		}
	}
	if lacks != s.debt.lacks {
		return fmt.Errorf("l1/table: the pool lacks %d samples, counted are %d", lacks, s.debt.lacks)
	}
	if resident != s.resident {
		return fmt.Errorf("l1/table: the pool has %d samples, counted are %d", resident, s.resident)
	}
	for k := range rules {
		n := 0
		for i := uint32(1); i <= s.touched; i++ {
			n += int(s.samples[i].in >> k & 1)
		}
		if n != s.counts[k] {
			return fmt.Errorf("l1/table: rule %d has %d samples, counts %d", k, n, s.counts[k])
		}
		in := func(i uint32) bool { return s.samples[i].in>>k&1 != 0 }
		check := s.recency.check
		if k < rates {
			check = s.grades[k].check
		} else if k == ruleQueues {
			check = s.queues.check
		}
		if err := check(in); err != nil {
			return fmt.Errorf("rule %d: %w", k, err)
		}
	}
	return nil
}
