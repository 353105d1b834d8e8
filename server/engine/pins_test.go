package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

const (
	soft = false
	hard = true
)

func (c *client) pin(hard bool, ttl time.Duration, keys ...string) proto.PinReply {
	c.w.t.Helper()
	r := c.call(proto.OpPin, 0, proto.AppendPin(nil, &proto.Pin{Hard: hard, TTLMs: uint32(ttl.Milliseconds()), Keys: testKeys(keys...)}), nil)
	require.Equal(c.w.t, proto.StatusOK, r.h.Status)
	var out proto.PinReply
	require.NoError(c.w.t, proto.ParsePinReply(r.body, &out))
	require.Len(c.w.t, out.Results, len(keys))
	n := uint32(0)
	for _, st := range out.Results {
		if st == proto.StatusOK {
			n++
		}
	}
	require.Equal(c.w.t, n, out.Pinned)
	return out
}

// pinned pins one key for a minute and returns its result.
func (c *client) pinned(hard bool, key string) proto.Status {
	c.w.t.Helper()
	return c.pin(hard, time.Minute, key).Results[0]
}

func (c *client) unpin(keys ...string) int {
	c.w.t.Helper()
	r := c.call(proto.OpUnpin, 0, proto.AppendUnpin(nil, &proto.Unpin{Keys: testKeys(keys...)}), nil)
	require.Equal(c.w.t, proto.StatusOK, r.h.Status)
	var out proto.UnpinReply
	require.NoError(c.w.t, proto.ParseUnpinReply(r.body, &out))
	return int(out.Unpinned)
}

// gauge is how many bytes are pinned softly and hard.
func (w *world) gauge() [2]int64 {
	u := w.e.table.Usage()
	return [2]int64{u.PinnedSoft, u.PinnedHard}
}

// resident says whether a key of the namespace "space" is in memory. It is no use of it.
func (w *world) resident(key string) bool {
	l := proto.Layout{Name: "bf16", Dims: []uint32{2, 4}, Size: layoutMax}
	_, _, ok := w.e.table.Find(&table.Key{
		Namespace: w.e.spaces[w.e.findSpace("space")].key, Layout: layoutID(&l), Hash: testKeys(key)[0],
	})
	return ok
}

// fillUp stores until the pool has been filled once over with other keys.
func (w *world) fillUp(c *client, prefix string) {
	w.t.Helper()
	for _, k := range names(prefix, len(w.pool)/slotSize) {
		out := c.prepared(c.prepare(0, slotSize, k))
		if out.Results[0].Status != proto.StatusReserved {
			require.Equal(w.t, proto.StatusNoSpace, out.Results[0].Status)
			continue
		}
		c.fill(out, k)
		require.Equal(w.t, proto.StatusOK, c.commit(out.Transfer))
	}
}

// TestAnExpiredPinIsNotRevivedByReads: an expired pin comes back to life because somebody
// read the object. Here it is read a hundred times, and then goes like any other.
func TestAnExpiredPinIsNotRevivedByReads(t *testing.T) {
	for _, policy := range []table.Policy{table.PolicyLRU, table.PolicyS3FIFO, table.PolicyAdaptive} {
		for _, kind := range []bool{soft, hard} {
			w := newWorld(t, setup{slots: 32, cfg: Config{Policy: policy}})
			c := w.worker(1, 100)
			c.store(slotSize, "p", "q")
			require.EqualValues(t, 2, c.pin(kind, 2*time.Second, "p", "q").Pinned)
			w.fillUp(c, "a")
			require.Equal(t, 2, c.hits("p", "q"))
			w.advance(3 * time.Second)
			require.Equal(t, [2]int64{}, w.gauge(), "the time is over and nothing was read")
			w.quiet = true
			for range 100 {
				out, st := c.retrieve(proto.PrepareRetrieve{Keys: testKeys("p")})
				require.Equal(t, proto.StatusOK, st)
				require.Equal(t, proto.StatusOK, c.endRetrieve(out.Transfer))
				c.call(proto.OpTouch, 0, proto.AppendTouch(nil, &proto.Touch{Keys: testKeys("p")}), nil)
				require.Equal(t, [2]int64{}, w.gauge())
			}
			c.store(slotSize, "one more")
			require.False(t, w.resident("q"), "%v: what has expired and was not used since goes first", policy)
			require.True(t, w.resident("p"))
			fills := 0
			for ; w.resident("p"); fills++ {
				require.Less(t, fills, 400, "%v: it does not go", policy)
				for i := range 32 { // each is in more demand now than p
					k := names(fmt.Sprint("fill ", fills, " "), 32)[i]
					c.store(slotSize, k)
					for range 3 {
						c.call(proto.OpTouch, 0, proto.AppendTouch(nil, &proto.Touch{Keys: testKeys(k)}), nil)
					}
				}
			}
			t.Logf("%v: gone when the pool had been filled %d times", policy, fills)
			w.quiet = false
			w.check()
			require.EqualValues(t, 2, w.e.counters.PinsExpired)
		}
	}
}

