package engine

import (
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// What is pinned softly goes when nothing else is left, and what is dirty when the disk has it. A request for which both
// together would do waits for the disk; it is not told that there is no space.
func TestARequestWaitsForSpillsThatTogetherWithSoftPinsWouldDo(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteBack} {
		w := newWorld(t, setup{slots: 4, diskSize: 1 << 20, segment: 64 << 10, cfg: Config{Write: mode, PinBudget: 4 * slotSize, InstanceCap: 1 << 30}})
		a, b := w.worker(1, 100), w.worker(2, 200)
		a.store(slotSize, "p", "q")
		w.e.short = true
		w.flush()
		w.settle()
		require.EqualValues(t, 2, a.pin(soft, time.Minute, "p", "q").Pinned)
		a.store(slotSize, "d", "e")
		id := a.prepare(time.Minute, 3*slotSize, "large")
		a.waits(id)
		small := b.prepare(time.Minute, slotSize, "small") // and others do not take it away bit by bit
		b.waits(small)
		w.settle()
		out := a.prepared(id)
		require.Equal(t, proto.StatusReserved, out.Results[0].Status)
		require.Equal(t, proto.StatusReserved, b.prepared(small).Results[0].Status)
		require.Equal(t, [2]int64{}, w.gauge())
	}
}

// Others do not take away, bit by bit, what a request waits for that needs softly pinned objects too.
func TestOthersLineUpBehindWhoNeedsSoftPins(t *testing.T) {
	w := newWorld(t, setup{slots: 8, diskSize: 1 << 20, segment: 64 << 10, cfg: Config{PinBudget: 4 * slotSize, InstanceCap: 1 << 30}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("p", 4)...)
	w.settle()
	require.EqualValues(t, 4, a.pin(soft, time.Minute, names("p", 4)...).Pinned)
	a.store(slotSize, "d")
	hole := a.prepared(a.prepare(0, slotSize, "hole"))
	rest := a.prepared(a.prepare(0, slotSize, "rest", "rest too"))
	require.Equal(t, proto.StatusOK, a.abort(hole.Transfer))
	large := a.prepare(time.Minute, 6*slotSize, "large") // the hole, the pins, and what the disk is to have
	a.waits(large)
	small := b.prepare(time.Minute, slotSize, "small")
	b.waits(small)
	w.settle()
	require.Equal(t, proto.StatusReserved, a.prepared(large).Results[0].Status)
	require.Equal(t, proto.StatusNoSpace, b.prepared(small).Results[0].Status)
	a.abort(rest.Transfer)
}

// The same where all that could go is dirty and pinned softly, and where that is held beside.
func TestARequestWaitsForSpillsOfSoftPins(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteBack} {
		w := newWorld(t, setup{slots: 4, diskSize: 1 << 20, segment: 64 << 10, cfg: Config{Write: mode, PinBudget: 4 * slotSize, InstanceCap: 1 << 30}})
		a, b := w.worker(1, 100), w.worker(2, 200)
		keys := names("p", 4)
		a.store(slotSize, keys...)
		require.EqualValues(t, 4, a.pin(soft, time.Minute, keys...).Pinned)
		lease := a.found(a.lookup(proto.LookupHold, 0, keys...)).Lease
		require.Equal(t, proto.StatusNoSpace, b.prepared(b.prepare(time.Minute, slotSize, "x")).Results[0].Status, "all is held")
		a.release(lease)
		id := b.prepare(time.Minute, slotSize, "x")
		if mode == WriteThrough {
			b.waits(id)
		}
		w.settle()
		require.Equal(t, proto.StatusReserved, b.prepared(id).Results[0].Status)
		require.Equal(t, [2]int64{3 * slotSize, 0}, w.gauge())
		require.True(t, w.onDiskNow(a, "p3"), "it went when the disk had it")
		require.False(t, w.resident("p3"))
	}
}

// Stores that may wait leave memory to loads as long as something is being written that they could wait for. A put does not
// wait, and with write-back nothing would be written for it: it would be refused for ever.
func TestAPutIsServedThoughMemoryIsSpared(t *testing.T) {
	w := diskWorld(t, 64, Config{InstanceCap: math.MaxInt64, Write: WriteBack})
	a, b := w.worker(1, 100), w.worker(2, 200)
	w.toDisk(a, slotSize, "old")
	require.True(t, begins(w, b, "old"))
	w.settle()
	a.store(slotSize, names("dirty", 12)...)
	require.NotZero(t, a.prepared(a.prepare(0, slotSize, names("open", 48)...)).Transfer)
	require.Equal(t, proto.StatusNoSpace, b.answer(b.put("x", valueOf("x", slotSize))), "three are spared")
	w.settle()
	id := b.put("x", valueOf("x", slotSize))
	w.settle()
	require.Equal(t, proto.StatusOK, b.answer(id))
}

