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
