package engine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

const wholeRetrieve = proto.LookupHold | proto.LookupLoad | proto.LookupSlots

// lookupAny asks which of the keys are there.
func (c *client) lookupAny(opt proto.LookupOptions, wait time.Duration, keys ...string) uint64 {
	return c.post(proto.OpLookup, 0, proto.AppendLookup(nil, &proto.Lookup{
		Mode: proto.ModeAny, Options: opt, Group: 1, WaitMs: uint32(wait.Milliseconds()), Keys: testKeys(keys...),
	}), nil)
}

// toDisk stores keys, a few at a time, and so many others that the disk alone has them.
func (w *world) toDisk(c *client, size uint64, keys ...string) {
	w.t.Helper()
	quiet := w.quiet
	w.quiet = true
	others := names("in their place ", len(w.pool)/int(table.Footprint(int64(size))))
	for _, some := range [][]string{keys, others} {
		for len(some) > 0 {
			n := min(len(some), 4)
			c.store(size, some[:n]...)
			w.e.short = true // with write-back, too
			w.flush()
			w.settle()
			some = some[n:]
		}
	}
	w.quiet = quiet
	w.check()
	for _, k := range keys {
		require.False(w.t, w.resident(k), k)
		require.True(w.t, w.onDiskNow(c, k), k)
	}
}

// endReads carries out what brings objects from disk, and no write.
func (w *world) endReads() {
	for i := 0; i < len(w.ios); i++ {
		if k := w.ios[i].Kind; k == seglog.IORead || k == seglog.IOSum {
			w.endIO(i)
			i = -1
		}
	}
}

// A lookup of more than its instance may hold reads again and again what it then cannot hold, and evicts for it what it has
// read just before, for as long as it waits.
func TestALookupReadsNoMoreThanItsInstanceMayHold(t *testing.T) {
	for _, opt := range []proto.LookupOptions{wholeRetrieve, proto.LookupLoad} {
		w := diskWorld(t, 64, Config{}) // one may hold 32
		a := w.worker(1, 100)
		keys := names("k", 100)
		w.toDisk(a, slotSize, keys...)
		before, evictions := w.e.counters.Loads, w.e.table.Usage().Evictions
		id := a.lookupAny(opt, time.Minute, keys...)
		w.settle()
		out := a.found(id)
		require.EqualValues(t, 32, out.Hits)
		require.EqualValues(t, 32, w.e.counters.Loads-before)
		require.EqualValues(t, 32, w.e.table.Usage().Evictions-evictions)
		a.verify(out.Slots, keys[:len(out.Slots)]...)
		a.release(out.Lease)
		id = a.lookup(opt, time.Minute, keys[40:]...)
		w.settle()
		require.EqualValues(t, 32, a.found(id).Hits)
		require.EqualValues(t, 64, w.e.counters.Loads-before, "nor the one that cuts a prefix")
	}
}

// Keys behind the last whole group cannot count: they are not read, nor waited for, nor held.
func TestKeysBehindTheLastWholeGroupAreNotRead(t *testing.T) {
	w := diskWorld(t, 64, Config{})
	a := w.worker(1, 100)
	keys := names("k", 11)
	w.toDisk(a, slotSize, keys...)
	for _, n := range []int{3, 8, 11} {
		before := w.e.counters.Loads
		in := proto.Lookup{Group: 4, Options: wholeRetrieve, WaitMs: 1000, Keys: testKeys(keys[:n]...)}
		id := a.post(proto.OpLookup, 0, proto.AppendLookup(nil, &in), nil)
		w.settle()
		out := a.found(id)
		require.EqualValues(t, n/4*4, out.Hits)
		for i, k := range keys {
			require.Equal(t, i < n/4*4, w.resident(k), k)
		}
		require.LessOrEqual(t, w.e.counters.Loads-before, uint64(8))
		a.release(out.Lease)
	}
	in := proto.Lookup{Mode: proto.ModeAny, Group: 4, Options: wholeRetrieve, WaitMs: 1000, Keys: testKeys(keys...)}
	id := a.post(proto.OpLookup, 0, proto.AppendLookup(nil, &in), nil)
	w.settle()
	require.EqualValues(t, 11, a.found(id).Hits, "which ones are there is not asked in groups")
}

