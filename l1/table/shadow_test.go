package table

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who knew how could have each cache of the sample keep other objects, and add to all of them in one long chain.
func TestThereIsAlwaysRoomForAnotherSample(t *testing.T) {
	full := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newShadow(8)
		var sc scale
		sc.fit(4 + r.IntN(8))
		s.fit(sc.room)
		for now := uint32(1); now < 2000; now++ {
			if r.IntN(500) == 0 {
				s.chain(now, &sc)
			}
			use := newTrait(now)
			for k := range use.f { // as if each half-life had seen other uses
				use.f[k] = uint16(r.IntN(octavesMax * octave))
			}
			s.use(r.Uint32N(1<<12), &use, now, &sc, r.IntN(2) == 0)
			if r.IntN(3) == 0 {
				s.gone(r.Uint32N(1 << 12))
			}
			if s.spent.last(0) == 0 && int(s.touched)+1 == len(s.samples) {
				full++
			}
		}
		require.NoError(t, s.check(), "seed %d", seed)
	}
	require.NotZero(t, full, "the caches never had all samples")
}

// Clocks of 32 bits and less come round while a server runs: what happens near that is what happens at any other time.
func TestClocksOfThePolicyMayComeRound(t *testing.T) {
	tab := [2]*Table{newTableWith(PolicyAdaptive, 100, 200), newTableWith(PolicyAdaptive, 100, 200)}
	p := tab[1].policy.(*adaptive)
	p.now = ^uint32(0) - 2000
	p.ghosts.uses.now = 1<<16 - 100
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 10_000 {
		if r.IntN(10) == 0 {
			tab[0].Chain()
			tab[1].Chain()
		}
		block := uint64(r.IntN(1 + r.IntN(1000)))
		require.Equal(t, useBlock(t, tab[0], block), useBlock(t, tab[1], block), "use %d", n)
	}
	require.Less(t, p.now, uint32(1<<20), "it came round")
	require.Less(t, p.ghosts.uses.now, uint16(1<<15))
}

// An object that nothing is remembered of was used once, however many objects there are.
func TestTheFirstUseCountsOneInAPoolOfAnySize(t *testing.T) {
	for _, room := range []int{1, 1000, 1 << 20, 1 << 27} {
		tab := newTableWith(PolicyAdaptive, 10, 10)
		p := tab.policy.(*adaptive)
		for i := range uint32(4) {
			p.admit(i+1, 77*i, room)
			require.Equal(t, newTrait(p.now), p.traits[i+1], "of %d objects", room)
		}
	}
}

// Of what is remembered in one place the least valuable is given up.
func TestTheLeastValuableGhostIsGivenUp(t *testing.T) {
	var s scale
	s.fit(100)
	const now = 1000
	for least := range uint32(ghostWays) {
		g := newGhosts(ghostWays / ghostsEach)
		for hash := range uint32(ghostWays + 1) {
			tr := newTrait(now)
			for k := range tr.f {
				tr.f[k] = 8 * octave
				if hash == least {
					tr.f[k] = 4 * octave
				}
			}
			g.put(hash, &tr, false, &s, ghostRate, now)
		}
		for hash := range uint32(ghostWays + 1) {
			_, ok := g.take(hash)
			require.Equal(t, hash != least, ok, "%d of %d", hash, least)
		}
	}
}
