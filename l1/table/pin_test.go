package table

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPressureOrder fills a pool with objects of every kind and watches them go: what has
// lapsed, what is clean, what is dirty once the disk has it, what is pinned softly. What is
// held, pinned hard or staged stays.
func TestPressureOrder(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			tab := New(Config{Size: 8 * Unit, MaxObjects: 100, Policy: policy})
			tab.Grow(8 * Unit)
			refs := map[string]Ref{}
			for i, name := range []string{"hard", "soft", "softer", "held", "dirty", "clean", "lapsed"} {
				k := keyOf(uint64(i))
				r, _, res := tab.Stage(&k, Unit)
				require.Equal(t, Staged, res)
				tab.Publish(r, name == "dirty")
				refs[name] = r
			}
			k := keyOf(99)
			tab.Stage(&k, Unit)
			tab.Pin(refs["hard"], PinHard)
			tab.Pin(refs["softer"], PinSoft)
			tab.Pin(refs["soft"], PinSoft)
			tab.Touch(refs["softer"])
			tab.Hold(refs["held"])
			tab.Pin(refs["lapsed"], PinHard)
			require.True(t, tab.Lapse(refs["lapsed"].Entry()))

			next := uint64(1000)
			goes := func(soft bool, name string) {
				t.Helper()
				k := keyOf(next)
				next++
				r, _, res := tab.Start(&k, Unit, StateStaged, soft)
				require.NoError(t, tab.CheckInvariants())
				if name == "" {
					require.Equal(t, NoSpace, res)
					return
				}
				require.Equal(t, Staged, res)
				require.False(t, tab.Alive(refs[name]), "%s was to go", name)
				delete(refs, name)
				for left, ref := range refs {
					require.True(t, tab.Alive(ref), "%s went, not %s", left, name)
				}
				tab.Publish(r, false)
				tab.Hold(r) // it is none of those that go
			}
			goes(true, "lapsed")
			goes(true, "clean")
			goes(false, "")
			tab.Spill(refs["dirty"])
			goes(false, "")
			require.EqualValues(t, Unit, tab.Usage().Spilling)
			tab.Spilled(refs["dirty"])
			goes(true, "dirty")
			goes(false, "")
			goes(true, "soft")
			goes(true, "softer")
			before := tab.Usage().Evictions
			for range 1000 {
				goes(true, "")
			}
			require.Equal(t, before, tab.Usage().Evictions)
			tab.Release(refs["held"])
			goes(false, "held")
			require.True(t, tab.Unpin(refs["hard"]))
			goes(false, "hard")
		})
	}
}

// TestALapsedPinIsNotRevived: a use makes an object one like any other, however often it
// is used, and the sums know no pin of it.
func TestALapsedPinIsNotRevived(t *testing.T) {
	for _, use := range []func(*Table, Ref){
		func(tab *Table, r Ref) { tab.Touch(r) },
		func(tab *Table, r Ref) { tab.Hold(r); tab.Release(r) },
	} {
		tab := newTable(4, 10)
		r, _ := put(t, tab, 1, Unit)
		tab.Pin(r, PinHard)
		require.EqualValues(t, Unit, tab.Usage().PinnedHard)
		require.True(t, tab.Lapse(r.Entry()))
		require.False(t, tab.Lapse(r.Entry()))
		require.False(t, tab.Unpin(r))
		for range 100 {
			use(tab, r)
			u := tab.Usage()
			require.Zero(t, u.PinnedHard+u.PinnedSoft+int64(u.Pinned))
			require.Equal(t, PinNone, tab.PinOf(r))
			require.NoError(t, tab.CheckInvariants())
		}
		for n := range uint64(4) {
			put(t, tab, 10+n, Unit)
		}
		require.False(t, found(tab, 1))
	}
}

func TestPinMoves(t *testing.T) {
	for from := range Pin(pinCount) {
		for to := range Pin(pinCount) {
			t.Run(fmt.Sprintf("%v to %v", from, to), func(t *testing.T) {
				o := object{pin: from}
				if pinMoves[from]&(1<<to) == 0 {
					require.Panics(t, func() { o.pinTo(to) })
					require.Equal(t, from, o.pin)
					return
				}
				o.pinTo(to)
				require.Equal(t, to, o.pin)
			})
		}
	}
	require.Panics(t, func() { (&object{}).pinTo(Pin(pinCount)) })
	require.Equal(t, "unknown", Pin(pinCount).String())

	tab := newTable(4, 10)
	k := keyOf(1)
	r, _, _ := tab.Stage(&k, Unit)
	require.Panics(t, func() { tab.Pin(r, PinSoft) }, "only ready objects are pinned")
	tab.Publish(r, true)
	require.Panics(t, func() { tab.Pin(r, PinLapsed) })
	require.Panics(t, func() { tab.Pin(r, PinNone) })
	tab.Pin(r, PinHard)
	tab.Spill(r)
	require.Panics(t, func() { tab.Spill(r) })
	require.Panics(t, func() { tab.Release(r) }, "the hold is the disk's")
	require.Panics(t, func() { tab.Cleaned(r) })
	require.True(t, tab.Delete(r), "a pin does not keep from deletion")
	require.Equal(t, StateDoomed, tab.State(r))
	require.Zero(t, tab.Usage().PinnedHard)
	require.NoError(t, tab.CheckInvariants())
	tab.Spilled(r)
	require.Panics(t, func() { tab.Spilled(r) })
	require.Zero(t, tab.Usage().Used)
	require.NoError(t, tab.CheckInvariants())

	r, _ = put(t, tab, 2, Unit)
	tab.Pin(r, PinHard)
	require.Panics(t, func() { tab.Pin(r, PinSoft) }, "a pin gets no weaker")
}
