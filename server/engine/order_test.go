package engine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// Stores without pause do not starve loads: a load that waits for memory is served before stores that came earlier.
func TestALoadDoesNotWaitBehindStores(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, a, "x")
	a.store(slotSize, names("dirty", 16)...)                     // nothing is free, and all of it is on its way to disk
	store := a.prepare(time.Minute, slotSize, names("s", 16)...) // all of the pool
	load := b.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "x")
	w.settle()
	out := b.found(load)
	require.EqualValues(t, 1, out.Hits)
	b.verify(out.Slots, "x")
	got := a.prepared(store)
	require.Equal(t, proto.StatusReserved, got.Results[14].Status)
	require.Equal(t, proto.StatusNoSpace, got.Results[15].Status, "the load came first")
	require.Equal(t, proto.StatusOK, a.abort(got.Transfer))
	require.Equal(t, proto.StatusOK, b.release(out.Lease))
	w.settle()
	w.baseline()
}
