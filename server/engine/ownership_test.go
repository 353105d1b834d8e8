package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

func TestStoredObjectIsReadBack(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(5000, "x", "y")

	require.Equal(t, 2, b.hits("x", "y", "z"))
	out := b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, "x", "y", "z"))
	require.EqualValues(t, 2, out.Hits)
	require.EqualValues(t, 2, out.FromMemory)
	b.verify(out.Slots, "x", "y")
	require.Equal(t, proto.StatusOK, b.release(out.Lease))

	got, st := b.retrieve(proto.PrepareRetrieve{Keys: testKeys("y", "x")})
	require.Equal(t, proto.StatusOK, st)
	b.verify(got.Slots, "y", "x")
	require.Equal(t, proto.StatusOK, b.endRetrieve(got.Transfer))
	_, st = b.retrieve(proto.PrepareRetrieve{Keys: testKeys("x", "z")})
	require.Equal(t, proto.StatusMiss, st)
	got, st = b.retrieve(proto.PrepareRetrieve{Keys: testKeys("x", "z"), Mode: proto.RetrievePrefix})
	require.Equal(t, proto.StatusOK, st)
	require.Len(t, got.Slots, 1)
	require.Equal(t, proto.StatusOK, b.endRetrieve(got.Transfer))
	w.baseline()
}

func TestOnlyCommitPublishes(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	out := a.prepared(a.prepare(0, slotSize, "x"))
	require.Zero(t, a.hits("x"))
	require.Equal(t, proto.StatusOK, a.abort(out.Transfer))
	require.Zero(t, a.hits("x"))
	require.Equal(t, proto.StatusStale, a.commit(out.Transfer))

	a.prepare(0, slotSize, "x")
	a.call(proto.OpUnregister, 0, nil, nil)
	b := w.worker(2, 200)
	require.Zero(t, b.hits("x"))
	w.baseline()
}

func TestSecondCommitChangesNothing(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	out := a.prepared(a.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusOK, a.commit(out.Transfer))
	require.Equal(t, proto.StatusStale, a.commit(out.Transfer))
	require.Equal(t, proto.StatusStale, a.abort(out.Transfer))
	require.Equal(t, 1, a.hits("x"))

	// Nothing to store is nothing to commit, and committing it is a success.
	again := a.prepared(a.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusExists, again.Results[0].Status)
	require.Zero(t, again.Transfer)
	require.Equal(t, proto.StatusOK, a.commit(again.Transfer))
	w.baseline()
}

func TestForeignHandlesAreRefused(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	out := a.prepared(a.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusDenied, b.commit(out.Transfer))
	require.Equal(t, proto.StatusDenied, b.abort(out.Transfer))
	require.Equal(t, proto.StatusOK, a.commit(out.Transfer))

	held := a.found(a.lookup(proto.LookupHold, 0, "x"))
	require.Equal(t, proto.StatusDenied, b.release(held.Lease))
	require.Equal(t, proto.StatusOK, a.release(held.Lease))
	require.Equal(t, proto.StatusOK, a.release(held.Lease), "a second release is a no-op")
	w.baseline()
}

func TestBusyKeyIsFreeAgainWhenItsWriterLosesIt(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	late := a.prepared(a.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusBusy, b.prepared(b.prepare(0, slotSize, "x")).Results[0].Status)

	// The connection breaks but the process lives: its slot is nobody's.
	a.close()
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined)
	out := b.prepared(b.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusReserved, out.Results[0].Status)
	require.NotEqual(t, late.Results[0].Slot.Off, out.Results[0].Slot.Off)
	b.fill(out, "x")
	require.Equal(t, proto.StatusOK, b.commit(out.Transfer))

	// It comes back and writes and commits late.
	a2 := w.worker(1, 100)
	require.Equal(t, proto.StatusStale, a2.commit(late.Transfer))
	copy(w.pool[late.Results[0].Slot.Off:], "late")
	got := b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, "x"))
	b.verify(got.Slots, "x")
	b.release(got.Lease)
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined)
	require.Equal(t, proto.StatusOK, a2.abort(late.Transfer), "it says that it touches the slot no more")
	w.baseline()
}

