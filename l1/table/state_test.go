package table

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyMovesOfTheDiagramAreLegal(t *testing.T) {
	legal := map[[2]State]bool{
		{StateFree, StateStaged}:         true,
		{StateFree, StateLoading}:        true,
		{StateStaged, StateReady}:        true,
		{StateStaged, StateFree}:         true,
		{StateStaged, StateFenced}:       true,
		{StateStaged, StateQuarantined}:  true,
		{StateLoading, StateReady}:       true,
		{StateLoading, StateFree}:        true,
		{StateLoading, StateDoomed}:      true,
		{StateLoading, StateAbandoned}:   true,
		{StateReady, StateFree}:          true,
		{StateReady, StateDoomed}:        true,
		{StateDoomed, StateFree}:         true,
		{StateFenced, StateFree}:         true,
		{StateFenced, StateQuarantined}:  true,
		{StateAbandoned, StateFree}:      true,
		{StateAbandoned, StateDoomed}:    true,
		{StateQuarantined, StateFree}:    true,
		{StateFree, StateFree}:           false,
		{StateQuarantined, StateStaged}:  false,
		{StateAbandoned, StateReady}:     false,
		{StateFenced, StateReady}:        false,
		{StateDoomed, StateReady}:        false,
		{StateReady, StateStaged}:        false,
		{StateReady, State(stateCount)}:  false,
		{StateReady, State(^uint8(0))}:   false,
		{StateStaged, State(stateCount)}: false,
	}
	for from := range State(stateCount) {
		for to := range State(stateCount + 2) {
			o := object{state: from}
			if legal[[2]State{from, to}] {
				o.moveTo(to)
				require.Equal(t, to, o.state)
				continue
			}
			want := fmt.Sprintf("l1/table: object moves from %v to %v", from, to)
			require.PanicsWithValue(t, want, func() { o.moveTo(to) })
			require.Equal(t, from, o.state)
		}
	}
}

func TestStatesAndResultsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for s := range State(stateCount) {
		require.NotEqual(t, "unknown", s.String())
		seen[s.String()] = true
	}
	require.Len(t, seen, stateCount)
	require.Equal(t, "unknown", State(stateCount).String())
	for r := Staged; r <= Again; r++ {
		require.NotEqual(t, "unknown", r.String())
		seen[r.String()] = true
	}
	require.Len(t, seen, stateCount+int(Again)+1-1, "only staged is both a state and a result")
	require.Equal(t, "unknown", (Again + 1).String())
}

// verbs are all the operations on a reference, and the states they take.
var verbs = []struct {
	name string
	run  func(*Table, Ref)
	from map[State]State
}{
	{"publish", func(t *Table, r Ref) { t.Publish(r, false) }, map[State]State{StateStaged: StateReady, StateFenced: StateFree}},
	{"abort", (*Table).Abort, map[State]State{StateStaged: StateFree, StateFenced: StateFree}},
	{"quarantine", (*Table).Quarantine, map[State]State{StateStaged: StateQuarantined, StateFenced: StateQuarantined}},
	{"free quarantined", (*Table).FreeQuarantined, map[State]State{StateQuarantined: StateFree}},
	{"loaded", func(t *Table, r Ref) { t.Loaded(r) }, map[State]State{StateLoading: StateReady, StateAbandoned: StateFree}},
	{"load failed", (*Table).LoadFailed, map[State]State{StateLoading: StateFree, StateAbandoned: StateFree}},
	{"hold", (*Table).Hold, map[State]State{
		StateLoading: StateLoading, StateAbandoned: StateAbandoned, StateReady: StateReady, StateDoomed: StateDoomed,
	}},
	{"release", (*Table).Release, map[State]State{StateDoomed: StateFree}},
	{"cleaned", (*Table).Cleaned, map[State]State{StateReady: StateReady, StateDoomed: StateDoomed}},
	{"delete", func(t *Table, r Ref) { t.Delete(r) }, map[State]State{
		StateStaged: StateFenced, StateLoading: StateAbandoned, StateReady: StateFree,
		StateFenced: StateFenced, StateAbandoned: StateAbandoned, StateDoomed: StateDoomed, StateQuarantined: StateQuarantined,
	}},
	{"touch", (*Table).Touch, map[State]State{
		StateStaged: StateStaged, StateLoading: StateLoading, StateReady: StateReady, StateDoomed: StateDoomed,
		StateFenced: StateFenced, StateAbandoned: StateAbandoned, StateQuarantined: StateQuarantined,
	}},
}

