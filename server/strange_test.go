package server_test

import (
	"encoding/binary"
	"math"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// descriptor is the number of p's socket, which stays p's.
func (p *peer) descriptor() int {
	p.t.Helper()
	var raw interface{ Control(func(uintptr)) error }
	var err error
	switch c := p.conn.(type) {
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	}
	require.NoError(p.t, err)
	fd := -1
	require.NoError(p.t, raw.Control(func(n uintptr) { fd = int(n) }))
	return fd
}

// Urgent data: a byte beside the stream. The loop neither spins over what it cannot read nor minds what is missing
// then, and others notice nothing.
func TestUrgentDataNeitherSpinsNorEndsTheLoop(t *testing.T) {
	for _, where := range []int{0, 1} {
		for _, after := range []int{0, 1, 40, 5000} {
			r := start(t, func(c *server.Config) {
				c.HTTP = "127.0.0.1:0"
				c.Listen = append(c.Listen, "tcp:127.0.0.1:0")
			})
			good := greet(t, r)
			p := dial(t, r.Addrs()[where])
			p.hello()
			frame := p.frame(proto.OpLookup, make([]byte, 6000), nil)
			p.write(frame[:after])
			fd := p.descriptor()
			for range 5 {
				err := unix.Send(fd, []byte{'!'}, unix.MSG_OOB|unix.MSG_DONTWAIT)
				if err == unix.EOPNOTSUPP {
					t.Skip("this kernel has no urgent data on Unix sockets")
				}
			}
			good.ping()
			time.Sleep(25 * time.Millisecond) // what it has to do, it has done
			before := scrape(t, r)["slotcache_turns_total"]
			time.Sleep(100 * time.Millisecond)
			turns := scrape(t, r)["slotcache_turns_total"] - before
			require.Less(t, turns, uint64(100), "the loop spins: address %d, after %d bytes", where, after)
			good.ping()
			p.write(frame[after:])
			require.NoError(t, p.conn.Close())
			eventually(t, "it ends", func() bool { return good.stats()["connections"] == 1 })
			good.ping()
		}
	}
}

// Descriptors that nobody asked for, by the thousand: none stays open in the server.
func TestPassedDescriptorsAreNotKept(t *testing.T) {
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	good := greet(t, r)
	before := openFiles(t)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	var many []int
	for range 250 {
		many = append(many, int(null.Fd()))
	}
	for round := range 8 {
		p := greet(t, r)
		fd := p.descriptor()
		for i := range 50 {
			ping := p.frame(proto.OpPing, nil, nil)
			if round%2 == 1 {
				ping = ping[:1+i%(len(ping)-1)] // and within a frame
			}
			err := unix.Sendmsg(fd, ping, unix.UnixRights(many...), nil, unix.MSG_NOSIGNAL)
			if err == unix.ETOOMANYREFS || err == unix.EPIPE || err == unix.ECONNRESET || err == unix.EAGAIN {
				break
			}
			require.NoError(t, err)
		}
		good.ping()
		require.NoError(t, p.conn.Close())
	}
	require.NoError(t, null.Close())
	eventually(t, "all connections end", func() bool { return good.stats()["connections"] == 1 })
	eventually(t, "no descriptor stays", func() bool { return openFiles(t) <= before+1 }) // one of HTTP
	good.ping()
}

// Every field of every request at its ends: a status each, and nothing left of them.
func TestFieldsAtTheirEndsHaveAStatus(t *testing.T) {
	r := start(t, nil)
	good := greet(t, r)
	good.register(1 << 20)
	good.put(keyOf(1), valueOf(1, 5000))
	p := greet(t, r)
	p.register(1 << 20)
	keys := []proto.Key{keyOf(1), keyOf(2)}
	u64s := []uint64{0, 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 63, math.MaxUint64}
	u32s := []uint32{0, 1, 1 << 31, math.MaxUint32}
	u16s := []uint16{0, 1, 1 << 15, math.MaxUint16}
	try := func(op proto.Op, body []byte) {
		t.Helper()
		p.send(op, body, nil)
		h, _, _, err := p.read()
		require.NoError(t, err, "%v: %x", op, body)
		require.Equal(t, op, h.Op)
	}
	for _, n := range u64s {
		try(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: keys, Sizes: []uint64{n, n}}))
		for _, op := range []proto.Op{proto.OpAbortStore, proto.OpCommitRetrieve, proto.OpInstances, proto.OpTransfers} {
			try(op, binary.LittleEndian.AppendUint64(nil, n))
		}
		try(proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: n, Sums: []uint64{n}}))
		try(proto.OpRelease, proto.AppendRelease(nil, &proto.Release{Leases: []uint64{n, n, n}}))
		try(proto.OpEvict, proto.AppendEvict(nil, &proto.Evict{Instance: n}))
		for _, m := range u32s {
			try(proto.OpPrepareRetrieve, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Lease: n, First: m, Count: m}))
			try(proto.OpPrepareRetrieve, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Lease: n, First: m, Count: math.MaxUint32 - m + 1}))
		}
	}
	for _, n := range u32s {
		try(proto.OpPin, proto.AppendPin(nil, &proto.Pin{TTLMs: n, Hard: true, Keys: keys}))
		for _, m := range u16s {
			try(proto.OpLookup, proto.AppendLookup(nil, &proto.Lookup{Layout: m, Group: m, Options: proto.LookupOptions(m), WaitMs: n, Keys: keys}))
			try(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Layout: m, WaitMs: n, Keys: keys[:1], Sizes: []uint64{1}}))
		}
	}
	for _, m := range u16s {
		try(proto.OpDelete, proto.AppendDelete(nil, &proto.Delete{Layout: m, Keys: keys[1:]}))
		try(proto.OpTouch, proto.AppendTouch(nil, &proto.Touch{Layout: m, Keys: keys}))
		try(proto.OpUnpin, proto.AppendUnpin(nil, &proto.Unpin{Layout: m, Keys: keys}))
	}
	for op := range 256 { // a body of any other kind is one for none
		if proto.Op(op) != proto.OpUnregister {
			for _, b := range []byte{0, 0x7f, 0xff} {
				body := make([]byte, 64)
				for i := range body {
					body[i] = b
				}
				p.send(proto.Op(op), body, nil)
				_, _, _, err := p.read()
				require.NoError(t, err, "op %d of %x", op, b)
			}
		}
	}
	require.NoError(t, p.conn.Close())
	eventually(t, "nothing is left of it", func() bool {
		all := good.stats()
		return all["connections"] == 1 && all["transfers"] == 0 && all["l1_staged_bytes"] == 0 && all["l1_held_bytes"] == 0
	})
	st, value := good.get(keyOf(1))
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, valueOf(1, 5000), value)
}

// A peer that holds leases and never reads: its requests wait, it is closed for that, and what it held is free.
func TestADeafHolderOfLeasesLosesThem(t *testing.T) {
	r := start(t, func(c *server.Config) {
		c.HTTP = "127.0.0.1:0"
		c.Limits.ReaderTime = 50 * time.Millisecond
	})
	good := greet(t, r)
	good.register(1 << 20)
	good.put(keyOf(1), valueOf(1, 1<<20))
	p := greet(t, r)
	p.register(1 << 20)
	one := p.frame(proto.OpLookup, proto.AppendLookup(nil, &proto.Lookup{Group: 1, Options: proto.LookupHold, Keys: []proto.Key{keyOf(1)}}), nil)
	stats := p.frame(proto.OpStats, nil, nil)
	require.NoError(t, p.conn.SetWriteDeadline(time.Now().Add(patience)))
	for err := error(nil); err == nil; { // until it is closed
		if _, err = p.conn.Write(one); err == nil {
			_, err = p.conn.Write(stats)
		}
	}
	eventually(t, "its leases end", func() bool { return good.stats()["l1_held_bytes"] == 0 })
	require.Zero(t, good.stats()["transfers"])
	good.put(keyOf(2), valueOf(2, 1<<20))
}
