package engine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// waits requires that a request has no reply yet.
func (c *client) waits(id uint64) {
	c.w.t.Helper()
	_, there := c.take(id)
	require.False(c.w.t, there, "it was to wait")
}

// answered requires a reply with the given status.
func (c *client) answered(id uint64, want proto.Status) {
	c.w.t.Helper()
	r, there := c.take(id)
	require.True(c.w.t, there, "it has no reply")
	require.Equal(c.w.t, want, r.h.Status)
}

func TestAllRequestsThatWaitEndWithTheirInstance(t *testing.T) {
	for name, end := range map[string]func(w *world, c *client){
		"unregister":      func(_ *world, c *client) { c.call(proto.OpUnregister, 0, nil, nil) },
		"process ends":    func(w *world, _ *client) { w.dies(200) },
		"another process": func(w *world, _ *client) { w.worker(2, 300) },
	} {
		w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64})
		a, b := w.worker(1, 100), w.worker(2, 200)
		evicted(w, a, "x")
		for i := range 16 { // a pool full of what the disk does not have yet
			if out := a.prepared(a.prepare(0, slotSize, names("d", 16)[i])); out.Transfer != 0 {
				a.commit(out.Transfer)
			}
		}
		prepare := b.prepare(time.Minute, slotSize, "new")
		lookup := b.lookup(proto.LookupHold|proto.LookupLoad, time.Minute, "x")
		b.waits(prepare)
		b.waits(lookup)
		end(w, b)
		b.answered(prepare, proto.StatusNotRegistered)
		b.answered(lookup, proto.StatusNotRegistered)
		w.dies(300)
		w.settle()
		w.baseline()
		require.Equal(t, none, w.e.parkedFirst, name)
	}
}

func TestCommitThatIsStaleServesWhoWaits(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, "dirty", "dirty too")
	late := a.prepared(a.prepare(0, slotSize, names("x", 6)...))
	a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys(names("x", 6)...)}), nil)
	id := b.prepare(time.Minute, slotSize, "new")
	b.waits(id)
	require.Equal(t, proto.StatusStale, a.commit(late.Transfer))
	out := b.prepared(id)
	require.Equal(t, proto.StatusReserved, out.Results[0].Status)
	b.abort(out.Transfer)
	w.settle()
	w.baseline()
}

func TestNextInLineIsServedWhenTheFirstGivesUp(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
	a, b, c := w.worker(1, 100), w.worker(2, 200), w.worker(3, 300)
	a.store(slotSize, names("dirty", 4)...)
	one := a.prepared(a.prepare(0, slotSize, "one"))
	rest := a.prepared(a.prepare(0, slotSize, names("rest", 3)...))
	large := b.prepare(time.Second, 4*slotSize, "large")
	small := c.prepare(time.Hour, slotSize, "small")
	b.waits(large)
	c.waits(small)
	require.Equal(t, proto.StatusOK, a.abort(one.Transfer))
	c.waits(small) // first come, first served
	w.advance(2 * time.Second)
	require.Equal(t, proto.StatusNoSpace, b.prepared(large).Results[0].Status)
	out := c.prepared(small)
	require.Equal(t, proto.StatusReserved, out.Results[0].Status)
	a.abort(rest.Transfer)
	c.abort(out.Transfer)
	w.settle()
	w.baseline()
}

func TestLargeRequestIsNotStarvedBySmallOnesThatWaitToo(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
	a, b, c := w.worker(1, 100), w.worker(2, 200), w.worker(3, 300)
	a.store(slotSize, names("dirty", 3)...)
	one := a.prepared(a.prepare(0, slotSize, "one"))
	rest := a.prepared(a.prepare(0, slotSize, names("rest", 4)...))
	require.Equal(t, proto.StatusOK, a.abort(one.Transfer))
	large := b.prepare(time.Hour, 4*slotSize, "large")
	b.waits(large)
	small := c.prepare(time.Hour, slotSize, "small")
	c.waits(small) // it would get the free slot, and the next one would, and the next
	w.settle()
	out := b.prepared(large)
	require.Equal(t, proto.StatusReserved, out.Results[0].Status)
	require.Equal(t, proto.StatusNoSpace, c.prepared(small).Results[0].Status)
	b.abort(out.Transfer)
	a.abort(rest.Transfer)
	w.settle()
	w.baseline()
}

