package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

const reapAfter = 2 * time.Minute

// reapWorld is a world that ends silent instances.
func reapWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, setup{slots: 16, cfg: Config{ReapAfter: reapAfter}})
}

func (c *client) ping() { c.call(proto.OpPing, 0, nil, nil) }

func TestSilentInstanceEndsAndPingKeepsOneAlive(t *testing.T) {
	w := reapWorld(t)
	silent, far, alive, eye := w.worker(1, 100), w.connect(0), w.worker(2, 200), w.connect(300)
	require.Equal(t, proto.StatusOK, far.register(3, "space", proto.TransportInline).h.Status)
	silent.store(slotSize, "x")
	silent.prepare(0, slotSize, "y")
	lease := silent.found(silent.lookup(proto.LookupHold, 0, "x"))
	require.NotZero(t, lease.Lease)
	far.prepare(0, slotSize, "z")
	for range 5 {
		w.advance(reapAfter / 4)
		alive.ping()
		require.Equal(t, proto.StatusOK, eye.call(proto.OpPing, 0, nil, nil).h.Status, "who is not registered may be silent")
	}
	require.Equal(t, []uint64{1, 2}, ids(eye.instances()), "what is inline ends whole")
	require.Equal(t, proto.InstanceDraining, eye.instances()[0].State)
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined, "its process may live and write")
	require.Zero(t, w.e.table.Usage().Held)
	require.Zero(t, w.e.table.Usage().Staged)
	require.EqualValues(t, 2, w.e.counters.Reaped)
	require.False(t, w.closed[silent.id], "it may come back")

	r := silent.call(proto.OpTouch, 0, proto.AppendTouch(nil, &proto.Touch{}), nil)
	require.Equal(t, proto.StatusNotRegistered, r.h.Status)
	require.Equal(t, proto.StatusOK, silent.register(1, "space", proto.TransportShared).h.Status)
	w.dies(100)
	w.baseline()
	require.Equal(t, []uint64{2}, ids(eye.instances()))
}

func ids(list []proto.InstanceInfo) []uint64 {
	out := make([]uint64, len(list))
	for i := range list {
		out[i] = list[i].ID
	}
	return out
}

// Requests that have come and were not read yet, replies that were not sent: it is the server
// that is slow.
func TestBusyServerReapsNobody(t *testing.T) {
	w := reapWorld(t)
	a, eye := w.worker(1, 100), w.connect(300)
	b := w.worker(1, 100)
	w.loud = map[ConnID]bool{b.id: true}
	w.advance(time.Hour)
	for range 10 {
		w.advance(time.Minute)
	}
	require.Len(t, eye.instances(), 1)
	b.ping() // one of them is read at last
	w.loud = nil
	w.advance(reapAfter - time.Second)
	require.Equal(t, proto.InstanceLive, eye.instances()[0].State)
	w.advance(time.Second)
	require.Empty(t, eye.instances())
	require.Equal(t, proto.StatusNotRegistered, a.call(proto.OpTouch, 0, proto.AppendTouch(nil, &proto.Touch{}), nil).h.Status)
}

func TestWhoWaitsForTheServerIsNotSilent(t *testing.T) {
	w := newWorld(t, setup{slots: 8, grown: 4, cfg: Config{ReapAfter: reapAfter, InstanceCap: 1 << 40}})
	a := w.worker(1, 100)
	a.prepared(a.prepare(0, slotSize, "a", "b"))
	id := a.prepare(10*reapAfter, slotSize, "c", "d", "e")
	a.waits(id)
	for range 6 {
		w.advance(reapAfter)
	}
	require.Len(t, w.connect(300).instances(), 1)
	w.step(Event{Kind: EventReady, Res: 8 * slotSize})
	require.Equal(t, proto.StatusReserved, a.prepared(id).Results[2].Status)
}

func TestDetachedInstanceIsLeftToItsProcess(t *testing.T) {
	w := reapWorld(t)
	a, eye := w.worker(1, 100), w.connect(300)
	a.prepared(a.prepare(0, slotSize, "x"))
	a.close()
	w.advance(10 * reapAfter)
	require.Equal(t, proto.InstanceDetached, eye.instances()[0].State)
	b := w.worker(1, 100)
	require.Equal(t, proto.InstanceLive, eye.instances()[0].State)
	w.advance(reapAfter - 1)
	b.ping()
	w.advance(reapAfter - 1)
	require.Equal(t, proto.InstanceLive, eye.instances()[0].State)
	w.advance(1)
	require.Equal(t, proto.InstanceDraining, eye.instances()[0].State)
	w.dies(100)
	w.baseline()
}

