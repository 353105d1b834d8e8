package server_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// A loop that goes on looking after its work is done takes a processor for nothing: after each kind of work, and while
// peers keep it waiting, the server sleeps.
func TestTheLoopSleepsAfterEachKindOfWork(t *testing.T) {
	path := socketPath(t)
	r := start(t, func(c *server.Config) {
		c.Listen = append(c.Listen, "tcp:127.0.0.1:0")
		c.HTTP = "127.0.0.1:0"
		c.L2Dir, c.L2Size = filepath.Join(filepath.Dir(path), "l2"), 64<<20
	})
	p := greet(t, r)
	p.register(1 << 20)
	sleeps := func(what string) {
		t.Helper()
		eventually(t, "the loop sleeps after "+what, func() bool {
			before := scrape(t, r)
			time.Sleep(60 * time.Millisecond)
			after := scrape(t, r)
			return after["slotcache_turns_total"]-before["slotcache_turns_total"] < 12 &&
				after["slotcache_ring_enters_total"]-before["slotcache_ring_enters_total"] < 30
		})
	}
	sleeps("its start")
	value := valueOf(1, 300_000)
	for i := range 100 { // more than memory
		p.put(keyOf(i), value)
	}
	sleeps("values that go to disk")
	for i := range 100 {
		p.get(keyOf(i))
	}
	sleeps("loads")
	lookup := proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: make([]proto.Key, proto.MaxKeys)})
	for _, addr := range r.Addrs() {
		q := dial(t, addr)
		q.hello()
		q.register(1 << 20)
		var many []byte
		for range 20 {
			many = append(many, q.frame(proto.OpLookup, lookup, nil)...)
			for range 100 {
				many = append(many, q.frame(proto.OpPing, nil, nil)...)
			}
		}
		sent := make(chan error, 1)
		go func() {
			_, err := q.conn.Write(many)
			sent <- err
		}()
		for range 20 * 101 {
			q.receive()
		}
		require.NoError(t, <-sent)
		sleeps("a flood by " + addr)

		var stats []byte
		for range 3000 {
			stats = append(stats, q.frame(proto.OpStats, nil, nil)...)
		}
		go func() {
			_, err := q.conn.Write(stats)
			sent <- err
		}()
		sleeps("a peer that does not read, " + addr)
		for range 3000 {
			q.receive()
		}
		require.NoError(t, <-sent)
		sleeps("a peer that reads late, " + addr)
		q.write(stats[:len(stats)/30])
		q.write(q.frame(proto.OpLookup, lookup, nil)[:5000])
		sleeps("half of a frame, " + addr)
		half, ok := q.conn.(interface{ CloseWrite() error })
		require.True(t, ok)
		require.NoError(t, half.CloseWrite())
		sleeps("half a close, " + addr)
		require.NoError(t, q.conn.Close())
		sleeps("a close, " + addr)

		for range 50 {
			q := dial(t, addr)
			q.hello()
			q.write(q.frame(proto.OpLookup, lookup, nil)[:100_000])
			if tcp, ok := q.conn.(*net.TCPConn); ok {
				require.NoError(t, tcp.SetLinger(0))
			}
			require.NoError(t, q.conn.Close())
		}
		sleeps("peers that break off, " + addr)
	}
	h, _, _ := p.call(proto.OpClear, proto.AppendClear(nil, &proto.Clear{Namespace: "test"}), nil)
	require.Equal(t, proto.StatusOK, h.Status)
	sleeps("a clear")
	p.ping()
}
