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
	moves [8]Event // of payloads, which are there at once
	moved int
}

func (h *bareHost) Send(_ ConnID, frame []byte) { h.last = append(h.last[:0], frame...) }
func (h *bareHost) SendPool(_ ConnID, frame []byte, _ []table.Extent, op OpID) {
	h.Send(0, frame)
	h.moves[h.moved] = Event{Kind: EventSent, Op: op}
	h.moved++
}
func (h *bareHost) SendPoolFD(_ ConnID, frame []byte, _ PoolAccess) { h.Send(0, frame) }
func (h *bareHost) Receive(_ ConnID, _ []table.Extent, op OpID) {
	h.moves[h.moved] = Event{Kind: EventPayload, Op: op}
	h.moved++
}
func (h *bareHost) Hangup(ConnID)                 {}
func (h *bareHost) Passable(ConnID) bool          { return true }
func (h *bareHost) Process(ConnID) (uint64, bool) { return 0, true }
func (h *bareHost) Watchable(ConnID) bool         { return true }
func (h *bareHost) Watch(ConnID, WatchID)         {}
func (h *bareHost) Unwatch(WatchID)               {}
func (h *bareHost) Kill(WatchID) bool             { return false }
func (h *bareHost) Quiet(ConnID) bool             { return true }
func (h *bareHost) Hears(ConnID) bool             { return true }
func (h *bareHost) Tell(*Notice)                  {}
func (h *bareHost) Sight(int, []uint64)           {}
func (h *bareHost) DiskRoom() int                 { return len(h.ios) - h.count }

func (h *bareHost) Disk(io *seglog.IO) {
	h.ios[h.count] = *io
	h.count++
}

// cycle is one request after another as a worker makes them, and the disk's work.
type cycle struct {
	h       *bareHost
	keys    []proto.Key
	frame   Event
	body    []byte
	n       uint16 // of rounds; keys come again after 256 rounds: by then they are on disk, or evicted there too
	hits    int
	payload uint32 // of a commit
	tight   bool   // the pool holds little more than one round
	more    proto.PrepareStore
	abort   proto.AbortStore
	prep    proto.PrepareStore
	commit  proto.CommitStore
	look    proto.Lookup
	rel     proto.Release
	get     proto.PrepareRetrieve
	end     proto.CommitRetrieve
	pin     proto.Pin
	unpin   proto.Unpin
	one     proto.Put
	outP    proto.PrepareStoreReply
	outL    proto.LookupReply
	outR    proto.PrepareRetrieveReply
}

func (c *cycle) request(op proto.Op) []byte {
	c.frame.Header.Op = op
	c.frame.Header.Size = uint32(proto.HeaderSize + len(c.body))
	c.frame.Header.Body = uint32(len(c.body))
	c.frame.Body = c.body
	if op == proto.OpCommitStore || op == proto.OpPut {
		c.frame.Header.Size += c.payload
	}
	c.h.e.Step(&c.frame)
	for c.h.moved > 0 {
		c.h.moved--
		c.h.e.Step(&c.h.moves[c.h.moved])
	}
	if op != proto.OpCommitStore || !c.tight {
		c.drain()
	}
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
		io := &c.h.ios[c.h.count]
		ev := Event{Kind: EventDisk, Disk: io.ID}
		ev.Res, ev.Sum = c.h.w.carryOut(io)
		c.h.e.Step(&ev)
		c.h.e.Flush(0)
	}
}

func (c *cycle) run() {
	c.n++
	for i := range c.keys {
		c.keys[i][0] = byte(c.n)
		if c.tight { // always new ones
			c.keys[i][1] = byte(c.n >> 8)
		}
	}
	c.body = proto.AppendPrepareStore(c.body[:0], &c.prep)
	if proto.ParsePrepareStoreReply(c.request(proto.OpPrepareStore), &c.outP) != nil {
		panic("prepare")
	}
	c.commit.Transfer = c.outP.Transfer
	c.payload = 0
	for i := range c.outP.Results {
		if c.frame.Header.Flags&proto.FlagInline != 0 {
			c.payload += uint32(c.outP.Results[i].Slot.Len)
		}
	}
	c.body = proto.AppendCommitStore(c.body[:0], &c.commit)
	c.request(proto.OpCommitStore)
	if c.tight { // what was committed is still to go to disk
		c.body = proto.AppendPrepareStore(c.body[:0], &c.more)
		if proto.ParsePrepareStoreReply(c.request(proto.OpPrepareStore), &c.outP) != nil {
			panic("prepare that waits")
		}
		c.abort.Transfer = c.outP.Transfer
		c.body = proto.AppendAbortStore(c.body[:0], &c.abort)
		c.request(proto.OpAbortStore)
	}
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
	c.pin.Hard = c.n%2 == 0
	c.body = proto.AppendPin(c.body[:0], &c.pin)
	c.request(proto.OpPin)
	c.body = proto.AppendUnpin(c.body[:0], &c.unpin)
	c.request(proto.OpUnpin)
	c.body = proto.AppendCommitRetrieve(c.body[:0], &c.end)
	c.request(proto.OpCommitRetrieve)
	c.one.Key[0], c.payload = byte(c.n), slotSize
	c.body = proto.AppendPut(c.body[:0], &c.one)
	c.request(proto.OpPut)
	c.body = c.body[:0]
	c.request(proto.OpPing)
}

func newCycle(t testing.TB, slots int, disk bool) *cycle {
	s := setup{slots: slots}
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
	c.pin, c.unpin = proto.Pin{Keys: c.keys}, proto.Unpin{Keys: c.keys[:4]} // the others end by a later one, or go
	c.rel.Leases = make([]uint64, 1)
	return c
}

func TestRequestsAllocateNothing(t *testing.T) {
	for _, tc := range []struct {
		slots  int
		disk   bool
		inline bool
	}{{256, false, false}, {256, true, false}, {256, true, true}, {12, true, false}} {
		c := newCycle(t, tc.slots, tc.disk)
		if tc.inline {
			c.frame.Header.Flags = proto.FlagInline
		}
		c.prep.WaitMs = 1000
		if tc.slots < 16 {
			c.tight = true
			c.h.e.cfg.InstanceCap = 1 << 40
			c.more = c.prep
			c.more.Keys = testKeys(names("more", 8)...)
		}
		for range 600 { // through every part of the log once, and all buffers to their size
			c.run()
		}
		require.Zero(t, testing.AllocsPerRun(500, c.run), "%+v", tc)
		require.Greater(t, c.hits, 4000)
		require.NotZero(t, c.h.e.counters.Pins)
		require.NotZero(t, c.h.e.counters.Unpins)
		if tc.slots < 16 {
			require.Greater(t, c.h.e.counters.Parked, uint64(1000), "requests waited")
		} else if tc.disk {
			require.NotZero(t, c.h.e.counters.LoadedBytes)
		}
	}
}

func BenchmarkStoreLookupRetrieve(b *testing.B) {
	for name, disk := range map[string]bool{"memory": false, "disk": true} {
		b.Run(name, func(b *testing.B) {
			c := newCycle(b, 256, disk)
			b.ReportAllocs()
			for b.Loop() {
				c.run()
			}
		})
	}
}
