package engine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// Different things under one key: names that are the same when put together, layouts that
// differ in one dimension, keys that differ in one bit, and hashes that are equal for nearly all
// of them. Each finds its own bytes, in memory and from disk.
func TestThingsThatLookAlikeAreApart(t *testing.T) {
	w := newWorld(t, setup{slots: 64, diskSize: 4 << 20, segment: 64 << 10, cfg: Config{HashMask: 1, InstanceCap: 1 << 40}})
	type thing struct {
		space  string
		layout proto.Layout
	}
	things := []thing{
		{"ab", proto.Layout{Name: "c", Size: slotSize}},
		{"a", proto.Layout{Name: "bc", Size: slotSize}},
		{"", proto.Layout{Name: "abc", Size: slotSize}},
		{"abc", proto.Layout{Size: slotSize}},
		{"a", proto.Layout{Name: "bc", Dims: []uint32{1, 2}, Size: slotSize}},
		{"a", proto.Layout{Name: "bc", Dims: []uint32{2, 1}, Size: slotSize}},
		{"a", proto.Layout{Name: "bc", Dims: []uint32{1}, Size: slotSize + 1}},
		{"a", proto.Layout{Name: "bc", Dims: []uint32{slotSize, 0}, Size: slotSize}},
		{"A", proto.Layout{Name: "bc", Size: slotSize}},
	}
	keys := testKeys("k", "k")
	keys[1][31] ^= 1
	var clients []*client
	for i := range things {
		c := w.connect(int32(100 + i))
		require.Equal(t, proto.StatusOK, c.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
			Instance: uint64(i + 1), Want: proto.TransportShared, Namespace: things[i].space, Layouts: []proto.Layout{things[i].layout},
		}), nil).h.Status)
		clients = append(clients, c)
	}
	prepare := proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: keys, Sizes: []uint64{slotSize, slotSize}})
	for i, c := range clients {
		out := c.prepared(c.post(proto.OpPrepareStore, 0, prepare, nil))
		for n, res := range out.Results {
			require.Equal(t, proto.StatusReserved, res.Status, "%v key %d", things[i], n)
			fillValue(w.pool[res.Slot.Off:res.Slot.Off+res.Slot.Len], fmt.Sprint("thing ", i, " key ", n))
		}
		require.Equal(t, proto.StatusOK, c.commit(out.Transfer))
	}
	w.settle()
	for _, evict := range []bool{false, true} {
		for n := 0; evict && n < 8; n++ {
			clients[0].store(slotSize, names(fmt.Sprint("filler", n), 16)...)
			w.settle()
		}
		loads := w.e.counters.Loads
		for i, c := range clients {
			id := c.post(proto.OpLookup, 0, proto.AppendLookup(nil, &proto.Lookup{
				Group: 1, WaitMs: 60_000, Options: proto.LookupHold | proto.LookupLoad | proto.LookupSlots, Keys: keys,
			}), nil)
			w.settle()
			out := c.found(id)
			require.EqualValues(t, 2, out.Hits, things[i])
			for n, slot := range out.Slots {
				require.Equal(t, valueOf(fmt.Sprint("thing ", i, " key ", n), slotSize), w.pool[slot.Off:slot.Off+slot.Len])
			}
			c.release(out.Lease)
		}
		require.Equal(t, evict, w.e.counters.Loads > loads)
	}
	w.settle()
	w.baseline()
}
