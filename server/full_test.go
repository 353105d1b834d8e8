package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// TestAFullPoolIsSaidAtOnceAndNobodySpins: pinned data is evicted, or nothing is evictable
// and all comes to a stand. The whole pool is pinned, held and staged. Who would wait an hour
// is told at once that there is no memory, the loop sleeps, and one unpin is enough.
func TestAFullPoolIsSaidAtOnceAndNobodySpins(t *testing.T) {
	r := start(t, func(c *server.Config) {
		c.HTTP = "127.0.0.1:0"
		c.Limits.PinBudget, c.Limits.InstanceCap = 16<<20, 1<<40
	})
	p, other := greet(t, r), greet(t, r)
	p.register(zombieSize)
	other.register(zombieSize)
	keys := make([]proto.Key, 12)
	for n := range keys {
		keys[n] = keyOf(n)
		p.put(keys[n], valueOf(n, zombieSize))
	}
	h, body, _ := p.call(proto.OpPin, proto.AppendPin(nil, &proto.Pin{Hard: true, Keys: keys[:8]}), nil)
	require.Equal(t, proto.StatusOK, h.Status)
	var pins proto.PinReply
	require.NoError(t, proto.ParsePinReply(body, &pins))
	require.EqualValues(t, 8, pins.Pinned)
	h, body, _ = p.call(proto.OpLookup, proto.AppendLookup(nil, &proto.Lookup{Group: 1, Options: proto.LookupHold, Keys: keys[8:]}), nil)
	require.Equal(t, proto.StatusOK, h.Status)
	var lease proto.LookupReply
	require.NoError(t, proto.ParseLookupReply(body, &lease))
	require.EqualValues(t, 4, lease.Hits)
	require.Len(t, p.reserve(keyOf(100), keyOf(101), keyOf(102), keyOf(103)).Results, 4)

	hour := proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{keyOf(200)}, Sizes: []uint64{zombieSize}, WaitMs: 3_600_000})
	ask := func() proto.PrepareStoreReply {
		h, body, _ := other.call(proto.OpPrepareStore, hour, nil)
		require.Equal(t, proto.StatusOK, h.Status)
		var out proto.PrepareStoreReply
		require.NoError(t, proto.ParsePrepareStoreReply(body, &out))
		return out
	}
	for range 100 {
		require.Equal(t, proto.StatusNoSpace, ask().Results[0].Status)
	}
	before := scrape(t, r)
	time.Sleep(300 * time.Millisecond) // nothing is to happen in it
	after := scrape(t, r)
	require.LessOrEqual(t, after["slotcache_turns_total"]-before["slotcache_turns_total"], uint64(20))
	require.Zero(t, after["slotcache_l1_evictions_total"])

	h, _, _ = other.call(proto.OpUnpin, proto.AppendUnpin(nil, &proto.Unpin{Keys: keys[3:4]}), nil)
	require.Equal(t, proto.StatusOK, h.Status)
	require.Equal(t, proto.StatusReserved, ask().Results[0].Status)
	require.EqualValues(t, 1, scrape(t, r)["slotcache_l1_evictions_total"])
}

// TestAReaderThatUnregistersAndGoesHoldsNothing: a reader dies while it reads, and what it
// read stays held for ever. Its lookup, retrieval and unregistration are sent at once, and it
// is gone before a reply can be read, or half of them were.
func TestAReaderThatUnregistersAndGoesHoldsNothing(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Limits.InstanceCap = 1 << 40 })
	p := greet(t, r)
	p.register(zombieSize)
	keys := make([]proto.Key, 13) // of 16 that there is room for
	for n := range keys {
		keys[n] = keyOf(n)
		p.put(keys[n], valueOf(n, zombieSize))
	}
	for round := range 12 {
		reader := greet(t, r)
		reader.attach(uint64(100 + round))
		ops := []struct {
			op   proto.Op
			body []byte
		}{
			{proto.OpLookup, proto.AppendLookup(nil, &proto.Lookup{Group: 1, Options: proto.LookupHold | proto.LookupSlots, Keys: keys})},
			{proto.OpPrepareRetrieve, retrieval(keys...)},
			{proto.OpUnregister, nil},
		}
		var all []byte
		for _, o := range ops[:1+round%3] {
			all = append(all, proto.AppendFrame(nil, proto.Header{Op: o.op, Request: 99, Boot: reader.boot}, o.body, 0)...)
		}
		_, err := reader.conn.Write(all)
		require.NoError(t, err)
		if round >= 6 {
			_, _, _, err = reader.read()
			require.NoError(t, err)
		}
		h, _, _ := p.call(proto.OpEvict, proto.AppendEvict(nil, &proto.Evict{Instance: uint64(100 + round)}), nil)
		require.Contains(t, []proto.Status{proto.StatusOK, proto.StatusStale}, h.Status)
		require.NoError(t, reader.conn.Close())
		again := greet(t, r) // the process lives: it says itself that it is done
		again.attach(uint64(100 + round))
		h, _, _ = again.call(proto.OpUnregister, nil, nil)
		require.Equal(t, proto.StatusOK, h.Status)
		eventually(t, "nothing is held", func() bool {
			s := p.stats()
			return s["l1_held_bytes"]+s["l1_quarantined_bytes"]+s["transfers"] == 0
		})
	}
	more := make([]proto.Key, 16)
	for n := range more {
		more[n] = keyOf(1000 + n)
	}
	for _, res := range p.reserve(more...).Results {
		require.Equal(t, proto.StatusReserved, res.Status, "the whole pool is to be had")
	}
}
