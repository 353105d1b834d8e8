package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// The uses of a long lookup are settled after its reply, and before anything that could be decided by them.
func TestALongLookupIsAnsweredBeforeItsUsesAreSettled(t *testing.T) {
	const long = usesFew + 6
	for name, then := range map[string]func(w *world, a *client){
		"a tick":            func(w *world, _ *client) { w.step(Event{Kind: EventTick, Now: w.now}) },
		"a store":           func(_ *world, a *client) { a.store(slotSize, "new") },
		"a flush, a delete": func(w *world, a *client) { w.flush(); a.remove("k0") },
	} {
		for _, mode := range []proto.LookupMode{proto.ModePrefix, proto.ModeAny} {
			w := newWorld(t, setup{slots: long + 2, quiet: true, cfg: Config{Policy: table.PolicyLRU}})
			a := w.worker(1, 100)
			old := names("k", long)
			a.store(slotSize, old[:long/2]...) // an instance has half of the places at a time
			a.store(slotSize, old[long/2:]...)
			a.store(slotSize, "other-0", "other-1")

			require.Equal(t, usesFew, a.hits(old[:usesFew]...))
			require.Empty(t, w.e.uses.refs, "few")
			in := proto.Lookup{Mode: mode, Group: 1, Keys: testKeys(old...)}
			id := a.post(proto.OpLookup, 0, proto.AppendLookup(nil, &in), nil)
			require.EqualValues(t, long, a.found(id).Hits)
			require.Len(t, w.e.uses.refs, long)
			at, ok := w.e.NextTick()
			require.True(t, ok && at <= w.now, "the next turn comes by itself")
			then(w, a)
			require.Empty(t, w.e.uses.refs)
			a.store(slotSize, "new-0", "new-1")
			require.Zero(t, a.hits("other-1"), name) // the tail goes first
			require.Equal(t, 1, a.hits(old[1]), "it was used later")
			w.baseline()
		}
	}
}

// A policy that is told of uses behind their reply has decided nothing meanwhile: the same requests get the same replies, and the same
// objects stay, as when it is told of them at once.
func TestUsesThatAreToldLateDecideTheSame(t *testing.T) {
	for _, disk := range []int64{0, 16 << 20} {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		var worlds [2]*world
		var clients [2]*client
		for i := range worlds {
			s := setup{slots: 400, quiet: true, diskSize: disk, segment: 1 << 20, cfg: Config{Policy: table.PolicyAdaptive, InstanceCap: 1 << 40}}
			worlds[i] = newWorld(t, s)
			worlds[i].eager = i == 0
			clients[i] = worlds[i].worker(1, 100)
		}
		all := names("k", 900)
		rng := rand.New(rand.NewPCG(seed, 1))
		var leases []uint64
		late := 0
		for range 400 {
			from := rng.IntN(len(all) - 1)
			part := all[from:min(len(all), from+1+rng.IntN(250))]
			kind, mode, pick := rng.IntN(10), proto.LookupMode(rng.IntN(2)), rng.Uint64()
			var got [2]reply
			var pending [2]int
			for i, c := range clients {
				op, body := anyRequest(c, kind, mode, leases, pick, part)
				id := c.post(op, 0, body, nil)
				pending[i] = len(worlds[i].e.uses.refs)
				if disk > 0 {
					worlds[i].settle()
				}
				var ok bool
				got[i], ok = c.take(id)
				require.True(t, ok)
			}
			require.Equal(t, got[0], got[1], "kind %d", kind)
			require.Zero(t, pending[0])
			late += pending[1]
			leases = leasesAfter(kind, leases, pick, got[0])
		}
		for _, lease := range leases {
			for _, c := range clients {
				require.Equal(t, proto.StatusOK, c.release(lease))
			}
		}
		require.Equal(t, clients[0].there(all), clients[1].there(all))
		require.NotZero(t, worlds[0].e.table.Usage().Evictions)
		require.Equal(t, worlds[0].e.table.Usage(), worlds[1].e.table.Usage())
		require.Greater(t, late, 1000)
		worlds[1].check()
	}
}

// anyRequest is a request of a kind, and the stores of some keys before it.
func anyRequest(c *client, kind int, mode proto.LookupMode, leases []uint64, pick uint64, part []string) (proto.Op, []byte) {
	in := proto.Lookup{Mode: mode, Group: 1, Keys: testKeys(part...)}
	switch {
	case kind == 0 && len(leases) > 0:
		return proto.OpRelease, proto.AppendRelease(nil, &proto.Release{Leases: leases[pick%uint64(len(leases)):][:1]})
	case kind == 1:
		return proto.OpDelete, proto.AppendDelete(nil, &proto.Delete{Keys: in.Keys[:1]})
	case kind < 5 && len(leases) < 2:
		in.Options = proto.LookupHold | proto.LookupLoad
	case kind < 7:
		out := c.prepared(c.prepare(0, slotSize, part[:min(len(part), 40)]...))
		c.fill(out, part...)
		return proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer})
	}
	return proto.OpLookup, proto.AppendLookup(nil, &in)
}

// leasesAfter are the leases there are behind a request.
func leasesAfter(kind int, leases []uint64, pick uint64, got reply) []uint64 {
	if got.h.Op == proto.OpRelease && kind == 0 {
		i := int(pick % uint64(len(leases)))
		return slices.Delete(leases, i, i+1)
	}
	var out proto.LookupReply
	if got.h.Op == proto.OpLookup && proto.ParseLookupReply(got.body, &out) == nil && out.Lease != 0 {
		leases = append(leases, out.Lease)
	}
	return leases
}

// there is which of the keys are in memory or on disk.
func (c *client) there(keys []string) []byte {
	in := proto.Lookup{Mode: proto.ModeAny, Group: 1, Keys: testKeys(keys...)}
	return c.found(c.post(proto.OpLookup, 0, proto.AppendLookup(nil, &in), nil)).Bitmap
}

// What a flush ends between the reply and the settling of its uses is gone, and no use of it counts.
func TestAFlushBetweenALookupAndItsUses(t *testing.T) {
	const long = usesFew + 6
	w := newWorld(t, setup{slots: long, quiet: true})
	a := w.worker(1, 100)
	old := names("k", long)
	a.store(slotSize, old[:long/2]...)
	a.store(slotSize, old[long/2:]...)
	require.Equal(t, proto.StatusOK, a.call(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{Namespace: "unknown"}), nil).h.Status)
	require.Equal(t, long, a.hits(old...))
	require.Len(t, w.e.uses.refs, long)
	for _, ref := range w.e.uses.refs[:long/2] {
		require.True(t, w.e.table.Delete(ref))
	}
	w.e.Step(&Event{Kind: EventTick, Now: w.now + time.Millisecond})
	require.Empty(t, w.e.uses.refs)
	w.check()
	w.baseline()
}