// A lookup that waits for memory is tried again when what it had read is in memory: it was on disk when the request came.
func TestHitsCountByWhereTheyWereWhenTheRequestCame(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	keys := names("k", 12)
	w.toDisk(a, slotSize, keys...)
	a.store(slotSize, "there")
	w.settle()
	b.store(slotSize, names("dirty", 8)...)
	id := a.lookup(wholeRetrieve, time.Hour, append([]string{"there"}, keys...)...)
	w.endReads()
	a.waits(id)
	require.True(t, w.resident("k0"), "it was read")
	w.settle()
	out := a.found(id)
	require.EqualValues(t, 13, out.Hits)
	require.EqualValues(t, 1, out.FromMemory)
	require.EqualValues(t, 12, out.FromDisk)
}

// A lookup of small objects needs the memory of whole units. It is not tried for every bit of it that comes free, nor answered
// before its time because it was tried too often.
func TestALookupOfSmallObjectsIsNotTriedForEachThatComesFree(t *testing.T) {
	const slots = 512
	w := diskWorld(t, slots, Config{InstanceCap: math.MaxInt64, Transfers: 1024})
	w.quiet = true
	a, b := w.worker(1, 100), w.worker(2, 200)
	keys := names("k", 400)
	w.toDisk(a, 100, keys...)
	a.store(slotSize, "dirty") // is under way to the disk, and waited for
	var open []uint64
	for _, k := range names("open", slots-1) {
		if out := a.prepared(a.prepare(0, 100, k)); out.Transfer != 0 {
			open = append(open, out.Transfer)
		}
	}
	id := b.lookup(wholeRetrieve, time.Hour, keys...)
	b.waits(id)
	tries := 0
	for _, tr := range open {
		if n := w.e.parkedFirst; n != none {
			tries = w.e.parked[n].tries
		}
		require.Equal(t, proto.StatusOK, a.abort(tr))
	}
	require.Less(t, tries, 5*retryParts)
	w.settle()
	require.EqualValues(t, len(keys), b.found(id).Hits)
	w.check()
}

// However often a lookup is tried that waits, for memory or because it has many keys on disk, it is one use of each.
func TestALookupThatIsTriedAgainUsesEachObjectOnce(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64, Policy: table.PolicyS3FIFO})
	a, b := w.worker(1, 100), w.worker(2, 200)
	keys := names("k", 10)
	w.toDisk(a, slotSize, keys...)
	a.store(slotSize, "there")
	w.settle()
	b.store(slotSize, names("dirty", 12)...)
	id := a.lookup(proto.LookupLoad, time.Hour, append([]string{"there"}, keys...)...)
	w.endReads()
	tries := 0
	for w.e.parkedFirst != none {
		tries = w.e.parked[w.e.parkedFirst].tries
		w.endIO(0)
	}
	require.Greater(t, tries, 1)
	w.settle()
	require.EqualValues(t, 11, a.found(id).Hits)
	for _, k := range names("new", 24) {
		a.store(slotSize, k)
		w.settle()
	}
	require.False(t, w.resident("there"), "it was used once since it was stored: twice, and it stays")
}

// What comes behind the first key that is read from disk is used once by each lookup, like what comes before it: what was used
// more often outlives it.
func TestALookupUsesWhatIsBehindItsLoadsOnce(t *testing.T) {
	const lookups = 4
	for name, ask := range map[string]func(cold string) []string{
		"behind": func(cold string) []string { return []string{cold, "less"} },
		"before": func(cold string) []string { return []string{"less", cold} },
	} {
		t.Run(name, func(t *testing.T) {
			w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64, Policy: table.PolicyAdaptive})
			w.quiet = true
			a := w.worker(1, 100)
			cold := names("cold", lookups)
			w.toDisk(a, slotSize, cold...)
			a.store(slotSize, "more", "less")
			for i, k := range cold {
				for range 1 + i%2 {
					require.Equal(t, 1, a.hits("more"))
				}
				id := a.lookup(proto.LookupLoad, time.Hour, ask(k)...)
				w.settle()
				require.EqualValues(t, 2, a.found(id).Hits)
			}
			for i := 0; w.resident("less"); i++ {
				require.True(t, w.resident("more"))
				require.Less(t, i, 1000)
				a.store(slotSize, fmt.Sprint("new", i))
				w.settle()
			}
			require.True(t, w.resident("more"))
		})
	}
}

// What is being read from disk is on disk: who wants to store it need not.
func TestAStoreOfWhatIsBeingReadFindsThatItExists(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a, b := w.worker(1, 100), w.worker(2, 200)
	w.toDisk(a, slotSize, "k", "l")
	id := a.lookup(wholeRetrieve, time.Minute, "k")
	out := b.prepared(b.prepare(0, slotSize, "k", "l"))
	require.Equal(t, proto.StatusExists, out.Results[1].Status, "it is on disk only")
	require.Equal(t, proto.StatusExists, out.Results[0].Status)
	require.Zero(t, out.Transfer)
	require.Equal(t, proto.StatusExists, b.answer(b.put("k", valueOf("k", slotSize))))
	w.settle()
	require.EqualValues(t, 1, a.found(id).Hits)
}

