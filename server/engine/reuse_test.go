package engine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// TestBatchesOfExistingKeysReserveOnlyTheRest: a store of keys that exist already. Of batches of
// which all, half and none exist the rest is reserved, and nothing is kept for what has
// nothing to do.
func TestBatchesOfExistingKeysReserveOnlyTheRest(t *testing.T) {
	w := newWorld(t, setup{slots: 64})
	a := w.worker(1, 100)
	a.store(slotSize, names("k", 8)...)
	for existing, first := range map[int]int{8: 0, 4: 4, 0: 8} {
		keys := names("k", 16)[first : first+8]
		out := a.prepared(a.prepare(0, slotSize, keys...))
		for i, r := range out.Results {
			want := proto.StatusReserved
			if i < existing {
				want = proto.StatusExists
			}
			require.Equal(t, want, r.Status, "%d of 8 exist, key %d", existing, i)
		}
		require.Equal(t, existing < 8, out.Transfer != 0)
		if out.Transfer == 0 {
			require.Equal(t, proto.StatusOK, a.commit(0))
		} else {
			require.Equal(t, proto.StatusOK, a.abort(out.Transfer))
		}
	}
	before := w.e.table.Usage()
	w.quiet = true
	for range 10_000 { // nothing is kept for a prepare that has nothing to do
		require.Zero(t, a.prepared(a.prepare(0, slotSize, "k0", "k1")).Transfer)
	}
	w.quiet = false
	require.Equal(t, before, w.e.table.Usage())
	w.baseline()
}

// TestUnregisterFreesAThousandPreparesAndTheirHolds: a store that is reserved and never committed
// leaks its memory, as unregistering drops the table's entry alone.
func TestUnregisterFreesAThousandPreparesAndTheirHolds(t *testing.T) {
	w := newWorld(t, setup{slots: 1024, cfg: Config{Transfers: 4096, Entries: 1 << 13, Objects: 4096, InstanceCap: math.MaxInt64}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	b.store(slotSize, "x")
	w.quiet = true
	for _, k := range names("new", 1000) {
		require.NotZero(t, a.prepared(a.prepare(0, slotSize, k)).Transfer)
		_, st := a.retrieve(proto.PrepareRetrieve{Keys: testKeys("x")})
		require.Equal(t, proto.StatusOK, st)
	}
	w.quiet = false
	require.Equal(t, proto.StatusOK, a.call(proto.OpUnregister, 0, nil, nil).h.Status)
	w.baseline()
	require.Equal(t, 1, b.hits("x"))
	b.store(slotSize, names("new", 1000)...)
}

// TestSlotOfALoadIsNotReusedWhenItsAskerUnregisters: an unregistration while transfers run; the
// completion of a read whose buffer was already reused. A slot that the disk reads into is nobody
// else's before the read has ended, though those who waited for it are gone.
func TestSlotOfALoadIsNotReusedWhenItsAskerUnregisters(t *testing.T) {
	w := diskWorld(t, 4, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, b, "x", "y")
	id := a.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "x", "y")
	a.waits(id)
	var loading [][2]int64
	for i := range w.e.ops { // where the bytes will go, be it by way of the log's own buffers
		if o := &w.e.ops[i]; o.kind == opLoad {
			x := w.e.table.Extent(o.ref)
			loading = append(loading, [2]int64{x.Off, x.Len})
		}
	}
	require.Len(t, loading, 2)
	r := a.call(proto.OpUnregister, 0, nil, nil)
	require.Equal(t, proto.StatusOK, r.h.Status)
	a.answered(id, proto.StatusNotRegistered)
	require.EqualValues(t, 2*slotSize, w.e.table.Usage().Loading)

	out := b.prepared(b.prepare(0, slotSize, names("new", 4)...))
	reserved := 0
	for _, res := range out.Results {
		if res.Status != proto.StatusReserved {
			require.Equal(t, proto.StatusNoSpace, res.Status)
			continue
		}
		reserved++
		for _, l := range loading {
			require.True(t, int64(res.Slot.Off)+slotSize <= l[0] || l[0]+l[1] <= int64(res.Slot.Off), "it is given away while the disk writes there")
		}
	}
	require.Equal(t, 2, reserved)
	b.fill(out, names("new", 4)...)
	w.settle() // the reads end
	require.Equal(t, proto.StatusOK, b.commit(out.Transfer))
	w.settle()
	got := b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, "new0", "new1"))
	b.verify(got.Slots, "new0", "new1")
	b.release(got.Lease)
	w.baseline()
}

