package engine

import (
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// hang goes on without the disk: what it was given stays with it.
func (w *world) hang() {
	w.t.Helper()
	for n := 0; ; n++ {
		require.Less(w.t, n, 100_000, "the engine does not come to rest")
		if len(w.events) > 0 {
			w.event(0)
			continue
		}
		at := -1
		for i := range w.ios {
			if k := w.ios[i].Kind; k == seglog.IOSum || k == seglog.IOCopy {
				at = i
			}
		}
		switch {
		case at >= 0:
			w.endIO(at)
		case w.tickDue():
			w.flush()
		default:
			return
		}
	}
}

// wait lets time pass with a turn whenever the engine wants one.
func (w *world) wait(d time.Duration) {
	for end := w.now + d; w.now < end; {
		at, ok := w.e.NextTick()
		if !ok || at > end {
			at = end
		}
		w.now = max(at, w.now+time.Millisecond)
		w.step(Event{Kind: EventTick})
		w.hang()
	}
}

// A disk that hangs without an error (a suspended device, a frozen file system): nobody waits for it longer than the
// deadline, memory goes on serving, a slot that the disk works on is nobody else's until it lets go, and when it does
// all is well again without help.
func TestADiskThatHangsStopsNobody(t *testing.T) {
	const big = 512 << 10 // eight pieces at once
	w := newWorld(t, setup{slots: 1024, diskSize: 64 << 20, segment: 4 << 20, stall: 3 * time.Second, cfg: Config{InstanceCap: math.MaxInt64}})
	a, b, c := w.worker(1, 100), w.worker(2, 200), w.worker(3, 300)
	a.store(big, "old")
	a.store(slotSize, "small", "gone")
	w.settle()
	for _, k := range names("filler", 10) {
		a.store(big, k)
		w.settle()
	}
	require.EqualValues(t, 1, a.found(a.lookup(0, 0, "old")).FromDisk)

	// From here on the disk takes what it is given and gives nothing back.
	load := b.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Hour, "filler9", "old")
	w.hang()
	a.store(big, names("new", 4)...)
	w.hang()
	del := b.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("gone")}), nil)
	clear := c.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{Namespace: "elsewhere"}), nil)
	wait := c.prepare(time.Hour, big, names("more", 4)...)
	w.hang()
	for client, id := range map[*client]uint64{b: load, c: wait} {
		_, there := client.take(id)
		require.False(t, there)
	}
	_, there := b.take(del)
	require.False(t, there)
	under := len(w.ios)
	require.Positive(t, under)

	w.wait(2900 * time.Millisecond)
	require.Equal(t, seglog.StateOK, w.log.State())
	w.wait(200 * time.Millisecond)
	require.Equal(t, seglog.StateStalled, w.log.State())
	require.Len(t, w.ios, under, "nothing new is given to it")
	r, there := b.take(del)
	require.True(t, there)
	require.Equal(t, proto.StatusOKNotDurable, r.h.Status)
	if r, there = c.take(clear); there { // it had nothing on disk: then it was answered at once
		require.Contains(t, []proto.Status{proto.StatusOK, proto.StatusOKNotDurable}, r.h.Status)
	}
	out := b.found(load)
	require.EqualValues(t, 1, out.Hits, "the answer ends before what is on disk")
	b.verify(out.Slots, "filler9")
	got := c.prepared(wait)
	reserved := 0
	for _, res := range got.Results {
		require.Contains(t, []proto.Status{proto.StatusReserved, proto.StatusNoSpace}, res.Status)
		if res.Status == proto.StatusReserved {
			reserved++
		}
	}
	require.Positive(t, reserved, "what the disk has not begun with makes room")
	require.Equal(t, proto.StatusOK, c.abort(got.Transfer))

	// Memory goes on without it, for as long as it takes.
	w.wait(time.Hour)
	require.Len(t, w.ios, under)
	require.Zero(t, b.hits("old"), "nothing is read")
	for _, k := range names("later", 8) {
		c.store(big/4, k)
	}
	w.hang()
	require.Equal(t, 8, c.hits(names("later", 8)...))
	_, st := b.retrieve(proto.PrepareRetrieve{Keys: testKeys("old"), WaitMs: 1000})
	require.Equal(t, proto.StatusMiss, st)
	now := b.call(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("small")}), nil)
	require.Equal(t, proto.StatusOKNotDurable, now.h.Status)
	require.Equal(t, proto.StatusOK, b.call(proto.OpUnregister, 0, proto.AppendUnregister(nil, &proto.Unregister{}), nil).h.Status)
	for _, io := range w.ios {
		if io.Kind == seglog.IOWrite && !io.Mem.Own || io.Load {
			u := w.e.table.Usage()
			require.Positive(t, u.Held+u.Loading, "what the disk works on stays")
		}
	}

	// It comes back: what it had ends, what it could not be told is told, and what is still in memory goes to it.
	w.settle()
	w.wait(time.Second)
	w.settle()
	require.Equal(t, seglog.StateOK, w.log.State())
	require.Zero(t, w.log.Stats().FencesOwed)
	require.Zero(t, w.e.refused.count)
	require.Positive(t, w.e.counters.SpillsRetried)
	for _, k := range append(names("later", 8), "old") {
		o := w.keyOf(a, k)
		key, _ := w.e.diskKey(&o.Key)
		_, there := w.log.Find(&key)
		require.True(t, there, k)
	}
	require.Zero(t, a.hits("gone"))
	require.Zero(t, a.hits("small"))
	w.baseline()
}

