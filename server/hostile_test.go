package server_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// resident is this process's memory, in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

// A length prefix that is believed before its bytes have come: a thousand connections that send
// only a header, and counts of 2^32-1 keys in small bodies.
func TestLengthsAreNotBelievedBeforeTheirBytesCome(t *testing.T) {
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	good := greet(t, r)
	header := func(size, body uint32) []byte {
		h := good.frame(proto.OpLookup, nil, nil)
		binary.LittleEndian.PutUint32(h, size)
		binary.LittleEndian.PutUint32(h[12:], body)
		return h
	}
	for _, h := range [][]byte{
		header(math.MaxUint32, 0), header(1<<31, 1<<31-32), header(proto.MaxFrame+1, proto.MaxFrame+1-proto.HeaderSize), header(0, 0), header(31, 0), header(32, 1),
	} {
		p := greet(t, r)
		_, err := p.conn.Write(h)
		require.NoError(t, err)
		p.closed()
	}
	var open []*peer
	for range 1000 { // as much as a frame may announce
		p := dial(t, r.Addrs()[0])
		_, err := p.conn.Write(header(proto.MaxFrame, proto.MaxFrame-proto.HeaderSize))
		require.NoError(t, err)
		open = append(open, p)
	}
	eventually(t, "all headers are read", func() bool { return scrape(t, r)["slotcache_received_bytes_total"] >= 1000*proto.HeaderSize })
	require.LessOrEqual(t, scrape(t, r)["slotcache_input_buffer_bytes"], uint64(1001*4096))
	for _, p := range open {
		require.NoError(t, p.conn.Close())
	}
	good.register(4096)
	for op := proto.OpHello; op <= proto.OpPut; op++ {
		body := bytes.Repeat([]byte{0xff}, 20)
		h, _, _ := good.call(op, body, nil)
		require.NotEqual(t, proto.StatusOK, h.Status, op)
	}
	good.ping()
}

// A descriptor's number that is used again: replies to a request that its peer did not wait for
// must not reach who connects next.
func TestLateRepliesNeverReachTheNextConnection(t *testing.T) {
	r := start(t, func(c *server.Config) {
		c.L1Size, c.L2Dir, c.L2Size = 4<<20, filepath.Join(t.TempDir(), "l2"), 256<<20
	})
	writer := greet(t, r)
	writer.register(1 << 20)
	const values = 24
	for i := range values {
		writer.put(keyOf(i), valueOf(i, 512<<10))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		p := greet(t, r)
		p.register(1 << 20)
		var all []byte
		for range 8 { // they wait for the disk, or go out of the pool
			keys := []proto.Key{keyOf(random.IntN(values)), keyOf(random.IntN(values))}
			all = append(all, p.frame(proto.OpPrepareRetrieve, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: keys, WaitMs: 10_000, Mode: proto.RetrieveAll}), nil)...)
		}
		_, err := p.conn.Write(all)
		require.NoError(t, err)
		require.NoError(t, p.conn.Close())
		var next []*peer
		for n := range 10 {
			q := dial(t, r.Addrs()[0])
			q.last = 1_000_000 + uint64(n)*1000 // ids that the other had not
			q.hello()
			next = append(next, q)
		}
		for _, q := range next {
			for range 3 {
				q.ping() // call requires the reply's id to be that of the request
			}
			require.NoError(t, q.conn.Close())
		}
	}
	eventually(t, "nothing is left of them", func() bool {
		all := writer.stats()
		return all["instances"] == 1 && all["transfers"] == 0 && all["ops_in_flight"] == 0
	})
}

