package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server/access"
)

const tenants = `
a    alpha        shm
b    beta,gamma
op   *            shm admin
eye  gamma        admin
`

// tenantWorld is a world whose clients need a token.
func tenantWorld(t *testing.T) *world {
	t.Helper()
	l := access.New(0)
	require.NoError(t, l.Read([]byte(tenants)))
	return newWorld(t, setup{slots: 64, cfg: Config{Access: l}})
}

// as connects a process with a token.
func (w *world) as(token string, pid int32) *client {
	w.t.Helper()
	w.token = token
	defer func() { w.token = "" }()
	return w.connect(pid)
}

func TestTenantsDoNotSeeEachOther(t *testing.T) {
	w := tenantWorld(t)
	a, b := w.as("a", 100), w.as("b", 200)
	require.Equal(t, proto.StatusOK, a.register(1, "alpha", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusDenied, a.register(1, "beta", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusDenied, b.register(2, "alpha", proto.TransportInline).h.Status)
	require.Equal(t, proto.StatusDenied, b.register(2, "", proto.TransportInline).h.Status)
	a.store(slotSize, "x", "y")
	open := a.prepared(a.prepare(0, slotSize, "z"))
	lease := a.found(a.lookup(proto.LookupHold, 0, "x")).Lease
	require.NotZero(t, lease)

	// The same id is another instance there, and its owner's goes on.
	require.Equal(t, proto.StatusOK, b.register(1, "beta", proto.TransportShared).h.Status)
	require.Len(t, b.instances(), 1)
	require.Equal(t, "beta", b.instances()[0].Namespace)
	require.Equal(t, proto.TransportInline, b.instances()[0].Transport, "its token is not for shared memory")
	require.Empty(t, b.transfers())
	require.Len(t, a.instances(), 1)
	require.Len(t, a.transfers(), 2)
	require.Zero(t, b.found(b.lookup(0, 0, "x")).Hits)

	for op, h := range map[proto.Op]uint64{proto.OpCommitStore: open.Transfer, proto.OpAbortStore: open.Transfer, proto.OpCommitRetrieve: lease} {
		require.Equal(t, proto.StatusStale, b.use(op, h), "%v: as if it had never been", op)
	}
	require.Equal(t, proto.StatusOK, b.use(proto.OpRelease, lease), "as if it had ended")
	require.Equal(t, proto.StatusStale, b.use(proto.OpPrepareRetrieve, lease))
	for _, name := range []string{"alpha", "none"} {
		r := b.call(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{Namespace: name}), nil)
		require.Equal(t, proto.StatusDenied, r.h.Status, name)
	}
	_, st := b.evict(1, false)
	require.Equal(t, proto.StatusDenied, st)
	_, st = a.evict(1, false)
	require.Equal(t, proto.StatusDenied, st, "its own neither: that is for operators")

	require.Equal(t, proto.StatusOK, a.commit(open.Transfer))
	require.EqualValues(t, 3, a.found(a.lookup(0, 0, "x", "y", "z")).Hits)
	w.settle()
}

// A process whose token is for all namespaces connects again, and finds a tenant's instance of the same id in the place of
// its own: that tenant's ends, and what the process has open is lost to it.
func TestAnotherTenantsInstanceIsNotTakenForOnesOwn(t *testing.T) {
	w := tenantWorld(t)
	op, a := w.as("op", 300), w.as("a", 100)
	require.Equal(t, proto.StatusOK, op.register(1, "gamma", proto.TransportShared).h.Status)
	open := op.prepared(op.prepare(0, slotSize, "x"))
	require.Equal(t, proto.StatusOK, a.register(1, "alpha", proto.TransportShared).h.Status)
	theirs := a.prepared(a.prepare(0, slotSize, "x"))

	again := w.as("op", 300)
	require.Equal(t, proto.StatusOK, again.register(1, "gamma", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusOK, again.commit(open.Transfer), "it is the same instance")
	require.Equal(t, proto.StatusOK, a.commit(theirs.Transfer), "which has nothing to do with it")

	open = op.prepared(op.prepare(0, slotSize, "y"))
	op.close()
	again.close()
	last := w.as("op", 300)
	require.Equal(t, proto.StatusOK, last.register(1, "gamma", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusOK, last.abort(open.Transfer))
	require.Equal(t, proto.StatusOK, last.register(1, "beta", proto.TransportShared).h.Status, "the connection goes along")
	require.Equal(t, 1, a.hits("x"))
	require.Len(t, last.instances(), 2)
	w.settle()
	w.baseline()
}

// A process has two instances of one id in namespaces that its tokens do not show each other. A connection for which both
// exist goes from one to the other: the first has lost its last connection by that, and what waited on it has an answer.
func TestAConnectionThatGoesFromOneTenantToAnotherLeavesTheFirst(t *testing.T) {
	for _, last := range []bool{false, true} {
		l := access.New(0)
		require.NoError(t, l.Read([]byte(tenants)))
		w := newWorld(t, setup{slots: 64, grown: 32, cfg: Config{Access: l}})
		a, b, op := w.as("a", 100), w.as("b", 100), w.as("op", 100)
		require.Equal(t, proto.StatusOK, a.register(1, "alpha", proto.TransportShared).h.Status)
		require.Equal(t, proto.StatusOK, b.register(1, "beta", proto.TransportInline).h.Status)
		require.Equal(t, proto.StatusOK, op.register(1, "alpha", proto.TransportShared).h.Status)
		require.Len(t, op.instances(), 2)
		id := op.prepare(time.Minute, 40*slotSize, "x")
		op.waits(id) // for the pool to grow
		if last {
			a.close()
		}
		require.Equal(t, proto.StatusOK, op.register(1, "beta", proto.TransportInline).h.Status)
		op.answered(id, proto.StatusNotRegistered)
		states := map[string]uint8{}
		for _, i := range op.instances() {
			states[i.Namespace] = i.State
		}
		if last { // it had nothing
			require.NotContains(t, states, "alpha")
		} else {
			require.Equal(t, proto.InstanceLive, states["alpha"])
		}
		require.Equal(t, proto.InstanceLive, states["beta"])
		w.step(Event{Kind: EventReady, Res: 64 * slotSize})
		w.baseline()
	}
}

func TestNumbersOfATenantAreItsOwn(t *testing.T) {
	w := tenantWorld(t)
	a, b, op := w.as("a", 100), w.as("b", 200), w.as("op", 300)
	require.Equal(t, proto.StatusOK, a.register(1, "alpha", proto.TransportShared).h.Status)
	a.store(slotSize, "x", "y")
	a.lookup(proto.LookupHold, 0, "x")
	before := b.stats()
	require.Equal(t, map[string]uint64{"l1_capacity_bytes": 64 * slotSize, "l1_ready_bytes": 64 * slotSize}, nonZero(before))
	mine := a.stats()
	require.Equal(t, map[string]uint64{
		"instances": 1, "transfers": 1, "l1_capacity_bytes": 64 * slotSize, "l1_ready_bytes": 64 * slotSize,
		"l1_held_bytes": slotSize, "lookups_total": 1, "lookup_keys_total": 1, "hits_l1_total": 1, "stored_bytes_total": 2 * slotSize,
	}, nonZero(mine))
	whole := op.stats()
	for name := range mine {
		require.Contains(t, whole, name, "the names are the same")
	}
	require.EqualValues(t, 3, whole["connections"])
	require.Equal(t, before, b.stats(), "asking changes nothing")
}

func (c *client) stats() map[string]uint64 {
	c.w.t.Helper()
	var out proto.StatsReply
	require.NoError(c.w.t, proto.ParseStatsReply(c.call(proto.OpStats, 0, nil, nil).body, &out))
	all := map[string]uint64{}
	for _, n := range out.Counters {
		all[n.Name] = n.Value
	}
	return all
}

func nonZero(all map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for name, v := range all {
		if v != 0 {
			out[name] = v
		}
	}
	return out
}

func TestAnOperatorSeesAndEndsAll(t *testing.T) {
	w := tenantWorld(t)
	a, b, op, eye := w.as("a", 100), w.as("b", 200), w.as("op", 300), w.as("eye", 400)
	require.Equal(t, proto.StatusOK, a.register(1, "alpha", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusOK, b.register(2, "beta", proto.TransportInline).h.Status)
	require.Len(t, op.instances(), 2)
	require.Len(t, eye.instances(), 2, "to see all is not to use all")
	require.Equal(t, proto.StatusDenied, eye.register(3, "alpha", proto.TransportShared).h.Status)
	require.Equal(t, proto.StatusDenied, eye.call(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{Namespace: "alpha"}), nil).h.Status)
	_, st := eye.evict(1, false)
	require.Equal(t, proto.StatusOK, st)
	_, st = op.evict(2, true)
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, proto.StatusOK, op.register(4, "beta", proto.TransportShared).h.Status)
}

func TestAnotherListHangsUpWhoLosesByIt(t *testing.T) {
	w := tenantWorld(t)
	a, b, op := w.as("a", 100), w.as("b", 200), w.as("op", 300)
	require.Equal(t, proto.StatusOK, a.register(1, "alpha", proto.TransportShared).h.Status)
	a.prepare(0, slotSize, "x")
	l := access.New(0)
	require.NoError(t, l.Read([]byte("b beta,gamma\nop * shm\n")))
	w.e.SetAccess(w.now, l)
	w.settle()
	require.True(t, w.closed[a.id], "its token is gone")
	require.False(t, w.closed[b.id])
	require.True(t, w.closed[op.id], "its token is for less")
	require.Len(t, w.as("op", 300).instances(), 1, "the process lives and may touch its slot")
	w.dies(100)
	w.settle()
	w.baseline()
}

func TestWhoDoesNotComeInIsTold(t *testing.T) {
	l := access.New(7)
	w := newWorld(t, setup{slots: 16, cfg: Config{Access: l}})
	for uid, want := range map[uint32]proto.Status{7: proto.StatusOK, 8: proto.StatusDenied} {
		w.nextID++
		c := &client{w: w, id: NewConnID(w.nextID, 1)}
		w.step(Event{Kind: EventOpen, Conn: c.id, Peer: Peer{PID: 1, Local: true, UID: uid}})
		r := c.call(proto.OpHello, 0, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1}), nil)
		require.Equal(t, want, r.h.Status)
		w.settle()
		require.Equal(t, want != proto.StatusOK, w.closed[c.id])
	}
	require.Len(t, w.notices, 1)
	require.Equal(t, NoticeDenied, w.notices[0].Kind)
	require.Equal(t, access.Stranger, w.notices[0].Verdict)
	require.EqualValues(t, 8, w.notices[0].Peer.UID)
	require.EqualValues(t, 1, w.e.counters.Denied)
}
