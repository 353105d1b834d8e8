package engine

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// The uses of a request stand for themselves: whatever the request before it was, it is not judged by them. A server that is asked for a
// use of nothing between any two requests, which ends a chain of uses, has learned the same.
func TestTheUsesOfARequestAreNoPartOfTheOneBefore(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const slots = 32
	var worlds [2]*world
	var clients [2]*client
	for i := range worlds {
		worlds[i] = newWorld(t, setup{slots: slots, quiet: true, cfg: Config{
			Policy: table.PolicyAdaptive, InstanceCap: 1 << 40, PinTime: time.Millisecond,
		}})
		clients[i] = worlds[i].worker(1, 100)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	all := names("k", 3*slots)
	var did [len(chainRequests)]int
	for range 1000 {
		from := int(rng.ExpFloat64()*slots/4) % (len(all) - 1)
		part := all[from:min(len(all), from+1+rng.IntN(8))]
		kind := rng.IntN(len(chainRequests))
		did[kind]++
		var got [2]reply
		for i, c := range clients {
			got[i] = chainRequests[kind](c, part)
			if i == 1 {
				c.useNothing()
			}
			worlds[i].advance(time.Millisecond)
		}
		require.Equal(t, got[0].body, got[1].body, "kind %d", kind)
	}
	for _, c := range clients {
		c.useNothing()
	}
	require.NotContains(t, did, 0)
	require.NotZero(t, worlds[0].e.table.Usage().Evictions)
	require.True(t, reflect.DeepEqual(worlds[0].e.table, worlds[1].e.table), "the tables are the same, and what their policies know")
}

func (c *client) useNothing() {
	c.call(proto.OpTouch, 0, proto.AppendTouch(nil, &proto.Touch{Keys: testKeys("absent")}), nil)
}

// chainRequests use objects.
var chainRequests = [...]func(*client, []string) reply{
	func(c *client, part []string) reply {
		return c.call(proto.OpPin, 0, proto.AppendPin(nil, &proto.Pin{TTLMs: 1, Keys: testKeys(part...)}), nil)
	},
	func(c *client, part []string) reply {
		return c.call(proto.OpTouch, 0, proto.AppendTouch(nil, &proto.Touch{Keys: testKeys(part...)}), nil)
	},
	func(c *client, part []string) reply {
		out, _ := c.retrieve(proto.PrepareRetrieve{Keys: testKeys(part...), Mode: proto.RetrievePrefix})
		return c.call(proto.OpCommitRetrieve, 0, proto.AppendCommitRetrieve(nil, &proto.CommitRetrieve{Transfer: out.Transfer}), nil)
	},
	func(c *client, part []string) reply {
		out := c.prepared(c.prepare(0, slotSize, part...))
		c.fill(out, part...)
		return c.call(proto.OpCommitStore, 0, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), nil)
	},
	func(c *client, part []string) reply {
		return c.call(proto.OpLookup, 0, proto.AppendLookup(nil, &proto.Lookup{Mode: proto.ModePrefix, Group: 1, Keys: testKeys(part...)}), nil)
	},
	func(c *client, part []string) reply {
		out := c.found(c.lookup(proto.LookupHold, 0, part...))
		return c.call(proto.OpRelease, 0, proto.AppendRelease(nil, &proto.Release{Leases: []uint64{out.Lease}}), nil)
	},
}
