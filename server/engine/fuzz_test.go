package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// fuzzSetup is as small as an engine can be: making it is most of what a short input costs.
func fuzzSetup() setup {
	return setup{
		slots: 16, diskSize: 256 << 10, segment: 64 << 10, records: 100, arena: seglog.ArenaMin, quiet: true,
		cfg: Config{Conns: 8, Ops: 32, Entries: 64, Transfers: 16, Parked: 4, Instances: 5, Objects: 32, LeaseTime: 30 * time.Second, PinTime: time.Minute},
	}
}

// fuzzer is two workers, each with one connection, whose every byte the input chooses.
type fuzzer struct {
	*world
	in  []byte
	who [2]*client
}

// FuzzEngine lets two workers send arbitrary frames, lose their connections and die, while
// the disk does its work in between. Nothing they do may panic or break an invariant, and
// afterwards all they had comes back and a third is served.
func FuzzEngine(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<12 {
			return
		}
		z := &fuzzer{world: newWorld(t, fuzzSetup()), in: in}
		z.slow = true
		z.who = [2]*client{z.worker(1, 100), z.worker(2, 200)}
		for len(z.in) > 0 {
			z.act()
		}
		z.settle()
		require.Equal(t, none, z.e.parkedFirst, "a request waits and nothing is under way")
		for _, c := range z.who {
			if z.e.conns[c.id.Index()].state != connFree {
				c.close()
			}
			z.dies(c.pid)
		}
		z.settle()
		z.quiet = false
		z.check()
		z.baseline()
		third := z.worker(3, 300)
		out := third.prepared(third.prepare(0, slotSize, "z"))
		require.Equal(t, proto.StatusReserved, out.Results[0].Status)
		z.advance(z.e.cfg.PinTime)
		z.settle()
		require.Equal(t, [2]int64{}, z.gauge(), "a pin outlives its time")
	})
}

// act does what the next byte says.
func (z *fuzzer) act() {
	b := z.in[0]
	z.in = z.in[1:]
	c := z.who[b%2]
	switch b % 8 {
	case 0, 1:
		z.frame(b, c)
	case 2:
		z.settle()
	case 3, 4:
		c.close()
		if b&8 != 0 {
			z.dies(c.pid)
		}
		z.who[b%2] = z.worker(uint64(b%2)+1, c.pid)
	case 5:
		z.advance(time.Duration(b) * time.Second)
	case 6:
		if len(z.ios) > 0 {
			z.endIO(int(b/8) % len(z.ios))
		}
	case 7:
		if b&0x70 == 0x70 {
			z.quiet = false
			z.check()
			z.quiet = true
		}
		if len(z.events) > 0 {
			z.event(int(b/8) % len(z.events))
		}
	}
}

// frame sends a frame of what follows in the input.
func (z *fuzzer) frame(b byte, c *client) {
	if len(z.in) < 3 {
		z.in = nil
		return
	}
	n := min(int(z.in[1])|int(z.in[2])<<8, len(z.in)-3)
	op, body := proto.Op(z.in[0]), z.in[3:3+n]
	z.in = z.in[3+n:]
	var payload []byte
	if b&0x80 != 0 {
		payload = z.pool[:4096]
	}
	if z.e.conns[c.id.Index()].state == connReady && !z.receiving(c.id) {
		c.post(op, proto.Flags(b>>3)&(proto.FlagNoReply|proto.FlagInline), body, payload)
	}
}

