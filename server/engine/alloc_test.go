package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// A bareHost does the least a host can: it keeps the last frame and carries out I/Os when
// told to, without allocating.
type bareHost struct {
	e     *Engine
	w     *world
	last  []byte
	ios   [256]seglog.IO
	count int
}

func (h *bareHost) Send(_ ConnID, frame []byte) { h.last = append(h.last[:0], frame...) }
func (h *bareHost) SendPool(ConnID, []byte, []table.Extent, OpID) {
	panic("no inline transport here")
}
func (h *bareHost) SendPoolFD(_ ConnID, frame []byte, _ PoolAccess) { h.Send(0, frame) }
func (h *bareHost) Receive(ConnID, []table.Extent, OpID)            { panic("no inline transport here") }
func (h *bareHost) Hangup(ConnID)                                   {}
func (h *bareHost) Watch(ConnID, WatchID)                           {}
func (h *bareHost) Unwatch(WatchID)                                 {}
func (h *bareHost) DiskRoom() int                                   { return len(h.ios) - h.count }

func (h *bareHost) Disk(io *seglog.IO) {
	h.ios[h.count] = *io
	h.count++
}

// cycle is one request after another as a worker makes them, and the disk's work.
type cycle struct {
	h      *bareHost
	keys   []proto.Key
	frame  Event
	body   []byte
	n      byte // keys come again after 256 rounds: by then they are on disk, or evicted there too
	hits   int
	prep   proto.PrepareStore
	commit proto.CommitStore
	look   proto.Lookup
	rel    proto.Release
	get    proto.PrepareRetrieve
	end    proto.CommitRetrieve
	outP   proto.PrepareStoreReply
	outL   proto.LookupReply
	outR   proto.PrepareRetrieveReply
}

func (c *cycle) request(op proto.Op) []byte {
	c.frame.Header.Op = op
	c.frame.Body = c.body
	c.h.e.Step(&c.frame)
	c.drain()
	return c.h.last[proto.HeaderSize:]
}

func (c *cycle) drain() {
	c.h.e.Flush(0)
	for c.h.count > 0 || c.h.e.log != nil && c.h.e.log.Pending() {
		if c.h.count == 0 {
			c.h.e.Flush(0)
			continue
		}
		c.h.count--
		io := c.h.ios[c.h.count]
		ev := Event{Kind: EventDisk, Disk: io.ID}
		if io.Kind == seglog.IOCreate {
			c.h.w.disk.files[io.Addr.Segment] = c.h.w.pool[:0]
		}
		if io.Kind == seglog.IORead || io.Kind == seglog.IOWrite || io.Kind == seglog.IOSum {
			ev.Res = io.Mem.Len
		}
		if io.Kind == seglog.IOSum {
			ev.Sum = 42 // this disk keeps nothing: all values look alike
		}
		c.h.e.Step(&ev)
		c.h.e.Flush(0)
	}
}

func (c *cycle) run() {
	c.n++
	for i := range c.keys {
		c.keys[i][0] = c.n
	}
	c.body = proto.AppendPrepareStore(c.body[:0], &c.prep)
	if proto.ParsePrepareStoreReply(c.request(proto.OpPrepareStore), &c.outP) != nil {
		panic("prepare")
	}
	c.commit.Transfer = c.outP.Transfer
	c.body = proto.AppendCommitStore(c.body[:0], &c.commit)
	c.request(proto.OpCommitStore)
	c.body = proto.AppendLookup(c.body[:0], &c.look)
	if proto.ParseLookupReply(c.request(proto.OpLookup), &c.outL) != nil {
		panic("lookup")
	}
	c.hits += int(c.outL.Hits)
	c.rel.Leases[0] = c.outL.Lease
	c.body = proto.AppendRelease(c.body[:0], &c.rel)
	c.request(proto.OpRelease)
	c.body = proto.AppendPrepareRetrieve(c.body[:0], &c.get)
	c.end.Transfer = 0
	if got := c.request(proto.OpPrepareRetrieve); len(got) > 0 { // else a miss
		if proto.ParsePrepareRetrieveReply(got, &c.outR) != nil {
			panic("retrieve")
		}
		c.end.Transfer = c.outR.Transfer
	}
	c.body = proto.AppendCommitRetrieve(c.body[:0], &c.end)
	c.request(proto.OpCommitRetrieve)
	c.body = c.body[:0]
	c.request(proto.OpPing)
}

func newCycle(t testing.TB, disk bool) *cycle {
	s := setup{slots: 256}
	if disk {
		s.diskSize, s.segment = 16<<20, 1<<20
	}
	w := newWorld(t, s)
	w.quiet = true
	cl := w.worker(1, 100)
	w.settle()
	h := &bareHost{e: w.e, w: w}
	w.e.host = h
	c := &cycle{h: h, keys: testKeys(names("k", 8)...)}
	c.frame = Event{Kind: EventFrame, Conn: cl.id, Header: proto.Header{Version: 1, Boot: testBoot}}
	c.prep = proto.PrepareStore{Keys: c.keys, Sizes: make([]uint64, len(c.keys))}
	for i := range c.prep.Sizes {
		c.prep.Sizes[i] = slotSize
	}
	c.look = proto.Lookup{Group: 1, Options: proto.LookupHold | proto.LookupLoad | proto.LookupSlots, WaitMs: 1000, Keys: c.keys}
	c.get = proto.PrepareRetrieve{Keys: c.keys}
	c.rel.Leases = make([]uint64, 1)
	return c
}

func TestRequestsAllocateNothing(t *testing.T) {
	for _, disk := range []bool{false, true} {
		c := newCycle(t, disk)
		for range 600 { // through every part of the log once, and all buffers to their size
			c.run()
		}
		require.Zero(t, testing.AllocsPerRun(500, c.run), "with disk: %v", disk)
		require.Greater(t, c.hits, 4000)
		if disk {
			require.NotZero(t, c.h.e.counters.LoadedBytes)
		}
	}
}

func BenchmarkStoreLookupRetrieve(b *testing.B) {
	for name, disk := range map[string]bool{"memory": false, "disk": true} {
		b.Run(name, func(b *testing.B) {
			c := newCycle(b, disk)
			b.ReportAllocs()
			for b.Loop() {
				c.run()
			}
		})
	}
}
