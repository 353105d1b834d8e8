package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// One process registers without end and keeps everybody out: it gets half of the places at most once three quarters are
// taken, and others still come in. What it has stays its own, and is free for others as it goes.
func TestOneProcessLeavesPlacesToOthers(t *testing.T) {
	const conns, instances = 64, 32
	for name, c := range map[string]struct {
		most, other int // of the greedy one's registrations, and what others have meanwhile
		register    func(w *world, n int) (*client, proto.Status)
	}{
		"instances": {24, 0, func(w *world, n int) (*client, proto.Status) {
			c := w.connect(7)
			return c, c.register(uint64(n+1), "space", proto.TransportShared).h.Status
		}},
		"instances beside others": {16, 8, func(w *world, n int) (*client, proto.Status) {
			c := w.connect(7)
			return c, c.register(uint64(n+1), "space", proto.TransportShared).h.Status
		}},
		"connections of one": {48, 0, func(w *world, _ int) (*client, proto.Status) {
			c := w.connect(7)
			return c, c.register(1, "space", proto.TransportShared).h.Status
		}},
		"by a token from another host": {24, 0, func(w *world, n int) (*client, proto.Status) {
			w.token = "greedy"
			c := w.connect(0)
			w.token = ""
			return c, c.register(uint64(n+1), "space", proto.TransportInline).h.Status
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{slots: 8, cfg: Config{Conns: conns, Instances: instances}})
			for n := range c.other {
				w.worker(uint64(1000+n), int32(100+n))
			}
			var mine []*client
			for n := range instances + conns {
				a, st := c.register(w, n)
				if st == proto.StatusBusy {
					a.close()
					break
				}
				require.Equal(t, proto.StatusOK, st)
				mine = append(mine, a)
			}
			require.Len(t, mine, c.most)
			_, st := c.register(w, 5000)
			require.Equal(t, proto.StatusBusy, st, "again")
			for n := range 4 {
				w.worker(uint64(2000+n), int32(200+n))
			}
			require.EqualValues(t, 2, w.e.counters.Crowded)
			require.Zero(t, mine[len(mine)-1].hits("a"), "what it has goes on")
			for _, a := range mine {
				a.close()
			}
			for n := range 8 {
				w.worker(uint64(3000+n), 9)
			}
			require.NoError(t, w.e.CheckInvariants())
		})
	}
}

// One process with several instances has several shares: together they have what one may have once three quarters of all
// are taken, of memory, of entries, of transfers and of requests that wait, and there is a quarter for others.
func TestSeveralInstancesOfAProcessShareWhatOneMayHave(t *testing.T) {
	const pid, instances = 7, 4
	prepare := func(c *client, size uint64, keys []string) (transfer uint64, n int) {
		r := c.call(proto.OpPrepareStore, 0, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: testKeys(keys...), Sizes: slices.Repeat([]uint64{size}, len(keys))}), nil)
		if r.h.Status == proto.StatusBusy { // there is no transfer to be had
			return 0, 0
		}
		var out proto.PrepareStoreReply
		require.NoError(t, proto.ParsePrepareStoreReply(r.body, &out))
		for _, res := range out.Results {
			if res.Status != proto.StatusReserved {
				require.Equal(t, proto.StatusBusy, res.Status)
				break
			}
			n++
		}
		return out.Transfer, n
	}
	reserved := func(c *client, size uint64, keys []string) int { _, n := prepare(c, size, keys); return n }
	for name, c := range map[string]struct {
		setup  setup
		most   int // that the process is given
		others int // that another is then
		take   func(c *client, n int) int
	}{
		"memory": {setup{slots: 64}, 48, 16, func(c *client, n int) int { return reserved(c, slotSize, names(fmt.Sprint(n, "-"), 16)) }},
		"memory that is held": {setup{slots: 64}, 48, 16, func(c *client, n int) int {
			keys := names(fmt.Sprint("h", n, "-"), 16)
			transfer, granted := prepare(c, slotSize, keys)
			if granted > 0 {
				require.Equal(t, proto.StatusOK, c.commit(transfer))
				require.EqualValues(t, granted, c.found(c.lookup(proto.LookupHold|proto.LookupSlots, 0, keys[:granted]...)).Hits)
			}
			return granted
		}},
		"entries": {setup{slots: 64, cfg: Config{Entries: 64, Objects: 64, Transfers: 32}}, 48, 16, func(c *client, n int) int { return reserved(c, 0, names(fmt.Sprint(n, "-"), 16)) }},
		"transfers": {setup{slots: 64, cfg: Config{Transfers: 64}}, 48, 16, func(c *client, n int) (got int) {
			for k := range 16 {
				got += reserved(c, 0, names(fmt.Sprint(n, "-", k, "-"), 1))
			}
			return got
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.setup)
			var mine []*client
			for n := range instances {
				mine = append(mine, w.workerIn(uint64(n+1), pid, fmt.Sprint("space", n)))
			}
			granted := 0
			for n, a := range mine {
				granted += c.take(a, n)
			}
			require.Equal(t, c.most, granted)
			require.Equal(t, c.others, c.take(w.worker(100, 200), 100), "another process")
			for x, a := range mine[:2] {
				a.close()
				w.step(Event{Kind: EventGone, Watch: w.e.watchID(uint32(x))})
			}
			require.Equal(t, 16, c.take(mine[2], 5), "what it gave back it may have again")
			require.NoError(t, w.e.CheckInvariants())
		})
	}
}

