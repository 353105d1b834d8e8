package engine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// spareWorld has a pool of 64 objects, eight of which stores leave to loads, and a disk that has what was stored first.
func spareWorld(t *testing.T) (w *world, a, b *client, old []string) {
	const slots = 64
	w = diskWorld(t, slots, Config{InstanceCap: math.MaxInt64})
	a, b = w.worker(1, 100), w.worker(2, 200)
	old = names("old", 2*slots)
	for at := 0; at < len(old); at += 8 {
		a.store(slotSize, old[at:at+8]...)
		w.settle()
	}
	return w, a, b, old
}

// floods stores one object after the other until one has to wait, and returns how many did not, and the request of the one that did.
func floods(a *client, prefix string) (stored int, waiting uint64) {
	for _, k := range names(prefix, 1000) {
		id := a.prepare(time.Minute, slotSize, k)
		r, there := a.take(id)
		if !there {
			return stored, id
		}
		a.w.inbox[a.id] = append(a.w.inbox[a.id], r)
		out := a.prepared(id)
		a.fill(out, k)
		require.Equal(a.w.t, proto.StatusOK, a.commit(out.Transfer))
		stored++
	}
	return stored, 0
}

// begins looks an object up that is on disk only, and says whether its load is under way at once.
func begins(w *world, b *client, key string) bool {
	before := w.e.counters.Loads
	b.lookup(proto.LookupHold|proto.LookupLoad, time.Minute, key)
	return w.e.counters.Loads > before
}

// A load waits for the disk's writes, as a store does, once stores have filled the memory with what is still to be written: those that
// may wait leave an eighth of it to loads, as long as there are any.
func TestStoresThatFillTheMemoryLeaveRoomForLoads(t *testing.T) {
	w, a, b, old := spareWorld(t)
	require.True(t, begins(w, b, old[0]))
	w.settle()
	for i, prefix := range []string{"new", "newer"} { // and that again and again, while the disk does nothing
		stored, waiting := floods(a, prefix)
		require.NotZero(t, waiting)
		require.Less(t, stored, 64-8+1)
		for _, k := range old[1+6*i : 7+6*i] {
			require.True(t, begins(w, b, k), k)
		}
		w.settle()
		require.Equal(t, proto.StatusReserved, a.prepared(waiting).Results[0].Status, "it is served when the disk has what is to be written")
	}
}

func TestWithoutLoadsStoresHaveAllTheMemory(t *testing.T) {
	w, a, b, old := spareWorld(t)
	require.True(t, begins(w, b, old[0]))
	w.settle()
	b.close() // lets go of it
	w.settle()
	w.advance(loadTime)
	stored, waiting := floods(a, "new")
	require.NotZero(t, waiting)
	require.Equal(t, 64, stored)
	w.settle()
	require.Equal(t, proto.StatusReserved, a.prepared(waiting).Results[0].Status)
}

func TestAStoreThatDoesNotWaitTakesWhatLoadsAreSpared(t *testing.T) {
	w, a, b, old := spareWorld(t)
	require.True(t, begins(w, b, old[0]))
	w.settle()
	_, waiting := floods(a, "new")
	require.NotZero(t, waiting)
	require.Equal(t, proto.StatusReserved, a.prepared(a.prepare(0, slotSize, "impatient")).Results[0].Status)
	w.settle()
}