func TestDeadProcessGivesAllBack(t *testing.T) {
	for round := range 20 {
		w := newWorld(t, setup{slots: 64})
		a, b := w.worker(1, 100), w.worker(2, 200)
		b.store(slotSize, names("k", 8)...)
		a.prepare(0, slotSize, names("new", 8)...)
		a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, names("k", 8)...))
		a.found(a.lookup(proto.LookupHold, 0, names("k", 4)...))
		_, st := a.retrieve(proto.PrepareRetrieve{Keys: testKeys("k1", "k2")})
		require.Equal(t, proto.StatusOK, st)
		if round%2 == 0 { // the kernel closes files before it tells of the death, or after
			a.close()
			require.NotZero(t, w.e.table.Usage().Held)
			w.dies(100)
		} else {
			w.dies(100)
			a.close()
		}
		w.baseline()
		require.Equal(t, 8, b.hits(names("k", 8)...))
		require.Zero(t, b.hits("new0"))
	}
}

func TestLeaseWithoutSlotsEndsWithItsConnectionAndInTime(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	b.store(slotSize, "x")
	a.found(a.lookup(proto.LookupHold, 0, "x"))
	a.close()
	w.baseline()

	held := b.found(b.lookup(proto.LookupHold, 0, "x"))
	told := b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, "x"))
	w.advance(time.Hour)
	_, st := b.retrieve(proto.PrepareRetrieve{Lease: held.Lease, Count: 1})
	require.Equal(t, proto.StatusStale, st)
	got, st := b.retrieve(proto.PrepareRetrieve{Lease: told.Lease, Count: 1})
	require.Equal(t, proto.StatusOK, st, "a lease whose slots were told never ends by time")
	b.endRetrieve(got.Transfer)
	b.release(told.Lease)
	w.baseline()
}

func TestTimedOutWriterIsQuarantinedUntilItAborts(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	late := a.prepared(a.prepare(0, slotSize, "x"))
	w.advance(time.Hour)
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined)
	b.store(slotSize, "x")
	require.Equal(t, proto.StatusStale, a.commit(late.Transfer))
	require.Equal(t, proto.StatusOK, a.abort(late.Transfer))
	w.baseline()
}

func TestLeaseIsUsedByOtherInstancesOfItsNamespace(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	scheduler, worker := w.worker(1, 100), w.worker(2, 200)
	stranger := w.workerIn(3, 300, "elsewhere")
	scheduler.store(slotSize, "x", "y", "z")
	lease := scheduler.found(scheduler.lookup(proto.LookupHold, 0, "x", "y", "z")).Lease

	got, st := worker.retrieve(proto.PrepareRetrieve{Lease: lease, First: 1, Count: 2})
	require.Equal(t, proto.StatusOK, st)
	worker.verify(got.Slots, "y", "z")
	_, st = stranger.retrieve(proto.PrepareRetrieve{Lease: lease, Count: 1})
	require.Equal(t, proto.StatusDenied, st)
	_, st = worker.retrieve(proto.PrepareRetrieve{Lease: lease, First: 2, Count: 2})
	require.Equal(t, proto.StatusBadRequest, st)

	// The lease ends with its owner; the worker's own holds stay.
	scheduler.close()
	w.dies(100)
	_, st = worker.retrieve(proto.PrepareRetrieve{Lease: lease, Count: 1})
	require.Equal(t, proto.StatusStale, st)
	require.EqualValues(t, 2*slotSize, w.e.table.Usage().Held)
	worker.endRetrieve(got.Transfer)
	w.baseline()
}

func TestSameProcessRegistersAgainAndAnotherStartsAnIncarnation(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(7, 100)
	first := incarnation(t, a)
	held := a.prepared(a.prepare(0, slotSize, "x"))
	b := w.worker(7, 100) // a second connection of the same process
	require.Equal(t, first, incarnation(t, b))
	require.Equal(t, proto.StatusOK, b.commit(held.Transfer), "one instance, two connections")
	a.close()
	require.Equal(t, 1, b.hits("x"))

	open := b.prepared(b.prepare(0, slotSize, "y"))
	c := w.worker(7, 200) // another process takes the id
	require.NotEqual(t, first, incarnation(t, c))
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined, "the old one's slot stays its own")
	r := b.call(proto.OpLookup, 0, proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: testKeys("x")}), nil)
	require.Equal(t, proto.StatusNotRegistered, r.h.Status)
	require.Equal(t, proto.StatusStale, b.commit(open.Transfer))
	require.Equal(t, 1, c.hits("x"))
	w.dies(100)
	w.baseline()
	b.close()
	c.close()
	w.dies(200)
	w.baseline()
}