// TestPinsAtTheEdgeOfTheBudget: exactly as many bytes as may be are pinned, whole units are
// counted, and what a pin has already is not counted twice.
func TestPinsAtTheEdgeOfTheBudget(t *testing.T) {
	w := newWorld(t, setup{slots: 32, cfg: Config{PinBudget: 4*slotSize + 1}})
	c := w.worker(1, 100)
	keys := names("k", 6)
	c.store(slotSize-1, keys[:4]...)
	c.store(slotSize, keys[4:]...)
	c.store(5*slotSize, "large")
	c.store(0, "empty")
	out := c.pin(soft, time.Minute, append(keys, "large", "empty", "none")...)
	ok, full := proto.StatusOK, proto.StatusNoSpace
	require.Equal(t, []proto.Status{ok, ok, ok, ok, full, full, proto.StatusTooLarge, ok, proto.StatusMiss}, out.Results)
	require.Equal(t, [2]int64{4 * slotSize, 0}, w.gauge())
	require.EqualValues(t, 4, c.pin(hard, time.Minute, keys[:4]...).Pinned, "they are within the budget already")
	require.Equal(t, [2]int64{0, 4 * slotSize}, w.gauge())
	require.Equal(t, 1, c.unpin(keys[0]))
	require.Equal(t, ok, c.pinned(soft, keys[4]))
	require.Equal(t, full, c.pinned(soft, keys[0]))
	require.EqualValues(t, 5, w.e.counters.PinsRefused)

	// What takes no bytes takes a place in the table.
	w = newWorld(t, setup{slots: 32, cfg: Config{Objects: 40}})
	c = w.worker(1, 100)
	c.store(0, names("e", 12)...)
	out = c.pin(hard, time.Minute, names("e", 12)...)
	require.EqualValues(t, 10, out.Pinned)
	require.Equal(t, full, out.Results[10])

	w = newWorld(t, setup{slots: 32, cfg: Config{PinBudget: -1}})
	c = w.worker(1, 100)
	c.store(1, "k")
	require.Equal(t, proto.StatusUnsupported, c.call(proto.OpPin, 0, proto.AppendPin(nil, &proto.Pin{Keys: testKeys("k")}), nil).h.Status)
	require.Zero(t, c.unpin("k"))
}