// sameTurn sends a request, and the turn goes on.
func (c *client) sameTurn(op proto.Op, body []byte) uint64 {
	c.lastID++
	c.w.e.Step(&Event{Kind: EventFrame, Now: c.w.now, Conn: c.id, Body: body, Header: proto.Header{
		Version: proto.Version, Op: op, Body: uint32(len(body)), Size: uint32(proto.HeaderSize + len(body)), Request: c.lastID, Boot: testBoot,
	}})
	return c.lastID
}

// What was pinned hard in a namespace that was cleared comes free when the sweep comes to it, which who waits waits for.
func TestARequestWaitsForTheSweepOfAClear(t *testing.T) {
	w := newWorld(t, setup{slots: 4, cfg: Config{PinBudget: 4 * slotSize, InstanceCap: 1 << 30}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("p", 4)...)
	require.EqualValues(t, 4, a.pin(hard, time.Minute, names("p", 4)...).Pinned)
	a.sameTurn(proto.OpClear, proto.AppendClear(nil, &proto.Clear{}))
	id := b.sameTurn(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{
		WaitMs: 1000, Sizes: []uint64{4 * slotSize}, Keys: testKeys("x"),
	}))
	b.waits(id)
	w.flush()
	require.Equal(t, proto.StatusReserved, b.prepared(id).Results[0].Status)
	require.False(t, w.tickDue())
}

// An expired pin comes back to life: where more pins end at the same time than an event ends, one whose time is over makes
// another that is put on the object in the same moment as strong as itself, and is ended by an UNPIN.
func TestAPinThatIsOverIsNoneForPinAndUnpin(t *testing.T) {
	const many = 3 * lapseStep
	w := newWorld(t, setup{slots: 2 * many, quiet: true, cfg: Config{Entries: 2 * many, InstanceCap: 1 << 40, Objects: 4 * many, PinBudget: 2 * many * slotSize}})
	c := w.worker(1, 100)
	keys := names("k", many)
	c.store(slotSize, keys...)
	require.EqualValues(t, many, c.pin(hard, time.Second, keys...).Pinned)
	w.now = time.Second
	c.sameTurn(proto.OpPin, proto.AppendPin(nil, &proto.Pin{TTLMs: 1000, Keys: testKeys("k0")}))
	require.Greater(t, w.e.table.Usage().Pinned, many/2, "there are such pins")
	c.sameTurn(proto.OpUnpin, proto.AppendUnpin(nil, &proto.Unpin{Keys: testKeys("k1")}))
	r, there := c.take(c.lastID)
	require.True(t, there)
	var out proto.UnpinReply
	require.NoError(t, proto.ParseUnpinReply(r.body, &out))
	require.Zero(t, out.Unpinned)
	w.flush()
	require.Equal(t, [2]int64{slotSize, 0}, w.gauge(), "the new one is soft")
	require.EqualValues(t, many, w.e.counters.PinsExpired)
	w.now += time.Second
	w.flush()
	require.Equal(t, [2]int64{}, w.gauge())
	w.quiet = false
	w.check()
}

// What was stored can be evicted when the disk has it. The head of a prefix got there first, and went first, so that nothing was
// left of the prefix but what is of no use without it.
func TestTheTailOfAPrefixGoesFirstThoughTheDiskHasAll(t *testing.T) {
	for _, policy := range modelPolicies {
		for _, size := range []uint64{slotSize, 16 * slotSize} {
			for _, refused := range []bool{false, true} { // by the disk: then it is clean all the same
				w := diskWorld(t, 12*int(size)/slotSize, Config{InstanceCap: math.MaxInt64, Policy: policy})
				if refused {
					w.fail = func(io *seglog.IO) int64 {
						if io.Kind == seglog.IOWrite {
							return -int64(syscall.ENOSPC)
						}
						return 0
					}
				}
				a := w.worker(1, 100)
				chains := [][]string{names("p", 4), names("q", 4), names("r", 4)}
				for _, keys := range chains {
					a.store(size, keys...)
					w.settle()
				}
				a.store(size, "s", "u")
				w.settle()
				for _, keys := range chains {
					there := 0
					for there < len(keys) && w.resident(keys[there]) {
						there++
					}
					for _, k := range keys[there:] {
						require.False(t, w.resident(k), "%v: %s is there without what is before it", policy, k)
					}
				}
			}
		}
	}
}

