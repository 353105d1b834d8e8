package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// A peer that closes without reading its replies has its last requests carried out all the
// same, however many come before them: they may be what gives back its slots, which its
// process, that lives on, would keep else.
func TestTheLastWordsOfAPeerThatDoesNotReadCount(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Limits.InstanceCap = 1 << 40 })
	watcher := greet(t, r)
	for round := range 30 {
		p := greet(t, r)
		p.share(uint64(round+1), false)
		h, _, _ := p.call(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{
			Keys: []proto.Key{keyOf(round)}, Sizes: []uint64{1 << 20},
		}), nil)
		require.Equal(t, proto.StatusOK, h.Status)
		var all []byte
		for range 1500 { // more than a turn takes
			all = append(all, p.frame(proto.OpPing, nil, nil)...)
		}
		all = append(all, p.frame(proto.OpUnregister, nil, nil)...)
		_, err := p.conn.Write(all)
		require.NoError(t, err)
		require.NoError(t, p.conn.Close())
	}
	eventually(t, "all connections end", func() bool { return watcher.stats()["connections"] == 1 })
	all := watcher.stats()
	require.Zero(t, all["instances"])
	require.Zero(t, all["l1_used_bytes"])
	require.Zero(t, all["quarantined_transfers"])
}

// A peer asks for more than it reads of the replies, and goes. What it would have been granted behind that is granted to nobody: its
// process lives on, and would keep it without knowing.
func TestAPeerThatHasGoneIsGrantedNothing(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Limits.InstanceCap = 1 << 40 })
	good := greet(t, r)
	good.register(1 << 20)
	good.put(keyOf(1), valueOf(1, 1<<20))
	p := greet(t, r)
	p.share(1, false)
	var all []byte
	for range 3000 { // their replies are more than the server keeps for one who does not read
		all = append(all, p.frame(proto.OpStats, nil, nil)...)
	}
	for n := range 5 {
		all = append(all, p.frame(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{
			Keys: []proto.Key{keyOf(10 + n)}, Sizes: []uint64{1 << 20},
		}), nil)...)
		all = append(all, p.frame(proto.OpPrepareRetrieve, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: []proto.Key{keyOf(1)}}), nil)...)
		all = append(all, p.frame(proto.OpLookup, proto.AppendLookup(nil, &proto.Lookup{
			Group: 1, Options: proto.LookupHold | proto.LookupSlots, Keys: []proto.Key{keyOf(1)},
		}), nil)...)
	}
	_, err := p.conn.Write(all)
	require.NoError(t, err)
	require.NoError(t, p.conn.Close())
	eventually(t, "its connection ends", func() bool { return good.stats()["connections"] == 1 })
	now := good.stats()
	require.Zero(t, now["transfers"])
	require.Zero(t, now["l1_staged_bytes"]+now["l1_held_bytes"]+now["quarantined_transfer_bytes"])
	require.EqualValues(t, 1, now["instances"])
}