// What a request evicts for its own keys may come again further on in it, as itself or twice.
func TestARequestFindsWhatItEvictedItself(t *testing.T) {
	w := diskWorld(t, 4, Config{InstanceCap: math.MaxInt64, Policy: table.PolicyFIFO}) // by which a use moves nothing
	a, b := w.worker(1, 100), w.worker(2, 200)
	w.toDisk(a, slotSize, "x")
	a.store(slotSize, "b", "c", "d", "e")
	w.settle()
	evictions := w.e.table.Usage().Evictions
	id := a.lookup(wholeRetrieve, time.Minute, "x", "e", "e")
	w.settle()
	out := a.found(id)
	require.EqualValues(t, 3, out.Hits, "the load of the first evicted the second")
	a.verify(out.Slots, "x", "e", "e")
	require.EqualValues(t, 2, w.e.table.Usage().Evictions-evictions)

	a.release(out.Lease)
	w.settle()
	there := []string{}
	for _, k := range []string{"b", "c", "d"} {
		if w.resident(k) {
			there = append(there, k)
		}
	}
	require.Len(t, there, 2)
	held := a.found(a.lookup(proto.LookupHold|proto.LookupSlots, 0, "x", "e", there[0]))
	require.EqualValues(t, 3, held.Hits)
	got := b.prepared(b.prepare(0, slotSize, "new", there[1]))
	require.Equal(t, proto.StatusReserved, got.Results[0].Status)
	require.Equal(t, proto.StatusExists, got.Results[1].Status, "it made room for the first, and is on disk")
	require.False(t, w.resident(there[1]))
}

// A lookup that does not wait gets no second turn, and no more loads in its first than others bear.
func TestALookupThatDoesNotWaitBeginsSoManyLoads(t *testing.T) {
	const many = loadsMost + 50
	w := diskWorld(t, 2*many, Config{InstanceCap: math.MaxInt64, Objects: 4 * many, Entries: 4 * many})
	w.quiet = true
	a := w.worker(1, 100)
	keys := names("k", many)
	w.toDisk(a, slotSize, keys...)
	before := w.e.counters.Loads
	require.Zero(t, a.found(a.lookup(proto.LookupLoad, 0, keys...)).Hits)
	require.EqualValues(t, loadsMost, w.e.counters.Loads-before)
	w.settle()
	require.EqualValues(t, loadsMost, a.found(a.lookup(proto.LookupHold, 0, keys...)).Hits)
	w.check()
}

// A load lines up behind those that wait for memory. Else small ones would take away what comes free for a large one, bit by bit.
func TestALoadDoesNotTakeWhatAnotherWaitsFor(t *testing.T) {
	const slots = 64
	w := diskWorld(t, slots, Config{InstanceCap: math.MaxInt64})
	a, b, c := w.worker(1, 100), w.worker(2, 200), w.worker(3, 300)
	keys := names("k", 50)
	w.toDisk(a, slotSize, append([]string{"small"}, keys...)...)
	a.store(slotSize, names("dirty", 4)...)
	var open []uint64
	for _, k := range names("open", slots-4) {
		open = append(open, a.prepared(a.prepare(0, slotSize, k)).Transfer)
	}
	large := b.lookup(wholeRetrieve, time.Hour, keys...)
	b.waits(large)
	a.sameTurn(proto.OpAbortStore, proto.AppendAbortStore(nil, &proto.AbortStore{Transfer: open[0]}))
	small := c.sameTurn(proto.OpLookup, proto.AppendLookup(nil, &proto.Lookup{
		Options: wholeRetrieve, Group: 1, WaitMs: 3_600_000, Keys: testKeys("small"),
	}))
	require.Zero(t, w.e.table.Usage().Loading, "it lines up")
	for _, tr := range open[1:] {
		require.Equal(t, proto.StatusOK, a.abort(tr))
	}
	w.settle()
	require.EqualValues(t, 50, b.found(large).Hits)
	require.EqualValues(t, 1, c.found(small).Hits)
}

