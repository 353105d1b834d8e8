package table

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

var policies = []Policy{PolicyLRU, PolicyFIFO, PolicyS3FIFO, PolicyAdaptive}

func newTableWith(p Policy, units int64, objects int) *Table {
	t := New(Config{Size: units * Unit, MaxObjects: objects, Seed: 7, Policy: p})
	t.Grow(units * Unit)
	return t
}

// useBlock is one use of a block of one unit: a hit touches it, a miss stores it.
func useBlock(t *testing.T, tab *Table, n uint64) (hit bool) {
	t.Helper()
	k := keyOf(n)
	if r, _, ok := tab.Find(&k); ok {
		tab.Touch(r)
		return true
	}
	_, res := put(t, tab, n, Unit)
	require.Equal(t, Staged, res)
	return false
}

func TestPoliciesGoByTheirNames(t *testing.T) {
	for _, p := range policies {
		got, err := ParsePolicy(p.String())
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	_, err := ParsePolicy("clairvoyant")
	require.ErrorContains(t, err, "clairvoyant")
	require.Equal(t, "unknown", Policy(99).String())
	require.Panics(t, func() { New(Config{Size: Unit, MaxObjects: 1, Policy: 99}) })
}

func TestPoliciesDoNotAllocate(t *testing.T) {
	for _, p := range policies {
		tab := newTableWith(p, 3000, 4000)
		n := uint64(0)
		require.Zero(t, testing.AllocsPerRun(10_000, func() {
			n++
			k := keyOf(n % 4321 * (n % 3))
			r, _, res := tab.Stage(&k, Unit)
			if res == Staged {
				tab.Publish(r, n%2 == 0)
				tab.Cleaned(r)
			}
			tab.Hold(r)
			tab.Touch(r)
			tab.Release(r)
		}), "%v", p)
		require.NotZero(t, tab.Usage().Evictions)
		require.NoError(t, tab.CheckInvariants())
	}
}

func TestMetadataOfThePoliciesIsSmall(t *testing.T) {
	const objects = 1 << 20
	p := newAdaptive(objects)
	link := float64(unsafe.Sizeof(ringLink{}))
	each := (float64(unsafe.Sizeof(trait{})*uintptr(len(p.traits))) + link*float64(len(p.lists.at)+len(p.queues.order.at)) +
		float64(len(p.queues.flags))) / objects
	memory := float64(len(p.ghosts.at)*int(unsafe.Sizeof(ghost(0)))) / objects
	s := p.shadow
	fixed := len(s.samples)*int(unsafe.Sizeof(sample{})) + 4*len(s.heads) +
		int(unsafe.Sizeof(ringLink{}))*(len(s.spent.at)+rates*len(s.grades[0].at)+len(s.recency.at)+len(s.queues.order.at)) + len(s.queues.flags)
	t.Logf("%.1f bytes an object, %.1f more for what was evicted, %d for the sample", each, memory, fixed)
	require.LessOrEqual(t, each, 32.0)
	require.LessOrEqual(t, memory, 32.0)
	require.LessOrEqual(t, fixed, 4<<20)
}

func TestFIFOIgnoresTouches(t *testing.T) {
	tab := newTableWith(PolicyFIFO, 10, 20)
	for n := range uint64(10) {
		useBlock(t, tab, n)
	}
	for range 5 {
		useBlock(t, tab, 0)
	}
	useBlock(t, tab, 100)
	require.False(t, found(tab, 0))
	require.True(t, found(tab, 1))
}

func TestS3FIFOKeepsWhatWasUsedAgainFromAScan(t *testing.T) {
	tab := newTableWith(PolicyS3FIFO, 100, 200)
	for range 4 {
		for n := range uint64(50) {
			useBlock(t, tab, n)
		}
	}
	for n := range uint64(1000) {
		useBlock(t, tab, 1000+n)
	}
	for n := range uint64(50) {
		require.True(t, found(tab, n), "%d", n)
	}
	require.NoError(t, tab.CheckInvariants())
}

func TestS3FIFORemembersWhatLeftTheSmallQueue(t *testing.T) {
	tab := newTableWith(PolicyS3FIFO, 100, 200)
	for n := range uint64(120) {
		useBlock(t, tab, n)
	}
	require.False(t, found(tab, 0))
	require.False(t, useBlock(t, tab, 0), "it comes back")
	for n := range uint64(500) {
		useBlock(t, tab, 1000+n)
	}
	require.True(t, found(tab, 0), "it went to the main queue")
	require.False(t, found(tab, 1))
}

// serve counts the hits of a policy on a stream of blocks.
func serve(t *testing.T, p Policy, room int64, uses int, next func(i int) uint64) (hits int) {
	t.Helper()
	tab := newTableWith(p, room, int(room)*8)
	for i := range uses {
		if useBlock(t, tab, next(i)) {
			hits++
		}
	}
	require.NoError(t, tab.CheckInvariants())
	return hits
}

func TestAdaptiveFollowsTheRuleThatServesBest(t *testing.T) {
	const room, uses = 1000, 60_000
	for _, c := range []struct {
		name string
		rule int
		next func(r *rand.Rand) func(i int) uint64
	}{
		{"a loop larger than the room", -2, func(*rand.Rand) func(int) uint64 {
			return func(i int) uint64 { return uint64(i % 1200) }
		}},
		{"what was used of late", ruleRecency, func(r *rand.Rand) func(int) uint64 {
			return func(i int) uint64 { return uint64(max(0, i/3-r.IntN(900))) }
		}},
		{"a few that are always wanted, and many once", -1, func(r *rand.Rand) func(int) uint64 {
			return func(i int) uint64 {
				if r.IntN(10) < 3 {
					return r.Uint64N(1500)
				}
				return uint64(10_000 + i)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Log("seed 1")
			tab := newTableWith(PolicyAdaptive, room, room*8)
			next, hits := c.next(rand.New(rand.NewPCG(1, 1))), 0
			for i := range uses {
				if useBlock(t, tab, next(i)) {
					hits++
				}
			}
			require.NoError(t, tab.CheckInvariants())
			s := tab.policy.(*adaptive).shadow
			t.Logf("rule %d, hits %v", s.best, s.long.hits)
			if c.rule >= 0 {
				require.Equal(t, c.rule, s.best)
			} else if c.rule == -2 {
				require.NotEqual(t, ruleRecency, s.best)
			} else {
				require.Less(t, s.best, rates, "a frequency")
			}
			best := 0
			for _, p := range []Policy{PolicyLRU, PolicyS3FIFO} {
				best = max(best, serve(t, p, room, uses, c.next(rand.New(rand.NewPCG(1, 1)))))
			}
			require.GreaterOrEqual(t, float64(hits), float64(best-4*room), "learning takes no more than four rooms")
		})
	}
}

func TestSumsOfLogarithmsAreRight(t *testing.T) {
	for x := int64(-20 * octave); x < 30*octave; x += 37 {
		want := math.Log2(1 + math.Exp2(float64(x)/octave))
		require.InDelta(t, want, float64(plusOne(x))/octave, 0.01)
	}
	require.Equal(t, uint16(octavesMax*octave), plusOne(40*octave))
}

func TestFrequencyHalvesInItsHalfLife(t *testing.T) {
	var s scale
	s.fit(1000)
	for k, half := range halfLives {
		tr := newTrait(5)
		for range 99 {
			s.use(&tr, 5)
		}
		require.InDelta(t, math.Log2(100), float64(tr.f[k])/octave, 0.1)
		s.use(&tr, uint32(5+1000*half))
		require.InDelta(t, math.Log2(51), float64(tr.f[k])/octave, 0.1)
	}
}

// At each rate, kept or between two, uses count half as much as as many that are a half-life younger.
func TestUsesOfAHalfLifeAgoCountHalfAsMuch(t *testing.T) {
	var s scale
	s.fit(1000)
	for k := range rates {
		half := uint64(1000) << (k + 1)
		require.Equal(t, half, s.half[k])
		old, young := newTrait(5), newTrait(uint32(5+half))
		for range 100 {
			s.use(&old, 5)
		}
		for range 50 {
			s.use(&young, uint32(5+half))
		}
		now := uint32(5 + 2*half)
		require.InDelta(t, float64(s.value(&young, k, now)), float64(s.value(&old, k, now)), 0.1*float64(half))
		require.InDelta(t, math.Log2(100), float64(old.frequency(k))/octave, 0.1)
	}
}

func TestGhostsGiveBackWhatTheyTook(t *testing.T) {
	for seed := range uint64(3) {
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 9))
		var s scale
		s.fit(1000)
		g := newGhosts(1000)
		kept := map[uint32]trait{}
		for n := range uint32(2000) {
			tr := newTrait(1 << 20)
			for k := range tr.f {
				tr.f[k] = uint16(r.IntN(15 * octave))
			}
			hash := r.Uint32()
			kept[hash] = tr
			g.put(hash, &tr, n%2 == 0, &s, 2, 1<<20+500)
		}
		lost, wrong := 0, 0
		for hash, want := range kept {
			gh, ok := g.take(hash)
			if !ok {
				lost++
				continue
			}
			got := g.trait(gh, &s, 1<<20+500)
			if d := int64(want.stamp()) - int64(got.stamp()); max(d, -d) > 1000/ghostSteps+1 {
				t.Fatalf("got %+v, want %+v", got, want)
			}
			far := false
			for k := range got.f {
				if d := int(want.f[k]) - int(got.f[k]); max(d, -d) > octave/8 {
					far = true
				}
			}
			if far { // another's with the same tag
				wrong++
			}
			if _, ok = g.take(hash); ok {
				t.Fatal("taken twice")
			}
		}
		require.Less(t, lost, 100, "of 2000 in 4000 places")
		require.Less(t, wrong, 10)
	}
}

