package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// BenchmarkLookupSteps is what a lookup of 512 keys costs the engine, without a socket: until its reply is there (answer), and what
// comes behind it (after): the policy's uses, or the release of the holds. Eight sets of keys are asked for in turn. The metrics are
// the medians and tenths of ns for a lookup.
func BenchmarkLookupSteps(b *testing.B) {
	for _, o := range []proto.LookupOptions{0, proto.LookupHold, proto.LookupHold | proto.LookupSlots} {
		b.Run(fmt.Sprintf("hold=%v/slots=%v", o&proto.LookupHold != 0, o&proto.LookupSlots != 0), func(b *testing.B) { lookupSteps(b, o) })
	}
}

func lookupSteps(b *testing.B, o proto.LookupOptions) {
	const sets, keys = 8, 512
	w := newWorld(b, setup{slots: 3 * sets * keys, quiet: true, cfg: Config{Policy: table.PolicyAdaptive, InstanceCap: 1 << 40}})
	a := w.worker(1, 100)
	all := names("k", sets*keys)
	for part := range slices.Chunk(all, keys) {
		a.store(slotSize, part...)
	}
	h := &bareHost{e: w.e, w: w}
	w.e.host = h
	c := &cycle{h: h, frame: Event{Kind: EventFrame, Conn: a.id, Header: proto.Header{Version: 1, Boot: testBoot}}}
	in := proto.Lookup{Group: 1, Options: o}
	var bodies [][]byte
	for part := range slices.Chunk(all, keys) {
		in.Keys = testKeys(part...)
		bodies = append(bodies, proto.AppendLookup(nil, &in))
	}
	c.rel.Leases = make([]uint64, 1)
	var answers, afters []time.Duration
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.body = bodies[i%sets]
		c.frame.Header.Op, c.frame.Body = proto.OpLookup, c.body
		c.frame.Header.Body, c.frame.Header.Size = uint32(len(c.body)), uint32(proto.HeaderSize+len(c.body))
		begin := time.Now()
		w.e.Step(&c.frame)
		answers = append(answers, time.Since(begin))
		if proto.ParseLookupReply(h.last[proto.HeaderSize:], &c.outL) != nil || c.outL.Hits != keys {
			b.Fatal(c.outL.Hits)
		}
		c.rel.Leases[0] = c.outL.Lease
		c.body = proto.AppendRelease(nil, &c.rel)
		begin = time.Now()
		if o&proto.LookupHold != 0 {
			c.frame.Header.Op, c.frame.Body = proto.OpRelease, c.body
			c.frame.Header.Body, c.frame.Header.Size = uint32(len(c.body)), uint32(proto.HeaderSize+len(c.body))
			w.e.Step(&c.frame)
		} else {
			w.e.Step(&Event{Kind: EventTick})
		}
		afters = append(afters, time.Since(begin))
	}
	report(b, answers, "answer")
	report(b, afters, "after")
}

// report says what the steps of a kind took: the medians and tenths.
func report(b *testing.B, list []time.Duration, name string) {
	slices.Sort(list)
	b.ReportMetric(float64(list[len(list)/2]), name+"-p50-ns")
	b.ReportMetric(float64(list[len(list)/10]), name+"-p10-ns")
}

// BenchmarkPrepareSteps is what a PREPARE of 512 keys costs the engine, of which none are there or all, and its abort.
func BenchmarkPrepareSteps(b *testing.B) {
	const keys = 512
	for _, there := range []bool{false, true} {
		b.Run(fmt.Sprintf("there=%v", there), func(b *testing.B) {
			w := newWorld(b, setup{slots: 8 * keys, quiet: true, cfg: Config{Policy: table.PolicyAdaptive, InstanceCap: 1 << 40}})
			a := w.worker(1, 100)
			h := &bareHost{e: w.e, w: w}
			if there {
				a.store(slotSize, names("k", keys)...)
			}
			w.e.host = h
			c := &cycle{h: h, frame: Event{Kind: EventFrame, Conn: a.id, Header: proto.Header{Version: 1, Boot: testBoot}}}
			in := proto.PrepareStore{Keys: testKeys(names("k", keys)...)}
			for range keys {
				in.Sizes = append(in.Sizes, slotSize)
			}
			body := proto.AppendPrepareStore(nil, &in)
			var prepares, aborts []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				c.body = body
				begin := time.Now()
				c.request(proto.OpPrepareStore)
				prepares = append(prepares, time.Since(begin))
				if proto.ParsePrepareStoreReply(h.last[proto.HeaderSize:], &c.outP) != nil || (c.outP.Transfer == 0) != there {
					b.Fatal(c.outP.Transfer)
				}
				if c.abort.Transfer = c.outP.Transfer; there {
					continue
				}
				c.body = proto.AppendAbortStore(nil, &c.abort)
				begin = time.Now()
				c.request(proto.OpAbortStore)
				aborts = append(aborts, time.Since(begin))
			}
			report(b, prepares, "prepare")
			if !there {
				report(b, aborts, "abort")
			}
		})
	}
}