// With a disk that hangs, a stop does not wait for it.
func TestAStopDoesNotWaitForADiskThatHangs(t *testing.T) {
	w := newWorld(t, setup{slots: 64, diskSize: 64 << 20, segment: 4 << 20, stall: time.Second})
	a := w.worker(1, 100)
	a.store(slotSize, names("k", 16)...)
	w.hang()
	w.wait(2 * time.Second)
	require.Equal(t, seglog.StateStalled, w.log.State())
	w.e.BeginStop(w.now)
	w.hang()
	w.dies(100)
	w.hang()
	require.True(t, w.e.Stopped())
}

// What the disk refused while it was full is written when it is not, without being stored again, if it is still there.
func TestWhatTheDiskRefusedGoesToItLater(t *testing.T) {
	for _, mode := range []WriteMode{WriteThrough, WriteBack} {
		w := diskWorld(t, 64, Config{InstanceCap: math.MaxInt64, Write: mode})
		a := w.worker(1, 100)
		w.fail = func(io *seglog.IO) int64 {
			if io.Kind == seglog.IOWrite || io.Kind == seglog.IOCreate {
				return -int64(syscall.ENOSPC)
			}
			return 0
		}
		for _, k := range names("k", 100) {
			a.store(slotSize, k)
			w.settle()
		}
		require.Equal(t, seglog.StateDegraded, w.log.State())
		dropped := w.e.counters.SpillsDropped
		require.Positive(t, dropped)
		require.Positive(t, w.e.refused.count)
		w.fail = nil
		for range 10 {
			w.wait(10 * time.Second)
			w.settle()
		}
		require.Equal(t, seglog.StateOK, w.log.State())
		require.Zero(t, w.e.refused.count)
		require.Equal(t, dropped, w.e.counters.SpillsDropped)
		there := 0
		for _, k := range names("k", 100) {
			o := w.keyOf(a, k)
			key, _ := w.e.diskKey(&o.Key)
			_, on := w.log.Find(&key)
			if o.found && !w.e.table.Dirty(o.ref) {
				require.True(t, on, "%v: %s is in memory only", mode, k)
				there++
			}
		}
		require.Greater(t, there, 30)
		w.baseline()
	}
}

// A memoryKey is an object as the table knows it.
type memoryKey struct {
	Key   table.Key
	ref   table.Ref
	found bool
}

func (w *world) keyOf(c *client, name string) memoryKey {
	x := w.e.conns[c.id.Index()].inst
	k := memoryKey{Key: w.e.keyIn(x, w.e.conns[c.id.Index()].layouts[0])}
	k.Key.Hash = testKeys(name)[0]
	k.ref, _, k.found = w.e.table.Find(&k.Key)
	return k
}