func TestAHitBehindAMissOfItsChainCountsNothing(t *testing.T) {
	tab := newTableWith(PolicyAdaptive, 100, 200)
	s := tab.policy.(*adaptive).shadow
	chain := func(blocks ...uint64) (hits int) {
		tab.Chain()
		before := s.hits[ruleRecency]
		for _, n := range blocks {
			useBlock(t, tab, n)
		}
		tab.Chain()
		return s.hits[ruleRecency] - before
	}
	require.Zero(t, chain(3, 2, 1))
	require.Equal(t, 3, chain(3, 2, 1))
	require.Equal(t, 1, chain(3, 20, 1), "3 is of no use without 20")
	require.Zero(t, chain(3, 2, 10))
	require.NoError(t, tab.CheckInvariants())
}

func TestCachesOfTheSampleGiveWayWhenAChainEnds(t *testing.T) {
	tab := newTableWith(PolicyAdaptive, 20, 20) // so few that there are no more samples to spare
	s := tab.policy.(*adaptive).shadow
	for round := range uint64(30) {
		tab.Chain()
		for n := range uint64(15) {
			useBlock(t, tab, round%5*100+n)
			for k := range rules {
				require.LessOrEqual(t, s.counts[k], 36) // that many samples there are
			}
		}
		tab.Chain()
		for k := range rules {
			require.LessOrEqual(t, s.counts[k], 21) // the room, which is followed to a sixteenth
		}
		require.NoError(t, tab.CheckInvariants())
	}
}