// The requests of one process that wait are bounded over all its instances, when three quarters of all places are taken.
func TestSeveralInstancesOfAProcessDoNotTakeAllPlacesToWait(t *testing.T) {
	w := newWorld(t, setup{slots: 8, grown: 4, cfg: Config{Parked: 16, InstanceCap: 1 << 40}})
	first := w.worker(1, 7)
	first.prepared(first.prepare(0, slotSize, names("full", 4)...))
	waits := 0
	for n := range 4 {
		c := w.workerIn(uint64(2+n), 7, fmt.Sprint("space", n))
		for k := range 4 {
			id := c.prepare(time.Minute, slotSize, fmt.Sprint("wait", n, k))
			if _, answered := c.take(id); !answered {
				waits++
			}
		}
	}
	require.Equal(t, 12, waits)
	other := w.worker(100, 200)
	for k := range 4 {
		other.waits(other.prepare(time.Minute, slotSize, fmt.Sprint("other", k)))
	}
	require.NoError(t, w.e.CheckInvariants())
}

// Thousands of namespaces push others out: those that never held anything go first, then those left longest ago; one
// with an instance never does.
func TestNamespacesThatCameAndWentPushNobodyOut(t *testing.T) {
	w := newWorld(t, setup{slots: spacesMax + 64, quiet: true, cfg: Config{Objects: 2 * spacesMax}})
	comes := func(pid int32, space string, key string) {
		w.now++
		c := w.workerIn(uint64(pid), pid, space)
		if key != "" {
			c.store(slotSize, key)
		}
		require.Equal(t, proto.StatusOK, c.call(proto.OpUnregister, 0, nil, nil).h.Status)
		c.close()
	}
	has := func(space, key string) int {
		c := w.workerIn(99, 99, space)
		defer c.close()
		return c.hits(key)
	}
	stays := w.workerIn(1, 1, "stays")
	stays.store(slotSize, "s")
	comes(2, "older", "o")
	comes(3, "newer", "n")
	for n := range 2*spacesMax + 10 {
		comes(4, fmt.Sprint("nothing ", n), "")
	}
	require.Len(t, w.e.spaces, spacesMax)
	require.Equal(t, 1, has("older", "o"))
	require.Equal(t, 1, has("newer", "n"))
	comes(5, "older", "") // used once more, and so left later than the other
	for n := range spacesMax - 3 + 1 {
		comes(6, fmt.Sprint("something ", n), "x")
	}
	require.Equal(t, 1, has("older", "o"))
	require.Equal(t, 0, has("newer", "n"))
	require.Equal(t, 1, stays.hits("s"))
	require.NoError(t, w.e.CheckInvariants())
}

// A prefix that many requests hold at a time uses up the share of the instance that asks for all of them: what is there is
// answered as if it were not. It counts for no more than it takes, however many leases are on it; what there is no room for
// is refused as before.
func TestWhatManyLeasesHoldIsTakenOnce(t *testing.T) {
	for name, instances := range map[string]int{"by one instance": 1, "by several of a process": 4} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{slots: 16})
			var mine []*client
			for n := range instances {
				mine = append(mine, w.worker(uint64(n+1), 7))
			}
			prefix := names("p", 6)
			mine[0].store(slotSize, prefix...)
			var leases []uint64
			for n := range 40 {
				out := mine[n%instances].found(mine[n%instances].lookup(proto.LookupHold|proto.LookupSlots, 0, prefix...))
				require.EqualValues(t, len(prefix), out.Hits, "lease %d", n)
				leases = append(leases, out.Lease)
			}
			require.EqualValues(t, 6*slotSize, w.e.table.Usage().Held)

			other := w.worker(100, 200)
			much := other.prepared(other.prepare(0, slotSize, names("much", 7)...))
			require.Equal(t, proto.StatusReserved, much.Results[6].Status)
			again := mine[0].found(mine[0].lookup(proto.LookupHold|proto.LookupSlots, 0, prefix...))
			require.EqualValues(t, len(prefix), again.Hits, "nothing more is taken, though others have most of the rest")
			require.Equal(t, proto.StatusOK, mine[0].release(again.Lease))
			require.Equal(t, proto.StatusOK, other.abort(much.Transfer))
			got, st := mine[0].retrieve(proto.PrepareRetrieve{Lease: leases[0], Count: 6})
			require.Equal(t, proto.StatusOK, st)

			out := mine[0].prepared(mine[0].prepare(0, slotSize, names("own", 3)...))
			require.Equal(t, []proto.Status{proto.StatusReserved, proto.StatusReserved, proto.StatusBusy},
				[]proto.Status{out.Results[0].Status, out.Results[1].Status, out.Results[2].Status}, "half of the pool is what it may have")
			require.Equal(t, proto.StatusOK, mine[0].abort(out.Transfer))
			require.Equal(t, proto.StatusOK, mine[0].endRetrieve(got.Transfer))
			for n, lease := range leases {
				require.Equal(t, proto.StatusOK, mine[n%instances].release(lease))
			}
			w.baseline()
		})
	}
}

