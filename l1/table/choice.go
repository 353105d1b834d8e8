package table

import "math"

const (
	// lifeRooms, longRooms and shortRooms are the half-lives of the rules' hits, in
	// uses for each object that the cache has room for.
	lifeRooms  = 128
	longRooms  = 16
	shortRooms = 2
	// leastRoom is what a cache is taken to have room for in the shortest of them: of fewer
	// uses nothing is told.
	leastRoom = 256

	// ahead and surely are leads, in standard deviations: of more than chance explains, and
	// of so much more that it is acted on though it is of few uses, or though it is dear.
	ahead  = 1.0
	surely = 2.0
	// Two frequencies keep mostly the same objects, so that a change between them costs little
	// and takes less to be worth it.
	aheadNear  = 0.7
	surelyNear = 1.5
	// aheadFar is for a change from a frequency to S3-FIFO, which keeps the most unlike objects.
	aheadFar = 1.5

	// firstRule is followed until something is known: a frequency of the shortest half-life,
	// for it is near least recently used and mostly serves more.
	firstRule = 0
)

// A tally is the hits of each rule, old ones counting less.
type tally struct {
	uses   float64
	hits   [rules]float64
	spread [rules][rules]float64 // sum of the squares of the differences of two rules
}

// add takes in the hits of so many uses since the last time, older ones counting keep times.
func (y *tally) add(hits *[rules]int, uses, keep float64) {
	y.uses = y.uses*keep + uses
	for a := range rules {
		y.hits[a] = y.hits[a]*keep + float64(hits[a])
		for b := range rules {
			d := float64(hits[a] - hits[b])
			y.spread[a][b] = y.spread[a][b]*keep + d*d
		}
	}
}

// lead is how far rule a is ahead of b, in standard deviations of what chance would
// do. The uses of one request go together, so that their number alone would tell
// too little of that.
func (y *tally) lead(a, b int) float64 {
	if d := y.spread[a][b]; d > 0 {
		return (y.hits[a] - y.hits[b]) / math.Sqrt(d)
	}
	return 0
}

// gain is how many more hits a use rule a surely has than b, 0 if it is not surely ahead.
func (y *tally) gain(a, b int) float64 {
	more := y.hits[a] - y.hits[b] - surely*math.Sqrt(y.spread[a][b])
	if more <= 0 {
		return 0
	}
	return more / y.uses
}

// decide chooses the rule to follow.
func (s *shadow) decide(sc *scale) {
	room, uses := float64(s.room(sc)), float64(s.uses)
	s.uses = 0
	s.life.add(&s.hits, uses, math.Exp2(-uses/(lifeRooms*room)))
	s.long.add(&s.hits, uses, math.Exp2(-uses/(longRooms*room)))
	s.short.add(&s.hits, uses, math.Exp2(-uses/(shortRooms*max(room, leastRoom))))
	clear(s.hits[:])
	s.debt.uses += uses
	s.debt.age(math.Exp2(-uses / (debtRooms * room)))
	s.credit = creditRooms * room * s.long.gain(ruleQueues, ruleRecency)
	s.choose(sc)
	s.proven = s.long.lead(s.best, ruleRecency) > 0
}

func (s *shadow) choose(sc *scale) {
	if s.best < rates && !s.affords(s.best, debtMost, sc) {
		s.best = ruleRecency
		return
	}
	for k := range rules {
		now := s.best
		if now == ruleQueues && k < rates && s.debt.bound(s.room(sc), s.credit) {
			now = ruleRecency // see rule
		}
		if now == ruleRecency && k < rates && !s.affords(k, debtMost/2, sc) {
			continue
		}
		if s.better(k, now) {
			s.best = k
		}
		if k < rates && s.better(k, s.bestRate) {
			s.bestRate = k
		}
	}
	if s.best < rates {
		s.bestRate = s.best
	}
}

// rule is what the next victim goes by: the best rule, as far as the pool can afford to
// follow it, if it is S3-FIFO, or a frequency that is not ahead of least recently used; else
// this.
func (s *shadow) rule(sc *scale) int {
	switch room := s.room(sc); {
	case s.best == ruleQueues:
		if s.debt.bound(room, s.credit) {
			return ruleRecency
		}
	case s.best < rates && !s.proven:
		if s.debt.bound(room, debtBound*spareRooms*float64(room)) {
			return ruleRecency
		}
	}
	return s.best
}

// better says whether to follow rule a rather than b: it has served more in all that
// is remembered and of late not clearly less, or it has served clearly more for
// long, or of late.
func (s *shadow) better(a, b int) bool {
	if a == b {
		return false
	}
	enough, clearly := ahead, surely
	switch {
	case a < rates && b < rates:
		enough, clearly = aheadNear, surelyNear
	case a == ruleQueues && b < rates:
		enough = aheadFar
	}
	short, long := s.short.lead(a, b), s.long.lead(a, b)
	return short > clearly || short > -ahead && (long > surely || long > 0 && s.life.lead(a, b) > enough)
}

// affords says whether frequency k may be followed: the pool has, in all, not served less
// than recency would have by more than a share of the uses, or k is ahead of it.
func (s *shadow) affords(k int, share float64, sc *scale) bool {
	return s.debt.within(share, s.room(sc)) || s.long.lead(k, ruleRecency) > ahead
}
