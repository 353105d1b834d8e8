package engine

import (
	"testing"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// FuzzEngine lets two workers send arbitrary frames, lose their connections and die, while
// the disk does its work in between. Nothing they do may panic or break an invariant, and
// afterwards all they had comes back and a third is served.
func FuzzEngine(f *testing.F) {
	add := func(parts ...[]byte) {
		var in []byte
		for _, p := range parts {
			in = append(in, p...)
		}
		f.Add(in)
	}
	frame := func(who byte, op proto.Op, body []byte) []byte {
		return append([]byte{who, byte(op), byte(len(body)), byte(len(body) >> 8)}, body...)
	}
	keys := testKeys("a", "b", "c")
	prepare := proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: keys, Sizes: []uint64{4096, 0, 9000}, WaitMs: 100})
	commit := proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: 1 << 32})
	lookup := proto.AppendLookup(nil, &proto.Lookup{Group: 1, Options: 7, WaitMs: 50, Keys: keys})
	add(frame(0, proto.OpPrepareStore, prepare), frame(0, proto.OpCommitStore, commit), frame(1, proto.OpLookup, lookup), []byte{4}, []byte{2})
	add(frame(1, proto.OpPrepareStore, prepare), []byte{3}, frame(0, proto.OpPrepareStore, prepare), []byte{5}, []byte{2})
	add(frame(0, proto.OpPrepareRetrieve, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: keys, WaitMs: 9})), []byte{6})
	add(frame(0, proto.OpDelete, proto.AppendDelete(nil, &proto.Delete{Keys: keys})), frame(1, proto.OpClear, proto.AppendClear(nil, &proto.Clear{})))
	add(frame(1, proto.OpUnregister, nil), frame(1, proto.OpStats, nil), frame(0, proto.OpTransfers, proto.AppendTransfers(nil, &proto.Transfers{})))

	f.Fuzz(func(t *testing.T, in []byte) {
		w := newWorld(t, setup{slots: 16, diskSize: 1 << 20, segment: 64 << 10, cfg: Config{Conns: 8, Ops: 64, Entries: 64, Transfers: 16, Parked: 4}})
		w.quiet = true // invariants now and then: after each step they would be most of the time
		who := [2]*client{w.worker(1, 100), w.worker(2, 200)}
		for len(in) > 0 {
			b := in[0]
			in = in[1:]
			if b&0x70 == 0x70 {
				if err := w.e.CheckInvariants(); err != nil {
					t.Fatal(err)
				}
			}
			switch b % 8 {
			case 0, 1:
				if len(in) < 3 {
					in = nil
					break
				}
				n := min(int(in[1])|int(in[2])<<8, len(in)-3)
				op, body := proto.Op(in[0]), in[3:3+n]
				in = in[3+n:]
				flags := proto.Flags(b>>3) & (proto.FlagNoReply | proto.FlagInline)
				var payload []byte
				if b&0x80 != 0 {
					payload = w.pool[:4096]
				}
				c := who[b%2]
				if st := w.e.conns[c.id.Index()].state; st == connReady {
					c.post(op, flags, body, payload)
				}
			case 2:
				w.settle()
			case 3, 4:
				i := b % 2
				who[i].close()
				if b&8 != 0 {
					w.dies(who[i].pid)
				}
				who[i] = w.worker(uint64(i)+1, who[i].pid)
			case 5:
				w.advance(time.Duration(b) * time.Second)
			case 6:
				if len(w.ios) > 0 {
					w.endIO(int(b) % len(w.ios))
				}
			case 7:
				if len(w.events) > 0 {
					w.event(int(b) % len(w.events))
				}
			}
		}
		for _, c := range who {
			if w.e.conns[c.id.Index()].state != connFree {
				c.close()
			}
			w.dies(c.pid)
		}
		w.settle()
		w.quiet = false
		w.check()
		w.baseline()
		w.worker(3, 300).store(slotSize, "z")
	})
}