// One connection's error ends the whole loop: a TCP reset in every state of a connection.
func TestAResetInAnyStateEndsOnlyItsConnection(t *testing.T) {
	r := start(t, func(c *server.Config) {
		c.Listen = append(c.Listen, "tcp:127.0.0.1:0")
		c.HTTP = "127.0.0.1:0"
	})
	good := greet(t, r)
	good.register(1 << 20)
	good.put(keyOf(1), valueOf(1, 1<<20))
	before := openFiles(t)
	states := map[string]func(p *peer){
		"at once":      func(*peer) {},
		"within HELLO": func(p *peer) { p.write(p.frame(proto.OpHello, make([]byte, 17), nil)[:20]) },
		"HELLO not answered": func(p *peer) {
			p.write(p.frame(proto.OpHello, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1}), nil))
		},
		"greeted":             func(p *peer) { p.hello() },
		"within a header":     func(p *peer) { p.hello(); p.write(p.frame(proto.OpPing, nil, nil)[:7]) },
		"within a body":       func(p *peer) { p.hello(); p.write(p.frame(proto.OpLookup, make([]byte, 100_000), nil)[:50_000]) },
		"registered":          func(p *peer) { p.hello(); p.register(1 << 20) },
		"within a payload":    func(p *peer) { p.write(p.halfCommit(p.t)) },
		"after a payload":     func(p *peer) { p.write(append(p.halfCommit(p.t), make([]byte, 1<<19)...)) },
		"before many replies": func(p *peer) { p.hello(); p.write(bytes.Repeat(p.frame(proto.OpStats, nil, nil), 500)) },
		"within a reply": func(p *peer) {
			p.hello()
			p.register(1 << 20)
			p.write(bytes.Repeat(p.frame(proto.OpPrepareRetrieve, retrieval(keyOf(1)), nil), 20)) // from the pool
			_, _ = p.conn.Read(make([]byte, 1000))
		},
		"half closed": func(p *peer) {
			p.hello()
			p.write(p.frame(proto.OpPing, nil, nil))
			_ = p.conn.(*net.TCPConn).CloseWrite()
		},
	}
	for range 5 {
		for _, state := range states {
			p := dial(t, r.Addrs()[1])
			require.NoError(t, p.conn.(*net.TCPConn).SetLinger(0)) // closing sends RST
			state(p)
			require.NoError(t, p.conn.Close())
		}
		good.ping()
	}
	eventually(t, "all connections end", func() bool { return good.stats()["connections"] == 1 })
	eventually(t, "all descriptors are closed", func() bool { return openFiles(t) <= before+1 }) // one of HTTP
	all := scrape(t, r)
	require.Zero(t, all["slotcache_output_queued_bytes"])
	require.Zero(t, all["slotcache_ops_in_flight"])
	require.Equal(t, uint64(1), all["slotcache_instances"])
	st, value := good.get(keyOf(1))
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, valueOf(1, 1<<20), value)
}

// write writes what the server may not want any more.
func (p *peer) write(b []byte) { _, _ = p.conn.Write(b) }

// Hostile ids: requests that are all rejected, each with another key, and handles that were
// never given, leave nothing behind.
func TestRejectedRequestsWithoutEndTakeNoMemory(t *testing.T) {
	r := start(t, nil)
	p := greet(t, r)
	p.register(4096)
	const batch = 500
	batches := 700 // a million requests
	if cmdtest.Race {
		batches = 100
	}
	storm := func(n int) {
		var all []byte
		for i := range batch {
			key := keyOf(n*batch + i)
			all = append(all, p.frame(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{key}, Sizes: []uint64{1 << 40}}), nil)...)
			all = append(all, p.frame(proto.OpCommitRetrieve, proto.AppendCommitRetrieve(nil, &proto.CommitRetrieve{Transfer: uint64(n*batch+i)<<32 | 1}), nil)...)
			all = append(all, p.frame(200, nil, nil)...)
		}
		var group sync.WaitGroup
		group.Go(func() { p.write(all) })
		for range 3 * batch {
			h, body, _ := p.receive()
			var out proto.PrepareStoreReply
			if h.Op == proto.OpPrepareStore {
				require.NoError(t, proto.ParsePrepareStoreReply(body, &out))
				require.Equal(t, proto.StatusTooLarge, out.Results[0].Status)
				require.Zero(t, out.Transfer)
			}
		}
		group.Wait()
	}
	const warm = 64 // until all receive buffers have been used once, which the race detector takes memory for, too
	for n := range warm {
		storm(n)
	}
	before := resident(t)
	for n := range batches {
		storm(warm + n)
	}
	require.Less(t, resident(t)-before, int64(16<<20))
	all := p.stats()
	require.Zero(t, all["transfers"])
	require.Zero(t, all["l1_used_bytes"])
	require.GreaterOrEqual(t, all["requests_total"], uint64(3*batch*batches))
}

// One that floods, by as many connections as it likes, does not make turns long: that is what
// others wait for, whose requests are served in the turn in which they come.
func TestAFloodDoesNotMakeTurnsLong(t *testing.T) {
	const flooders = 12
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	honest := greet(t, r)
	stop := make(chan struct{})
	var group sync.WaitGroup
	var flood []*peer
	for range flooders {
		p := greet(t, r)
		many := bytes.Repeat(p.frame(proto.OpPing, nil, nil), 4000)
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := p.conn.Write(many); err != nil {
					return
				}
			}
		})
		group.Go(func() {
			replies := make([]byte, 1<<20)
			for {
				if _, err := p.conn.Read(replies); err != nil {
					return
				}
			}
		})
		flood = append(flood, p)
	}
	eventually(t, "the flood is there", func() bool { return scrape(t, r)["slotcache_frames_total"] > 20_000 })
	before := scrape(t, r)
	began := time.Now()
	for range 200 {
		honest.ping()
	}
	each := time.Since(began) / 200
	after := scrape(t, r)
	frames := float64(after["slotcache_frames_total"] - before["slotcache_frames_total"])
	turns := float64(after["slotcache_turns_total"] - before["slotcache_turns_total"])
	t.Logf("%.0f frames a turn, %v a ping beside %.0f frames", frames/turns, each, frames)
	require.Less(t, frames/turns, 1000.0)
	close(stop)
	for _, p := range flood {
		require.NoError(t, p.conn.Close())
	}
	group.Wait()
}
