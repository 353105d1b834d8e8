package server_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// BenchmarkLookupAgainstPing measures a lookup of many keys in memory that holds them, and
// its release (which asks for no reply), against a ping on the same socket in turn: so that
// what the machine does meanwhile falls on both alike. ns/op is of both together; the
// metrics are of each, as medians.
func BenchmarkLookupAgainstPing(b *testing.B) {
	for _, keys := range []int{512, proto.MaxKeys} {
		for _, o := range []proto.LookupOptions{0, proto.LookupHold, proto.LookupHold | proto.LookupSlots} {
			b.Run(fmt.Sprintf("keys=%d/hold=%v/slots=%v", keys, o&proto.LookupHold != 0, o&proto.LookupSlots != 0), func(b *testing.B) { lookupAgainstPing(b, keys, o) })
		}
	}
}

func lookupAgainstPing(b *testing.B, keys int, o proto.LookupOptions) {
	r := start(&testing.T{}, func(c *server.Config) { c.Logger, c.L1Size, c.Limits.InstanceCap = nil, 64<<20, 1<<40 })
	defer r.stop()
	p := greet(&testing.T{}, r)
	p.share(1, false)
	writer := greet(&testing.T{}, r)
	writer.register(1 << 20)
	in := proto.Lookup{Group: 1, Options: o}
	var values [][]byte
	for i := range keys {
		in.Keys = append(in.Keys, keyOf(i))
		values = append(values, valueOf(i, 64))
	}
	writer.putAll(in.Keys, values)
	ping := bareOf(b, p, p.frame(proto.OpPing, nil, nil))
	look := bareOf(b, p, p.frame(proto.OpLookup, proto.AppendLookup(nil, &in), nil))
	var x proto.LookupReply
	var pings, lookups []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		begin := time.Now()
		if !ping.trip() {
			b.Fatal("no pong")
		}
		between := time.Now()
		if !look.tripWhole() {
			b.Fatal("no reply")
		}
		lookups = append(lookups, time.Since(between))
		pings = append(pings, between.Sub(begin))
		h, err := proto.ParseHeader(look.in[:])
		if err != nil || proto.ParseLookupReply(look.in[proto.HeaderSize:h.Size], &x) != nil || int(x.Hits) != keys {
			b.Fatal(h.Status, x.Hits, err)
		}
		release := proto.AppendFrame(nil, proto.Header{Op: proto.OpRelease, Flags: proto.FlagNoReply, Boot: p.boot},
			proto.AppendRelease(nil, &proto.Release{Leases: []uint64{x.Lease}}), 0)
		if _, err := unix.Write(look.fd, release); err != nil {
			b.Fatal(err)
		}
		if !ping.trip() { // the release is done
			b.Fatal("no pong")
		}
	}
	slices.Sort(pings)
	slices.Sort(lookups)
	ping50, look50 := pings[len(pings)/2], lookups[len(lookups)/2]
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	b.ReportMetric(us(ping50), "ping-us")
	b.ReportMetric(us(look50), "lookup-us")
	b.ReportMetric(us(lookups[len(lookups)*99/100]), "lookup-p99-us")
	b.ReportMetric(us(look50-ping50), "difference-us")
	b.ReportMetric(us(look50)/us(ping50), "x-ping")
}

// tripWhole sends the request and reads its whole reply.
func (b *bare) tripWhole() bool {
	if n, err := unix.Write(b.fd, b.send); err != nil || n != len(b.send) {
		return false
	}
	for got, want := 0, proto.HeaderSize; got < want; {
		n, err := unix.Read(b.fd, b.in[got:])
		if err != nil || n == 0 {
			return false
		}
		got += n
		if got >= proto.HeaderSize {
			h, err := proto.ParseHeader(b.in[:])
			if err != nil {
				return false
			}
			want = int(h.Size)
		}
	}
	return true
}