// TestTheTimeOfAPin: the default one, the greatest, and those that are pinned twice.
func TestTheTimeOfAPin(t *testing.T) {
	w := newWorld(t, setup{slots: 32, cfg: Config{PinTime: time.Minute}})
	c := w.worker(1, 100)
	c.store(slotSize, "a", "b")
	require.EqualValues(t, 60_000, c.pin(soft, 0, "a").TTLMs)
	require.EqualValues(t, 60_000, c.pin(soft, time.Hour, "a").TTLMs)
	require.EqualValues(t, 5, c.pin(soft, 5*time.Millisecond, "a").TTLMs, "what this one adds")
	w.advance(time.Minute - 1)
	require.Equal(t, [2]int64{slotSize, 0}, w.gauge(), "a pin is not shortened")
	w.advance(1)
	require.Equal(t, [2]int64{}, w.gauge())

	c.pin(hard, time.Second, "a")
	c.pin(soft, 10*time.Second, "a")
	require.Equal(t, [2]int64{0, slotSize}, w.gauge(), "a pin is not weakened")
	w.advance(9 * time.Second)
	require.Equal(t, [2]int64{0, slotSize}, w.gauge())
	require.Equal(t, 1, c.unpin("a"))
	require.Equal(t, 0, c.unpin("a"), "once is enough")
	require.Equal(t, 0, c.unpin("never stored", "b"))
	w.advance(time.Second)
	require.EqualValues(t, 1, w.e.counters.PinsExpired, "no deadline of what was unpinned is left")
	c.pin(soft, 10*time.Second, "a")
	require.Equal(t, [2]int64{slotSize, 0}, w.gauge(), "the former pin is over for good")

	w = newWorld(t, setup{slots: 4})
	c = w.worker(1, 100)
	c.store(1, "a")
	require.EqualValues(t, pinTimeDefault.Milliseconds(), c.pin(soft, 0, "a").TTLMs)
	require.EqualValues(t, time.Hour.Milliseconds(), c.pin(soft, PinTimeMax, "a").TTLMs)
}

// TestAPinThatEndsInTheTurnOfAnEviction keeps nothing from it: time is that of the event.
func TestAPinThatEndsInTheTurnOfAnEviction(t *testing.T) {
	w := newWorld(t, setup{slots: 4, cfg: Config{PinBudget: 4 * slotSize, InstanceCap: 1 << 30}})
	c := w.worker(1, 100)
	c.store(slotSize, names("k", 4)...)
	c.pin(hard, time.Second, names("k", 4)...)
	at, ok := w.e.NextTick()
	require.True(t, ok)
	require.Less(t, at, time.Second)
	require.Greater(t, at, time.Second-time.Microsecond)
	w.now = at - 1
	require.Equal(t, proto.StatusNoSpace, c.prepared(c.prepare(0, slotSize, "x")).Results[0].Status)
	w.now = at // no tick comes before the frame
	require.Equal(t, proto.StatusReserved, c.prepared(c.prepare(0, slotSize, "x")).Results[0].Status)
	require.Equal(t, 3, c.hits("k0", "k1", "k2"), "the tail goes first")
}

// TestWhoMayPinAndUnpin: instances of the namespace that may write, and nobody else.
func TestWhoMayPinAndUnpin(t *testing.T) {
	w := newWorld(t, setup{slots: 32})
	a, b, stranger, reader := w.worker(1, 100), w.worker(2, 200), w.workerIn(3, 300, "elsewhere"), w.connect(400)
	require.Equal(t, proto.StatusOK, reader.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: 4, Want: proto.TransportShared, ReadOnly: true, Namespace: "space",
		Layouts: []proto.Layout{{Name: "bf16", Dims: []uint32{2, 4}, Size: layoutMax}},
	}), nil).h.Status)
	a.store(slotSize, "k")
	require.Equal(t, proto.StatusMiss, stranger.pinned(hard, "k"))
	require.Equal(t, proto.StatusOK, a.pinned(hard, "k"))
	require.Zero(t, stranger.unpin("k"))
	require.Equal(t, proto.StatusDenied, reader.call(proto.OpPin, 0, proto.AppendPin(nil, &proto.Pin{Keys: testKeys("k")}), nil).h.Status)
	require.Equal(t, proto.StatusDenied, reader.call(proto.OpUnpin, 0, proto.AppendUnpin(nil, &proto.Unpin{Keys: testKeys("k")}), nil).h.Status)
	other := b.call(proto.OpUnpin, 0, proto.AppendUnpin(nil, &proto.Unpin{Layout: 1, Keys: testKeys("k")}), nil)
	require.Equal(t, proto.StatusOK, other.h.Status, "of another layout it is another object")
	require.Equal(t, proto.StatusBadRequest, b.call(proto.OpPin, 0, proto.AppendPin(nil, &proto.Pin{Layout: 2}), nil).h.Status)
	require.Equal(t, [2]int64{0, slotSize}, w.gauge())
	a.close()
	w.dies(100)
	require.Equal(t, [2]int64{0, slotSize}, w.gauge(), "a pin outlives who asked for it")
	require.Equal(t, 1, b.unpin("k"))
	w.baseline()
	w.e.BeginStop(w.now)
	require.Equal(t, [2]int64{}, w.gauge())
}

