package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// evict asks for the end of an instance.
func (c *client) evict(instance uint64, kill bool) (proto.EvictReply, proto.Status) {
	c.w.t.Helper()
	r := c.call(proto.OpEvict, 0, proto.AppendEvict(nil, &proto.Evict{Instance: instance, Kill: kill}), nil)
	var out proto.EvictReply
	if r.h.Status == proto.StatusOK {
		require.NoError(c.w.t, proto.ParseEvictReply(r.body, &out))
	}
	return out, r.h.Status
}

func (c *client) transfers() []proto.TransferInfo {
	c.w.t.Helper()
	var out proto.TransfersReply
	require.NoError(c.w.t, proto.ParseTransfersReply(c.call(proto.OpTransfers, 0, proto.AppendTransfers(nil, &proto.Transfers{}), nil).body, &out))
	return out.Transfers
}

func (c *client) instances() []proto.InstanceInfo {
	c.w.t.Helper()
	var out proto.InstancesReply
	require.NoError(c.w.t, proto.ParseInstancesReply(c.call(proto.OpInstances, 0, proto.AppendInstances(nil, &proto.Instances{}), nil).body, &out))
	return out.Instances
}

// hoarder is a worker that has one of everything: 3 slots that its process was told of to
// write, 2 to read, a lease of 4 objects without slots, and a prepare that waits with what
// is left.
func hoarder(t *testing.T) (w *world, a, b *client, waiting uint64) {
	t.Helper()
	w = diskWorld(t, 16, Config{InstanceCap: 1 << 40})
	a, b = w.worker(1, 100), w.worker(2, 200)
	b.store(slotSize, names("k", 8)...)
	w.settle()
	a.prepared(a.prepare(0, slotSize, names("new", 3)...))
	_, st := a.retrieve(proto.PrepareRetrieve{Keys: testKeys("k0", "k1")})
	require.Equal(t, proto.StatusOK, st)
	require.NotZero(t, a.found(a.lookup(proto.LookupHold, 0, names("k", 4)...)).Lease)
	b.store(slotSize, names("dirty", 4)...) // the disk is slow
	waiting = a.prepare(time.Minute, slotSize, names("more", 8)...)
	a.waits(waiting)
	return w, a, b, waiting
}

func TestEvictedInstanceGivesBackWhatItsProcessCannotTouch(t *testing.T) {
	w, a, b, waiting := hoarder(t)
	i := &w.e.insts[w.e.liveInstance(&w.e.conns[a.id.Index()])]
	owned := i.owned()
	require.Equal(t, proto.TransferWaiting, b.transfers()[3].State)
	out, st := b.evict(1, false)
	require.Equal(t, proto.StatusOK, st)
	require.EqualValues(t, 5*slotSize, out.Draining, "only its end would free what its process was told of")
	require.EqualValues(t, owned-5*slotSize, out.Freed)
	a.answered(waiting, proto.StatusNotRegistered)
	require.Empty(t, w.killed)
	for _, x := range b.transfers() {
		require.Equal(t, proto.TransferExpired, x.State)
	}
	w.settle()

	// The keys are free, the slots are not.
	b.store(slotSize, names("new", 3)...)
	again, st := b.evict(1, false)
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, proto.EvictReply{Draining: 5 * slotSize}, again, "a second time gives nothing more")
	w.dies(100)
	w.settle()
	w.baseline()
	_, st = b.evict(1, false)
	require.Equal(t, proto.StatusStale, st, "there is no such instance any more")
}

func TestEvictedWorkerComesBackAndGivesBackWhatItStillHad(t *testing.T) {
	for _, ends := range []string{"each", "unregister"} {
		t.Run(ends, func(t *testing.T) {
			w := newWorld(t, setup{slots: 16})
			a, b := w.worker(1, 100), w.worker(2, 200)
			a.store(slotSize, "x")
			late := a.prepared(a.prepare(0, slotSize, "y"))
			held, st := a.retrieve(proto.PrepareRetrieve{Keys: testKeys("x")})
			require.Equal(t, proto.StatusOK, st)
			lease := a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, "x")).Lease
			_, st = b.evict(1, false)
			require.Equal(t, proto.StatusOK, st)
			require.Equal(t, proto.StatusStale, a.commit(late.Transfer))
			require.Equal(t, proto.StatusNotRegistered, a.call(proto.OpTouch, 0, proto.AppendTouch(nil, &proto.Touch{}), nil).h.Status)

			require.Equal(t, proto.StatusOK, a.register(1, "space", proto.TransportShared).h.Status)
			require.Equal(t, 1, a.hits("x"))
			require.Equal(t, proto.StatusStale, a.commit(late.Transfer), "an old handle publishes nothing")
			other := w.worker(1, 300) // another process that has the id now
			require.Equal(t, proto.StatusDenied, other.abort(late.Transfer), "it is not the one that may still touch the slot")
			require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined)
			a.register(1, "space", proto.TransportShared)
			if ends == "unregister" {
				require.Equal(t, proto.StatusOK, a.call(proto.OpUnregister, 0, nil, nil).h.Status)
			} else {
				require.Equal(t, proto.StatusOK, a.abort(late.Transfer))
				require.Equal(t, proto.StatusOK, a.endRetrieve(held.Transfer))
				require.Equal(t, proto.StatusOK, a.release(lease))
			}
			w.baseline()
		})
	}
}