func incarnation(t *testing.T, c *client) uint32 {
	t.Helper()
	r := c.register(7, "space", proto.TransportShared)
	require.Equal(t, proto.StatusOK, r.h.Status)
	var out proto.RegisterReply
	require.NoError(t, proto.ParseRegisterReply(r.body, &out))
	require.Equal(t, proto.TransportShared, out.Transport)
	return out.Incarnation
}

// TestDisconnectOfOneLeavesOthersAlone: the end of one client aborts the unsealed objects of
// others.
func TestDisconnectOfOneLeavesOthersAlone(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	mine := a.prepared(a.prepare(0, slotSize, "mine"))
	b.prepare(0, slotSize, "theirs")
	b.close()
	w.dies(200)
	a.fill(mine, "mine")
	require.Equal(t, proto.StatusOK, a.commit(mine.Transfer))
	got := a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, "mine"))
	a.verify(got.Slots, "mine")
	a.release(got.Lease)
	w.baseline()
}

// TestARetrieveThatNeverFitsIsTooLarge: more than an instance may hold at all is refused for good, through slots and inline, from
// memory and from disk; what it could hold if it gave something back is busy.
func TestARetrieveThatNeverFitsIsTooLarge(t *testing.T) {
	keys := names("k", 9) // one more than half of the pool
	for _, onDisk := range []bool{false, true} {
		for _, flags := range []proto.Flags{0, proto.FlagInline} {
			w := diskWorld(t, 16, Config{})
			a := w.worker(1, 100)
			a.store(slotSize, keys[:8]...)
			a.store(slotSize, keys[8])
			w.settle()
			if onDisk {
				w.fillUp(a, "other")
				w.settle()
				require.False(t, w.resident(keys[0]))
			}
			retrieve := func(mode proto.RetrieveMode, flags proto.Flags, keys ...string) reply {
				in := proto.PrepareRetrieve{Mode: mode, Keys: testKeys(keys...), WaitMs: 1000}
				id := a.post(proto.OpPrepareRetrieve, flags, proto.AppendPrepareRetrieve(nil, &in), nil)
				w.settle()
				r, ok := a.take(id)
				require.True(t, ok)
				return r
			}
			require.Equal(t, proto.StatusTooLarge, retrieve(proto.RetrieveAll, flags, keys...).h.Status)
			r := retrieve(proto.RetrievePrefix, 0, keys...)
			require.Equal(t, proto.StatusOK, r.h.Status)
			var prefix proto.PrepareRetrieveReply
			require.NoError(t, proto.ParsePrepareRetrieveReply(r.body, &prefix))
			require.Len(t, prefix.Slots, 8)
			require.Equal(t, proto.StatusBusy, retrieve(proto.RetrieveAll, flags, keys[8]).h.Status, "it holds half already")
			require.Equal(t, proto.StatusOK, a.endRetrieve(prefix.Transfer))
			require.Equal(t, proto.StatusOK, retrieve(proto.RetrieveAll, proto.FlagInline, keys[8]).h.Status)
			w.baseline()
		}
	}
}

// What is not there is a miss, however much of the rest an instance has already: the same object many times, or one that it may
// have though it is more than the cap.
func TestARetrieveOfWhatIsNotThereIsAMiss(t *testing.T) {
	for _, wait := range []uint32{0, 1000} {
		w := diskWorld(t, 16, Config{InstanceCap: 2 * slotSize})
		a := w.worker(1, 100)
		a.store(slotSize, "k")
		a.store(3*slotSize, "large")
		w.settle()
		for _, keys := range [][]string{{"k", "k", "k", "k", "absent"}, {"large", "absent"}} {
			in := proto.PrepareRetrieve{Keys: testKeys(keys...), WaitMs: wait}
			id := a.post(proto.OpPrepareRetrieve, 0, proto.AppendPrepareRetrieve(nil, &in), nil)
			w.settle()
			a.answered(id, proto.StatusMiss)
		}
		w.baseline()
	}
}

func TestInstanceCapAnswersBusy(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	out := a.prepared(a.prepare(0, slotSize, names("k", 12)...))
	for i, r := range out.Results {
		want := proto.StatusReserved
		if i >= 8 {
			want = proto.StatusBusy
		}
		require.Equal(t, want, r.Status, i)
	}
	b.store(slotSize, names("other", 8)...)
	require.Equal(t, proto.StatusOK, a.abort(out.Transfer))
	w.baseline()
}
