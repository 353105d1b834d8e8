package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server/access"
)

// A reply that can't arrive, because its connection broke between the request and the reply: nobody learns of the handle in it, so that
// nobody gives back what it stands for, as long as the process lives and has another connection.
func TestWhatNobodyHearsOfIsNotGranted(t *testing.T) {
	for name, ask := range map[string]func(c *client){
		"store":    func(c *client) { c.prepare(0, slotSize, "new") },
		"waiting":  func(c *client) { c.prepare(time.Hour, slotSize, names("more", 6)...) },
		"lease":    func(c *client) { c.lookup(proto.LookupHold, 0, "x") },
		"told":     func(c *client) { c.lookup(proto.LookupHold|proto.LookupSlots, 0, "x") },
		"retrieve": func(c *client) { c.post(proto.OpPrepareRetrieve, 0, retrieveOf("x"), nil) },
		"inline":   func(c *client) { c.post(proto.OpPrepareRetrieve, proto.FlagInline, retrieveOf("x"), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{slots: 8, grown: 4, cfg: Config{InstanceCap: 1 << 40}})
			a, other := w.worker(1, 100), w.worker(1, 100)
			a.store(slotSize, "x")
			w.left = map[ConnID]bool{a.id: true}
			ask(a)
			w.step(Event{Kind: EventReady, Res: 8 * slotSize})
			w.settle()
			_, there := a.take(a.lastID)
			require.True(t, there, "the host keeps a connection until it has what it is owed")
			_, again := a.take(a.lastID)
			require.False(t, again)
			require.Empty(t, other.transfers())
			a.close()
			require.Equal(t, proto.StatusReserved, other.prepared(other.prepare(0, slotSize, "new")).Results[0].Status)
			w.dies(100)
			w.baseline()
		})
	}
}

func retrieveOf(key string) []byte {
	return proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: testKeys(key)})
}

// A connection that is hung up is granted nothing more, though its replies still go out: what its requests wait for ends, be
// it memory or the disk. Another connection of the same instance goes on.
func TestNothingIsGrantedOnAConnectionThatIsHungUp(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: 1 << 40})
	l := access.New(0)
	require.NoError(t, l.Read([]byte("a space shm\nb space shm\n")))
	w.e.SetAccess(w.now, l)
	a, b := w.as("a", 100), w.as("b", 100)
	for _, c := range []*client{a, b} {
		require.Equal(t, proto.StatusOK, c.register(1, "space", proto.TransportShared).h.Status)
	}
	evicted(w, b, "x")
	full := b.prepared(b.prepare(0, slotSize, names("full", 14)...))
	b.store(slotSize, "dirty0", "dirty1") // the disk is slow
	more := a.prepare(time.Hour, slotSize, names("more", 4)...)
	a.waits(more)
	waits := b.prepare(time.Hour, slotSize, "most")
	b.waits(waits)
	load := a.lookup(proto.LookupHold|proto.LookupLoad, time.Hour, "x")

	l = access.New(0)
	require.NoError(t, l.Read([]byte("b space shm\n")))
	w.e.SetAccess(w.now, l)
	w.check()
	a.answered(more, proto.StatusNotRegistered)
	a.answered(load, proto.StatusNotRegistered)
	require.Equal(t, proto.StatusOK, b.abort(full.Transfer))
	w.settle()
	require.Equal(t, proto.StatusReserved, b.prepared(waits).Results[0].Status)
	require.True(t, w.closed[a.id])
	require.Len(t, b.transfers(), 1)
	require.Equal(t, proto.InstanceLive, b.instances()[0].State)
	b.close()
	w.dies(100)
	w.settle()
	w.baseline()
}

// Over TCP nobody knows which connections are of one process. One that goes over to another namespace takes along what it waits for,
// and leaves the instance to the others.
func TestAConnectionFromAnotherHostGoesOverAlone(t *testing.T) {
	w := newWorld(t, setup{slots: 8, grown: 4, cfg: Config{InstanceCap: 1 << 40}})
	a, b := w.connect(0), w.connect(0)
	for _, c := range []*client{a, b} {
		require.Equal(t, proto.StatusOK, c.register(1, "space", proto.TransportInline).h.Status)
	}
	open := b.prepared(b.post(proto.OpPrepareStore, proto.FlagInline, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: testKeys("x"), Sizes: []uint64{3}}), nil))
	waits := a.prepare(time.Hour, slotSize, names("more", 6)...)
	a.waits(waits)
	require.Equal(t, proto.StatusOK, a.register(1, "elsewhere", proto.TransportInline).h.Status)
	a.answered(waits, proto.StatusNotRegistered)
	require.Len(t, b.instances(), 2)
	id := b.post(proto.OpCommitStore, proto.FlagInline, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: open.Transfer}), []byte("abc"))
	w.settle()
	b.answered(id, proto.StatusOK)
	b.close()
	require.Len(t, a.instances(), 1)
	a.close()
	w.baseline()
}

