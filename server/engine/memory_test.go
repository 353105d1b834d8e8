package engine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

func TestEverythingHeldIsNoSpaceAtOnceAndSuccessAfterARelease(t *testing.T) {
	w := newWorld(t, setup{slots: 8, cfg: Config{InstanceCap: math.MaxInt64}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("k", 8)...)
	var leases []uint64
	for _, k := range names("k", 8) {
		leases = append(leases, a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, k)).Lease)
	}
	out := b.prepared(b.prepare(time.Hour, slotSize, "new"))
	require.Equal(t, proto.StatusNoSpace, out.Results[0].Status, "nothing under way can free memory")
	a.release(leases[3])
	b.store(slotSize, "new")
	require.Equal(t, 1, b.hits("new"))
	require.Zero(t, b.hits("k3"))
	for _, l := range leases {
		a.release(l)
	}
	w.baseline()
}

func TestDeclinedKeysAreOfferedAgain(t *testing.T) {
	w := newWorld(t, setup{slots: 8, cfg: Config{InstanceCap: math.MaxInt64}})
	a := w.worker(1, 100)
	keys := names("k", 12)
	first := a.prepared(a.prepare(0, slotSize, keys...))
	for i, r := range first.Results {
		want := proto.StatusReserved
		if i >= 8 {
			want = proto.StatusNoSpace
		}
		require.Equal(t, want, r.Status)
	}
	require.Equal(t, proto.StatusOK, a.commit(first.Transfer))
	again := a.prepared(a.prepare(0, slotSize, keys...))
	reserved := 0
	for i, r := range again.Results {
		if r.Status == proto.StatusReserved {
			reserved++
		} else {
			require.Equal(t, proto.StatusExists, r.Status, i)
		}
	}
	require.GreaterOrEqual(t, reserved, 4)
	require.Equal(t, proto.StatusOK, a.abort(again.Transfer))
	w.baseline()
}

// TestSizesOfAllKinds: sizes over 4 GiB, and values and lists of length zero. What is too large
// says so; an object of no bytes is there, and no miss.
func TestSizesOfAllKinds(t *testing.T) {
	w := newWorld(t, setup{slots: 512, cfg: Config{InstanceCap: math.MaxInt64}})
	a := w.worker(1, 100)
	for _, size := range []uint64{layoutMax + 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 63, math.MaxUint64} {
		out := a.prepared(a.prepare(0, size, "big"))
		require.Equal(t, proto.StatusTooLarge, out.Results[0].Status, size)
		require.Zero(t, out.Transfer)
	}
	in := proto.PrepareStore{Keys: testKeys("none", "one", "all"), Sizes: []uint64{0, 1, layoutMax}}
	id := a.post(proto.OpPrepareStore, 0, proto.AppendPrepareStore(nil, &in), nil)
	out := a.prepared(id)
	a.fill(out, "none", "one", "all")
	require.Equal(t, proto.StatusOK, a.commit(out.Transfer))
	got, st := a.retrieve(proto.PrepareRetrieve{Keys: testKeys("none", "one", "all")})
	require.Equal(t, proto.StatusOK, st)
	require.EqualValues(t, 0, got.Slots[0].Len)
	require.EqualValues(t, 1, got.Slots[1].Len)
	a.verify(got.Slots, "none", "one", "all")
	require.Equal(t, proto.StatusOK, a.endRetrieve(got.Transfer))

	empty := a.prepared(a.prepare(0, 0))
	require.Empty(t, empty.Results)
	require.Zero(t, empty.Transfer)
	require.Zero(t, a.hits())
	w.baseline()
}

