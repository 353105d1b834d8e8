package server

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server/engine"
)

// A recorder is a core that notes whose frames it is given.
type recorder struct {
	core
	conns []engine.ConnID
}

func (c *recorder) Step(ev *engine.Event) {
	if ev.Kind == engine.EventFrame {
		c.conns = append(c.conns, ev.Conn)
	}
}

func (c *recorder) NextTick() (at time.Duration, ok bool) { return 0, false }

// Requests that are short and look at whole tables: one that floods with them makes turns no longer than others do.
func TestShortRequestsOfMuchWorkAreFewInATurn(t *testing.T) {
	for op, most := range map[proto.Op]int{
		proto.OpTransfers: 1, proto.OpInstances: 4, proto.OpEvict: 4, proto.OpRegister: 4, proto.OpStats: 16, proto.OpPing: 64,
	} {
		core := &recorder{}
		r := &reactor{core: core, conns: make([]conn, 2)}
		c := &r.conns[1]
		c.id = engine.NewConnID(1, 1)
		c.in.Init(nil, &r.spares)
		c.moveTo(connOpen)
		var all []byte
		for range 200 {
			all = proto.AppendFrame(all, proto.Header{Op: op, Flags: proto.FlagNoReply}, make([]byte, 8), 0)
		}
		r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: c.id, Body: all})
		r.stats.Turns++
		r.step()
		require.LessOrEqual(t, len(core.conns), most, "%v", op)
		require.NotEmpty(t, core.conns)
	}
}

// One lookup of tens of thousands of keys while eviction runs: in frames of the most keys,
// all of which are there at once, it takes a turn of the loop for each of them, and what
// another client sends in a turn is served in that turn.
func TestALookupOfTensOfThousandsOfKeysTakesATurnForEachFrame(t *testing.T) {
	const frames = 13 // 53,248 keys
	core := &recorder{}
	r := &reactor{core: core, conns: make([]conn, 3)}
	for i := range r.conns {
		c := &r.conns[i]
		c.id = engine.NewConnID(uint32(i), 1)
		c.in.Init(nil, &r.spares)
		c.moveTo(connOpen)
	}
	big, small := r.conns[1].id, r.conns[2].id
	ping := proto.AppendFrame(nil, proto.Header{Op: proto.OpPing, Flags: proto.FlagNoReply}, nil, 0)
	body := proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: make([]proto.Key, proto.MaxKeys)})
	var all []byte
	for range frames {
		all = proto.AppendFrame(all, proto.Header{Op: proto.OpLookup, Flags: proto.FlagNoReply}, body, 0)
	}
	r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: big, Body: all})
	for turn := range frames {
		r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: small, Body: ping})
		r.stats.Turns++
		core.conns = core.conns[:0]
		r.step()
		slices.Sort(core.conns)
		require.Equal(t, []engine.ConnID{big, small}, core.conns, "turn %d", turn)
	}
	r.stats.Turns++
	core.conns = core.conns[:0]
	r.step()
	require.Empty(t, core.conns)
	require.Zero(t, r.conns[1].in.Unread())
}