func TestRequestThatLinesUpIsNotTurnedAway(t *testing.T) {
	w := newWorld(t, setup{slots: 8, grown: 4, cfg: Config{InstanceCap: math.MaxInt64}})
	a, b, c := w.worker(1, 100), w.worker(2, 200), w.worker(3, 300)
	rest := a.prepared(a.prepare(0, slotSize, names("rest", 4)...))
	first := b.prepare(time.Hour, slotSize, "first")
	b.waits(first)
	w.e.Step(&Event{Kind: EventReady, Res: 8 * slotSize}) // in the same turn: there is memory, and it is not given yet
	second := c.prepare(time.Hour, slotSize, "second")
	for who, id := range map[*client]uint64{b: first, c: second} {
		out := who.prepared(id)
		require.Equal(t, proto.StatusReserved, out.Results[0].Status)
		who.abort(out.Transfer)
	}
	a.abort(rest.Transfer)
	w.baseline()
}

func TestNobodyWaitsForAPoolThatStoppedGrowing(t *testing.T) {
	w := newWorld(t, setup{slots: 8, grown: 4, cfg: Config{InstanceCap: math.MaxInt64}})
	a := w.worker(1, 100)
	out := a.prepared(a.prepare(0, slotSize, names("k", 4)...))
	first := a.prepare(time.Hour, slotSize, "first")
	a.waits(first)
	w.step(Event{Kind: EventReady, Res: 5 * slotSize})
	got := a.prepared(first)
	require.Equal(t, proto.StatusReserved, got.Results[0].Status)
	second := a.prepare(time.Hour, slotSize, "second")
	a.waits(second)
	w.step(Event{Kind: EventPopulated})
	require.Equal(t, proto.StatusNoSpace, a.prepared(second).Results[0].Status)
	require.Equal(t, proto.StatusNoSpace, a.prepared(a.prepare(time.Hour, slotSize, "third")).Results[0].Status)
	a.abort(out.Transfer)
	a.abort(got.Transfer)
	w.baseline()
}

// A pool that could be populated in part only: what an instance may hold, and what may be pinned, are shares of what there is, and
// not of what was meant to be.
func TestSharesAreOfThePoolThatThereIs(t *testing.T) {
	w := newWorld(t, setup{slots: 64, grown: 16, cfg: Config{}})
	a, b := w.worker(1, 100), w.connect(200)
	a.store(slotSize, names("early", 8)...)
	for _, key := range names("early", 6) {
		require.Equal(t, proto.StatusOK, a.pinned(true, key))
	}
	w.step(Event{Kind: EventPopulated})
	require.NoError(t, w.e.CheckInvariants())
	require.Equal(t, proto.StatusNoSpace, a.pinned(true, "early7"), "of 16 slots a quarter, and what was pinned before")
	require.Equal(t, len(names("early", 6)), a.unpin(names("early", 6)...))

	var m Metrics
	w.e.Metrics(&m)
	require.EqualValues(t, 16*slotSize, m.Capacity)
	out := a.prepared(a.prepare(0, slotSize, names("a", 12)...))
	got := map[proto.Status]int{}
	for _, r := range out.Results {
		got[r.Status]++
	}
	require.Equal(t, map[proto.Status]int{proto.StatusReserved: 8, proto.StatusBusy: 4}, got, "half is one instance's")
	require.Equal(t, proto.StatusOK, a.abort(out.Transfer))
	require.Equal(t, proto.StatusOK, b.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: 2, Want: proto.TransportShared, Namespace: "space", Layouts: []proto.Layout{{Name: "l", Size: 1 << 30}},
	}), nil).h.Status)
	large := b.prepared(b.prepare(time.Hour, 17*slotSize, "large"))
	require.Equal(t, proto.StatusTooLarge, large.Results[0].Status)
	w.baseline()
}

