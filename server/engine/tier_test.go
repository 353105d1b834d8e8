package engine

import (
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// diskWorld has a pool of slots and a disk that holds everything the tests store.
func diskWorld(t testing.TB, slots int, cfg Config) *world {
	t.Helper()
	return newWorld(t, setup{slots: slots, diskSize: 64 << 20, segment: 4 << 20, cfg: cfg})
}

func TestEvictedObjectsComeBackFromDisk(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a := w.worker(1, 100)
	keys := names("k", 64)
	for _, k := range keys {
		id := a.prepare(time.Minute, slotSize, k)
		w.settle()
		out := a.prepared(id)
		require.Equal(t, proto.StatusReserved, out.Results[0].Status, k)
		a.fill(out, k)
		require.Equal(t, proto.StatusOK, a.commit(out.Transfer))
		w.settle()
	}
	require.Equal(t, 64, a.hits(keys...))
	for i := 0; i < 64; i += 8 {
		part := keys[i : i+8]
		id := a.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, part...)
		w.settle()
		out := a.found(id)
		require.EqualValues(t, 8, out.Hits)
		a.verify(out.Slots, part...)
		require.Equal(t, proto.StatusOK, a.release(out.Lease))
	}
	require.Equal(t, proto.StatusExists, a.prepared(a.prepare(0, slotSize, keys[0])).Results[0].Status)
	w.baseline()
}

func TestPrepareWaitsForSpillsAndIsServed(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("k", 8)...) // the disk is slow: nothing is clean yet
	out := b.prepared(b.prepare(0, slotSize, "impatient"))
	require.Equal(t, proto.StatusNoSpace, out.Results[0].Status)
	id := b.prepare(time.Minute, slotSize, names("new", 4)...)
	_, there := b.take(id)
	require.False(t, there)
	ping := b.call(proto.OpPing, 0, nil, nil)
	require.Equal(t, proto.StatusOK, ping.h.Status, "others overtake it")
	w.settle()
	out = b.prepared(id)
	for _, r := range out.Results {
		require.Equal(t, proto.StatusReserved, r.Status)
	}
	require.Equal(t, proto.StatusOK, b.abort(out.Transfer))
	w.settle()
	w.baseline()
}

func TestPrepareThatWaitsInVainGetsWhatThereIs(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("k", 6)...)
	id := b.prepare(time.Second, slotSize, names("new", 4)...)
	_, there := b.take(id)
	require.False(t, there)
	w.advance(2 * time.Second)
	out := b.prepared(id)
	require.Equal(t, proto.StatusReserved, out.Results[1].Status)
	require.Equal(t, proto.StatusNoSpace, out.Results[2].Status)
	require.Equal(t, proto.StatusNoSpace, out.Results[3].Status)
	require.Equal(t, proto.StatusOK, b.abort(out.Transfer))
	w.settle()
	w.baseline()
}

func TestWaitingPrepareOfADeadProcessGivesItsSlotsBack(t *testing.T) {
	w := diskWorld(t, 8, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, names("k", 6)...)
	b.prepare(time.Hour, slotSize, names("new", 4)...)
	require.EqualValues(t, 2*slotSize, w.e.table.Usage().Staged)
	b.close()
	require.Zero(t, w.e.table.Usage().Staged, "it was never told of them")
	w.dies(200)
	w.settle()
	w.baseline()
}

// evicted stores keys and pushes them out of a pool of 16 slots.
func evicted(w *world, c *client, keys ...string) {
	w.t.Helper()
	c.store(slotSize, keys...)
	w.settle()
	for i := range 4 {
		c.store(slotSize, names("filler"+string(rune('a'+i)), 4)...)
		w.settle()
	}
}

func TestOneLoadServesAllWhoWait(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, a, "x")
	opt := proto.LookupHold | proto.LookupLoad | proto.LookupSlots
	one, two := a.lookup(opt, time.Minute, "x"), b.lookup(opt, time.Minute, "x")
	plain := b.found(b.lookup(0, 0, "x"))
	require.EqualValues(t, 1, plain.FromDisk)
	require.Len(t, w.ios, 2, "one value, and the header of its group")
	w.settle()
	for c, id := range map[*client]uint64{a: one, b: two} {
		out := c.found(id)
		require.EqualValues(t, 1, out.Hits)
		require.EqualValues(t, 1, out.FromDisk)
		c.verify(out.Slots, "x")
		c.release(out.Lease)
	}
	require.EqualValues(t, 1, w.e.counters.Loads)
	w.baseline()
}