// TestSizesThatAddUpToMoreThan32Bits: sizes over 4 GiB and 32-bit sums. Each object is small,
// all of a request are 4 GiB and more; what is granted is exactly what fits.
func TestSizesThatAddUpToMoreThan32Bits(t *testing.T) {
	w := newWorld(t, setup{slots: 1 << 11, quiet: true, cfg: Config{Entries: 1 << 14, Transfers: 16, InstanceCap: math.MaxInt64}})
	a := w.worker(1, 100)
	for _, size := range []uint64{layoutMax, layoutMax - 4095} {
		in := proto.PrepareStore{Keys: testKeys(names("k", proto.MaxKeys)...)}
		for range in.Keys {
			in.Sizes = append(in.Sizes, size)
		}
		require.GreaterOrEqual(t, size*proto.MaxKeys+proto.MaxKeys*4095, uint64(1)<<32)
		out := a.prepared(a.post(proto.OpPrepareStore, 0, proto.AppendPrepareStore(nil, &in), nil))
		for i, r := range out.Results {
			want := proto.StatusNoSpace
			if i < 8 { // in a pool of 8 MiB
				want = proto.StatusReserved
			}
			require.Equal(t, want, r.Status, i)
		}
		require.EqualValues(t, 8*size, w.e.insts[0].staged)
		require.Equal(t, proto.StatusOK, a.abort(out.Transfer))
	}
	w.check()
	w.baseline()
}

func TestSameKeyTwiceInOneRequest(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	out := a.prepared(a.prepare(0, slotSize, "x", "x"))
	require.Equal(t, proto.StatusReserved, out.Results[0].Status)
	require.Equal(t, proto.StatusBusy, out.Results[1].Status)
	a.fill(out, "x", "x")
	require.Equal(t, proto.StatusOK, a.commit(out.Transfer))
	got := a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, "x", "x"))
	a.verify(got.Slots, "x", "x")
	a.release(got.Lease)
	w.baseline()
}

func TestLookupModesAndGroups(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	a.store(slotSize, "a", "b", "c", "e", "h", "i")
	any9 := proto.Lookup{Mode: proto.ModeAny, Group: 1, Keys: testKeys("a", "b", "c", "d", "e", "f", "g", "h", "i")}
	out := a.found(a.post(proto.OpLookup, 0, proto.AppendLookup(nil, &any9), nil))
	require.EqualValues(t, 6, out.Hits)
	require.Equal(t, []byte{0b10010111, 1}, out.Bitmap)

	any9.Options = proto.LookupHold | proto.LookupSlots
	out = a.found(a.post(proto.OpLookup, 0, proto.AppendLookup(nil, &any9), nil))
	require.EqualValues(t, 6, out.Hits)
	require.Equal(t, []byte{0b10010111, 1}, out.Bitmap)
	a.verify(out.Slots, "a", "b", "c", "e", "h", "i")
	a.release(out.Lease)

	for _, opt := range []proto.LookupOptions{0, proto.LookupHold} {
		in := proto.Lookup{Group: 2, Options: opt, Keys: testKeys("a", "b", "c", "d", "e", "f")}
		out = a.found(a.post(proto.OpLookup, 0, proto.AppendLookup(nil, &in), nil))
		require.EqualValues(t, 2, out.Hits, "whole groups only")
		require.EqualValues(t, 2, out.FromMemory)
		if opt != 0 {
			require.EqualValues(t, 2*slotSize, w.e.table.Usage().Held)
			a.release(out.Lease)
		}
	}
	w.baseline()
}

func TestLayoutsAndNamespacesDoNotMix(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.workerIn(2, 200, "elsewhere")
	a.store(slotSize, "x")
	require.Zero(t, b.hits("x"))
	other := proto.Lookup{Layout: 1, Group: 1, Keys: testKeys("x")}
	require.Zero(t, a.found(a.post(proto.OpLookup, 0, proto.AppendLookup(nil, &other), nil)).Hits)
	b.store(slotSize, "x")
	require.Equal(t, 1, a.hits("x"))
	r := a.call(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("x")}), nil)
	require.Equal(t, proto.StatusOK, r.h.Status)
	require.Zero(t, a.hits("x"))
	require.Equal(t, 1, b.hits("x"))
}

