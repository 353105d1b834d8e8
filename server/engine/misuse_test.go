package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// handles are one of each kind that a worker has open: "y" is being written, "x" is held.
type handles struct{ store, retrieve, lease, told uint64 }

// use sends a handle with each op that takes one.
func (c *client) use(op proto.Op, handle uint64) proto.Status {
	c.w.t.Helper()
	var body []byte
	switch op { //nolint:exhaustive // the ops that take handles
	case proto.OpCommitStore:
		body = proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: handle})
	case proto.OpAbortStore:
		body = proto.AppendAbortStore(nil, &proto.AbortStore{Transfer: handle})
	case proto.OpCommitRetrieve:
		body = proto.AppendCommitRetrieve(nil, &proto.CommitRetrieve{Transfer: handle})
	case proto.OpRelease:
		body = proto.AppendRelease(nil, &proto.Release{Leases: []uint64{handle}})
	case proto.OpPrepareRetrieve:
		body = proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Lease: handle, Count: 1})
	}
	return c.call(op, 0, body, nil).h.Status
}

// everything is what a misuse must not change.
type everything struct {
	usage     table.Usage
	instances []proto.InstanceInfo
	transfers []proto.TransferInfo
	objects   int
}

func (c *client) everything() everything {
	c.w.t.Helper()
	return everything{usage: c.w.e.table.Usage(), instances: c.instances(), transfers: c.transfers(), objects: c.hits("x", "y")}
}

// A misuse is a handle used as it must not be. The statuses are those of COMMIT_STORE and
// ABORT_STORE of a store, COMMIT_RETRIEVE of a retrieval, RELEASE of a lease and
// PREPARE_RETRIEVE by a lease.
type misuse struct {
	name string
	with func(w *world, a *client, h *handles) *client // who uses the handles after this
	want [5]proto.Status
}

// ended ends everything that a has.
func ended(_ *world, a *client, h *handles) *client {
	a.use(proto.OpCommitStore, h.store)
	a.use(proto.OpCommitRetrieve, h.retrieve)
	a.use(proto.OpRelease, h.lease)
	return a
}

func unregistered(_ *world, a *client, _ *handles) *client {
	a.call(proto.OpUnregister, 0, nil, nil)
	return a
}

// misuses are the table of docs/PROTOCOL.md, in its order and beyond.
func misuses() []misuse {
	const (
		ok, stale, denied, gone = proto.StatusOK, proto.StatusStale, proto.StatusDenied, proto.StatusNotRegistered
	)
	return []misuse{
		{"a second time", ended, [5]proto.Status{stale, stale, stale, ok, stale}},
		{"after an abort", func(w *world, a *client, h *handles) *client {
			a.use(proto.OpAbortStore, h.store)
			return ended(w, a, h)
		}, [5]proto.Status{stale, stale, stale, ok, stale}},
		{"after unregister", unregistered, [5]proto.Status{gone, gone, gone, gone, gone}},
		{"after unregister and register", func(w *world, a *client, h *handles) *client {
			unregistered(w, a, h).register(1, "space", proto.TransportShared)
			return a
		}, [5]proto.Status{stale, stale, stale, ok, stale}},
		{"by another instance", func(w *world, _ *client, _ *handles) *client {
			return w.worker(2, 200)
		}, [5]proto.Status{denied, denied, denied, denied, ok}},
		{"from another namespace", func(w *world, _ *client, _ *handles) *client {
			return w.workerIn(2, 200, "elsewhere")
		}, [5]proto.Status{denied, denied, denied, denied, denied}},
		{"by nobody", func(w *world, _ *client, _ *handles) *client {
			return w.connect(300)
		}, [5]proto.Status{gone, gone, gone, gone, gone}},
		{"by another process with the id", func(w *world, _ *client, h *handles) *client {
			h.lease = h.told // one without slots has ended
			return w.worker(1, 200)
		}, [5]proto.Status{denied, denied, denied, denied, stale}},
		{"as another kind", func(_ *world, a *client, h *handles) *client {
			*h = handles{store: h.lease, retrieve: h.store, lease: h.retrieve}
			return a
		}, [5]proto.Status{stale, stale, stale, ok, stale}},
		{"zero", func(_ *world, a *client, h *handles) *client {
			*h = handles{}
			return a
		}, [5]proto.Status{ok, stale, ok, ok, proto.StatusBadRequest}}, // a lease of 0 is none: no keys, a range
		{"never given", func(_ *world, a *client, h *handles) *client {
			*h = handles{store: 7 << 32, retrieve: 1<<63 | 5, lease: 1<<64 - 1}
			return a
		}, [5]proto.Status{stale, stale, stale, ok, stale}},
		{"after its worker died", func(w *world, a *client, _ *handles) *client {
			a.close()
			w.dies(100)
			return w.worker(1, 200)
		}, [5]proto.Status{stale, stale, stale, ok, stale}},
	}
}

