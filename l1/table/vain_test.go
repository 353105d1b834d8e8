package table

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// comb is a full pool of 100 units, of which each tenth is of an object that stays.
func comb(t *testing.T, p Policy, keep func(*Table, Ref)) (tab *Table, stay []Ref) {
	t.Helper()
	tab = newTableWith(p, 100, 200)
	for n := range uint64(100) {
		r, res := put(t, tab, n, Unit)
		require.Equal(t, Staged, res)
		if n%10 == 9 {
			keep(tab, r)
			stay = append(stay, r)
		}
	}
	return tab, stay
}

// fill has the pool full of objects of a unit each.
func fill(t *testing.T, tab *Table, from uint64) {
	t.Helper()
	for n := from; tab.Usage().Used < tab.Usage().Ready; n++ {
		_, res := put(t, tab, n, Unit)
		require.Equal(t, Staged, res)
	}
}

// A chunk that fits nowhere between pinned ones empties the pool each time that it is asked for, and waits in vain.
func TestWhatFitsNowhereEmptiesThePoolOnce(t *testing.T) {
	for _, p := range policies {
		tab, stay := comb(t, p, (*Table).Hold)
		_, res := put(t, tab, 1000, 10*Unit)
		require.Equal(t, NoSpace, res)
		fill(t, tab, 2000)

		before := tab.Usage().Evictions
		for range 10 {
			for _, soft := range []bool{false, true} {
				k := keyOf(1000)
				_, _, res := tab.Start(&k, 10*Unit, StateStaged, soft)
				require.Equal(t, NoSpace, res)
			}
			_, res = put(t, tab, 1001, 30*Unit)
			require.Equal(t, NoSpace, res)
		}
		require.Equal(t, before, tab.Usage().Evictions)
		r, res := put(t, tab, 1002, 9*Unit)
		require.Equal(t, Staged, res, "less is had")
		tab.Delete(r)
		fill(t, tab, 3000)

		// Who comes and goes between does not matter, who stayed does.
		r, _ = put(t, tab, 4000, Unit)
		tab.Hold(r)
		tab.Release(r)
		before = tab.Usage().Evictions
		_, res = put(t, tab, 1000, 10*Unit)
		require.Equal(t, NoSpace, res)
		require.Equal(t, before, tab.Usage().Evictions)
		tab.Release(stay[4])
		_, res = put(t, tab, 1000, 20*Unit)
		require.Equal(t, NoSpace, res)
		_, res = put(t, tab, 1000, 10*Unit)
		require.Equal(t, Staged, res, "one hold less is enough")
		require.NoError(t, tab.CheckInvariants())
	}
}

// What a vain want is known by is looked after for so long only: each release costs looks at what is around.
func TestAVainWantIsForgottenWhenItHasCostEnough(t *testing.T) {
	tab, stay := comb(t, PolicyLRU, (*Table).Hold)
	_, res := put(t, tab, 1000, 10*Unit)
	require.Equal(t, NoSpace, res)
	r, res := put(t, tab, 1001, Unit)
	require.Equal(t, Staged, res)
	tab.vains.of[0].before, tab.vains.of[1].before, tab.vains.since = nobody-1, nobody-1, nobody-1 // as if it had been there
	times := 0
	for ; tab.vains.since != 0; times++ {
		require.LessOrEqual(t, tab.vains.looks, vainLooks)
		tab.Hold(r)
		tab.Release(r)
	}
	require.Greater(t, times, vainLooks/20)
	tab.Release(stay[0])
	require.NoError(t, tab.CheckInvariants())
}