// The id of a worker is its own in its namespace only: one of another namespace, who may use all of them, registers the same
// id and ends the other's.
func TestTheSameIDInAnotherNamespaceIsAnotherInstance(t *testing.T) {
	w := tenantWorld(t)
	a, op := w.as("a", 100), w.as("op", 300)
	require.Equal(t, proto.StatusOK, a.register(1, "alpha", proto.TransportShared).h.Status)
	open := a.prepared(a.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusOK, op.register(1, "gamma", proto.TransportShared).h.Status)
	require.Len(t, op.instances(), 2)
	require.Equal(t, proto.StatusOK, a.commit(open.Transfer))
	for _, c := range []*client{a, op} {
		require.Equal(t, proto.InstanceLive, c.instances()[0].State)
	}
	require.Equal(t, proto.StatusDenied, op.release(a.found(a.lookup(proto.LookupHold, 0, "x")).Lease), "and has nothing to do with it")
	require.Equal(t, proto.StatusOK, op.register(1, "alpha", proto.TransportShared).h.Status, "there it is who has the id now")
	require.Equal(t, proto.StatusNotRegistered, a.call(proto.OpTouch, 0, proto.AppendTouch(nil, &proto.Touch{}), nil).h.Status)
	require.Len(t, op.instances(), 1, "and what it was elsewhere ended")
	_, st := op.evict(1, false)
	require.Equal(t, proto.StatusOK, st)
	w.baseline()
}

// A token without the right to shared memory gets it by a connection beside one that has the right.
func TestSharedMemoryIsOnlyForConnectionsThatHaveTheRight(t *testing.T) {
	w := tenantWorld(t)
	transport := func(c *client) proto.Transport {
		r := c.register(1, "beta", proto.TransportShared)
		require.Equal(t, proto.StatusOK, r.h.Status)
		var out proto.RegisterReply
		require.NoError(t, proto.ParseRegisterReply(r.body, &out))
		require.Equal(t, out.Transport == proto.TransportShared, out.ShmKind != proto.ShmNone)
		return out.Transport
	}
	op, b := w.as("op", 100), w.as("b", 100)
	require.Equal(t, proto.TransportShared, transport(op))
	require.Equal(t, proto.TransportInline, transport(b))
	op.store(slotSize, "x")
	require.Empty(t, b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, "x")).Slots)
	require.Equal(t, proto.TransportShared, transport(op))
	require.Len(t, op.found(op.lookup(proto.LookupHold|proto.LookupSlots, 0, "x")).Slots, 1)
	w.dies(100)
	w.baseline()
}

// A worker whose number the server does not see, as it is of another PID namespace, is known by another: it is the same after its
// connection broke, and gives back what it had.
func TestAProcessThatIsKnownByAnotherNumberIsTheSame(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	worker := func(process uint64) *client {
		c := w.open(Peer{Local: true, Process: process})
		w.watched = int32(process)
		require.Equal(t, proto.StatusOK, c.register(7, "space", proto.TransportShared).h.Status)
		return c
	}
	a := worker(100)
	a.store(slotSize, "x")
	first, second := a.prepared(a.prepare(0, slotSize, "y")), a.prepared(a.prepare(0, slotSize, "z"))
	b := worker(100)
	require.Equal(t, proto.StatusOK, b.commit(first.Transfer), "one instance, two connections")
	a.close()
	b.close()
	b = worker(100)
	require.Equal(t, proto.StatusStale, b.commit(second.Transfer))
	_, st := w.connect(300).evict(7, false)
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, proto.StatusOK, b.register(7, "space", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusOK, b.abort(second.Transfer))
	w.baseline()
	third := b.prepared(b.prepare(0, slotSize, "z"))
	c := worker(200)
	require.Equal(t, proto.StatusDenied, c.abort(third.Transfer), "another process")
	require.EqualValues(t, 1, w.e.claims.claimOf(owner{process: 100}).transfers)
	require.Zero(t, w.e.claims.claimOf(owner{process: 200}).transfers, "with a share of its own")
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined)
	w.dies(100)
	w.baseline()
}

// The generations of handles wrap: no handle is 0, which stands for none, and a late one of the last round is not the new one.
func TestHandlesWrapAroundAndAreNeverNone(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	w.e.transfers[w.e.transferFree].generation = ^uint32(0) - 1
	last := a.prepared(a.prepare(0, slotSize, "x"))
	require.EqualValues(t, ^uint32(0), last.Transfer>>32)
	require.Equal(t, proto.StatusOK, a.commit(last.Transfer))
	next := a.prepared(a.prepare(0, slotSize, "y"))
	require.EqualValues(t, uint32(last.Transfer), uint32(next.Transfer), "in the same place")
	require.NotZero(t, next.Transfer)
	require.Equal(t, proto.StatusStale, a.commit(last.Transfer))
	require.Equal(t, proto.StatusOK, a.commit(next.Transfer))
	require.Equal(t, 2, a.hits("x", "y"))
	w.baseline()
}