func TestFailedLoadShortensTheAnswer(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a := w.worker(1, 100)
	evicted(w, a, "x", "y", "z")
	n := 0
	w.fail = func(io *seglog.IO) int64 {
		if io.Kind == seglog.IORead {
			if n++; n == 3 { // each has two
				return -int64(syscall.EIO)
			}
		}
		return 0
	}
	id := a.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "x", "y", "z")
	w.settle()
	out := a.found(id)
	require.EqualValues(t, 1, out.Hits)
	a.verify(out.Slots, "x")
	a.release(out.Lease)
	w.fail = nil
	w.baseline()
	require.Equal(t, 1, a.hits("x", "y"), "a record that cannot be read is gone")
}

func TestFlippedBitIsAMissAndNeverServed(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a := w.worker(1, 100)
	evicted(w, a, "x")
	value := valueOf("x", slotSize)
	flipped := false
	for _, f := range w.disk.files {
		for off := 0; off < len(f.now); off += slotSize {
			if string(f.now[off:off+slotSize]) == string(value) {
				f.now[off+17] ^= 4
				flipped = true
			}
		}
	}
	require.True(t, flipped)
	id := a.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "x")
	w.settle()
	require.Zero(t, a.found(id).Hits)
	require.Zero(t, a.hits("x"))
	require.EqualValues(t, 1, w.log.Stats().BadRecords)
	w.baseline()
}

func TestLookupAnswersAtItsDeadlineWithWhatIsReady(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a := w.worker(1, 100)
	evicted(w, a, "x", "y")
	a.store(slotSize, "fresh")
	id := a.lookup(proto.LookupHold|proto.LookupLoad, time.Second, "fresh", "x", "y")
	_, there := a.take(id)
	require.False(t, there)
	w.advance(2 * time.Second)
	out := a.found(id)
	require.EqualValues(t, 1, out.Hits)
	a.release(out.Lease)
	w.settle()
	again := a.found(a.lookup(proto.LookupHold|proto.LookupLoad, 0, "fresh", "x", "y"))
	require.EqualValues(t, 3, again.FromMemory, "the loads went on without it")
	a.release(again.Lease)
	w.baseline()
}

func TestDeletedWhileLoadingIsAMiss(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, a, "x")
	id := a.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "x")
	del := b.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("x")}), nil)
	_, there := b.take(del)
	require.False(t, there, "the tombstone is not written yet")
	require.Zero(t, b.hits("x"))
	w.settle()
	r, _ := b.take(del)
	require.Equal(t, proto.StatusOK, r.h.Status)
	require.Zero(t, a.found(id).Hits)
	require.Zero(t, a.hits("x"))
	w.baseline()
}

func TestDeadProcessLetsItsLoadsEnd(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, a, "x", "y")
	b.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "x", "y")
	b.close()
	w.dies(200)
	require.EqualValues(t, 2*slotSize, w.e.table.Usage().Loading, "the disk still writes there")
	a.store(slotSize, "other")
	w.settle()
	w.baseline()
	require.Equal(t, 2, a.hits("x", "y"))
}

func TestTwoClientsThatWantMoreThanHalfBothGetAnAnswer(t *testing.T) {
	w := diskWorld(t, 64, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	left, right := names("l", 40), names("r", 40)
	a.store(slotSize, left...)
	w.settle()
	b.store(slotSize, right...)
	w.settle()
	opt := proto.LookupHold | proto.LookupLoad | proto.LookupSlots
	one, two := a.lookup(opt, time.Minute, left...), b.lookup(opt, time.Minute, right...)
	w.settle()
	outA, outB := a.found(one), b.found(two)
	require.LessOrEqual(t, outA.Hits+outB.Hits, uint32(64))
	require.NotZero(t, outA.Hits)
	require.NotZero(t, outB.Hits)
	a.verify(outA.Slots, left[:outA.Hits]...)
	b.verify(outB.Slots, right[:outB.Hits]...)
	a.release(outA.Lease)
	b.release(outB.Lease)
	w.baseline()
}

func TestLookupWaitsForSpillsWithoutHolding(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	evicted(w, a, "x", "y")
	slow := true
	w.fail = nil
	for i := range 16 { // a pool full of what the disk does not have yet
		out := a.prepared(a.prepare(0, slotSize, names("d", 16)[i]))
		if out.Transfer == 0 {
			break
		}
		a.commit(out.Transfer)
	}
	require.True(t, slow)
	id := b.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "x", "y")
	_, there := b.take(id)
	require.False(t, there)
	for i := range w.e.insts {
		require.Zero(t, w.e.insts[i].held)
	}
	w.settle()
	out := b.found(id)
	require.EqualValues(t, 2, out.Hits)
	b.verify(out.Slots, "x", "y")
	b.release(out.Lease)
	w.baseline()
}