func TestSampleKnowsWhatThePoolHas(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	tab := newTableWith(PolicyAdaptive, 100, 400)
	s := tab.policy.(*adaptive).shadow
	for range 5000 {
		n := r.Uint64N(150)
		k := keyOf(n)
		if ref, _, ok := tab.Find(&k); ok && r.IntN(4) == 0 {
			tab.Hold(ref)
			tab.Delete(ref)
			tab.Release(ref)
		} else {
			useBlock(t, tab, n)
		}
		ready := 0
		for n := range uint64(150) {
			if found(tab, n) {
				ready++
			}
		}
		require.Equal(t, ready, s.resident, "every object is one of the sample")
	}
	require.NotZero(t, tab.Usage().Evictions)
	require.NoError(t, tab.CheckInvariants())
}

func TestCacheOfRecencyIsThePoolWhileItIsFollowed(t *testing.T) {
	tab := newTableWith(PolicyAdaptive, 100, 400)
	s := tab.policy.(*adaptive).shadow
	s.best = ruleRecency
	for i := range uint64(20_000) {
		tab.Chain()
		useBlock(t, tab, i%90+i/200) // a window that slides: no rule serves it better
		require.Equal(t, ruleRecency, s.best)
		require.Zero(t, s.debt.hits)
		require.Zero(t, s.debt.lacks)
	}
}