// A connection acts for one instance; whose was ended is free to be another's, though the old one still drains.
func TestAConnectionWhoseInstanceEndedMayBeAnothers(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(9, 900)
	a.prepared(a.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusExists, a.register(2, "space", proto.TransportShared).h.Status)
	_, st := b.evict(1, false)
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, proto.StatusOK, a.register(2, "space", proto.TransportShared).h.Status)
	require.Equal(t, []uint64{1, 9, 2}, ids(b.instances()))
	w.dies(100)
	w.baseline()
	require.Equal(t, []uint64{9}, ids(b.instances()))
}

// The end of a process that the host tells of late, when its instance has ended and another has its place: that goes on.
func TestALateEndOfAProcessIsNotThatOfTheNext(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	late := w.e.watchID(0)
	require.Equal(t, proto.StatusOK, a.call(proto.OpUnregister, 0, nil, nil).h.Status)
	b := w.worker(2, 200)
	require.Equal(t, uint32(late), uint32(w.e.watchID(0)))
	open := b.prepared(b.prepare(0, slotSize, "x"))
	w.step(Event{Kind: EventGone, Watch: late})
	require.Equal(t, proto.InstanceLive, b.instances()[0].State)
	require.Equal(t, proto.StatusOK, b.commit(open.Transfer))
	w.baseline()
}

// Of two connections of an instance that wait for the disk one closes: the other has its answer all the same.
func TestWhatWaitsOnAnotherConnectionGoesOn(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: 1 << 40})
	a, b := w.worker(1, 100), w.worker(1, 100)
	evicted(w, w.worker(2, 200), "x")
	a.lookup(proto.LookupHold|proto.LookupLoad, time.Hour, "x")
	id := b.lookup(proto.LookupHold|proto.LookupLoad, time.Hour, "x")
	a.close()
	w.settle()
	out := b.found(id)
	require.EqualValues(t, 1, out.Hits)
	require.Equal(t, proto.StatusOK, b.release(out.Lease))
	w.baseline()
}

// A process that registers its id again, to read only, is another instance, which can't store, and its old one drains.
func TestWhoRegistersAgainToReadOnlyIsAnother(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	open := a.prepared(a.prepare(0, slotSize, "x"))
	reader := w.connect(100)
	require.Equal(t, proto.StatusOK, reader.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: 1, Want: proto.TransportShared, ReadOnly: true, Name: "worker 1", Namespace: "space",
		Layouts: []proto.Layout{{Name: "bf16", Dims: []uint32{2, 4}, Size: layoutMax}, {Name: "fp8", Size: layoutMax}},
	}), nil).h.Status)
	id := reader.prepare(0, slotSize, "y")
	reader.answered(id, proto.StatusDenied)
	require.Equal(t, proto.InstanceDraining, reader.instances()[0].State)
	require.Equal(t, proto.StatusStale, a.commit(open.Transfer))
	w.dies(100)
	w.baseline()
}

// A payload that does not come to its end in the time of a transfer ends its connection, and its slot is free when the move has ended.
func TestAPayloadThatNeverEndsEndsItsConnection(t *testing.T) {
	w := newWorld(t, setup{slots: 16, cfg: Config{TransferTime: time.Second}})
	w.slow = true
	a, b := w.connect(0), w.worker(2, 200)
	require.Equal(t, proto.StatusOK, a.register(1, "space", proto.TransportInline).h.Status)
	open := a.prepared(a.prepare(0, slotSize, "x"))
	a.post(proto.OpCommitStore, proto.FlagInline, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: open.Transfer}), make([]byte, slotSize))
	require.Equal(t, proto.TransferMoving, b.transfers()[0].State)
	w.advance(time.Minute)
	require.True(t, w.closed[a.id])
	require.EqualValues(t, slotSize, w.e.table.Usage().Staged, "it is still on its way")
	w.settle()
	require.Zero(t, b.hits("x"))
	require.Len(t, b.instances(), 1)
	w.baseline()
}