// What the disk reads is nobody's: it comes free by itself, and counts neither for what an instance has nor for what is taken.
func TestWhatIsOnItsWayToDiskIsHeldByNobody(t *testing.T) {
	w := diskWorld(t, 64, Config{InstanceCap: 16 * slotSize})
	a, other := w.worker(1, 7), w.worker(100, 200)
	prefix := names("p", 6)
	a.store(slotSize, prefix...)
	w.settle()
	for range 4 {
		require.EqualValues(t, 6, a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, prefix...)).Hits)
	}
	other.store(slotSize, names("new", 16)...)
	other.store(slotSize, names("newer", 16)...)
	require.Equal(t, 32, w.e.spilling)
	require.EqualValues(t, 6*slotSize, w.e.table.Usage().Held)
	require.EqualValues(t, 6, a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, prefix...)).Hits, "it has what it had")

	for n := range 2 { // more than the cap for one process, and no three quarters of the pool
		c := w.worker(uint64(n+2), 7)
		out := c.prepared(c.prepare(0, slotSize, names(fmt.Sprint("own", n, "-"), 8)...))
		require.Equal(t, proto.StatusReserved, out.Results[7].Status)
	}
	w.dies(7)
	w.settle()
	w.baseline()
}

// Leases of a connection that was lost are quarantined, and hold what they held once.
func TestLeasesOfALostConnectionAreTakenOnce(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 7)
	prefix := names("p", 6)
	a.store(slotSize, prefix...)
	for range 2 {
		require.EqualValues(t, 6, a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, prefix...)).Hits)
	}
	a.close()
	require.EqualValues(t, 12*slotSize, w.e.insts[0].quarantined)
	a = w.worker(1, 7)
	require.EqualValues(t, 12*slotSize, w.e.insts[0].quarantined, "it is the same instance")
	require.EqualValues(t, 6, a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, prefix...)).Hits)
	w.dies(7)
	w.baseline()
}

// A writer whose stores time out over and over has ever more of the pool: what is quarantined counts for what one may have, and for what
// all instances of a process may, until it is given back.
func TestWhatIsQuarantinedCountsForWhatOneMayHave(t *testing.T) {
	w := newWorld(t, setup{slots: 64, cfg: Config{TransferTime: time.Second, InstanceCap: 16 * slotSize}})
	var lost []uint64
	for n := range 3 {
		c := w.worker(uint64(n+1), 7)
		out := c.prepared(c.prepare(0, slotSize, names(fmt.Sprint("k", n, "-"), 16)...))
		lost = append(lost, out.Transfer)
		w.advance(time.Minute)
		require.Equal(t, proto.StatusBusy, c.prepared(c.prepare(0, slotSize, "more")).Results[0].Status, "it has all that one may")
	}
	require.EqualValues(t, 48*slotSize, w.e.table.Usage().Quarantined)
	fourth, other := w.worker(4, 7), w.worker(100, 200)
	require.Equal(t, proto.StatusBusy, fourth.prepared(fourth.prepare(0, slotSize, "more")).Results[0].Status, "and its process, too")
	kept := other.prepared(other.prepare(0, slotSize, names("o", 16)...))
	require.Equal(t, proto.StatusReserved, kept.Results[15].Status, "the last quarter is for others")
	require.Equal(t, proto.StatusOK, other.abort(kept.Transfer))
	first := w.worker(1, 7)
	require.Equal(t, proto.StatusOK, first.abort(lost[0]))
	require.Equal(t, proto.StatusReserved, first.prepared(first.prepare(0, slotSize, "more")).Results[0].Status)
	w.dies(7)
	w.baseline()
}
