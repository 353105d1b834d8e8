package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// The uses of a long lookup are settled after its reply, and before anything that could be decided by them.
func TestALongLookupIsAnsweredBeforeItsUsesAreSettled(t *testing.T) {
	const long = usesFew + 6
	for name, then := range map[string]func(w *world, a *client){
		"a tick":            func(w *world, _ *client) { w.step(Event{Kind: EventTick, Now: w.now}) },
		"a store":           func(_ *world, a *client) { a.store(slotSize, "new") },
		"a flush, a delete": func(w *world, a *client) { w.flush(); a.remove("k0") },
	} {
		for _, mode := range []proto.LookupMode{proto.ModePrefix, proto.ModeAny} {
			w := newWorld(t, setup{slots: long + 2, quiet: true, cfg: Config{Policy: table.PolicyLRU}})
			a := w.worker(1, 100)
			old := names("k", long)
			a.store(slotSize, old[:long/2]...) // an instance has half of the places at a time
			a.store(slotSize, old[long/2:]...)
			a.store(slotSize, "other-0", "other-1")

			require.Equal(t, usesFew, a.hits(old[:usesFew]...))
			require.Empty(t, w.e.uses.refs, "few")
			in := proto.Lookup{Mode: mode, Group: 1, Keys: testKeys(old...)}
			id := a.post(proto.OpLookup, 0, proto.AppendLookup(nil, &in), nil)
			require.EqualValues(t, long, a.found(id).Hits)
			require.Len(t, w.e.uses.refs, long)
			at, ok := w.e.NextTick()
			require.True(t, ok && at <= w.now, "the next turn comes by itself")
			then(w, a)
			require.Empty(t, w.e.uses.refs)
			a.store(slotSize, "new-0", "new-1")
			require.Zero(t, a.hits("other-1"), name) // the tail goes first
			require.Equal(t, 1, a.hits(old[1]), "it was used later")
			w.baseline()
		}
	}
}

// What a flush ends between the reply and the settling of its uses is gone, and no use of it counts.
func TestAFlushBetweenALookupAndItsUses(t *testing.T) {
	const long = usesFew + 6
	w := newWorld(t, setup{slots: long, quiet: true})
	a := w.worker(1, 100)
	old := names("k", long)
	a.store(slotSize, old[:long/2]...)
	a.store(slotSize, old[long/2:]...)
	require.Equal(t, proto.StatusOK, a.call(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{Namespace: "unknown"}), nil).h.Status)
	require.Equal(t, long, a.hits(old...))
	require.Len(t, w.e.uses.refs, long)
	for _, ref := range w.e.uses.refs[:long/2] {
		require.True(t, w.e.table.Delete(ref))
	}
	w.e.Step(&Event{Kind: EventTick, Now: w.now + time.Millisecond})
	require.Empty(t, w.e.uses.refs)
	w.check()
	w.baseline()
}