// A store of a prefix that exists in part uses that part, and its new objects do not take the memory of what it has further on.
// Its head was used first, so that it was evicted before its tail.
func TestAStoreUsesWhatExistsTheLastFirst(t *testing.T) {
	for _, policy := range []table.Policy{table.PolicyLRU, table.PolicyAdaptive} { // those by which a use moves an object
		w := newWorld(t, setup{slots: 12, cfg: Config{InstanceCap: math.MaxInt64, Policy: policy}})
		a := w.worker(1, 100)
		a.store(slotSize, names("p", 4)...)
		a.store(slotSize, names("q", 8)...)
		out := a.prepared(a.prepare(0, slotSize, append([]string{"new"}, names("p", 4)...)...))
		require.Equal(t, proto.StatusReserved, out.Results[0].Status)
		for _, r := range out.Results[1:] {
			require.Equal(t, proto.StatusExists, r.Status, policy)
		}
		a.fill(out, "new")
		require.Equal(t, proto.StatusOK, a.commit(out.Transfer))
		for i := range 11 {
			a.store(slotSize, names("s", 11)[i])
			there := 0
			for _, k := range names("p", 4) {
				if !w.resident(k) {
					break
				}
				there++
			}
			for _, k := range names("p", 4)[there:] {
				require.False(t, w.resident(k), "%v: %s is there without what is before it", policy, k)
			}
		}
	}
}

// Many requests that wait are served by what comes free in one go, in several turns: the last of them too.
func TestWaitingRequestsAreServedInSeveralTurns(t *testing.T) {
	const slots = 3 * proto.MaxKeys
	w := newWorld(t, setup{slots: slots, grown: 1, quiet: true, cfg: Config{Entries: 1 << 14, Objects: 1 << 14, InstanceCap: 1 << 40}})
	var ids []uint64
	var clients []*client
	for i := range 3 {
		c := w.worker(uint64(i+1), int32(100+i))
		id := c.prepare(time.Hour, slotSize, names("k"+string(rune('a'+i)), proto.MaxKeys)...)
		c.waits(id)
		clients, ids = append(clients, c), append(ids, id)
	}
	w.step(Event{Kind: EventReady, Res: slots * slotSize})
	for i, c := range clients {
		out := c.prepared(ids[i])
		require.Equal(t, proto.StatusReserved, out.Results[proto.MaxKeys-1].Status)
		if i < 2 {
			clients[i+1].waits(ids[i+1])
			require.True(t, w.tickDue(), "nothing else wakes the loop")
			w.flush()
		}
	}
	w.quiet = false
	w.check()
}