func TestHandlesUsedWronglyHaveAStatusAndChangeNothing(t *testing.T) {
	ops := [5]proto.Op{proto.OpCommitStore, proto.OpAbortStore, proto.OpCommitRetrieve, proto.OpRelease, proto.OpPrepareRetrieve}
	for _, m := range misuses() {
		t.Run(m.name, func(t *testing.T) {
			w, a, h := handling(t)
			watcher := w.worker(9, 900)
			user := m.with(w, a, h)
			before := watcher.everything()
			for i, op := range ops {
				handle := [5]uint64{h.store, h.store, h.retrieve, h.lease, h.lease}[i]
				for range 2 {
					got := user.use(op, handle)
					require.Equal(t, m.want[i], got, "%v", op)
					if op == proto.OpPrepareRetrieve && got == proto.StatusOK { // that is the use of a lease
						list := watcher.transfers()
						require.Equal(t, proto.StatusOK, user.endRetrieve(list[len(list)-1].Handle))
					}
				}
				require.Equal(t, before, watcher.everything(), "%v changed something", op)
			}
			w.dies(100)
			w.dies(200)
			w.baseline()
		})
	}
}

// handling has a worker with open handles of each kind.
func handling(t *testing.T) (*world, *client, *handles) {
	w := newWorld(t, setup{slots: 16, cfg: Config{TransferTime: time.Second, LeaseTime: time.Second}})
	a := w.worker(1, 100)
	a.store(slotSize, "x")
	h := &handles{}
	h.lease = a.found(a.lookup(proto.LookupHold, 0, "x")).Lease
	h.told = a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, "x")).Lease
	got, st := a.retrieve(proto.PrepareRetrieve{Keys: testKeys("x")})
	require.Equal(t, proto.StatusOK, st)
	h.retrieve = got.Transfer
	h.store = a.prepared(a.prepare(0, slotSize, "y")).Transfer
	return w, a, h
}

// TestLateCommitIsStaleAndItsAbortAcknowledges: a late commit by a writer that was declared dead.
// It is stale, whatever made it so, and the abort behind it is what gives the slot back.
func TestLateCommitIsStaleAndItsAbortAcknowledges(t *testing.T) {
	for name, late := range map[string]func(w *world, a *client) *client{
		"its time is over": func(w *world, a *client) *client { w.advance(time.Minute); return a },
		"its connection broke": func(w *world, a *client) *client {
			a.close()
			return w.worker(1, 100)
		},
		"it was evicted": func(w *world, a *client) *client {
			w.connect(300).evict(1, false)
			return a
		},
		"it was evicted and registered again": func(w *world, a *client) *client {
			w.connect(300).evict(1, false)
			a.register(1, "space", proto.TransportShared)
			return a
		},
	} {
		for _, writtenAgain := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w, a, h := handling(t)
				b := w.worker(2, 200)
				user := late(w, a)
				if writtenAgain {
					b.store(slotSize, "y")
				}
				before := b.everything()
				require.EqualValues(t, slotSize, before.usage.Quarantined)
				for range 2 {
					require.Equal(t, proto.StatusStale, user.use(proto.OpCommitStore, h.store))
					require.Equal(t, before, b.everything())
				}
				require.Equal(t, proto.StatusDenied, b.use(proto.OpAbortStore, h.store))
				require.Equal(t, proto.StatusOK, user.use(proto.OpAbortStore, h.store))
				require.Equal(t, proto.StatusStale, user.use(proto.OpAbortStore, h.store))
				require.Zero(t, w.e.table.Usage().Quarantined)
				require.Equal(t, before.objects, b.hits("x", "y"))
				w.dies(100)
				w.baseline()
			})
		}
	}
}

// TestTwoConnectionsThatEndTheSameSucceedOnce: a double commit, release or unregister. Of two
// connections of one worker that both end the same thing one succeeds.
func TestTwoConnectionsThatEndTheSameSucceedOnce(t *testing.T) {
	w, a, h := handling(t)
	other := w.worker(1, 100)
	b := w.worker(2, 200)
	keep := b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, "x"))
	require.Equal(t, proto.StatusOK, a.use(proto.OpCommitRetrieve, h.retrieve))
	require.Equal(t, proto.StatusStale, other.use(proto.OpCommitRetrieve, h.retrieve))
	require.Equal(t, proto.StatusOK, other.use(proto.OpCommitStore, h.store))
	require.Equal(t, proto.StatusStale, a.use(proto.OpAbortStore, h.store))
	for _, lease := range []uint64{h.lease, h.told} {
		require.Equal(t, proto.StatusOK, a.use(proto.OpRelease, lease))
		require.Equal(t, proto.StatusOK, other.use(proto.OpRelease, lease))
	}
	require.EqualValues(t, slotSize, w.e.table.Usage().Held, "the hold of another is its own")
	b.verify(keep.Slots, "x")
	require.Equal(t, proto.StatusOK, a.call(proto.OpUnregister, 0, nil, nil).h.Status)
	require.Equal(t, proto.StatusNotRegistered, other.call(proto.OpUnregister, 0, nil, nil).h.Status)
	require.Equal(t, proto.StatusOK, b.release(keep.Lease))
	require.Equal(t, 2, b.hits("x", "y"))
	w.baseline()
}
