package server_test

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// dialFrom connects by TCP from an address of this machine.
func dialFrom(t *testing.T, from, addr string) *peer {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", addr[len("tcp:"):])
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &peer{t: t, conn: c}
}

// Floods of the first halves of large frames use up the memory for unfinished frames, and the frames of others are refused:
// a process, or an address, that fills it is the one whose connections are closed, the oldest frame first. Who sends a
// large frame meanwhile, however slowly, in part before the flood and in part after it, is served, by the other kind of
// socket, from another address, and also from the same address as long as it is not slower than the flood.
func TestHalvesOfLargeFramesKeepNobodyOut(t *testing.T) {
	r := start(t, func(c *server.Config) {
		c.Listen = append(c.Listen, "tcp:127.0.0.1:0")
		c.HTTP = "127.0.0.1:0"
	})
	local := func() *peer { return dial(t, r.Addrs()[0]) }
	from := func(ip string) func() *peer { return func() *peer { return dialFrom(t, ip, r.Addrs()[1]) } }
	lookup := proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: make([]proto.Key, proto.MaxKeys)})
	value := valueOf(1, 1<<20)
	half := proto.AppendFrame(nil, proto.Header{Op: proto.OpLookup}, make([]byte, 500_000), 0)[:300_000]
	for name, c := range map[string]struct {
		flood, honest func() *peer
		slow          bool // the honest one is as slow as the flood
	}{
		"a process beside an address":  {local, from("127.0.0.1"), true},
		"an address beside a process":  {from("127.0.0.1"), local, true},
		"an address beside another":    {from("127.0.0.2"), from("127.0.0.3"), true},
		"beside who shares an address": {from("127.0.0.2"), from("127.0.0.2"), false},
	} {
		t.Run(name, func(t *testing.T) {
			honest := c.honest()
			honest.hello()
			honest.register(4 << 20)
			before := scrape(t, r)["slotcache_over_budget_total"]
			var group sync.WaitGroup
			defer group.Wait()
			flood := func(n int) {
				for range n {
					p := c.flood()
					group.Go(func() { p.write(half) }) // the server may close it first
				}
			}
			send := func(frame []byte) proto.Header {
				at := len(frame)
				if c.slow {
					at = len(frame) * 3 / 4
				}
				honest.write(frame[:at])
				flood(70)
				group.Wait()
				honest.write(frame[at:])
				h, _, _ := honest.receive()
				return h
			}
			flood(140)
			eventually(t, "the flood is more than there is memory for", func() bool { return scrape(t, r)["slotcache_over_budget_total"] > before })
			require.Equal(t, proto.StatusOK, send(honest.frame(proto.OpLookup, lookup, nil)).Status)
			put := honest.frame(proto.OpPut, proto.AppendPut(nil, &proto.Put{Key: keyOf(1)}), value)
			require.Contains(t, []proto.Status{proto.StatusOK, proto.StatusExists}, send(put).Status)
			st, got := honest.get(keyOf(1))
			require.Equal(t, proto.StatusOK, st)
			require.Equal(t, value, got)
			require.LessOrEqual(t, scrape(t, r)["slotcache_input_buffer_bytes"], uint64(64<<20))
		})
	}
}