// To register again is a sign of life, also by another connection, which was not the instance's before.
func TestRegisteringAgainIsNoSilence(t *testing.T) {
	w := reapWorld(t)
	a, eye := w.worker(1, 100), w.connect(300)
	w.advance(reapAfter - 1)
	b := w.worker(1, 100)
	a.close()
	w.advance(reapAfter - 1)
	require.Equal(t, proto.InstanceLive, eye.instances()[0].State)
	b.ping()
	w.advance(1)
	require.Equal(t, proto.InstanceLive, eye.instances()[0].State)
}

// registerOther registers an id with other layouts than [client.register].
func (c *client) registerOther(instance uint64) proto.Status {
	return c.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: instance, Want: proto.TransportShared, Namespace: "space", Layouts: []proto.Layout{{Name: "other", Size: 1}},
	}), nil).h.Status
}

// Layouts are named by their index: under one registration they must not change. Who has no
// connection any more begins anew.
func TestOtherLayoutsAreAMismatchWhileTheInstanceLives(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	a.store(slotSize, "x")
	open := a.prepared(a.prepare(0, slotSize, "y"))
	require.Equal(t, proto.StatusMismatch, a.registerOther(1))
	b := w.connect(100)
	require.Equal(t, proto.StatusMismatch, b.registerOther(1))
	require.Equal(t, 1, a.hits("x"), "it changes nothing")
	require.Equal(t, proto.StatusOK, a.register(1, "space", proto.TransportShared).h.Status)
	a.close()
	require.Equal(t, proto.StatusOK, b.registerOther(1))
	require.Equal(t, proto.StatusStale, b.commit(open.Transfer))
	require.Equal(t, proto.StatusOK, b.abort(open.Transfer), "the process gives back what it had")
	w.baseline()
}

// A layout of another size under the same name: a miss, never bytes of the wrong length.
func TestWorkersOfOtherSlotSizesShareNothing(t *testing.T) {
	w := newWorld(t, setup{slots: 64})
	register := func(c *client, id uint64, size uint64) {
		require.Equal(t, proto.StatusOK, c.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
			Instance: id, Want: proto.TransportShared, Namespace: "space", Layouts: []proto.Layout{{Name: "kv", Dims: []uint32{2, 4}, Size: size}},
		}), nil).h.Status)
	}
	a, b, c := w.connect(100), w.connect(200), w.connect(300)
	register(a, 1, 2*slotSize)
	register(b, 2, 3*slotSize)
	register(c, 3, 2*slotSize)
	a.store(2*slotSize, "x")
	require.Equal(t, 0, b.hits("x"))
	_, st := b.retrieve(proto.PrepareRetrieve{Keys: testKeys("x")})
	require.Equal(t, proto.StatusMiss, st)
	require.Equal(t, proto.StatusTooLarge, a.prepared(a.prepare(0, 3*slotSize, "y")).Results[0].Status)
	b.store(3*slotSize, "x")
	out, st := c.retrieve(proto.PrepareRetrieve{Keys: testKeys("x")})
	require.Equal(t, proto.StatusOK, st)
	require.EqualValues(t, 2*slotSize, out.Slots[0].Len)
	c.verify(out.Slots, "x")
}

func TestWhoHasTooManyWaitingRequestsIsBusy(t *testing.T) {
	w := newWorld(t, setup{slots: 8, grown: 4, cfg: Config{ParkedCap: 2, InstanceCap: 1 << 40}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.prepared(a.prepare(0, slotSize, "a", "b", "c", "d"))
	first, second := a.prepare(time.Minute, slotSize, "e"), a.prepare(time.Minute, slotSize, "f")
	a.waits(first)
	a.waits(second)
	require.Equal(t, proto.StatusBusy, a.prepared(a.prepare(time.Minute, slotSize, "g")).Results[0].Status)
	require.Equal(t, proto.StatusNoSpace, a.prepared(a.prepare(0, slotSize, "g")).Results[0].Status, "who does not wait is told why")
	third := b.prepare(time.Minute, slotSize, "g")
	b.waits(third)
}
