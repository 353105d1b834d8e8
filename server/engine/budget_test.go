package engine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// Stores that come faster than the disk may be written wait for their turn in memory; what goes out in a second is a
// second's budget.
func TestSpillsKeepToTheirBudget(t *testing.T) {
	const limit, slots = 64 << 10, 128
	w := newWorld(t, setup{slots: slots, diskSize: 64 << 20, segment: 4 << 20, limit: limit, quiet: true, cfg: Config{InstanceCap: math.MaxInt64}})
	a := w.worker(1, 100)
	w.settle()
	begin, stored := w.log.Stats().WriteBytes, 0
	next := func() uint64 { return a.prepare(time.Hour, slotSize, fmt.Sprint("new", stored)) }
	id := next()
	for w.now < 20*time.Second {
		w.advance(50 * time.Millisecond)
		w.settle()
		for range 32 { // as fast as they are taken
			r, there := a.take(id)
			if !there {
				break
			}
			var out proto.PrepareStoreReply
			require.NoError(t, proto.ParsePrepareStoreReply(r.body, &out))
			require.Equal(t, proto.StatusReserved, out.Results[0].Status)
			stored++
			require.Equal(t, proto.StatusOK, a.commit(out.Transfer))
			id = next()
		}
		// What was gathered for a write before the budget was spent goes out at once and is waited for later: a pool
		// of small objects at most.
		allowed := uint64(float64(limit)*(1+w.now.Seconds())) + slots*slotSize
		require.LessOrEqual(t, w.log.Stats().WriteBytes-begin, allowed, "after %v", w.now)
	}
	require.Greater(t, w.log.Stats().WriteBytes-begin, uint64(18*limit), "the budget is made use of")
	require.Greater(t, stored*slotSize, 18*limit)
	require.Equal(t, seglog.StateOK, w.log.State())
	w.check()
}

// Loads are not limited: while spills wait for their budget, what is on disk is read at once.
func TestLoadsDoNotWaitForTheWriteBudget(t *testing.T) {
	w := newWorld(t, setup{slots: 512, diskSize: 64 << 20, segment: 4 << 20, limit: 64 << 10, quiet: true, cfg: Config{InstanceCap: math.MaxInt64}})
	a := w.worker(1, 100)
	a.store(slotSize, names("old", 4)...)
	for i := range 4 { // which pushes the old ones out
		for w.settle(); w.e.table.Usage().Dirty > 0; w.settle() {
			w.advance(time.Second)
		}
		a.store(slotSize, names(fmt.Sprint("filler", i, "-"), 170)...)
	}
	require.Positive(t, w.e.table.Usage().Dirty)
	w.settle()
	require.True(t, w.log.Throttled(), "spills wait")
	now, before := w.now, w.e.counters.Loads
	id := a.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, names("old", 4)...)
	w.settle()
	out := a.found(id)
	require.EqualValues(t, 4, out.Hits)
	require.EqualValues(t, 4, out.FromDisk)
	require.EqualValues(t, 4, w.e.counters.Loads-before)
	require.Equal(t, now, w.now)
	require.True(t, w.log.Throttled())
	a.verify(out.Slots, names("old", 4)...)
	require.Equal(t, proto.StatusOK, a.release(out.Lease))
}

// What is on disk and cannot be loaded for want of memory is no miss: a worker that took it for one would compute it
// again, and find that it exists.
func TestRetrieveForWhichThereIsNoMemorySaysSo(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, a, "x")
	a.store(slotSize, names("k", 16)...)
	w.settle()
	lease := a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, names("k", 16)...))
	require.EqualValues(t, 16, lease.Hits)

	_, st := b.retrieve(proto.PrepareRetrieve{Keys: testKeys("x"), WaitMs: 1000})
	require.Equal(t, proto.StatusNoSpace, st)
	_, st = b.retrieve(proto.PrepareRetrieve{Keys: testKeys("nowhere"), WaitMs: 1000})
	require.Equal(t, proto.StatusMiss, st)
	got, st := b.retrieve(proto.PrepareRetrieve{Keys: testKeys("x"), WaitMs: 1000, Mode: proto.RetrievePrefix})
	require.Equal(t, proto.StatusOK, st)
	require.Empty(t, got.Slots)
	out := b.found(b.lookup(proto.LookupHold|proto.LookupLoad, time.Second, "x"))
	require.Zero(t, out.Hits, "the answer is cut")

	require.Equal(t, proto.StatusOK, a.release(lease.Lease))
	id := b.post(proto.OpPrepareRetrieve, 0, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: testKeys("x"), WaitMs: 1000}), nil)
	w.settle()
	r, _ := b.take(id)
	require.Equal(t, proto.StatusOK, r.h.Status)
	b.close()
	w.dies(200)
	w.settle()
	w.baseline()
}