func TestLayoutsOfAWaitingRequestStay(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("dirty", 6)...)
	id := b.prepare(time.Hour, slotSize, names("k", 4)...)
	b.waits(id)
	require.Equal(t, proto.StatusMismatch, b.registerOther(2))
	w.settle()
	out := b.prepared(id)
	b.fill(out, names("k", 4)...)
	require.Equal(t, proto.StatusOK, b.commit(out.Transfer))
	require.Equal(t, 4, a.hits(names("k", 4)...))
}

func TestEvictionsForOneLargeObjectGoOnInTheNextTurns(t *testing.T) {
	w := newWorld(t, setup{slots: 8192, cfg: Config{InstanceCap: math.MaxInt64, Entries: 1 << 14, Objects: 1 << 14}})
	w.quiet = true
	a := w.connect(100)
	require.Equal(t, proto.StatusOK, a.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: 1, Want: proto.TransportShared, Namespace: "space", Layouts: []proto.Layout{{Name: "l", Size: 1 << 30}},
	}), nil).h.Status)
	a.store(slotSize, names("a", 4096)...)
	a.store(slotSize, names("b", 4096)...)
	id := a.prepare(time.Minute, 8000*slotSize, "large")
	for w.tickDue() {
		w.flush()
	}
	out := a.prepared(id)
	require.Equal(t, proto.StatusReserved, out.Results[0].Status)
	require.Equal(t, proto.StatusOK, a.abort(out.Transfer))
	require.NoError(t, w.e.CheckInvariants())
	w.baseline()
}

func TestWriteBackMakesRoomForThoseWhoDoNotWait(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64, Write: WriteBack})
	a := w.worker(1, 100)
	out := a.prepared(a.prepare(0, slotSize, names("held", 13)...))
	a.store(slotSize, names("dirty", 3)...)
	w.settle()
	require.Empty(t, w.log.Stats().Puts, "memory is not short yet")
	require.Equal(t, proto.StatusNoSpace, a.prepared(a.prepare(0, slotSize, "new")).Results[0].Status)
	w.settle()
	a.store(slotSize, "new")
	a.abort(out.Transfer)
	require.Equal(t, 4, a.hits("dirty0", "dirty1", "dirty2", "new"))
	w.settle()
	w.baseline()
}

func TestObjectsOfNoLengthDoNotFillTheTableForGood(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteBack} {
		w := diskWorld(t, 16, Config{Objects: 8, Write: mode})
		a := w.worker(1, 100)
		a.store(0, names("k", 8)[:4]...) // one instance may write half of them at a time
		a.store(0, names("k", 8)[4:]...)
		id := a.prepare(time.Minute, 0, "new")
		w.settle()
		out := a.prepared(id)
		require.Equal(t, proto.StatusReserved, out.Results[0].Status, mode)
		require.Equal(t, proto.StatusOK, a.commit(out.Transfer))
		require.Equal(t, 9, a.hits(append(names("k", 8), "new")...))
	}
}

func TestDeletedObjectIsNoHitOfALookupThatStillWaits(t *testing.T) {
	for _, all := range []bool{false, true} { // by DELETE and by CLEAR
		w := diskWorld(t, 16, Config{})
		a, b := w.worker(1, 100), w.worker(2, 200)
		evicted(w, a, "disk")
		a.store(slotSize, "memory")
		id := a.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "memory", "disk")
		a.waits(id)
		if all {
			b.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil)
		} else {
			b.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("memory")}), nil)
		}
		require.Zero(t, b.hits("memory"))
		w.settle()
		require.Zero(t, a.found(id).Hits)
		w.baseline()
	}
}