// TestPinsOfWhatIsNotReady: nobody can pin what is staged, quarantined, loading, doomed, or
// only on disk; and a delete or clear ends pins at once.
func TestPinsOfWhatIsNotReady(t *testing.T) {
	w := newWorld(t, setup{slots: 16, diskSize: 1 << 20, segment: 64 << 10})
	a, b := w.worker(1, 100), w.worker(2, 200)
	out := a.prepared(a.prepare(0, slotSize, "staged"))
	require.Equal(t, proto.StatusBusy, b.pinned(hard, "staged"))
	w.advance(time.Hour)
	require.EqualValues(t, slotSize, w.e.table.Usage().Quarantined)
	require.Equal(t, proto.StatusMiss, b.pinned(hard, "staged"))
	require.Equal(t, proto.StatusOK, a.abort(out.Transfer))

	a.store(slotSize, "k")
	w.settle()
	w.fillUp(a, "fill")
	w.settle()
	w.fillUp(a, "more")
	w.settle()
	require.Equal(t, proto.StatusMiss, b.pinned(hard, "k"), "it is on disk only")
	id := b.lookup(proto.LookupHold|proto.LookupLoad, time.Minute, "k")
	require.Equal(t, proto.StatusBusy, b.pinned(hard, "k"), "it is being loaded")
	w.settle()
	lease := b.found(id).Lease
	require.Equal(t, proto.StatusOK, b.pinned(hard, "k"))
	require.Equal(t, proto.StatusOK, a.call(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{}), nil).h.Status)
	a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("k")}), nil)
	require.Equal(t, [2]int64{}, w.gauge(), "it is held and doomed")
	require.Equal(t, proto.StatusMiss, b.pinned(hard, "k"))
	require.Zero(t, b.unpin("k"))
	require.Equal(t, proto.StatusOK, b.release(lease))
	w.settle()

	a.store(slotSize, "c")
	b.pin(hard, time.Minute, "c")
	a.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil)
	w.settle()
	require.Equal(t, [2]int64{}, w.gauge())
	a.store(slotSize, "c")
	w.settle()
	w.advance(2 * time.Minute) // the deadline that was left behind ends nothing
	require.Zero(t, w.e.counters.PinsExpired)
	w.baseline()
}

// TestAPinWhileTheObjectIsSpilled: the disk gets what is pinned like anything else, and the
// end of the spill changes nothing for the pin, nor the end of the pin for the spill.
func TestAPinWhileTheObjectIsSpilled(t *testing.T) {
	w := newWorld(t, setup{slots: 16, diskSize: 1 << 20, segment: 64 << 10})
	c := w.worker(1, 100)
	c.store(slotSize, "a", "b", "d")
	require.NotEmpty(t, w.ios)
	require.EqualValues(t, 3, c.pin(hard, time.Second, "a", "b", "d").Pinned)
	w.advance(2 * time.Second) // of one the pin ends before the spill
	require.Equal(t, [2]int64{}, w.gauge())
	require.Equal(t, proto.StatusOK, c.pinned(soft, "b"))
	c.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("d")}), nil)
	w.settle()
	u := w.e.table.Usage()
	require.Equal(t, [2]int64{slotSize, 0}, w.gauge())
	require.EqualValues(t, slotSize, u.Yielding)
	require.Zero(t, u.Dirty)
	w.baseline()

	// They are on disk: a restart finds them, and no pin.
	w = newWorld(t, setup{slots: 16, diskSize: 1 << 20, segment: 64 << 10, disk: w.disk})
	c = w.worker(1, 100)
	require.Equal(t, 2, c.hits("a", "b"))
	require.Zero(t, c.unpin("a", "b"))
	require.Equal(t, [2]int64{}, w.gauge())
}