func TestWhatTheSmallQueueWouldEvictGoesFirst(t *testing.T) {
	q := newQueues(100)
	for i := uint32(1); i <= 100; i++ {
		q.admit(i, false)
		q.push(i)
	}
	for range 2 {
		q.use(2)
	}
	n := 0
	for ; q.demote(); n++ { // as when other rules evict
		require.Less(t, n, 100)
	}
	require.Equal(t, 100/smallShare-1, q.small, "its share")
	require.Equal(t, 100-1-q.small, n, "all but the one that is in the main queue")
	require.Equal(t, uint32(1), q.victim(), "the first that left it")
	q.use(1)
	require.Equal(t, inMain, q.flags[1], "as if it came back")
	require.Equal(t, uint32(3), q.victim())
	require.Equal(t, inMain, q.flags[2]&inMain)
	q.remove(3)
	q.use(3) // held
	q.push(3)
	require.Equal(t, uint32(4), q.victim(), "3 was used while it was in no list")
	require.NoError(t, q.order.check(func(uint32) bool { return true }))
}

func TestARuleIsFollowedAsFarAsItCanBeAfforded(t *testing.T) {
	for _, c := range []struct {
		name   string
		best   int
		proven bool
		debt   debt
		credit float64
		want   int
	}{
		{"nothing is owed", 0, false, debt{uses: 1000}, 0, 0},
		{"a frequency that has proven nothing, and what is lacked may all be missed", 0, false, debt{uses: 1000, lacks: 20, reused: 600, left: 400}, 0, ruleRecency},
		{"the same, of the room's few", 0, false, debt{uses: 1000, lacks: 3, reused: 600, left: 400}, 0, 0},
		{"the same, proven", 0, true, debt{uses: 1000, lacks: 20, reused: 600, left: 400}, 0, 0},
		{"S3-FIFO with some that are lacked", ruleQueues, true, debt{uses: 1000, lacks: 3, reused: 600, left: 400}, 0, ruleRecency},
		{"the same, which will pay it back", ruleQueues, true, debt{uses: 1000, lacks: 3, reused: 600, left: 400}, 10, ruleQueues},
		{"recency", ruleRecency, false, debt{uses: 1000, hits: 10}, 0, ruleRecency},
	} {
		p := newAdaptive(1000)
		p.scale.fit(1000)
		p.shadow.best, p.shadow.proven, p.shadow.debt, p.shadow.credit = c.best, c.proven, c.debt, c.credit
		require.Equal(t, c.want, p.shadow.rule(&p.scale), c.name)
	}
}

// chooser is a shadow of a room of 1000 that has seen 1000 uses, in which all rules have served as much.
func chooser(best int) *adaptive {
	p := newAdaptive(1000)
	p.scale.fit(1000)
	p.shadow.best, p.shadow.debt.uses = best, 1000
	for _, y := range []*tally{&p.shadow.life, &p.shadow.long, &p.shadow.short} {
		for a := range rules {
			for b := range rules {
				y.spread[a][b] = 1 // a lead is a difference
			}
		}
	}
	return p
}

// A change between rules of unlike objects costs more, and takes a lead of more.
func TestWhatAChangeCostsIsTheLeadItTakes(t *testing.T) {
	for _, c := range []struct {
		to, from int
		lead     float64
	}{{1, 0, aheadNear}, {ruleRecency, 0, ahead}, {ruleQueues, ruleRecency, ahead}, {0, ruleQueues, ahead}, {ruleQueues, 0, aheadFar}} {
		s := chooser(c.from).shadow
		s.long.hits[c.to] = 0.1
		s.life.hits[c.to] = c.lead - 0.01
		require.False(t, s.better(c.to, c.from), "%d after %d", c.to, c.from)
		s.life.hits[c.to] = c.lead + 0.01
		require.True(t, s.better(c.to, c.from), "%d after %d", c.to, c.from)
	}
}

