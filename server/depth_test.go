package server_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// A queue depth that is silently 1: a lookup of many keys that are on disk only has many reads
// in flight. What counts is how many there were as each began, so that the disk's speed has no
// say in it.
func TestALookupOfManyKeysOnDiskReadsThemSideBySide(t *testing.T) {
	const keys, depth = 1000, 16
	path := socketPath(t)
	config := func(c *server.Config) {
		c.L1Size, c.L2Dir, c.L2Size = 64<<20, filepath.Join(filepath.Dir(path), "l2"), 64<<20
	}
	for _, size := range []int{100, 9000} {
		r := start(t, config)
		p := greet(t, r)
		p.register(16 << 10)
		in := proto.Lookup{Group: 1, WaitMs: uint32(patience.Milliseconds()), Options: proto.LookupHold | proto.LookupLoad}
		var values [][]byte
		for i := range keys {
			in.Keys = append(in.Keys, keyOf(size*keys+i))
			values = append(values, valueOf(i, size))
		}
		for at := 0; at < keys; at += 100 {
			p.putAll(in.Keys[at:at+100], values[at:at+100])
		}
		r.stop()
		r = start(t, config) // with nothing in memory
		p = greet(t, r)
		p.register(16 << 10)
		h, body, _ := p.call(proto.OpLookup, proto.AppendLookup(nil, &in), nil)
		require.Equal(t, proto.StatusOK, h.Status)
		var out proto.LookupReply
		require.NoError(t, proto.ParseLookupReply(body, &out))
		require.EqualValues(t, keys, out.Hits)
		all := p.stats()
		require.EqualValues(t, keys, all["loads_total"])
		require.GreaterOrEqual(t, all["l2_read_ios_total"], uint64(keys))
		mean := float64(all["l2_read_depths_total"]) / float64(all["l2_read_ios_total"])
		require.GreaterOrEqual(t, mean, float64(depth), "values of %d bytes", size)
		t.Logf("values of %d bytes: %d reads, mean depth %.1f", size, all["l2_read_ios_total"], mean)
		r.stop()
	}
}
