package engine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// One lookup of tens of thousands of keys while eviction runs: a lookup of many keys that
// are on disk only, in a pool where each load evicts, goes on in steps of so many loads,
// and others are served between them.
func TestALookupOfManyKeysOnDiskGoesOnInSteps(t *testing.T) {
	const many = 5*loadsATurn + 7
	w := diskWorld(t, many+8, Config{InstanceCap: math.MaxInt64, Objects: 2 * many, Entries: 4 * many, Transfers: 64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	keys := names("k", many)
	fillers := names("filler", many+8)
	for _, some := range [][]string{keys, fillers} {
		for len(some) > 0 {
			n := min(len(some), 16)
			a.store(slotSize, some[:n]...)
			w.settle()
			some = some[n:]
		}
	}
	before := w.e.counters.Loads
	id := a.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Hour, keys...)
	require.LessOrEqual(t, w.e.counters.Loads-before, uint64(2*loadsATurn), "in a step and the flush after it")
	for turn := 0; ; turn++ {
		begun := w.e.counters.Loads - before
		if begun >= many {
			break
		}
		require.Less(t, turn, 100, "%d loads begun", begun)
		require.Equal(t, proto.StatusOK, b.call(proto.OpPing, 0, nil, nil).h.Status)
		begun = w.e.counters.Loads - before
		w.flush()
		require.LessOrEqual(t, w.e.counters.Loads-before-begun, uint64(loadsATurn), "in a flush")
	}
	w.settle()
	out := a.found(id)
	require.EqualValues(t, many, out.Hits)
	require.EqualValues(t, many, out.FromDisk)
	a.verify(out.Slots, keys...)
	require.Equal(t, proto.StatusOK, a.release(out.Lease))
	w.settle()
	w.baseline()
}
