package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// A flood of connections that fills the table: those that say nothing, or nothing any more, give way to newcomers, and
// who is registered never does.
func TestAFloodOfConnectionsKeepsNobodyOut(t *testing.T) {
	const conns = 40
	hello := func(p *peer) {
		p.write(p.frame(proto.OpHello, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1}), nil))
	}
	states := map[string]func(*peer){
		"say nothing":         func(*peer) {},
		"say half a hello":    func(p *peer) { p.write(p.frame(proto.OpHello, make([]byte, 17), nil)[:40]) },
		"are idle":            hello,
		"stop within a frame": func(p *peer) { hello(p); p.write(p.frame(proto.OpPing, nil, nil)[:16]) },
	}
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(c *server.Config) {
				c.HTTP = "127.0.0.1:0"
				c.Limits.Conns = conns
			})
			worker := greet(t, r)
			worker.register(4096)
			for range 3 * conns {
				state(dial(t, r.Addrs()[0])) // it may be the one that is closed
			}
			eventually(t, "a newcomer comes in", func() bool {
				p := dial(t, r.Addrs()[0])
				defer func() { _ = p.conn.Close() }()
				hello(p)
				h, _, _, err := p.read()
				return err == nil && h.Status == proto.StatusOK
			})
			worker.ping()
			require.Positive(t, scrape(t, r)["slotcache_displaced_total"])
		})
	}
}