// A retrieval that would wait, and may not since its instance has enough waiting, is busy: there would be memory in time.
func TestARetrievalThatMayNotWaitIsBusy(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64, ParkedCap: 1})
	a, b := w.worker(1, 100), w.worker(2, 200)
	w.toDisk(a, slotSize, "x", "y")
	a.store(slotSize, names("dirty", 8)...)
	first := b.lookup(wholeRetrieve, time.Minute, "x")
	b.waits(first)
	in := proto.PrepareRetrieve{Keys: testKeys("y"), WaitMs: 1000}
	_, st := b.retrieve(in)
	require.Equal(t, proto.StatusBusy, st)
	w.settle()
	require.EqualValues(t, 1, b.found(first).Hits)
	id := b.post(proto.OpPrepareRetrieve, 0, proto.AppendPrepareRetrieve(nil, &in), nil)
	w.settle()
	b.answered(id, proto.StatusOK)
}

// A lookup that waits is answered with what there is when it has been tried often enough, however much may still come.
func TestALookupIsNotTriedForEver(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	w.toDisk(a, slotSize, "x", "y")
	a.store(slotSize, names("dirty", 8)...)
	id := b.lookup(wholeRetrieve, time.Hour, "dirty0", "x", "y")
	b.waits(id)
	p := &w.e.parked[w.e.parkedFirst]
	p.tries, p.enough, w.e.memoryFreed = triesMax-2, 0, true
	w.flush()
	b.waits(id)
	require.Equal(t, triesMax-1, p.tries)
	p.enough, w.e.memoryFreed = 0, true
	w.flush()
	require.EqualValues(t, 1, b.found(id).Hits)
	require.NotEmpty(t, w.ios)
}

// The time of a request begins when it comes, and not again when there is memory for it.
func TestTheDeadlineOfARequestThatWaitedForMemoryIsItsOwn(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	w.toDisk(a, slotSize, "x", "y")
	a.store(slotSize, names("dirty", 8)...)
	lookup := b.lookup(wholeRetrieve, time.Second, "x")
	retrieve := b.post(proto.OpPrepareRetrieve, 0, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: testKeys("y"), WaitMs: 1000}), nil)
	w.advance(900 * time.Millisecond)
	for i := 0; w.e.parkedFirst != none; i++ {
		for w.ios[i].Kind == seglog.IORead {
			i++
		}
		w.endIO(i)
		i = -1
	}
	b.waits(lookup)
	b.waits(retrieve)
	require.EqualValues(t, 2*slotSize, w.e.table.Usage().Loading)
	w.advance(100 * time.Millisecond)
	require.Zero(t, b.found(lookup).Hits)
	b.answered(retrieve, proto.StatusMiss)
	w.settle()
	w.baseline()
}

// A range of a lease has an object at least, lies within what was found, and is not named by keys as well.
func TestARangeOfALeaseLiesInIt(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("k", 4)...)
	lease := a.found(a.lookup(proto.LookupHold, 0, names("k", 6)...)).Lease
	for _, in := range []proto.PrepareRetrieve{
		{},
		{First: 4},
		{First: 4, Count: 1},
		{First: 1, Count: 4},
		{First: math.MaxUint32, Count: 1},
		{First: 1, Count: math.MaxUint32},
		{Count: 1, Keys: testKeys("k0")},
	} {
		in.Lease = lease
		_, st := b.retrieve(in)
		require.Equal(t, proto.StatusBadRequest, st, in)
	}
	got, st := b.retrieve(proto.PrepareRetrieve{Lease: lease, First: 1, Count: 3})
	require.Equal(t, proto.StatusOK, st)
	b.verify(got.Slots, "k1", "k2", "k3")
	b.endRetrieve(got.Transfer)
	a.release(lease)
	w.baseline()
}

// What a disk that hangs was reading is not there for anybody: who wants to store it is not told that it exists.
func TestWhatADiskThatHangsWasReadingDoesNotExist(t *testing.T) {
	w := newWorld(t, setup{slots: 16, diskSize: 16 << 20, segment: 4 << 20, stall: time.Second, cfg: Config{InstanceCap: math.MaxInt64}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	w.toDisk(a, slotSize, "x")
	id := a.lookup(wholeRetrieve, time.Hour, "x")
	w.hang()
	w.wait(5 * time.Second)
	require.True(t, w.e.stalled())
	require.Zero(t, a.found(id).Hits)
	require.Equal(t, proto.StatusBusy, b.prepared(b.prepare(0, slotSize, "x")).Results[0].Status)
	require.Zero(t, b.hits("x"))
	w.settle()
	require.Equal(t, proto.StatusExists, b.prepared(b.prepare(0, slotSize, "x")).Results[0].Status)
}