func TestDiskThatRefusesWritesLeavesMemoryServing(t *testing.T) {
	w := diskWorld(t, 16, Config{InstanceCap: math.MaxInt64})
	a := w.worker(1, 100)
	w.fail = func(io *seglog.IO) int64 {
		if io.Kind == seglog.IOWrite || io.Kind == seglog.IOCreate {
			return -int64(syscall.ENOSPC)
		}
		return 0
	}
	for i := range 64 {
		k := names("k", 64)[i]
		id := a.prepare(time.Minute, slotSize, k)
		w.settle()
		out := a.prepared(id)
		require.Equal(t, proto.StatusReserved, out.Results[0].Status)
		a.fill(out, k)
		require.Equal(t, proto.StatusOK, a.commit(out.Transfer))
		w.settle()
		require.Equal(t, 1, a.hits(k))
	}
	require.Equal(t, seglog.StateDegraded, w.log.State())
	del := a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("k63")}), nil)
	w.settle()
	_, there := a.take(del)
	require.True(t, there)
	require.Zero(t, a.hits("k63"))

	w.fail = nil
	for range 10 {
		w.advance(time.Minute)
		w.settle()
	}
	require.Equal(t, seglog.StateOK, w.log.State(), "it comes back by itself")
	evicted(w, a, "later")
	require.EqualValues(t, 1, a.found(a.lookup(0, 0, "later")).FromDisk)
	w.baseline()
}

func TestStopFlushesAndARestartHasEverything(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteBack} {
		w := diskWorld(t, 16, Config{Write: mode})
		a := w.worker(1, 100)
		a.store(slotSize, "x", "y", "z")
		a.prepare(0, slotSize, "never committed")
		r := a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("z")}), nil)
		w.settle()
		_, there := a.take(r)
		require.True(t, there)
		w.e.BeginStop(w.now)
		for n := 0; !w.e.Stopped(); n++ {
			require.Less(t, n, 10_000)
			w.settle()
			w.flush()
		}
		w.dies(100)

		w2 := newWorld(t, setup{slots: 16, diskSize: 64 << 20, segment: 4 << 20, disk: w.disk})
		b := w2.worker(1, 300)
		require.Equal(t, 2, b.hits("x", "y", "z"), mode)
		require.Zero(t, b.hits("never committed"))
		id := b.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, "x", "y")
		w2.settle()
		out := b.found(id)
		b.verify(out.Slots, "x", "y")
		b.release(out.Lease)
		w2.baseline()
	}
}

func TestClearIsForgottenByARestartNever(t *testing.T) {
	w := diskWorld(t, 16, Config{})
	a, b := w.worker(1, 100), w.workerIn(2, 200, "elsewhere")
	evicted(w, a, "x", "y")
	b.store(slotSize, "x")
	w.settle()
	id := a.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil)
	require.Zero(t, a.hits("x"))
	w.settle()
	r, _ := a.take(id)
	require.Equal(t, proto.StatusOK, r.h.Status)
	a.store(slotSize, "y")
	w.settle()

	w2 := newWorld(t, setup{slots: 16, diskSize: 64 << 20, segment: 4 << 20, disk: w.disk})
	c, d := w2.worker(1, 300), w2.workerIn(2, 400, "elsewhere")
	require.Zero(t, c.hits("x"))
	require.Equal(t, 1, c.hits("y"), "stored after the clear")
	require.Equal(t, 1, d.hits("x"), "of another namespace")
}