// What is known of a want ends in whichever way there comes to be room.
func TestAVainWantIsHadOnceThereIsRoom(t *testing.T) {
	ways := map[string]struct{ keep, end func(*Table, Ref) }{
		"released":       {(*Table).Hold, (*Table).Release},
		"deleted":        {(*Table).Hold, func(tab *Table, r Ref) { tab.Delete(r); tab.Release(r) }},
		"unpinned":       {func(tab *Table, r Ref) { tab.Pin(r, PinHard) }, func(tab *Table, r Ref) { tab.Unpin(r) }},
		"lapsed":         {func(tab *Table, r Ref) { tab.Pin(r, PinSoft) }, func(tab *Table, r Ref) { tab.Lapse(r.Entry()) }},
		"spilled":        {(*Table).Spill, (*Table).Spilled},
		"pin is deleted": {func(tab *Table, r Ref) { tab.Pin(r, PinHard) }, func(tab *Table, r Ref) { tab.Delete(r) }},
	}
	for name, way := range ways {
		tab, stay := comb(t, PolicyLRU, way.keep)
		_, res := put(t, tab, 1000, 10*Unit)
		require.Equal(t, NoSpace, res, name)
		fill(t, tab, 2000)
		way.end(tab, stay[9])
		_, res = put(t, tab, 1000, 10*Unit)
		require.Equal(t, Staged, res, name)
		require.NoError(t, tab.CheckInvariants(), name)
	}

	tab := New(Config{Size: 20 * Unit, MaxObjects: 40, Seed: 7})
	tab.Grow(10 * Unit)
	r, _ := put(t, tab, 1, Unit)
	put(t, tab, 2, 4*Unit)
	kept, _ := put(t, tab, 3, Unit)
	tab.Hold(r)
	tab.Hold(kept)
	_, res := put(t, tab, 4, 5*Unit)
	require.Equal(t, NoSpace, res)
	tab.Grow(20 * Unit)
	_, res = put(t, tab, 4, 14*Unit)
	require.Equal(t, Staged, res, "the pool grew")
}

// Softly pinned objects are in the way of those for whom they stay only.
func TestAWantIsVainForThoseWhoLeavePinsAlone(t *testing.T) {
	tab, _ := comb(t, PolicyLRU, func(tab *Table, r Ref) { tab.Pin(r, PinSoft) })
	k := keyOf(1000)
	_, _, res := tab.Start(&k, 10*Unit, StateStaged, false)
	for res == Again {
		_, _, res = tab.Start(&k, 10*Unit, StateStaged, false)
	}
	require.Equal(t, NoSpace, res)
	fill(t, tab, 2000)
	before := tab.Usage().Evictions
	_, _, res = tab.Start(&k, 10*Unit, StateStaged, false)
	require.Equal(t, NoSpace, res)
	require.Equal(t, before, tab.Usage().Evictions)
	r, _, res := tab.Start(&k, 10*Unit, StateStaged, true)
	require.Equal(t, Staged, res)
	require.NoError(t, tab.CheckInvariants())
	tab.Abort(r)
}

// noSpace proves that there was none.
func (m *model) noSpace(size, free, evictable int64, evicted int, soft bool) {
	if free+evictable < Footprint(size) {
		require.Zero(m.t, evicted, "futile evictions")
		return
	}
	full, narrow := len(m.all) == m.max, m.longestGap(soft) < Footprint(size)
	require.True(m.t, full || narrow, "there was room")
	if evicted == 0 && narrow {
		m.vain++
		return // that is known from before
	}
	left := 0
	for _, o := range m.all {
		if o.evictable() && (soft || o.pin != PinSoft) {
			left++
		}
	}
	require.Zero(m.t, left, "there was more to evict")
	require.True(m.t, m.tab.Largest() < size || full)
}

// longestGap is how many bytes lie together between the objects that stay.
func (m *model) longestGap(soft bool) int64 {
	var stay []Extent
	for _, o := range m.all {
		if !o.evictable() || !soft && o.pin == PinSoft {
			if e := m.tab.Extent(o.ref); e.Len > 0 {
				stay = append(stay, e)
			}
		}
	}
	slices.SortFunc(stay, func(a, b Extent) int { return cmp.Compare(a.Off, b.Off) })
	at, longest := int64(0), int64(0)
	for _, e := range append(stay, Extent{Off: m.ready / Unit * Unit}) {
		longest = max(longest, e.Off-at)
		at = e.Off + Footprint(e.Len)
	}
	return longest
}
