package server

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server/engine"
)

// checkHolders compares the sums and lists of holders with what their connections have.
func checkHolders(t *testing.T, r *reactor) {
	sum := 0
	for x := range r.holders.list {
		o := &r.holders.list[x]
		inList, bytes, named := 0, 0, 0
		last := uint32(0)
		for at := o.first; at != 0; at = r.conns[at-1].places[placeHeld].next {
			if r.conns[at-1].places[placeHeld].prev != last {
				t.Fatalf("connection %d comes after %d, and does not know it", at, last)
			}
			last = at
			inList++
		}
		require.Equal(t, last, o.last)
		for i := range r.conns {
			c := &r.conns[i]
			if x == 0 || c.held.holder != uint32(x) {
				continue
			}
			named++
			bytes += c.held.bytes
			if c.held.bytes > 0 {
				inList--
			}
		}
		require.Zero(t, inList)
		require.Equal(t, bytes, o.held)
		require.Equal(t, named, o.conns)
		sum += bytes
	}
	require.Equal(t, sum, r.input)
	require.LessOrEqual(t, r.input+r.spares.Held(), inputBudget)
}

// Connections of a few processes begin frames, go on with them, end them, and end themselves, at random: the sums are right
// after each step, and whoever is closed for want of memory is of the process that has most.
func TestWhoHoldsMostUnfinishedInputGivesWay(t *testing.T) {
	const conns, processes = 200, 3
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	fake, err := ringtest.NewFake(ring.Config{Ops: 8, Control: 2 * conns})
	require.NoError(t, err)
	r := &reactor{core: &recorder{}, ring: fake, log: slog.New(slog.DiscardHandler), limiter: newLimiter(), conns: make([]conn, conns)}
	for i := range r.conns {
		r.conns[i].id = engine.NewConnID(uint32(i), 0)
	}
	frame := proto.AppendFrame(nil, proto.Header{Op: proto.OpLookup, Flags: proto.FlagNoReply}, make([]byte, 500_000), 0)
	sent := make([]int, conns)
	for range 800 {
		c := &r.conns[random.IntN(conns)]
		i := c.id.Index()
		switch {
		case c.state == connFree:
			*c = conn{id: engine.NewConnID(i, c.id.Generation()+1), fd: -1, local: true, pid: 1 + int32(random.IntN(processes))}
			c.in.Init(nil, &r.spares)
			c.moveTo(connOpen)
			sent[i] = 0
		case random.IntN(50) == 0:
			r.abandon(c)
		default:
			n := len(frame) - sent[i]
			if random.IntN(8) > 0 {
				n = 1 + random.IntN(n)
			}
			piece := frame[sent[i] : sent[i]+n]
			most := 0
			for _, o := range r.holders.list {
				most = max(most, o.held)
			}
			before, others := r.stats.OverBudget, r.stats.Frames
			r.stats.Turns++
			r.share = 0
			r.feed(c.id, piece)
			if sent[i] = (sent[i] + n) % len(frame); sent[i] == 0 && c.state == connOpen {
				require.Equal(t, others+1, r.stats.Frames)
			}
			for _, x := range r.leaving {
				require.GreaterOrEqual(t, r.holders.list[r.conns[x].held.holder].held+1<<20, most, "a process that has less gives way")
			}
			require.Len(t, r.leaving, int(r.stats.OverBudget-before))
		}
		r.reapLeaving()
		r.events = r.events[:0]
		checkHolders(t, r)
	}
	require.Positive(t, r.stats.OverBudget)
	require.Positive(t, r.stats.Frames)
	for i := range r.conns {
		if c := &r.conns[i]; c.state == connOpen {
			r.abandon(c)
		}
	}
	r.reapLeaving()
	require.Empty(t, r.holders.of)
	require.Zero(t, r.input)
}

// The frame of a connection that always has one under way is as old as that frame, not as the connection's first: who has one
// that began longer ago gives way before it.
func TestTheOldestFrameGivesWayNotTheOldestBuffer(t *testing.T) {
	fake, err := ringtest.NewFake(ring.Config{Ops: 8, Control: 8})
	require.NoError(t, err)
	r := &reactor{core: &recorder{}, ring: fake, log: slog.New(slog.DiscardHandler), limiter: newLimiter(), conns: make([]conn, 2)}
	frame := proto.AppendFrame(nil, proto.Header{Op: proto.OpLookup, Flags: proto.FlagNoReply}, make([]byte, 500_000), 0)
	feed := func(i int, piece []byte) {
		r.stats.Turns++
		r.share = 0
		r.feed(r.conns[i].id, piece)
		r.step() // and what waited for its turn
	}
	for i := range r.conns {
		r.conns[i] = conn{id: engine.NewConnID(uint32(i), 1), fd: -1, local: true, pid: 1}
		r.conns[i].in.Init(nil, &r.spares)
		r.conns[i].moveTo(connOpen)
	}
	feed(0, frame[:300_000])
	feed(1, frame[:300_000])
	feed(0, append(bytes.Clone(frame[300_000:]), frame[:300_000]...))
	checkHolders(t, r)
	r.giveWay()
	require.Equal(t, connOpen, r.conns[0].state)
	require.Equal(t, connClosing, r.conns[1].state)
}

// An address of IPv6 is one of a network's, whose owner has as many as it likes; one of IPv4 may come as IPv6.
func TestHoldersOnTCPAreAddressesOrNetworks(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1": "127.0.0.1/32", "::1": "::/64", "::ffff:127.0.0.1": "127.0.0.1/32"} {
		at := netip.MustParseAddr(listen)
		l, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skip("no IPv6 here: ", err)
		}
		defer closeFd(l)
		if !at.Is6() {
			at = netip.AddrFrom16(at.As16())
		}
		require.NoError(t, unix.SetsockoptInt(l, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0))
		if err := unix.Bind(l, &unix.SockaddrInet6{Addr: at.As16()}); err != nil {
			t.Skip("no IPv6 here: ", err)
		}
		require.NoError(t, unix.Listen(l, 1))
		name, err := unix.Getsockname(l)
		require.NoError(t, err)
		out, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer closeFd(out)
		require.NoError(t, unix.Connect(out, name))
		require.Equal(t, want, holderOf(&conn{fd: out}).from.String())
	}
	require.Equal(t, holderKey{}, holderOf(&conn{fd: -1}))
	require.Equal(t, holderKey{pid: 7}, holderOf(&conn{fd: -1, local: true, pid: 7}))
}
