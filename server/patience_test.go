package server_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// impatient is a server that closes slow peers soon. Those that do not say HELLO it gives
// enough time for a machine that is busy.
func impatient(t *testing.T) *running {
	return start(t, func(c *server.Config) {
		c.HTTP = "127.0.0.1:0"
		c.Listen = append(c.Listen, "tcp:127.0.0.1:0")
		c.Limits.HelloTime = 2 * time.Second
		c.Limits.FrameTime = 50 * time.Millisecond
		c.Limits.ReaderTime = 50 * time.Millisecond
	})
}

// An incomplete frame, or payload, keeps its memory, and its slots, only so long.
func TestSlowWritersAreClosed(t *testing.T) {
	r := impatient(t)
	var all []*peer
	for _, addr := range r.Addrs() {
		for name, part := range map[string]func(p *peer) []byte{
			"nothing at all": func(*peer) []byte { return nil },
			"a byte":         func(*peer) []byte { return []byte{32} },
			"half a HELLO":   func(p *peer) []byte { return p.frame(proto.OpHello, make([]byte, 17), nil)[:40] },
			"half a header":  func(p *peer) []byte { p.hello(); return p.frame(proto.OpPing, nil, nil)[:16] },
			"half a body":    func(p *peer) []byte { p.hello(); return p.frame(proto.OpLookup, make([]byte, 1000), nil)[:500] },
			"half a payload": func(p *peer) []byte { return p.halfCommit(t) },
			"half a put": func(p *peer) []byte {
				p.hello()
				p.register(1 << 20)
				return p.frame(proto.OpPut, proto.AppendPut(nil, &proto.Put{Key: keyOf(2)}), make([]byte, 1<<20))[:1<<19]
			},
			"half of what's lost": func(p *peer) []byte {
				p.hello()
				return p.frame(proto.OpCommitStore, make([]byte, 12), make([]byte, 500))[:200]
			},
		} {
			p := dial(t, addr)
			_, err := p.conn.Write(part(p))
			require.NoError(t, err, name)
			all = append(all, p)
		}
	}
	for _, p := range all {
		p.closed()
	}
	eventually(t, "all are counted", func() bool { return scrape(t, r)["slotcache_slow_peers_total"] >= 16 })
	eventually(t, "their slots are free", func() bool { return scrape(t, r)["slotcache_l1_used_bytes"] == 0 })
}

// halfCommit prepares a store and returns half of its commit.
func (p *peer) halfCommit(t *testing.T) []byte {
	p.hello()
	p.register(1 << 20)
	_, body, _ := p.call(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{keyOf(1)}, Sizes: []uint64{1 << 20}}), nil)
	var out proto.PrepareStoreReply
	require.NoError(t, proto.ParsePrepareStoreReply(body, &out))
	return p.frame(proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), make([]byte, 1<<20))[:1<<19]
}

// A slowloris sends a byte now and then, which is no progress; a peer that is slow and
// sends whole frames is only idle.
func TestABytePerTimeoutDoesNotKeepAFrameOpen(t *testing.T) {
	r := impatient(t)
	p := greet(t, r)
	frame := p.frame(proto.OpLookup, make([]byte, 4000), nil)
	for i := range frame {
		if _, err := p.conn.Write(frame[i : i+1]); err != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
		require.Less(t, i, len(frame)-2, "the frame could be sent")
	}
	p.closed()
}

func TestIdlePeersAreNotClosed(t *testing.T) {
	r := impatient(t)
	p := greet(t, r)
	for range 3 {
		time.Sleep(150 * time.Millisecond)
		p.ping()
	}
	require.Zero(t, scrape(t, r)["slotcache_slow_peers_total"])
}

// Bounded output, then backpressure, then the end. Other peers notice nothing.
func TestAPeerThatNeverReadsIsClosed(t *testing.T) {
	r := impatient(t)
	p := greet(t, r)
	require.NoError(t, p.conn.(*net.UnixConn).SetReadBuffer(4096))
	one := p.frame(proto.OpStats, nil, nil)
	var err error
	require.NoError(t, p.conn.SetWriteDeadline(time.Now().Add(patience)))
	for err == nil {
		_, err = p.conn.Write(one)
	}
	require.ErrorIs(t, err, unix.EPIPE, "it was closed, not waited for")
	require.EqualValues(t, 1, scrape(t, r)["slotcache_slow_peers_total"])
	require.Less(t, scrape(t, r)["slotcache_output_buffer_bytes"], uint64(1<<20))
	greet(t, r).ping()
}
