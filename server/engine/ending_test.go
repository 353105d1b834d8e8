package engine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

func TestWhatNobodyIsToldOfIsNotKept(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	a.store(slotSize, "x", "y")
	w.inbox = map[ConnID][]reply{}
	keys := testKeys("x", "y")
	fresh := proto.PrepareStore{Keys: testKeys("z"), Sizes: []uint64{slotSize}}
	for _, flags := range []proto.Flags{proto.FlagNoReply, proto.FlagNoReply | proto.FlagInline} {
		a.post(proto.OpPrepareStore, flags, proto.AppendPrepareStore(nil, &fresh), nil)
		a.post(proto.OpLookup, flags, proto.AppendLookup(nil, &proto.Lookup{Group: 1, Options: proto.LookupHold | proto.LookupSlots, Keys: keys}), nil)
		a.post(proto.OpLookup, flags, proto.AppendLookup(nil, &proto.Lookup{Group: 1, Options: proto.LookupHold, Keys: keys}), nil)
		a.post(proto.OpPrepareRetrieve, flags, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: keys}), nil)
	}
	w.settle()
	w.baseline()                   // before an UNREGISTER gives everything back
	for op := range proto.Op(30) { // and nothing else is answered
		if op != proto.OpRegister {
			a.post(op, proto.FlagNoReply, nil, nil)
		}
	}
	a.post(proto.OpRegister, proto.FlagNoReply, proto.AppendRegister(nil, &proto.Register{
		Instance: 1, Want: proto.TransportShared, Namespace: "space", Layouts: []proto.Layout{{Name: "bf16", Size: 1}},
	}), nil)
	require.Empty(t, w.inbox[a.id])
	w.settle()
	require.Empty(t, w.inbox[a.id])
	w.baseline()
}

func TestProcessesWhoseNumberIsUnknownAreNotTakenForOne(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	register := func(process int32) *client { // a local peer of another PID namespace
		c := w.open(Peer{Local: true})
		w.watched = process
		require.Equal(t, proto.StatusOK, c.register(7, "space", proto.TransportShared).h.Status)
		return c
	}
	register(100)
	b := register(200)
	out := b.prepared(b.prepare(0, slotSize, "x"))
	require.NotZero(t, out.Transfer)
	w.dies(100)
	require.EqualValues(t, slotSize, w.e.table.Usage().Staged, "its writer lives")
	require.Equal(t, proto.StatusOK, b.commit(out.Transfer))
	w.dies(200)
	w.baseline()

	// Where no memory is shared there is nothing to protect: connections from another
	// host that name the same instance are the same worker.
	one, two := w.connect(0), w.connect(0)
	one.register(8, "space", proto.TransportInline)
	two.register(8, "space", proto.TransportInline)
	require.Equal(t, 1, one.hits("x"))
	require.Equal(t, 1, two.hits("x"))
}

// TestAProcessThatCannotBeWatchedIsInline: a worker whose end nobody would tell of gets shared
// memory. Where a process cannot be watched its registration is inline, on all its connections and
// also if it had shared memory before; who does not ask for shared memory is not watched at all.
func TestAProcessThatCannotBeWatchedIsInline(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	transport := func(c *client, want proto.Transport) proto.Transport {
		r := c.register(7, "space", want)
		require.Equal(t, proto.StatusOK, r.h.Status)
		var out proto.RegisterReply
		require.NoError(t, proto.ParseRegisterReply(r.body, &out))
		return out.Transport
	}
	w.blind = true
	for _, pid := range []int32{0, 100} {
		one, two := w.open(Peer{PID: pid, Local: true}), w.open(Peer{PID: pid, Local: true})
		require.Equal(t, proto.TransportInline, transport(one, proto.TransportShared))
		require.Equal(t, proto.TransportInline, transport(two, proto.TransportShared))
		one.hits("x") // the second connection is the same worker's
		require.Empty(t, w.watches)
		one.close()
		two.close()
	}
	w.blind = false
	c := w.connect(100)
	require.Equal(t, proto.TransportInline, transport(c, proto.TransportInline))
	require.Empty(t, w.watches)
	require.Equal(t, proto.TransportShared, transport(c, proto.TransportShared))
	require.Len(t, w.watches, 1)
	w.dies(100)
	w.baseline()
}