// More pins end at the same time than an event ends: who waits waits for the rest of them, a turn at most.
func TestARequestWaitsForPinsThatAreOver(t *testing.T) {
	const many = 2 * lapseStep
	w := newWorld(t, setup{slots: many, quiet: true, cfg: Config{Entries: 2 * many, InstanceCap: 1 << 40, Objects: 4 * many, PinBudget: many * slotSize}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	keys := names("k", many)
	a.store(slotSize, keys...)
	require.EqualValues(t, many, a.pin(hard, time.Second, keys...).Pinned)
	w.now = time.Second
	in := proto.PrepareStore{WaitMs: 1000, Keys: testKeys(names("new", many)...)}
	for range many {
		in.Sizes = append(in.Sizes, slotSize)
	}
	id := b.sameTurn(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &in))
	b.waits(id)
	w.flush()
	out := b.prepared(id)
	require.Equal(t, proto.StatusReserved, out.Results[many-1].Status)
	w.quiet = false
	w.check()
}

// What was pinned and deleted leaves deadlines that end nothing: who waited for them is answered when the last is gone.
func TestARequestDoesNotWaitForPinsOfWhatWasDeleted(t *testing.T) {
	const many = 2 * lapseStep
	w := newWorld(t, setup{slots: many, quiet: true, cfg: Config{Entries: 8 * many, InstanceCap: 1 << 40, Objects: 8 * many, PinBudget: many * slotSize}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	keys := names("k", many)
	a.store(slotSize, keys...)
	require.EqualValues(t, many, a.pin(hard, time.Second, keys...).Pinned)
	for part := keys; len(part) > 0; part = part[len(part)/2+len(part)%2:] {
		a.remove(part[:len(part)/2+len(part)%2]...)
	}
	require.Zero(t, w.e.table.Usage().Used)
	require.NotZero(t, a.prepared(a.prepare(0, slotSize, names("open", many)...)).Transfer)
	w.now = time.Second
	id := b.sameTurn(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{
		WaitMs: 1000, Sizes: []uint64{slotSize}, Keys: testKeys("new"),
	}))
	b.waits(id)
	w.flush()
	require.Equal(t, proto.StatusNoSpace, b.prepared(id).Results[0].Status)
	w.quiet = false
	w.check()
}

// While the disk hangs nothing comes by what it has its hands on, be it memory or places in the table: nobody waits for it, and
// all is as before when it has let go.
func TestNobodyWaitsForSpillsOfADiskThatHangs(t *testing.T) {
	const big = 16 * slotSize
	for _, size := range []uint64{0, big} { // of nothing there is a lack of places alone
		w := newWorld(t, setup{slots: 8 * 16, diskSize: 16 << 20, segment: 4 << 20, stall: time.Second, cfg: Config{Objects: 8, InstanceCap: math.MaxInt64}})
		a, b := w.worker(1, 100), w.worker(2, 200)
		keys := names("k", 8)
		a.store(big, "old")
		w.settle()
		a.store(big, keys[:4]...)
		b.store(big, keys[4:]...)
		id := b.prepare(time.Minute, size, "new")
		b.waits(id)
		w.hang()
		w.wait(5 * time.Second)
		require.True(t, w.e.stalled())
		require.Positive(t, w.e.spilling, "it reads from some of them")
		for w.e.table.Usage().Evictable > 0 { // the others are clean, and may go
			require.NotZero(t, b.prepared(b.prepare(0, big, fmt.Sprint("open", w.e.transfersOpen))).Transfer)
		}
		b.prepared(id)
		require.Equal(t, proto.StatusNoSpace, b.prepared(b.prepare(time.Minute, size, "newer")).Results[0].Status)
		w.settle()
		require.Equal(t, proto.StatusReserved, b.prepared(b.prepare(0, size, "newest")).Results[0].Status)
	}
}

// Who waits for the disk is served at once by what others give back meanwhile.
func TestWhoWaitsIsServedByWhatOthersGiveBack(t *testing.T) {
	for name, give := range map[string]func(c *client, lease, transfer uint64){
		"release": func(c *client, lease, _ uint64) { c.release(lease) },
		"abort":   func(c *client, _, transfer uint64) { c.abort(transfer) },
		"delete": func(c *client, _, _ uint64) {
			c.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("pinned")}), nil)
		},
	} {
		w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
		a, b := w.worker(1, 100), w.worker(2, 200)
		a.store(slotSize, "held", "pinned")
		w.settle()
		lease := a.found(a.lookup(proto.LookupHold, 0, "held")).Lease
		require.Equal(t, proto.StatusOK, a.pinned(hard, "pinned"))
		open := a.prepared(a.prepare(0, slotSize, "open"))
		a.store(slotSize, names("dirty", 5)...)
		id := b.prepare(time.Minute, slotSize, "new")
		b.waits(id)
		writes := len(w.ios)
		give(a, lease, open.Transfer)
		require.Equal(t, proto.StatusReserved, b.prepared(id).Results[0].Status, name)
		require.GreaterOrEqual(t, len(w.ios), writes, "no spill has ended")
		w.settle()
	}
}

// Each value goes to disk with the checksum that its writer told, though the last goes first.
func TestEachValueKeepsTheChecksumOfItsWriter(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64})
	a := w.worker(1, 100)
	keys := names("k", 5)
	out := a.prepared(a.prepare(0, slotSize, keys...))
	a.fill(out, keys...)
	in := proto.CommitStore{Transfer: out.Transfer}
	for _, k := range keys {
		in.Sums = append(in.Sums, xxh3.Hash(valueOf(k, slotSize)))
	}
	require.Equal(t, proto.StatusOK, a.call(proto.OpCommitStore, 0, proto.AppendCommitStore(nil, &in), nil).h.Status)
	w.settle()
	for _, k := range names("other", 16) {
		a.store(slotSize, k)
		w.settle()
	}
	id := a.lookup(wholeRetrieve, time.Minute, keys...)
	w.settle()
	got := a.found(id)
	require.EqualValues(t, 5, got.FromDisk)
	a.verify(got.Slots, keys...)
}