// TestDeletedStaysDeletedThoughItsSpillIsUnderWay: removed keys come back through the offload
// queue. Their spills wait, or the disk writes them already.
func TestDeletedStaysDeletedThoughItsSpillIsUnderWay(t *testing.T) {
	for _, started := range []bool{false, true} { // the spill waits, or the disk writes already
		for _, clears := range []bool{false, true} {
			w := diskWorld(t, 64, Config{})
			a := w.worker(1, 100)
			keys := names("k", 16)
			a.store(slotSize, keys...)
			for n := 0; started && n < 4 && len(w.ios) > 0; n++ {
				w.endIO(0)
			}
			var id uint64
			if clears {
				id = a.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil)
			} else {
				id = a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys(keys...)}), nil)
			}
			require.Zero(t, a.hits(keys...))
			w.settle()
			a.answered(id, proto.StatusOK)
			require.Zero(t, a.hits(keys...))
			again := newWorld(t, setup{slots: 64, diskSize: 64 << 20, segment: 4 << 20, disk: w.disk})
			b := again.worker(1, 100)
			for _, k := range keys {
				require.Zero(t, b.hits(k), "%s is back after a restart", k)
			}
			w.baseline()
		}
	}
}

// TestDeletedStaysDeletedThoughTheQueueOfSpillsIsFull: removed keys come back through the
// offload queue. The disk does nothing while more is stored than its queue takes and all of
// it is deleted; then it does all that it was given.
func TestDeletedStaysDeletedThoughTheQueueOfSpillsIsFull(t *testing.T) {
	for _, clears := range []bool{false, true} {
		w := newWorld(t, setup{slots: 1024, diskSize: 64 << 20, segment: 4 << 20, quiet: true, cfg: Config{Objects: 2048, InstanceCap: math.MaxInt64}})
		a := w.worker(1, 100)
		keys := names("k", 900)
		for n := range 9 {
			a.store(slotSize, keys[100*n:100*n+100]...)
		}
		require.NotZero(t, w.e.dirty.len(), "the queue of the disk is not full")
		require.NotZero(t, w.e.spilling)
		var id uint64
		if clears {
			id = a.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil)
		} else {
			id = a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys(keys...)}), nil)
		}
		for range 100 {
			w.flush()
		}
		require.Zero(t, a.hits(keys...))
		w.settle()
		a.answered(id, proto.StatusOK)
		w.check()
		w.baseline()
		require.Zero(t, w.e.table.Usage().Used)
		require.Zero(t, w.log.Stats().Records)
		require.Zero(t, w.log.Stats().LiveBytes, "bytes on disk that no key has")
		again := newWorld(t, setup{slots: 64, diskSize: 64 << 20, segment: 4 << 20, quiet: true, disk: w.disk})
		b := again.worker(1, 100)
		for _, k := range keys {
			require.Zero(t, b.hits(k), "%s is back after a restart", k)
		}
	}
}

