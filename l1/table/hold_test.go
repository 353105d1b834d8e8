package table

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// holdEach is what HoldAll does, object by object.
func holdEach(tab *Table, refs []Ref, sizes []int64, most int64) int {
	for i, r := range refs {
		if tab.State(r) != StateReady || tab.Extent(r).Len > most {
			return i
		}
		sizes[i] = tab.Extent(r).Len
		most -= sizes[i]
		tab.Hold(r)
	}
	return len(refs)
}

// anyMove does to a table what may come between holds: a store of k, or something to r.
func anyMove(tab *Table, kind int, k Key, r Ref, size int64) {
	switch {
	case kind < 3:
		if r, _, res := tab.Start(&k, size, StateStaged, size%2 == 0); res == Staged {
			tab.Publish(r, size%3 == 0)
		}
	case r == 0 || tab.State(r) != StateReady:
	case kind == 5:
		tab.Delete(r)
	case kind == 6:
		tab.Pin(r, PinSoft)
	case kind == 7:
		tab.Lapse(r.Entry())
	case kind == 8:
		tab.Cleaned(r)
	default:
		tab.Touch(r)
	}
}

// Objects that are held together leave the policy's lists later, which nobody can tell: two tables, of which one holds them one by
// one, evict the same.
func TestHoldAllIsAHoldOfEach(t *testing.T) {
	const keys, objects, units = 90, 60, 150
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, p := range policies {
		rng := rand.New(rand.NewPCG(seed, uint64(p)))
		tabs := [2]*Table{newTableWith(p, units, objects), newTableWith(p, units, objects)}
		var held []Ref
		late, short := 0, 0
		for range 2000 {
			all := make([]Ref, 0, keys)
			for n := range uint64(keys) {
				k := keyOf(n)
				r, _, ok := tabs[0].Find(&k)
				other, _, there := tabs[1].Find(&k)
				require.True(t, there == ok && other == r)
				if ok || rng.IntN(40) == 0 {
					all = append(all, r)
				}
			}
			if len(all) == 0 {
				all = append(all, 0)
			}
			one, kind, size, pick := all[rng.IntN(len(all))], rng.IntN(10), 1+rng.Int64N(4*Unit), rng.Uint64N(keys)
			from, most := rng.IntN(len(all)), rng.Int64N(60*Unit)
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			var sizes [2][keys]int64
			var n [2]int
			for i, tab := range tabs {
				if kind == 3 || kind == 4 {
					hold := holdEach
					if i == 0 {
						hold = (*Table).HoldAll
					}
					if len(held) < keys {
						n[i] = hold(tab, all[from:], sizes[i][:], most)
					}
					continue
				}
				anyMove(tab, kind, keyOf(pick), one, size)
			}
			require.Equal(t, n[1], n[0])
			require.True(t, sizes[1] == sizes[0])
			late += len(tabs[0].leaving)
			if n[0] < len(all)-from && (kind == 3 || kind == 4) {
				short++
			}
			held = append(held, all[from:from+n[0]]...)
			rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for len(held) > 0 && (kind == 9 || rng.IntN(4) == 0) {
				for _, tab := range tabs {
					tab.Release(held[0])
				}
				held = held[1:]
			}
			require.True(t, tabs[1].Usage() == tabs[0].Usage())
			if late%16 == 0 {
				require.NoError(t, tabs[0].CheckInvariants())
			}
		}
		require.Positive(t, tabs[0].Usage().Evictions)
		require.Greater(t, late, 500)
		require.Positive(t, short)
	}
}

// More can be held together, in several calls, than are remembered to be in the lists still.
func TestMoreAreHeldThanMayLeaveLater(t *testing.T) {
	const objects = leavingMost + 100
	tab := newTable(objects, objects)
	refs, sizes := make([]Ref, objects), make([]int64, objects)
	for n := range refs {
		refs[n], _ = put(t, tab, uint64(n), Unit)
	}
	for i := 0; i < objects; i += 100 {
		part := refs[i:min(objects, i+100)]
		require.Equal(t, len(part), tab.HoldAll(part, sizes, MaxSize))
	}
	require.EqualValues(t, objects*Unit, tab.Usage().Held)
	require.NoError(t, tab.CheckInvariants())
	k := keyOf(objects)
	_, _, res := tab.Stage(&k, Unit)
	require.Equal(t, NoSpace, res)
	tab.Release(refs[7])
	require.NoError(t, tab.CheckInvariants())
	_, _, res = tab.Stage(&k, Unit)
	require.Equal(t, Staged, res)
	require.False(t, tab.Alive(refs[7]))
}

// What goes first is a lapsed object, of which the policy is not asked, and its lists still have what was held a moment ago.
func TestWhatIsHeldStaysThoughALapsedOneGoesFirst(t *testing.T) {
	for _, p := range policies {
		tab := newTableWith(p, 10, 20)
		var refs []Ref
		for n := range uint64(10) {
			r, _ := put(t, tab, n, Unit)
			refs = append(refs, r)
		}
		tab.Pin(refs[5], PinSoft)
		tab.Lapse(refs[5].Entry())
		for _, i := range []int{4, 6} { // there is no room around it
			tab.Hold(refs[i])
		}
		tab.Delete(refs[3])
		tab.Delete(refs[7])
		held := []Ref{refs[0], refs[1], refs[2]}
		require.Equal(t, 3, tab.HoldAll(held, make([]int64, 3), 3*Unit))
		k := keyOf(100)
		_, _, res := tab.Stage(&k, 2*Unit)
		require.Equal(t, Staged, res)
		for _, r := range held {
			require.Equal(t, uint32(1), tab.Holds(r))
		}
		require.NoError(t, tab.CheckInvariants())
	}
}
