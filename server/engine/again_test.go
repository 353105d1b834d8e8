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

// What the disk refused is left lying when a slot comes free in the turn that looks through it: nothing else wakes a server
// that nobody asks for anything.
func TestWhatTheDiskRefusedIsNotLeftLyingWhenASlotComesFree(t *testing.T) {
	w := diskWorld(t, 2048, Config{InstanceCap: math.MaxInt64, Objects: 2048})
	a := w.worker(1, 100)
	w.fail = func(io *seglog.IO) int64 {
		if io.Kind == seglog.IOWrite || io.Kind == seglog.IOCreate {
			return -int64(syscall.ENOSPC)
		}
		return 0
	}
	gone := names("gone", 4*refusedTurn)
	for i := 0; i < len(gone); i += refusedTurn {
		a.store(slotSize, gone[i:i+refusedTurn]...)
		w.settle()
	}
	a.store(slotSize, "last")
	w.settle()
	require.Equal(t, seglog.StateDegraded, w.log.State())
	require.Greater(t, w.e.refused.count, 3*refusedTurn)
	a.post(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys(gone...)}), nil)

	w.fail = nil
	for w.log.State() == seglog.StateDegraded {
		w.now += 100 * time.Millisecond
		w.step(Event{Kind: EventTick})
		for len(w.ios) > 0 && w.log.State() == seglog.StateDegraded {
			w.endIO(0)
		}
	}
	for w.e.refused.count > 0 { // in each of these turns an open store ends
		before := w.e.refused.count
		out := a.prepared(a.prepare(0, slotSize, "open"))
		require.Equal(t, proto.StatusOK, a.abort(out.Transfer))
		require.True(t, w.e.refused.count == 0 || w.tickDue(), "%d objects wait for an event", w.e.refused.count)
		require.Less(t, w.e.refused.count, before)
	}
	w.settle()
	o := w.keyOf(a, "last")
	key, _ := w.e.diskKey(&o.Key)
	_, there := w.log.Find(&key)
	require.True(t, there)
	w.baseline()
}