// TestHeldPrefixOutlivesAnyPressure: an eviction between lookup and use.
// What a lookup holds is there for the retrieval, however much others store in between; what
// it only counted may be gone, which is a shorter answer and no error.
func TestHeldPrefixOutlivesAnyPressure(t *testing.T) {
	w := newWorld(t, setup{slots: 64, cfg: Config{InstanceCap: math.MaxInt64}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	keys := names("k", 40)
	a.store(slotSize, keys...)
	require.Equal(t, 40, a.hits(keys...))
	held := a.found(a.lookup(proto.LookupHold, 0, keys[:32]...))
	require.EqualValues(t, 32, held.Hits)
	for _, k := range names("other", 80) {
		b.store(slotSize, k)
	}
	require.Equal(t, 32, a.hits(keys...))
	got, st := a.retrieve(proto.PrepareRetrieve{Keys: testKeys(keys...), Mode: proto.RetrievePrefix})
	require.Equal(t, proto.StatusOK, st)
	a.verify(got.Slots, keys[:32]...)
	a.endRetrieve(got.Transfer)
	got, st = b.retrieve(proto.PrepareRetrieve{Lease: held.Lease, Count: 32})
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, proto.StatusOK, a.release(held.Lease))
	for _, k := range names("more", 80) {
		a.store(slotSize, k)
	}
	b.verify(got.Slots, keys[:32]...)
	require.Equal(t, proto.StatusOK, b.endRetrieve(got.Transfer))
	for _, k := range names("again", 80) {
		a.store(slotSize, k)
	}
	require.Zero(t, a.hits(keys...))
	_, st = a.retrieve(proto.PrepareRetrieve{Keys: testKeys(keys...)})
	require.Equal(t, proto.StatusMiss, st)
	w.baseline()
}

// Asking again and again for what cannot be had evicts nothing and leaves nothing behind.
func TestFutileRequestsEvictNothing(t *testing.T) {
	w := newWorld(t, setup{slots: 16, cfg: Config{InstanceCap: math.MaxInt64}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("k", 16)...)
	lease := a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, names("k", 15)...)).Lease
	before := w.e.table.Usage()
	for range 300 {
		out := b.prepared(b.prepare(time.Hour, 2*slotSize, "new"))
		require.Equal(t, proto.StatusNoSpace, out.Results[0].Status)
	}
	require.Equal(t, before, w.e.table.Usage())
	require.False(t, w.tickDue(), "it spins")
	a.release(lease)
	b.store(2*slotSize, "new")
	w.baseline()
}

// A declined store leaves a hole for good: of a batch for which there is not enough memory the answer tells which
// keys were declined, and when the same batch comes again exactly these are asked for.
func TestADeclinedStoreIsAskedForAgain(t *testing.T) {
	w := newWorld(t, setup{slots: 64, cfg: Config{InstanceCap: math.MaxInt64}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("held", 24)...)
	lease := a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, names("held", 24)...)).Lease
	batch := names("k", 64)
	store := func(before, now proto.Status) (declined []int) {
		out := b.prepared(b.prepare(0, slotSize, batch...))
		for i, r := range out.Results {
			if r.Status == proto.StatusNoSpace {
				declined = append(declined, i)
			} else if r.Status != before && r.Status != now {
				t.Fatalf("key %d: %v", i, r.Status)
			}
		}
		b.fill(out, batch...)
		require.Equal(t, proto.StatusOK, b.commit(out.Transfer))
		return declined
	}
	declined := store(proto.StatusReserved, proto.StatusReserved)
	require.Len(t, declined, 24)
	a.release(lease)
	require.Empty(t, store(proto.StatusExists, proto.StatusReserved))
	got, st := a.retrieve(proto.PrepareRetrieve{Keys: testKeys(batch...)})
	require.Equal(t, proto.StatusOK, st)
	a.verify(got.Slots, batch...)
	a.endRetrieve(got.Transfer)
	w.baseline()
}

// TestSlotThatHeldLittleHoldsMuch: a recycled block remembers the small size that it once had.
func TestSlotThatHeldLittleHoldsMuch(t *testing.T) {
	w := newWorld(t, setup{slots: 1, cfg: Config{InstanceCap: math.MaxInt64}})
	a := w.worker(1, 100)
	for _, size := range []uint64{1000, slotSize, 1, 0, slotSize} {
		a.store(size, "x")
		got := a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, "x"))
		require.Equal(t, size, got.Slots[0].Len)
		a.verify(got.Slots, "x")
		a.release(got.Lease)
		require.Equal(t, proto.StatusOK, a.call(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("x")}), nil).h.Status)
	}
	w.baseline()
}