func TestDeleteFencesTransfersPreparedBefore(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	out := a.prepared(a.prepare(0, slotSize, "x"))
	b.call(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("x")}), nil)
	require.Equal(t, proto.StatusStale, a.commit(out.Transfer))
	require.Zero(t, a.hits("x"))

	out = a.prepared(a.prepare(0, slotSize, "x"))
	b.call(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil)
	require.Equal(t, proto.StatusStale, a.commit(out.Transfer))
	require.Zero(t, a.hits("x"))
	w.baseline()
}

func TestHeldObjectVanishesAtOnceAndIsFreedAtTheLastRelease(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, "x", "y")
	got := b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, "x", "y"))
	a.call(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("x")}), nil)
	var cleared proto.ClearReply
	r := a.call(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil)
	require.NoError(t, proto.ParseClearReply(r.body, &cleared))
	require.EqualValues(t, 1, cleared.Deleted)
	require.Zero(t, a.hits("x"))
	require.Zero(t, a.hits("y"))
	b.verify(got.Slots, "x", "y")
	a.store(slotSize, "x")
	b.verify(got.Slots, "x", "y")
	b.release(got.Lease)
	require.EqualValues(t, slotSize, w.e.table.Usage().Used)
	w.baseline()
}

func TestInlineStoreAndRetrieve(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	far := w.connect(0) // another host: no process to watch
	require.Equal(t, proto.StatusOK, far.register(9, "space", proto.TransportShared).h.Status)
	near := w.worker(1, 100)

	out := far.prepared(far.prepare(0, 5000, "x", "y"))
	require.Zero(t, out.Results[1].Slot.Off, "no offsets for those who cannot use them")
	payload := append(valueOf("x", 5000), valueOf("y", 5000)...)
	body := proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer})
	short := far.call(proto.OpCommitStore, proto.FlagInline, body, payload[:9000])
	require.Equal(t, proto.StatusBadRequest, short.h.Status)
	id := far.post(proto.OpCommitStore, proto.FlagInline, body, payload)
	_, there := far.take(id)
	require.False(t, there, "the bytes are still coming")
	w.settle()
	r, _ := far.take(id)
	require.Equal(t, proto.StatusOK, r.h.Status)

	got := near.found(near.lookup(proto.LookupHold|proto.LookupSlots, 0, "x", "y"))
	near.verify(got.Slots, "x", "y")
	near.release(got.Lease)
	back := far.call(proto.OpPrepareRetrieve, proto.FlagInline, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: testKeys("y", "x")}), nil)
	require.Equal(t, append(valueOf("y", 5000), valueOf("x", 5000)...), back.payload)
	require.NotZero(t, w.e.table.Usage().Held, "held until the bytes are out")
	w.settle()
	w.baseline()

	// A shared-memory worker may ask for the bytes of one request inline.
	back = near.call(proto.OpPrepareRetrieve, proto.FlagInline, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: testKeys("x")}), nil)
	require.Equal(t, valueOf("x", 5000), back.payload)
	w.settle()
	w.baseline()
}

func TestConnectionThatBreaksInAPayloadPublishesNothing(t *testing.T) {
	for _, unregister := range []bool{false, true} {
		w := newWorld(t, setup{slots: 16})
		far, near := w.connect(0), w.worker(1, 100)
		far.register(9, "space", proto.TransportInline)
		out := far.prepared(far.prepare(0, slotSize, "x"))
		far.post(proto.OpCommitStore, proto.FlagInline, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), valueOf("x", slotSize))
		w.events[0].Res = -1
		if unregister { // from a second connection, while the bytes move
			second := w.connect(0)
			second.register(9, "space", proto.TransportInline)
			r := second.call(proto.OpUnregister, 0, nil, nil)
			var u proto.UnregisterReply
			require.NoError(t, proto.ParseUnregisterReply(r.body, &u))
			require.EqualValues(t, slotSize, u.Draining)
			w.events[0].Res = 0 // they all arrive, too late
		} else {
			far.close()
		}
		require.EqualValues(t, slotSize, w.e.table.Usage().Staged, "the slot belongs to the move")
		w.settle()
		require.Zero(t, near.hits("x"))
		w.baseline()
	}
}