func TestWaitingLookupIsNotTriedForEveryBitThatComesFree(t *testing.T) {
	w := diskWorld(t, 256, Config{InstanceCap: math.MaxInt64, Transfers: 1024})
	w.quiet = true
	a, b := w.worker(1, 100), w.worker(2, 200)
	keys := names("k", 200)
	a.store(slotSize, keys...)
	w.settle()
	a.store(slotSize, names("filler", 256)...) // in the place of the keys
	w.settle()
	require.Equal(t, proto.StatusOK, a.abort(a.prepared(a.prepare(0, slotSize, names("room", 256)...)).Transfer))
	a.store(slotSize, names("dirty", 2)...)
	var open []uint64
	for _, k := range names("open", 254) {
		open = append(open, a.prepared(a.prepare(0, slotSize, k)).Transfer)
	}
	id := b.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Hour, keys...)
	b.waits(id)
	tries := func() (n uint32) {
		for i := range w.e.transfers {
			n += w.e.transfers[i].generation
		}
		return n
	}
	before := tries()
	for _, tr := range open {
		require.Equal(t, proto.StatusOK, a.abort(tr))
	}
	require.Less(t, tries()-before, uint32(5*retryParts), "each try walks all keys")
	w.settle()
	out := b.found(id)
	require.EqualValues(t, len(keys), out.Hits)
	b.verify(out.Slots, keys...)
	b.release(out.Lease)
	require.NoError(t, w.e.CheckInvariants())
	w.baseline()
}

// One of several connections of an instance closes while its lookup waits for the disk: what it would have held is kept by
// nobody's lease until the process ends.
func TestALookupOfAClosedConnectionHoldsNothing(t *testing.T) {
	w := diskWorld(t, 4, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(1, 100)
	a.store(4*slotSize, "x")
	w.settle()
	a.store(4*slotSize, "y")
	w.settle()
	id := b.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Hour, "x")
	_, there := b.take(id)
	require.False(t, there)
	b.close()
	w.settle()
	require.Empty(t, a.transfers())
	w.baseline()
	require.Equal(t, 1, int(a.found(a.lookup(0, 0, "x")).FromMemory), "the load goes on")
}

// A load takes its memory from what comes behind it in the same request, which then has to be loaded too.
func TestALoadDoesNotEvictTheRestOfItsRequest(t *testing.T) {
	w := diskWorld(t, 4, Config{InstanceCap: math.MaxInt64})
	a := w.worker(1, 100)
	a.store(slotSize, "0")
	w.settle()
	a.store(slotSize, "1", "2", "3")
	a.store(slotSize, "other") // in the place of 0, and used last
	w.settle()
	id := a.lookup(proto.LookupHold|proto.LookupLoad, time.Hour, "0", "1", "2", "3")
	w.settle()
	out := a.found(id)
	require.EqualValues(t, 4, out.Hits)
	require.EqualValues(t, 3, out.FromMemory)
	require.Zero(t, a.found(a.lookup(0, 0, "other")).FromMemory)
}

// A lookup of what others hold, and of more that is on disk, waits for memory for the rest alone: the others' does not come free by
// what it waits for. What else is released meanwhile is no reason to try it again.
func TestWhatOthersHoldIsNotWaitedFor(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64})
	a, b, c := w.worker(1, 100), w.worker(2, 200), w.worker(3, 300)
	tail, prefix, unrelated := names("t", 4), names("p", 6), names("u", 6)
	b.store(slotSize, tail...)
	w.settle()
	var leases []uint64
	for _, keys := range [][]string{prefix, unrelated} {
		b.store(slotSize, keys...)
		w.settle()
		leases = append(leases, b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, keys...)).Lease)
	}
	b.store(slotSize, names("dirty", 4)...) // in the place of the tail; the disk is slow
	id := a.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Hour, append(prefix, tail...)...)
	a.waits(id)
	for range 300 {
		c.release(c.found(c.lookup(proto.LookupHold, 0, unrelated...)).Lease)
		a.waits(id)
	}
	require.LessOrEqual(t, w.e.parked[w.e.parkedFirst].tries, 2)
	newcomer := c.prepare(time.Hour, slotSize, "new")
	c.waits(newcomer)
	w.settle()
	out := a.found(id)
	require.EqualValues(t, 10, out.Hits)
	require.Equal(t, proto.StatusOK, a.release(out.Lease))
	require.Equal(t, proto.StatusNoSpace, c.prepared(newcomer).Results[0].Status, "it lined up, and all is held now")
	for _, l := range leases {
		require.Equal(t, proto.StatusOK, b.release(l))
	}
	w.baseline()
}