// TestDirtyGoesBeforeSoftPinsForWhoWaits: a request that waits has the disk take what is
// dirty and leaves pinned objects alone; one that does not wait takes them.
func TestDirtyGoesBeforeSoftPinsForWhoWaits(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteBack} {
		w := newWorld(t, setup{slots: 8, diskSize: 1 << 20, segment: 64 << 10, cfg: Config{Write: mode, PinBudget: 4 * slotSize, InstanceCap: 1 << 30}})
		c := w.worker(1, 100)
		c.store(slotSize, names("p", 4)...)
		w.e.short = true // the disk gets them
		w.settle()
		require.EqualValues(t, 4, c.pin(soft, time.Minute, names("p", 4)...).Pinned)
		c.store(slotSize, names("d", 4)...)
		require.EqualValues(t, 4*slotSize, w.e.table.Usage().Dirty)
		id := c.prepare(time.Second, slotSize, "x", "y")
		_, answered := c.take(id)
		require.False(t, answered, "%v: it waits for the spill", mode)
		w.settle()
		out := c.prepared(id)
		require.Equal(t, proto.StatusReserved, out.Results[1].Status)
		require.Equal(t, [2]int64{4 * slotSize, 0}, w.gauge())
		require.Equal(t, proto.StatusOK, c.abort(out.Transfer))

		c.store(slotSize, "e", "f") // dirty again
		out = c.prepared(c.prepare(0, slotSize, "g", "h", "i"))
		for i, r := range out.Results {
			require.Equal(t, proto.StatusReserved, r.Status, i)
		}
		require.Equal(t, [2]int64{3 * slotSize, 0}, w.gauge(), "two were clean, the third was pinned")
		require.True(t, w.resident("p2"))
		require.False(t, w.resident("p3"), "of a prefix the tail goes first")
		w.settle()
		require.Zero(t, w.e.table.Usage().Dirty, "%v: memory was short, and the disk gets what is dirty", mode)
	}
}

// TestNothingEvictableIsSaidAtOnce: pinned data is evicted, or nothing is evictable and all
// comes to a stand. Held, pinned hard and staged memory fill the pool: the answer is no_space
// at once, even for who would wait, without a look at any object or another turn; one release
// of any kind, and it succeeds.
func TestNothingEvictableIsSaidAtOnce(t *testing.T) {
	const slots = 64
	for name, free := range map[string]func(w *world, c *client, lease, transfer uint64){
		"release": func(_ *world, c *client, lease, _ uint64) { c.release(lease) },
		"abort":   func(_ *world, c *client, _, transfer uint64) { c.abort(transfer) },
		"unpin":   func(_ *world, c *client, _, _ uint64) { c.unpin("p3") },
		"expiry":  func(w *world, _ *client, _, _ uint64) { w.advance(10 * time.Minute) },
		"delete": func(_ *world, c *client, _, _ uint64) {
			c.call(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("p3")}), nil)
		},
	} {
		w := newWorld(t, setup{slots: slots, cfg: Config{PinBudget: slots * slotSize, InstanceCap: 1 << 30}})
		w.e.Step(&Event{Kind: EventPopulated})
		c, b := w.worker(1, 100), w.worker(2, 200)
		c.store(slotSize, names("p", 30)...)
		require.EqualValues(t, 30, c.pin(hard, 0, names("p", 30)...).Pinned)
		c.store(slotSize, names("h", 30)...)
		lease := c.found(c.lookup(proto.LookupHold|proto.LookupSlots, 0, names("h", 30)...)).Lease
		transfer := c.prepared(c.prepare(0, slotSize, names("s", 4)...)).Transfer
		evictions, turns := w.e.table.Usage().Evictions, 0
		w.quiet = true
		for range 1000 {
			out := b.prepared(b.prepare(time.Minute, slotSize, "x"))
			require.Equal(t, proto.StatusNoSpace, out.Results[0].Status)
			if w.tickDue() {
				turns++
			}
		}
		w.quiet = false
		require.Zero(t, turns, "the loop is to sleep")
		require.Equal(t, evictions, w.e.table.Usage().Evictions)
		require.Zero(t, w.e.counters.Parked)
		free(w, c, lease, transfer)
		out := b.prepared(b.prepare(0, slotSize, "x"))
		require.Equal(t, proto.StatusReserved, out.Results[0].Status, name)
	}
}