func TestAFrequencyIsFollowedIfThePoolCanAffordIt(t *testing.T) {
	for _, c := range []struct {
		name       string
		best, rate int
		owed       float64
		change     func(s *shadow)
		want, then int // of all rules, and of the frequencies
	}{
		{"it owes little", 0, 0, 1, func(*shadow) {}, 0, 0},
		{"it owes too much", 0, 0, 10, func(*shadow) {}, ruleRecency, 0},
		{"it owes too much, and is ahead", 0, 0, 10, func(s *shadow) { s.long.hits[0] = 1.1 }, 0, 0},
		{"one is ahead of recency of late", ruleRecency, 1, 1, func(s *shadow) { s.short.hits[3] = 2.1 }, 3, 3},
		{"the same, where half of the most is owed", ruleRecency, 1, 0.0011 * 3000, func(s *shadow) { s.short.hits[3] = 2.1 }, ruleRecency, 1},
		{"one is ahead of recency, not of the best frequency", ruleRecency, 1, 0, func(s *shadow) { s.short.hits[3], s.short.hits[1] = 2.1, 1 }, 3, 3},
		{"S3-FIFO is followed as recency while it cannot be afforded", ruleQueues, 1, 10, func(s *shadow) {
			s.short.hits[3], s.short.hits[ruleQueues], s.long.hits[3] = 2.1, 1, 1.1
		}, 3, 3},
	} {
		p := chooser(c.best)
		p.shadow.bestRate, p.shadow.debt.hits = c.rate, c.owed
		c.change(p.shadow)
		p.shadow.choose(&p.scale)
		require.Equal(t, c.want, p.shadow.best, c.name)
		require.Equal(t, c.then, p.shadow.bestRate, c.name)
	}
}

func TestALeadIsPaidOutOnlyIfItIsSure(t *testing.T) {
	var y tally
	hits := [rules]int{ruleQueues: 3, ruleRecency: 1}
	y.add(&hits, 100, 1)
	require.Zero(t, y.gain(ruleQueues, ruleRecency), "one time tells nothing")
	for range 99 {
		y.add(&hits, 100, 1)
	}
	require.InDelta(t, (200-surely*20)/10000, y.gain(ruleQueues, ruleRecency), 1e-9)
	require.Zero(t, y.gain(ruleRecency, ruleQueues))
}

func TestADebtIsBound(t *testing.T) {
	for _, c := range []struct {
		name string
		debt debt
		want bool
	}{
		{"nothing is owed", debt{uses: 1000}, false},
		{"more than the share", debt{uses: 1000, hits: 3}, true},
		{"what is lacked may all be missed", debt{uses: 1000, lacks: 3, reused: 600, left: 400}, true},
		{"least recently used serves nothing", debt{uses: 1000, lacks: 300, left: 400}, false},
		{"of what was lacked little was missed", debt{uses: 1000, lacks: 3, missed: 10, spared: 990, reused: 600, left: 400}, false},
		{"of what was lacked all was missed", debt{uses: 1000, lacks: 3, missed: 1000}, true},
		{"what the pool had more pays for what it lacks", debt{uses: 1000, hits: -100, lacks: 90, missed: 10}, false},
	} {
		require.Equal(t, c.want, c.debt.bound(1000, 0), c.name)
		require.False(t, c.debt.bound(1000, 1000), "%s, but the credit is large", c.name)
	}
	d := debt{hits: 5, uses: 1000}
	require.True(t, d.within(0.003, 1000), "a share of the uses and of two rooms'")
	require.False(t, d.within(0.001, 1000))
	d = debt{missed: 4, spared: 2, reused: 8, left: 6, hits: 5, uses: 9, lacks: 7}
	d.age(0.5)
	require.Equal(t, debt{missed: 2, spared: 1, reused: 4, left: 3, hits: 5, uses: 9, lacks: 7}, d)
}
