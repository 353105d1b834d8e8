package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// put sends a put and returns its request id.
func (c *client) put(key string, value []byte) uint64 {
	return c.post(proto.OpPut, proto.FlagInline, proto.AppendPut(nil, &proto.Put{Key: testKeys(key)[0]}), value)
}

// answer is the status of a reply that is there. It has no body.
func (c *client) answer(id uint64) proto.Status {
	c.w.t.Helper()
	r, ok := c.take(id)
	require.True(c.w.t, ok, "there is no reply")
	require.Empty(c.w.t, r.body)
	return r.h.Status
}

func TestPutStoresInOneRoundTrip(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	id := a.put("x", valueOf("x", 5000))
	_, there := a.take(id)
	require.False(t, there, "the bytes are still coming")
	require.Zero(t, b.hits("x"))
	w.settle()
	require.Equal(t, proto.StatusOK, a.answer(id))
	got := b.found(b.lookup(proto.LookupHold|proto.LookupSlots, 0, "x"))
	b.verify(got.Slots, "x")
	b.release(got.Lease)

	require.Equal(t, proto.StatusExists, b.answer(b.put("x", valueOf("y", 5000))))
	require.Equal(t, proto.StatusOK, b.answer(b.put("empty", nil)), "no bytes are to come")
	require.Equal(t, 1, a.hits("empty"))
	require.Equal(t, proto.StatusTooLarge, a.answer(a.put("large", make([]byte, layoutMax+1))))

	out := a.prepared(a.prepare(0, 5000, "z"))
	require.Equal(t, proto.StatusBusy, b.answer(b.put("z", valueOf("z", 5000))))
	a.abort(out.Transfer)
	silent := b.post(proto.OpPut, proto.FlagInline|proto.FlagNoReply, proto.AppendPut(nil, &proto.Put{Key: testKeys("z")[0]}), valueOf("z", 5000))
	w.settle()
	_, there = b.take(silent)
	require.False(t, there)
	require.Equal(t, 1, a.hits("z"))
	w.baseline()
}

func TestPutOfThoseWhoMayNot(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	stranger := w.connect(100)
	require.Equal(t, proto.StatusNotRegistered, stranger.answer(stranger.put("x", valueOf("x", 100))))
	reader := w.connect(101)
	require.Equal(t, proto.StatusOK, reader.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: 7, Want: proto.TransportShared, ReadOnly: true, Namespace: "space", Layouts: []proto.Layout{{Size: layoutMax}},
	}), nil).h.Status)
	require.Equal(t, proto.StatusDenied, reader.answer(reader.put("x", valueOf("x", 100))))
	c := w.worker(1, 102)
	id := c.post(proto.OpPut, proto.FlagInline, proto.AppendPut(nil, &proto.Put{Layout: 2}), valueOf("x", 100))
	require.Equal(t, proto.StatusBadRequest, c.answer(id))
	w.baseline()
}

func TestPutThatDoesNotArriveOrIsDeletedMeanwhilePublishesNothing(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.put("x", valueOf("x", slotSize))
	a.close()
	w.settle()
	require.Zero(t, b.hits("x"))
	w.baseline()

	id := b.put("x", valueOf("x", slotSize))
	b2 := w.worker(3, 300)
	b2.call(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("x")}), nil)
	w.settle()
	require.Equal(t, proto.StatusStale, b.answer(id))
	require.Zero(t, b.hits("x"))
	w.baseline()
}

// A put never takes memory that a prepare would wait for: neither dirty objects that the disk
// does not have yet, nor what others wait for already.
func TestPutThatWouldWaitFindsNoSpace(t *testing.T) {
	w := newWorld(t, setup{slots: 4, diskSize: 1 << 20, segment: 64 << 10})
	a, b := w.worker(1, 100), w.worker(2, 200)
	a.store(slotSize, "a")
	b.store(slotSize, "b")
	out := a.prepared(a.prepare(0, slotSize, "c"))
	other := b.prepared(b.prepare(0, slotSize, "d"))
	require.Equal(t, proto.StatusNoSpace, a.answer(a.put("e", valueOf("e", slotSize))))
	require.Equal(t, 2, b.hits("a", "b"), "nothing went for it")
	a.abort(out.Transfer)
	b.abort(other.Transfer)
	id := a.put("e", valueOf("e", slotSize))
	w.settle()
	require.Equal(t, proto.StatusOK, a.answer(id))
	w.advance(time.Second)
	w.settle()
	w.baseline()
}
