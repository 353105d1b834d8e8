package engine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// remove posts a DELETE.
func (c *client) remove(keys ...string) uint64 {
	return c.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys(keys...)}), nil)
}

// One that floods: deletes without end behind a slow disk take neither the places of others, nor memory without bound.
func TestDeletesOfOneBehindASlowDiskLeaveRoomForOthers(t *testing.T) {
	w := diskWorld(t, 64, Config{FenceCap: 4, FenceKeysCap: 6})
	a, b := w.worker(1, 100), w.worker(2, 200)
	keys := names("k", 16)
	a.store(slotSize, keys...)
	w.settle()
	answered := func(c *client, id uint64) proto.Status {
		r, ok := c.take(id)
		if !ok {
			return proto.StatusReserved // stands for none
		}
		return r.h.Status
	}
	// The disk does nothing from here on.
	first := a.remove(keys[:3]...)
	second := a.remove(keys[3:6]...)
	require.Equal(t, proto.StatusBusy, answered(a, a.remove(keys[6])), "too many keys")
	require.Equal(t, 1, a.hits(keys[6]), "what is refused changes nothing")
	require.Equal(t, proto.StatusReserved, answered(a, first))
	require.Equal(t, proto.StatusReserved, answered(a, second))
	other := b.remove(keys[7:15]...)
	require.Equal(t, proto.StatusReserved, answered(b, other), "a single one may have any number")
	require.Equal(t, proto.StatusBusy, answered(b, b.remove(keys[15])))

	c := w.connect(0) // nobody in particular
	var clears []uint64
	clear := func() uint64 {
		return c.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{Namespace: "elsewhere"}), nil)
	}
	for range 4 {
		clears = append(clears, clear())
	}
	require.Equal(t, proto.StatusBusy, answered(c, clear()), "too many requests")
	d := w.connect(0)
	require.Equal(t, proto.StatusBusy, answered(d, d.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{Namespace: "elsewhere"}), nil)),
		"another connection does not help")

	a.call(proto.OpUnregister, 0, nil, nil) // its deletes go on
	w.dies(100)
	w.settle()
	require.Equal(t, proto.StatusOK, answered(a, first))
	require.Equal(t, proto.StatusOK, answered(a, second))
	require.Equal(t, proto.StatusOK, answered(b, other))
	for _, id := range clears {
		require.Equal(t, proto.StatusOK, answered(c, id))
	}
	last := b.remove(keys[15])
	w.settle()
	require.Equal(t, proto.StatusOK, answered(b, last))
	require.Equal(t, fencing{}, w.e.fencing)
}