// TestARequestThatWaitsIsServedByTheEndOfAPin: what can come by work under way is waited for,
// and a pin that ends meanwhile serves it at once.
func TestARequestThatWaitsIsServedByTheEndOfAPin(t *testing.T) {
	for _, expires := range []bool{false, true} {
		w := newWorld(t, setup{slots: 8, diskSize: 1 << 20, segment: 64 << 10, cfg: Config{PinBudget: 8 * slotSize, InstanceCap: 1 << 30}})
		c, b := w.worker(1, 100), w.worker(2, 200)
		c.store(slotSize, names("p", 6)...)
		w.settle()
		require.EqualValues(t, 6, c.pin(hard, time.Second, names("p", 6)...).Pinned)
		c.store(slotSize, "d", "e") // their spills are what it waits for
		id := b.prepare(time.Minute, slotSize, "x")
		_, answered := b.take(id)
		require.False(t, answered)
		if expires {
			w.advance(time.Second)
		} else {
			require.Equal(t, 1, c.unpin("p5"))
		}
		require.Equal(t, proto.StatusReserved, b.prepared(id).Results[0].Status)
		require.NotEmpty(t, w.ios, "no spill has ended")
		w.settle()
	}
}

// TestARequestDoesNotWaitForSpillsThatFreeNothing: the objects under way to the disk are held
// or pinned, and stay when they are there.
func TestARequestDoesNotWaitForSpillsThatFreeNothing(t *testing.T) {
	w := newWorld(t, setup{slots: 8, diskSize: 1 << 20, segment: 64 << 10, cfg: Config{PinBudget: 8 * slotSize, InstanceCap: 1 << 30}})
	c, b := w.worker(1, 100), w.worker(2, 200)
	c.store(slotSize, names("p", 4)...)
	c.store(slotSize, names("h", 4)...)
	require.EqualValues(t, 4, c.pin(hard, time.Minute, names("p", 4)...).Pinned)
	lease := c.found(c.lookup(proto.LookupHold, 0, names("h", 4)...)).Lease
	require.NotEmpty(t, w.ios)
	require.Equal(t, proto.StatusNoSpace, b.prepared(b.prepare(time.Minute, slotSize, "x")).Results[0].Status)
	require.Equal(t, proto.StatusOK, c.release(lease))
	id := b.prepare(time.Minute, slotSize, "x")
	w.settle()
	require.Equal(t, proto.StatusReserved, b.prepared(id).Results[0].Status)
}

// TestAFrameFullOfPins: as many as a frame holds, which then end together in bounded steps.
func TestAFrameFullOfPins(t *testing.T) {
	w := newWorld(t, setup{slots: 4 * proto.MaxKeys, quiet: true, cfg: Config{Entries: 2 * proto.MaxKeys, InstanceCap: 1 << 40, Objects: 1 << 15}})
	c := w.worker(1, 100)
	keys := names("k", proto.MaxKeys)
	c.store(slotSize, keys...)
	require.EqualValues(t, proto.MaxKeys, c.pin(hard, time.Second, keys...).Pinned)
	w.now = time.Second
	w.e.Step(&Event{Kind: EventTick, Now: w.now})
	require.EqualValues(t, proto.MaxKeys-lapseStep, w.e.table.Usage().Pinned, "a step has a bound")
	require.True(t, w.tickDue(), "and says that there is more")
	w.e.Flush(w.now)
	require.Zero(t, w.e.table.Usage().Pinned)
	require.False(t, w.tickDue())
	require.EqualValues(t, proto.MaxKeys, c.pin(soft, time.Second, keys...).Pinned)
	require.Equal(t, proto.MaxKeys, c.unpin(keys...))
	w.quiet = false
	w.check()
}