// fuzzSeeds are sessions as workers have them. Handles are as the engine gives them in a
// new world: generation 1 of the first places.
func fuzzSeeds(f *testing.F) {
	const settle, endIO, event = 2, 6, 7
	frame := func(who byte, op proto.Op, body []byte) []byte {
		return append([]byte{who, byte(op), byte(len(body)), byte(len(body) >> 8)}, body...)
	}
	add := func(parts ...[]byte) {
		var in []byte
		for _, p := range parts {
			in = append(in, p...)
		}
		f.Add(in)
	}
	keys := testKeys("a", "b", "c")
	prepare := proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: keys, Sizes: []uint64{4096, 0, 9000}, WaitMs: 100})
	large := proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: testKeys("d", "e"), Sizes: []uint64{30000, 30000}, WaitMs: 9000})
	one := proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: testKeys("i"), Sizes: []uint64{4096}})
	commit := proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: 1 << 32})
	lookup := proto.AppendLookup(nil, &proto.Lookup{Group: 1, Options: 7, WaitMs: 50, Keys: keys})
	lease := proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Lease: 2 << 32, Count: 2})
	retrieve := proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: keys, WaitMs: 9})
	register := proto.AppendRegister(nil, &proto.Register{Instance: 2, Want: proto.TransportShared, Namespace: "other", Layouts: []proto.Layout{{Name: "l", Size: 9}}})
	add(frame(0, proto.OpPrepareStore, prepare), frame(0, proto.OpCommitStore, commit), frame(1, proto.OpLookup, lookup), frame(0, proto.OpPrepareRetrieve, lease), []byte{4, settle})
	add(frame(1, proto.OpPrepareStore, prepare), []byte{3}, frame(0, proto.OpPrepareStore, prepare), []byte{5, settle})
	add(frame(0, proto.OpPrepareStore, prepare), frame(0, proto.OpCommitStore, commit), frame(1, proto.OpPrepareStore, large), frame(1, proto.OpLookup, lookup),
		frame(1, proto.OpUnregister, nil), []byte{endIO, endIO, settle})
	add(frame(0, proto.OpPrepareStore, prepare), frame(0, proto.OpCommitStore, commit), frame(32, proto.OpPrepareRetrieve, retrieve), []byte{event}, frame(1, proto.OpRegister, register))
	add(frame(32, proto.OpPrepareStore, one), frame(0x80|32, proto.OpCommitStore, commit), []byte{event, settle}, frame(1, proto.OpDelete, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("i")})))
	add(frame(0, proto.OpDelete, proto.AppendDelete(nil, &proto.Delete{Keys: keys})), frame(1, proto.OpClear, proto.AppendClear(nil, &proto.Clear{Namespace: "space"})))
	for _, kill := range []bool{false, true} {
		evict := proto.AppendEvict(nil, &proto.Evict{Instance: 1, Kill: kill})
		add(frame(0, proto.OpPrepareStore, prepare), frame(1, proto.OpEvict, evict), frame(0, proto.OpCommitStore, commit), []byte{event},
			frame(0, proto.OpAbortStore, proto.AppendAbortStore(nil, &proto.AbortStore{Transfer: 1 << 32})), frame(1, proto.OpEvict, evict), []byte{settle})
	}
	for _, hard := range []bool{false, true} {
		pin := proto.AppendPin(nil, &proto.Pin{Hard: hard, TTLMs: 20_000, Keys: keys})
		unpin := proto.AppendUnpin(nil, &proto.Unpin{Keys: testKeys("a")})
		add(frame(0, proto.OpPrepareStore, prepare), frame(0, proto.OpCommitStore, commit), frame(1, proto.OpPin, pin), []byte{endIO, endIO},
			frame(1, proto.OpPrepareStore, large), frame(0, proto.OpUnpin, unpin), frame(1, proto.OpDelete, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("b")})),
			[]byte{13}, frame(0, proto.OpPin, pin), []byte{settle, 21}, frame(0, proto.OpClear, proto.AppendClear(nil, &proto.Clear{})))
	}
	put := proto.AppendPut(nil, &proto.Put{Key: keys[0]})
	add(frame(0x80|32, proto.OpPut, put), []byte{event}, frame(0x80|33, proto.OpPut, put), frame(0x80|32, proto.OpPut, proto.AppendPut(nil, &proto.Put{Key: keys[1]})),
		frame(1, proto.OpDelete, proto.AppendDelete(nil, &proto.Delete{Keys: keys})), []byte{event, settle}, frame(33, proto.OpPut, put))
	add(frame(1, proto.OpUnregister, nil), frame(1, proto.OpStats, nil), frame(0, proto.OpTransfers, proto.AppendTransfers(nil, &proto.Transfers{})))
}