// in returns a table whose one object is in state s, held only when it must be.
func in(t *testing.T, s State) (*Table, Ref) {
	t.Helper()
	tab := New(Config{Size: 64 * Unit, MaxObjects: 4})
	tab.Grow(64 * Unit)
	k := key(1)
	start := tab.Stage
	if s == StateLoading || s == StateAbandoned {
		start = tab.Load
	}
	r, _, res := start(&k, 3*Unit)
	require.Equal(t, Staged, res)
	switch s {
	case StateStaged, StateLoading:
	case StateReady:
		tab.Publish(r, false)
	case StateDoomed:
		tab.Publish(r, false)
		tab.Hold(r)
		tab.Delete(r)
	case StateFenced, StateAbandoned:
		tab.Delete(r)
	case StateQuarantined:
		tab.Quarantine(r)
	case StateFree:
		tab.Abort(r)
	}
	require.Equal(t, s, tab.State(r))
	return tab, r
}

func TestEveryVerbInEveryStateMovesOrPanics(t *testing.T) {
	for _, v := range verbs {
		for s := range State(stateCount) {
			tab, r := in(t, s)
			to, legal := v.from[s]
			if !legal {
				require.Panics(t, func() { v.run(tab, r) }, "%s while %v", v.name, s)
				require.Equal(t, s, tab.State(r), "%s while %v", v.name, s)
			} else {
				v.run(tab, r)
				require.Equal(t, to, tab.State(r), "%s while %v", v.name, s)
			}
			require.NoError(t, tab.CheckInvariants(), "%s while %v", v.name, s)
		}
	}
}

func TestHeldLoadThatFailsOrWasDeletedIsDoomed(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		for _, end := range []func(*Table, Ref){(*Table).LoadFailed, func(t *Table, r Ref) { t.Loaded(r) }} {
			tab, r := in(t, StateLoading)
			k := *tab.Key(r)
			tab.Hold(r)
			tab.Hold(r)
			if deleted {
				require.True(t, tab.Delete(r))
			}
			end(tab, r)
			if tab.State(r) == StateReady {
				require.False(t, deleted)
				continue
			}
			require.Equal(t, StateDoomed, tab.State(r))
			require.Equal(t, 3*Unit, tab.Usage().Doomed)
			_, _, found := tab.Find(&k)
			require.False(t, found)
			tab.Release(r)
			require.True(t, tab.Alive(r))
			tab.Release(r)
			require.False(t, tab.Alive(r))
			require.Zero(t, tab.Usage().Used)
			require.NoError(t, tab.CheckInvariants())
		}
	}
}

func TestDeadReferenceIsRecognised(t *testing.T) {
	tab, r := in(t, StateFree)
	require.False(t, tab.Alive(r))
	require.False(t, tab.Alive(0))
	require.False(t, tab.Alive(newRef(1<<31, 1)))
	k := key(2)
	again, _, _ := tab.Stage(&k, 1)
	require.Equal(t, r.index(), again.index(), "the entry is reused")
	require.False(t, tab.Alive(r))
	require.True(t, tab.Alive(again))
	for _, use := range []func(){
		func() { tab.Publish(r, false) }, func() { tab.Extent(r) }, func() { tab.Data(r) }, func() { tab.SetData(r, 1) }, func() { tab.Key(r) },
	} {
		require.PanicsWithValue(t, "l1/table: use of a dead reference", use)
	}
}

// The number of holds wraps to none, and what is held is evicted: the last hold there can be is refused.
func TestHoldsDoNotWrap(t *testing.T) {
	tab, r := in(t, StateReady)
	tab.Hold(r)
	tab.objects[r.index()].holds = ^uint32(0)
	require.PanicsWithValue(t, "l1/table: too many holds", func() { tab.Hold(r) })
}

func TestGenerationSkipsZeroWhenItWraps(t *testing.T) {
	tab, r := in(t, StateStaged)
	tab.objects[r.index()].generation = ^uint32(0)
	tab.Abort(newRef(r.index(), ^uint32(0)))
	k := key(9)
	r, _, res := tab.Stage(&k, 0)
	require.Equal(t, Staged, res)
	require.Equal(t, uint32(1), r.generation())
}