// One that reserves objects of no bytes without end, which the cap on bytes does not see: there are places for others.
func TestObjectsOfNoBytesAreNotAllOfOne(t *testing.T) {
	w := newWorld(t, setup{slots: 16, cfg: Config{Objects: 64}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	granted := 0
	for _, res := range a.prepared(a.prepare(0, 0, names("a", 100)...)).Results {
		if res.Status == proto.StatusReserved {
			granted++
		} else {
			require.Equal(t, proto.StatusBusy, res.Status)
		}
	}
	require.Equal(t, 32, granted)
	for _, res := range b.prepared(b.prepare(0, 100, names("b", 16)...)).Results {
		require.Equal(t, proto.StatusReserved, res.Status)
	}
}

// fillTable makes so many objects of no bytes that the sweep behind a CLEAR takes several turns, and what comes after them
// is reached by the last.
func (w *world) fillTable(c *client) {
	w.quiet = true // which takes long with so many
	for i := range 7 * clearStep / 512 {
		c.store(0, names(fmt.Sprint("empty", i, "-"), 512)...)
	}
	w.settle()
}

// A CLEAR comes between prepare and commit, or while a lookup waits for the disk, and the sweep behind it has not come to
// the object yet when its bytes are there: it is published, or served, all the same.
func TestWhatASweepHasNotReachedIsClearedAllTheSame(t *testing.T) {
	w := newWorld(t, setup{slots: 4, diskSize: 64 << 20, segment: 4 << 20, records: 16 * clearStep, cfg: Config{InstanceCap: math.MaxInt64, Objects: 8 * clearStep}})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(2*slotSize, "old")
	w.settle()
	a.store(3*slotSize, "other") // in the place of it
	w.settle()
	del := a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("other")}), nil)
	w.settle()
	_, there := a.take(del)
	require.True(t, there)
	w.fillTable(a)

	staged := a.prepared(a.prepare(0, slotSize, "staged"))
	a.store(0, "held")
	load := b.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Hour, "held", "old")
	_, there = b.take(load)
	require.False(t, there)
	clear := a.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil)
	require.NotEmpty(t, w.e.clears, "the sweep takes more than a turn")
	require.Equal(t, proto.StatusStale, a.commit(staged.Transfer))
	for len(w.ios) > 0 {
		w.endIO(len(w.ios) - 1) // reads are begun last
		if r, there := b.take(load); there {
			require.NotEmpty(t, w.e.clears)
			var out proto.LookupReply
			require.NoError(t, proto.ParseLookupReply(r.body, &out))
			require.Zero(t, out.Hits)
			load = 0
		}
	}
	require.Zero(t, load, "the lookup was answered")
	w.settle()
	w.quiet = false
	w.check()
	_, there = a.take(clear)
	require.True(t, there)
	w.baseline()
}

// A prepare that waits for memory is granted after a CLEAR what it asked for before: it is published under a name that
// nothing finds or clears.
func TestAPrepareThatWaitsIsFencedByAClear(t *testing.T) {
	w := diskWorld(t, 4, Config{InstanceCap: math.MaxInt64})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(4*slotSize, "dirty")
	wait := b.prepare(time.Hour, 4*slotSize, "late")
	_, there := b.take(wait)
	require.False(t, there)
	clear := a.post(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil)
	w.settle()
	out := b.prepared(wait)
	require.Equal(t, proto.StatusReserved, out.Results[0].Status)
	require.Equal(t, proto.StatusStale, b.commit(out.Transfer))
	_, there = a.take(clear)
	require.True(t, there)
	require.Zero(t, b.hits("late"))
	w.settle()
	w.baseline()
	require.Zero(t, w.e.table.Usage().Resident)
}

// One process deletes behind a slow disk by several instances: together they have half of the places once three quarters are
// taken. An instance that ends meanwhile counts until its deletes have ended, so that to register again is no way around it.
func TestDeletesOfAProcessWithSeveralInstancesLeaveRoomForOthers(t *testing.T) {
	w := diskWorld(t, 64, Config{Conns: 8, Ops: 64, FenceCap: 8}) // 16 deletes at a time
	keys := names("k", 32)
	other := w.worker(100, 200)
	other.store(slotSize, keys...)
	w.settle()
	waits := 0
	remove := func(c *client) bool {
		r, answered := c.take(c.remove(keys[waits]))
		if answered {
			require.Equal(t, proto.StatusBusy, r.h.Status)
			return false
		}
		waits++
		return true
	}
	for n := range 4 { // the disk does nothing
		c := w.worker(uint64(1+n), 7)
		for remove(c) {
		}
		require.Equal(t, proto.StatusOK, c.call(proto.OpUnregister, 0, nil, nil).h.Status)
		c.close()
	}
	require.Equal(t, 12, waits)
	for n := range 4 {
		require.True(t, remove(other), n)
	}
	list := other.instances()
	require.Len(t, list, 3)
	require.Equal(t, proto.InstanceDraining, list[1].State)
	w.dies(7)
	w.settle()
	require.Len(t, other.instances(), 1)
	c := w.worker(1, 7)
	require.True(t, remove(c))
	w.settle()
	w.baseline()
}