// Who has no connection is evicted like any other: its process does not come back to what it was, and of its ids only that one ends what
// it had by it.
func TestADetachedInstanceThatIsEvictedIsNoMore(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, second, operator := w.worker(1, 100), w.worker(2, 100), w.worker(9, 900)
	open := a.prepared(a.prepare(0, slotSize, "x"))
	a.close()
	_, st := operator.evict(1, false)
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, proto.InstanceDraining, operator.instances()[0].State)
	again := w.worker(1, 100)
	require.Len(t, operator.instances(), 4)
	require.Equal(t, proto.StatusDenied, second.abort(open.Transfer))
	require.Equal(t, proto.StatusOK, again.abort(open.Transfer))
	require.Len(t, operator.instances(), 3)
	w.baseline()
}

// Of two lives of an id the first can't be killed: the operator hears of it, though the second is gone.
func TestOneLifeThatCannotBeKilledIsSaid(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	w.immortal = true
	a, b, operator := w.worker(1, 100), w.connect(200), w.worker(9, 900)
	a.prepared(a.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusOK, b.register(1, "elsewhere", proto.TransportInline).h.Status)
	_, st := operator.evict(1, true)
	require.Equal(t, proto.StatusDenied, st)
	require.Equal(t, []uint64{1, 9}, ids(operator.instances()))
	w.dies(100)
	w.baseline()
}

// A process that has ended an instance while its deletes wait for the disk has nothing of it any more: whoever has that id
// killed does not kill the process, which may be another instance by now.
func TestAnInstanceThatEndedIsNotKilledForItsDeletes(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a, operator := w.worker(1, 100), w.connect(900)
	a.store(slotSize, "x")
	w.settle()
	deletion := a.remove("x")
	a.waits(deletion) // the disk is slow
	require.Equal(t, proto.StatusOK, a.call(proto.OpUnregister, 0, nil, nil).h.Status)
	require.Equal(t, proto.StatusOK, a.register(2, "space", proto.TransportShared).h.Status)
	require.Len(t, w.watches, 1, "the second life's")
	_, st := operator.evict(1, true)
	require.Equal(t, proto.StatusOK, st)
	require.Empty(t, w.killed)
	list := operator.instances()
	require.Len(t, list, 2)
	for _, i := range list {
		require.Equal(t, i.ID == 2, i.State == proto.InstanceLive)
	}
	w.settle()
	a.answered(deletion, proto.StatusOK)
	require.Len(t, operator.instances(), 1)
	w.baseline()
}

// A dead worker's number is another process's by now, and a child of the dead one has its connection still: it is nothing of the new
// one's instance, though it registers the same id, before it or after it, and whatever it says that it touches no more.
func TestAProcessWithTheNumberOfADeadOneIsAnother(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	orphan := w.open(Peer{Local: true, PID: 100, Process: 1})
	require.Equal(t, proto.StatusOK, orphan.register(7, "space", proto.TransportInline).h.Status)
	left := orphan.prepared(orphan.prepare(0, slotSize, "x"))
	require.NotZero(t, left.Transfer)

	worker := w.open(Peer{Local: true, PID: 100, Process: 2})
	require.Equal(t, proto.StatusOK, worker.register(7, "space", proto.TransportShared).h.Status)
	require.Zero(t, w.e.table.Usage().Staged, "what the orphan had is not the worker's")
	require.Equal(t, proto.StatusStale, worker.abort(left.Transfer))
	mine := worker.prepared(worker.prepare(0, slotSize, "y"))
	require.Equal(t, proto.StatusNotRegistered, orphan.call(proto.OpUnregister, 0, nil, nil).h.Status)
	require.EqualValues(t, slotSize, w.e.table.Usage().Staged)

	require.Equal(t, proto.StatusOK, orphan.register(7, "space", proto.TransportInline).h.Status)
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined, "the worker writes there still")
	require.Equal(t, proto.StatusDenied, orphan.abort(mine.Transfer))
	require.Equal(t, proto.StatusOK, orphan.call(proto.OpUnregister, 0, nil, nil).h.Status)
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined)
	require.EqualValues(t, 1, w.e.claims.claimOf(owner{pid: 100, process: 2}).transfers)
	w.dies(100)
	w.baseline()
}

// A process that cannot be told from others now, for want of a descriptor, is told to ask again: taken for another it would
// lose what it has.
func TestAProcessThatCannotBeToldNowAsksAgain(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	peer := Peer{Local: true, PID: 100, Process: 1}
	a, b := w.open(peer), w.open(peer)
	require.Equal(t, proto.StatusOK, a.register(7, "space", proto.TransportShared).h.Status)
	out := a.prepared(a.prepare(0, slotSize, "x"))
	w.nameless = true
	require.Equal(t, proto.StatusBusy, b.register(7, "space", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusOK, a.register(7, "space", proto.TransportShared).h.Status, "it is known")
	w.nameless = false
	require.Equal(t, proto.StatusOK, b.register(7, "space", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusOK, b.commit(out.Transfer), "one instance, two connections")
	w.dies(100)
	w.baseline()
}