func TestKilledInstanceIsFreeOnceItsProcessIsGone(t *testing.T) {
	w, a, b, waiting := hoarder(t)
	out, st := b.evict(1, true)
	require.Equal(t, proto.StatusOK, st)
	require.EqualValues(t, 5*slotSize, out.Draining, "a killed process may still be about to write")
	require.Equal(t, []int32{100}, w.killed)
	a.answered(waiting, proto.StatusNotRegistered)
	require.NotZero(t, w.e.table.Usage().Quarantined)
	w.settle() // the process is gone
	require.Len(t, b.instances(), 1)
	require.Empty(t, b.transfers())
	w.baseline()
}

func TestAllLivesOfAnIDAreEvicted(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	operator := w.connect(900)
	old := w.worker(1, 100)
	old.prepare(0, slotSize, "x")
	next := w.worker(1, 200)
	next.prepare(0, slotSize, "y")
	other := w.worker(2, 300)
	other.prepare(0, slotSize, "z")
	next.close()
	require.Equal(t, []uint8{proto.InstanceDraining, proto.InstanceDetached, proto.InstanceLive},
		[]uint8{operator.instances()[0].State, operator.instances()[1].State, operator.instances()[2].State})
	_, st := operator.evict(1, true)
	require.Equal(t, proto.StatusOK, st)
	require.ElementsMatch(t, []int32{100, 200}, w.killed)
	w.settle()
	require.Len(t, operator.instances(), 1)
	require.EqualValues(t, slotSize, w.e.table.Usage().Used, "others keep what they have")
}

func TestWhoMayEvict(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, far := w.worker(1, 100), w.connect(0)
	a.prepare(0, slotSize, "x")
	reader := w.connect(300)
	reader.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{Instance: 3, Want: proto.TransportShared, ReadOnly: true}), nil)
	_, st := reader.evict(1, false)
	require.Equal(t, proto.StatusDenied, st)
	_, st = far.evict(1, true)
	require.Equal(t, proto.StatusDenied, st, "nobody on another host kills a process here")
	require.Equal(t, proto.StatusBadRequest, far.call(proto.OpEvict, 0, []byte{1}, nil).h.Status)
	require.Len(t, a.transfers(), 1)
	require.Empty(t, w.killed)

	// A process that the host may not kill is evicted all the same.
	w.immortal = true
	operator := w.connect(400)
	_, st = operator.evict(1, true)
	require.Equal(t, proto.StatusDenied, st)
	require.Equal(t, proto.InstanceDraining, operator.instances()[0].State)
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined)
	_, st = far.evict(1, false)
	require.Equal(t, proto.StatusOK, st)
}

func TestInlineInstanceIsEvictedWhole(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	w.slow = true
	far, b := w.connect(0), w.worker(2, 200)
	require.Equal(t, proto.StatusOK, far.register(1, "space", proto.TransportInline).h.Status)
	b.store(slotSize, "x")
	far.prepare(0, slotSize, "y")
	far.post(proto.OpPrepareRetrieve, proto.FlagInline, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: testKeys("x")}), nil)
	require.Equal(t, proto.TransferMoving, b.transfers()[1].State)
	out, st := b.evict(1, true)
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, proto.EvictReply{Freed: slotSize, Draining: slotSize}, out, "bytes on their way come back when they are there")
	require.Equal(t, proto.TransferEnding, b.transfers()[0].State)
	require.Empty(t, w.killed, "it has no memory that it could touch")
	w.settle()
	w.baseline()
}

func TestListsTellStatesAndAges(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: 1 << 40, TransferTime: 5 * time.Second})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, b, "x")
	a.prepared(a.prepare(0, slotSize, "new"))
	w.advance(6 * time.Second)
	a.lookup(proto.LookupHold|proto.LookupLoad, time.Minute, "x")
	list := b.transfers()
	require.Len(t, list, 2)
	require.Equal(t, proto.TransferExpired, list[0].State)
	require.EqualValues(t, 6000, list[0].AgeMs)
	require.Equal(t, proto.TransferLoading, list[1].State)
	var m Metrics
	w.advance(2 * time.Second)
	w.e.Metrics(&m)
	require.Equal(t, Quarantine{Transfers: 1, Bytes: slotSize, Oldest: 2 * time.Second}, m.Quarantine)
	require.EqualValues(t, w.now.Milliseconds(), b.instances()[0].AgeMs)
	told := map[string]uint64{}
	m.Each(func(name string, value uint64) { told[name] = value })
	require.EqualValues(t, 2, told["l1_quarantined_oldest_seconds"])
	w.dies(100)
	w.settle()
	w.e.Metrics(&m)
	require.Equal(t, Quarantine{}, m.Quarantine)
	w.baseline()
}
