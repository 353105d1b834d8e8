package server_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// bare is a client that allocates nothing in a round trip.
type bare struct {
	fd   int
	send []byte
	in   [128 << 10]byte
}

// bareOf takes over the connection of p, for one request that is sent again and again.
func bareOf(t testing.TB, p *peer, frame []byte) *bare {
	t.Helper()
	file, err := p.conn.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	b := &bare{send: frame}
	require.NoError(t, file.Control(func(fd uintptr) { b.fd, err = unix.Dup(int(fd)) }))
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(b.fd, false))
	t.Cleanup(func() { _ = unix.Close(b.fd) })
	return b
}

// trip sends the request and reads its reply, which must come whole.
func (b *bare) trip() bool {
	if n, err := unix.Write(b.fd, b.send); err != nil || n != len(b.send) {
		return false
	}
	n, err := unix.Read(b.fd, b.in[:])
	return err == nil && n >= proto.HeaderSize
}

// lookup is the body of a request that finds its keys and holds nothing.
func lookup(keys int) []byte {
	in := proto.Lookup{Group: 1}
	for i := range keys {
		in.Keys = append(in.Keys, keyOf(i))
	}
	return proto.AppendLookup(nil, &in)
}

func TestARoundTripAllocatesNothing(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Logger = nil })
	p := greet(t, r)
	p.register(1 << 20)
	for i := range 16 {
		p.put(keyOf(i), valueOf(i, 1000))
	}
	for name, frame := range map[string][]byte{
		"ping":            p.frame(proto.OpPing, nil, nil),
		"lookup":          p.frame(proto.OpLookup, lookup(16), nil),
		"inline retrieve": p.frame(proto.OpPrepareRetrieve, retrieval(keyOf(1)), nil),
	} {
		t.Run(name, func(t *testing.T) {
			b := bareOf(t, p, frame)
			for range 100 {
				require.True(t, b.trip())
			}
			const trips = 2000
			good := true
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range trips {
				good = b.trip() && good
			}
			runtime.ReadMemStats(&after)
			require.True(t, good)
			// As testing.AllocsPerRun counts, which would leave the loop and its client one
			// processor; a few are the runtime's own.
			require.Zero(t, (after.Mallocs-before.Mallocs)/trips)
			require.Less(t, after.Mallocs-before.Mallocs, uint64(trips/20))
		})
	}
}

func TestAnIdleServerSleeps(t *testing.T) {
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	greet(t, r).register(1 << 20)
	before := scrape(t, r)["slotcache_turns_total"]
	time.Sleep(300 * time.Millisecond) // nothing is to happen in it
	require.LessOrEqual(t, scrape(t, r)["slotcache_turns_total"]-before, uint64(20))
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name string
		op   proto.Op
		body []byte
	}{{"ping", proto.OpPing, nil}, {"lookup16", proto.OpLookup, lookup(16)}, {"retrieve1000", proto.OpPrepareRetrieve, retrieval(keyOf(1))}} {
		b.Run(c.name, func(b *testing.B) {
			t := &testing.T{}
			r := start(t, func(c *server.Config) { c.Logger = nil })
			defer r.stop()
			p := greet(t, r)
			p.register(1 << 20)
			for i := range 16 {
				p.put(keyOf(i), valueOf(i, 1000))
			}
			client := bareOf(b, p, p.frame(c.op, c.body, nil))
			b.ReportAllocs()
			for b.Loop() {
				if !client.trip() {
					b.Fatal("no reply")
				}
			}
		})
	}
}
