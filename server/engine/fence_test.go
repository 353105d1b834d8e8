package engine

import (
	"testing"

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