func TestFullInstanceTableRefusesAndEndsNobody(t *testing.T) {
	w := newWorld(t, setup{slots: 16, cfg: Config{Instances: 2}})
	a := w.worker(1, 100)
	w.worker(2, 200)
	out := a.prepared(a.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusBusy, w.connect(300).register(1, "space", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusBusy, w.connect(300).register(3, "space", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusOK, a.commit(out.Transfer), "the one whose id was wanted goes on")
	w.dies(200)
	require.Equal(t, proto.StatusOK, w.connect(300).register(3, "space", proto.TransportShared).h.Status)
}

func TestOneInstanceLeavesTransfersAndEntriesToOthers(t *testing.T) {
	w := newWorld(t, setup{slots: 64, cfg: Config{Transfers: 16, Entries: 32, InstanceCap: math.MaxInt64}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	b.store(slotSize, names("k", 4)...)
	leases := 0
	for range 32 { // a worker that never releases
		r := a.call(proto.OpLookup, 0, proto.AppendLookup(nil, &proto.Lookup{
			Group: 1, Options: proto.LookupHold | proto.LookupSlots, Keys: testKeys(names("k", 4)...),
		}), nil)
		if r.h.Status == proto.StatusOK {
			leases++
		}
	}
	require.NotZero(t, leases)
	b.store(slotSize, names("other", 4)...)
	out := b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, names("k", 4)...))
	require.EqualValues(t, 4, out.Hits)
	b.release(out.Lease)
	w.dies(100)
	w.baseline()
}

func TestDeletesWithoutEndLeaveOpsToOthers(t *testing.T) {
	w := diskWorld(t, 16, Config{Conns: 4, Ops: 64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, b, "x", "y")
	var ids []uint64
	for range 64 {
		ids = append(ids, a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("x")}), nil))
	}
	load := b.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "y")
	w.settle()
	statuses := map[proto.Status]int{}
	for _, id := range ids {
		r, there := a.take(id)
		require.True(t, there)
		statuses[r.h.Status]++
	}
	require.NotZero(t, statuses[proto.StatusOK])
	require.NotZero(t, statuses[proto.StatusBusy])
	out := b.found(load)
	require.EqualValues(t, 1, out.Hits)
	b.verify(out.Slots, "y")
	b.release(out.Lease)
	w.baseline()
}

func TestClearOfAnUnknownNamespaceTakesNoPlace(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a := w.worker(1, 100)
	evicted(w, a, "x")
	for n := range 20 {
		id := a.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{Namespace: fmt.Sprint("nobody's ", n)}), nil)
		w.settle()
		a.answered(id, proto.StatusOK)
	}
	require.Len(t, w.e.spaces, 1)
	require.Equal(t, 1, a.hits("x"))

	// What is on disk of a namespace that is not in memory is cleared all the same.
	w2 := newWorld(t, setup{slots: 16, diskSize: 64 << 20, segment: 4 << 20, disk: w.disk})
	c := w2.connect(300)
	id := c.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{Namespace: "space"}), nil)
	w2.settle()
	c.answered(id, proto.StatusOK)
	require.Equal(t, proto.StatusOK, c.register(1, "space", proto.TransportShared).h.Status)
	require.Zero(t, c.hits("x"))
}

func TestDetachedInstanceIsFreeOnceItsMovesHaveEnded(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	b.store(slotSize, "x")
	a.post(proto.OpPrepareRetrieve, proto.FlagInline, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: testKeys("x")}), nil)
	a.close()
	require.Len(t, w.watches, 2)
	w.settle()
	require.Len(t, w.watches, 1, "its process has nothing any more that it could touch")
	w.baseline()
}

func TestStopAnswersWhoWaitsAndThenHangsUp(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, a, "x", "y")
	loading := b.lookup(proto.LookupHold|proto.LookupLoad, time.Minute, "x")
	for i := range 16 {
		if out := a.prepared(a.prepare(0, slotSize, names("d", 16)[i])); out.Transfer != 0 {
			a.commit(out.Transfer)
		}
	}
	prepare := b.prepare(time.Minute, slotSize, "new")
	lookup := b.lookup(proto.LookupHold|proto.LookupLoad, time.Minute, "y")
	for _, id := range []uint64{loading, prepare, lookup} {
		b.waits(id)
	}
	w.e.BeginStop(w.now)
	for _, id := range []uint64{loading, prepare, lookup} {
		b.answered(id, proto.StatusDraining)
	}
	for n := 0; !w.e.Stopped(); n++ {
		require.Less(t, n, 1000)
		w.settle()
		w.flush()
	}
	w.baseline()
}

func TestMoveThatDoesNotEndIsBrokenOff(t *testing.T) {
	w := newWorld(t, setup{slots: 64})
	w.slow = true
	a, b, c := w.worker(1, 100), w.worker(2, 200), w.worker(3, 300)
	a.store(slotSize, "x")
	out := b.prepared(b.post(proto.OpPrepareStore, proto.FlagInline, proto.AppendPrepareStore(nil, &proto.PrepareStore{
		Keys: testKeys("y"), Sizes: []uint64{slotSize},
	}), nil))
	b.post(proto.OpCommitStore, proto.FlagInline, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), valueOf("y", slotSize))
	c.post(proto.OpPrepareRetrieve, proto.FlagInline, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: testKeys("x")}), nil)
	w.advance(9 * time.Minute)
	require.False(t, w.closed[b.id])
	w.advance(2 * time.Minute)
	require.True(t, w.closed[b.id], "it does not send its payload")
	require.True(t, w.closed[c.id], "it does not take its payload")
	require.NotZero(t, w.e.table.Usage().Staged, "the bytes may still move")
	w.settle()
	w.baseline()
	require.Zero(t, a.hits("y"))
}
