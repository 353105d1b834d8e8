package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

const (
	testBoot  = 0xb007
	slotSize  = 4096
	layoutMax = 1 << 20
)

// A world is everything around an engine: connections, processes, the pool's bytes and a
// disk, all in memory and in the test's hands. Work the engine asks for is done when the
// test says so, in the order it says.
type world struct {
	t       testing.TB
	e       *Engine
	log     *seglog.Log
	now     time.Duration
	pool    []byte
	arena   []byte
	disk    *simDisk
	ios     []seglog.IO // started and not ended
	events  []Event     // host events that are due
	inbox   map[ConnID][]reply
	closed  map[ConnID]bool
	watches map[WatchID]int32 // to the watched process
	peers   map[ConnID]Peer
	nextID  uint32
	payload []byte // of the frame being stepped
	fail    func(io *seglog.IO) int64
	quiet   bool // no invariants after each step (for measurements)
}

// A reply is a frame the engine sent.
type reply struct {
	h       proto.Header
	body    []byte
	payload []byte
}

// simDisk is the segment files.
type simDisk struct{ files map[seglog.SegmentID][]byte }

func (d *simDisk) Segments() ([]seglog.SegmentID, error) {
	var ids []seglog.SegmentID
	for id := range d.files {
		ids = append(ids, id)
	}
	return ids, nil
}

func (d *simDisk) ReadAt(id seglog.SegmentID, p []byte, off int64) (int, error) {
	return copy(p, d.files[id][off:]), nil
}

func (d *simDisk) Size(id seglog.SegmentID) (int64, error) { return int64(len(d.files[id])), nil }

// setup is what a test may choose.
type setup struct {
	slots    int // the pool's size in slots of slotSize
	diskSize int64
	segment  int64
	disk     *simDisk // a disk of an earlier world
	cfg      Config
}

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{
		t: t, inbox: map[ConnID][]reply{}, closed: map[ConnID]bool{},
		watches: map[WatchID]int32{}, peers: map[ConnID]Peer{}, disk: s.disk,
	}
	cfg := s.cfg
	cfg.Boot = testBoot
	cfg.Server = "test"
	cfg.Pool = PoolInfo{Size: int64(s.slots) * slotSize, Kind: proto.ShmFd, Dev: 1, Inode: 2}
	w.pool = aligned(int(cfg.Pool.Size))
	if cfg.Conns == 0 {
		cfg.Conns = 64
	}
	if cfg.Ops == 0 {
		cfg.Ops = 4096
	}
	if cfg.Entries == 0 {
		cfg.Entries = 1 << 12
	}
	if cfg.Transfers == 0 {
		cfg.Transfers = 512
	}
	if s.diskSize > 0 {
		if w.disk == nil {
			w.disk = &simDisk{files: map[seglog.SegmentID][]byte{}}
		}
		w.arena = aligned(seglog.ArenaSize)
		nonce := rand.New(rand.NewPCG(uint64(len(w.disk.files))+1, 77))
		log, _, err := seglog.Recover(seglog.Config{
			Size: s.diskSize, SegmentSize: s.segment, Arena: w.arena, HashMask: cfg.HashMask,
			MaxEntries: 4096, MaxQueue: 512, MaxFences: 512,
			Nonce: func() (n [16]byte) {
				binary.LittleEndian.PutUint64(n[:], nonce.Uint64())
				binary.LittleEndian.PutUint64(n[8:], nonce.Uint64())
				return n
			},
		}, w.disk)
		require.NoError(t, err)
		cfg.Disk, w.log = log, log
	}
	e, err := New(cfg, w)
	require.NoError(t, err)
	w.e = e
	w.step(Event{Kind: EventReady, Res: cfg.Pool.Size})
	return w
}

func aligned(n int) []byte {
	b := make([]byte, n+seglog.BlockSize)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (seglog.BlockSize - 1))
	return b[skip : skip+n : skip+n]
}

func (w *world) step(ev Event) {
	ev.Now = w.now
	w.e.Step(&ev)
	w.check()
	w.flush()
}

func (w *world) flush() {
	w.e.Flush(w.now)
	w.check()
}

func (w *world) check() {
	if w.quiet {
		return
	}
	if err := w.e.CheckInvariants(); err != nil {
		w.t.Fatal(err)
	}
}

// advance lets time pass.
func (w *world) advance(d time.Duration) {
	w.now += d
	w.step(Event{Kind: EventTick})
}

// settle carries out all work under way until nothing is left.
func (w *world) settle() {
	w.t.Helper()
	for n := 0; len(w.events) > 0 || len(w.ios) > 0 || len(w.e.clears) > 0 || w.log != nil && w.log.Pending(); n++ {
		require.Less(w.t, n, 1_000_000, "the engine does not come to rest")
		for len(w.events) > 0 {
			w.event(0)
		}
		if len(w.ios) > 0 {
			w.endIO(0)
			continue
		}
		w.flush()
	}
}

// event lets the engine have host event i.
func (w *world) event(i int) {
	ev := w.events[i]
	w.events = append(w.events[:i], w.events[i+1:]...)
	w.step(ev)
}

// endIO carries out I/O i and reports it.
func (w *world) endIO(i int) {
	io := w.ios[i]
	w.ios = append(w.ios[:i], w.ios[i+1:]...)
	res, sum := w.carryOut(&io)
	w.step(Event{Kind: EventDisk, Disk: io.ID, Res: res, Sum: sum})
}

func (w *world) carryOut(io *seglog.IO) (res int64, sum uint64) {
	if w.fail != nil {
		if res := w.fail(io); res != 0 {
			return res, 0
		}
	}
	var mem []byte
	if io.Kind == seglog.IORead || io.Kind == seglog.IOWrite || io.Kind == seglog.IOSum {
		from := w.pool
		if io.Mem.Own {
			from = w.arena
		}
		mem = from[io.Mem.Off : io.Mem.Off+io.Mem.Len]
	}
	file, there := w.disk.files[io.Addr.Segment]
	switch io.Kind {
	case seglog.IORead, seglog.IOWrite:
		if !there || io.Addr.Off+io.Mem.Len > int64(len(file)) {
			return -int64(syscall.EIO), 0
		}
		part := file[io.Addr.Off : io.Addr.Off+io.Mem.Len]
		if io.Kind == seglog.IORead {
			return int64(copy(mem, part)), 0
		}
		return int64(copy(part, mem)), 0
	case seglog.IOSum:
		return io.Mem.Len, xxh3.Hash(mem)
	case seglog.IOCreate:
		w.disk.files[io.Addr.Segment] = make([]byte, io.Mem.Len)
	case seglog.IORemove:
		delete(w.disk.files, io.Addr.Segment)
	case seglog.IOSync:
	}
	return 0, 0
}

// The Host.

func (w *world) Send(c ConnID, frame []byte) { w.deliver(c, frame, nil) }

func (w *world) deliver(c ConnID, frame, payload []byte) {
	h, err := proto.ParseHeader(frame)
	require.NoError(w.t, err)
	require.Equal(w.t, int(h.Size), len(frame)+len(payload), "frame size of %v", h.Op)
	if w.closed[c] {
		return
	}
	w.inbox[c] = append(w.inbox[c], reply{h: h, body: bytes.Clone(frame[proto.HeaderSize:]), payload: payload})
}

func (w *world) SendPool(c ConnID, frame []byte, parts []table.Extent, op OpID) {
	var payload []byte
	for _, x := range parts {
		payload = append(payload, w.pool[x.Off:x.Off+x.Len]...)
	}
	w.deliver(c, frame, payload)
	w.events = append(w.events, Event{Kind: EventSent, Op: op})
}

func (w *world) SendPoolFD(c ConnID, frame []byte, _ PoolAccess) { w.deliver(c, frame, nil) }

func (w *world) Receive(_ ConnID, parts []table.Extent, op OpID) {
	p := w.payload
	for _, x := range parts {
		p = p[copy(w.pool[x.Off:x.Off+x.Len], p):]
	}
	require.Empty(w.t, p, "the parts do not take the whole payload")
	w.events = append(w.events, Event{Kind: EventPayload, Op: op})
}

func (w *world) Hangup(c ConnID) {
	w.events = append(w.events, Event{Kind: EventClosed, Conn: c})
	w.closed[c] = true
}

func (w *world) Watch(c ConnID, id WatchID) { w.watches[id] = w.peers[c].PID }
func (w *world) Unwatch(id WatchID)         { delete(w.watches, id) }
func (w *world) DiskRoom() int              { return 64 - len(w.ios) }
func (w *world) Disk(io *seglog.IO)         { w.ios = append(w.ios, *io) }

// A client is one worker's connection.
type client struct {
	w      *world
	id     ConnID
	pid    int32
	lastID uint64
}

// connect opens a connection of a process and says HELLO.
func (w *world) connect(pid int32) *client {
	w.t.Helper()
	c := &client{w: w, id: NewConnID(w.nextID%uint32(len(w.e.conns)), w.nextID/uint32(len(w.e.conns))+1), pid: pid}
	for w.e.conns[c.id.Index()].state != connFree {
		w.nextID++
		c.id = NewConnID(w.nextID%uint32(len(w.e.conns)), w.nextID/uint32(len(w.e.conns))+1)
	}
	w.nextID++
	w.peers[c.id] = Peer{PID: pid, Local: pid != 0, Watchable: pid != 0}
	w.step(Event{Kind: EventOpen, Conn: c.id, Peer: w.peers[c.id]})
	r := c.call(proto.OpHello, 0, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1}), nil)
	require.Equal(w.t, proto.StatusOK, r.h.Status)
	return c
}

// worker is a connection that registered an instance with one layout.
func (w *world) worker(instance uint64, pid int32) *client {
	w.t.Helper()
	return w.workerIn(instance, pid, "space")
}

func (w *world) workerIn(instance uint64, pid int32, space string) *client {
	w.t.Helper()
	c := w.connect(pid)
	require.Equal(w.t, proto.StatusOK, c.register(instance, space, proto.TransportShared).h.Status)
	return c
}

func (c *client) register(instance uint64, space string, want proto.Transport) reply {
	return c.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: instance, Want: want, Name: fmt.Sprint("worker ", instance), Namespace: space,
		Layouts: []proto.Layout{{Name: "bf16", Dims: []uint32{2, 4}, Size: layoutMax}, {Name: "fp8", Size: layoutMax}},
	}), nil)
}

// post sends a request and returns its id.
func (c *client) post(op proto.Op, flags proto.Flags, body, payload []byte) uint64 {
	c.lastID++
	h := proto.Header{
		Version: proto.Version, Op: op, Flags: flags, Request: c.lastID, Boot: testBoot,
		Body: uint32(len(body)), Size: uint32(proto.HeaderSize + len(body) + len(payload)),
	}
	c.w.payload = payload
	c.w.step(Event{Kind: EventFrame, Conn: c.id, Header: h, Body: body})
	return c.lastID
}

// take removes the reply to a request from the inbox, if it is there.
func (c *client) take(id uint64) (reply, bool) {
	in := c.w.inbox[c.id]
	for i := range in {
		if in[i].h.Request == id {
			r := in[i]
			c.w.inbox[c.id] = append(in[:i:i], in[i+1:]...)
			return r, true
		}
	}
	return reply{}, false
}

// call sends a request whose reply must be there at once.
func (c *client) call(op proto.Op, flags proto.Flags, body, payload []byte) reply {
	c.w.t.Helper()
	id := c.post(op, flags, body, payload)
	r, ok := c.take(id)
	require.True(c.w.t, ok, "%v has no reply", op)
	require.Equal(c.w.t, op, r.h.Op)
	return r
}

// close ends the connection; the process lives on.
func (c *client) close() {
	c.w.closed[c.id] = true
	c.w.step(Event{Kind: EventClosed, Conn: c.id})
	delete(c.w.inbox, c.id)
}

// dies ends a process: its watches fire.
func (w *world) dies(pid int32) {
	for id, p := range w.watches {
		if p == pid {
			w.step(Event{Kind: EventGone, Watch: id})
		}
	}
}

func (c *client) prepare(wait time.Duration, size uint64, keys ...string) uint64 {
	in := proto.PrepareStore{WaitMs: uint32(wait.Milliseconds()), Keys: testKeys(keys...)}
	for range keys {
		in.Sizes = append(in.Sizes, size)
	}
	return c.post(proto.OpPrepareStore, 0, proto.AppendPrepareStore(nil, &in), nil)
}

func (c *client) prepared(id uint64) proto.PrepareStoreReply {
	c.w.t.Helper()
	r, ok := c.take(id)
	require.True(c.w.t, ok, "prepare_store has no reply")
	require.Equal(c.w.t, proto.StatusOK, r.h.Status)
	var out proto.PrepareStoreReply
	require.NoError(c.w.t, proto.ParsePrepareStoreReply(r.body, &out))
	return out
}

// fill writes what belongs under the keys into reserved slots.
func (c *client) fill(out proto.PrepareStoreReply, keys ...string) {
	for i, r := range out.Results {
		if r.Status == proto.StatusReserved {
			fillValue(c.w.pool[r.Slot.Off:r.Slot.Off+r.Slot.Len], keys[i])
		}
	}
}

func (c *client) commit(transfer uint64) proto.Status {
	c.w.t.Helper()
	return c.call(proto.OpCommitStore, 0, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: transfer}), nil).h.Status
}

func (c *client) abort(transfer uint64) proto.Status {
	c.w.t.Helper()
	return c.call(proto.OpAbortStore, 0, proto.AppendAbortStore(nil, &proto.AbortStore{Transfer: transfer}), nil).h.Status
}

// store puts values of the size under the keys; all must be reserved.
func (c *client) store(size uint64, keys ...string) {
	c.w.t.Helper()
	out := c.prepared(c.prepare(0, size, keys...))
	for i, r := range out.Results {
		require.Equal(c.w.t, proto.StatusReserved, r.Status, keys[i])
	}
	c.fill(out, keys...)
	require.Equal(c.w.t, proto.StatusOK, c.commit(out.Transfer))
}

func (c *client) lookup(opt proto.LookupOptions, wait time.Duration, keys ...string) uint64 {
	return c.post(proto.OpLookup, 0, proto.AppendLookup(nil, &proto.Lookup{
		Options: opt, Group: 1, WaitMs: uint32(wait.Milliseconds()), Keys: testKeys(keys...),
	}), nil)
}

func (c *client) found(id uint64) proto.LookupReply {
	c.w.t.Helper()
	r, ok := c.take(id)
	require.True(c.w.t, ok, "lookup has no reply")
	require.Equal(c.w.t, proto.StatusOK, r.h.Status)
	var out proto.LookupReply
	require.NoError(c.w.t, proto.ParseLookupReply(r.body, &out))
	return out
}

// hits is how many leading keys are there.
func (c *client) hits(keys ...string) int {
	c.w.t.Helper()
	return int(c.found(c.lookup(0, 0, keys...)).Hits)
}

func (c *client) release(lease uint64) proto.Status {
	c.w.t.Helper()
	return c.call(proto.OpRelease, 0, proto.AppendRelease(nil, &proto.Release{Leases: []uint64{lease}}), nil).h.Status
}

func (c *client) retrieve(in proto.PrepareRetrieve) (proto.PrepareRetrieveReply, proto.Status) {
	c.w.t.Helper()
	r := c.call(proto.OpPrepareRetrieve, 0, proto.AppendPrepareRetrieve(nil, &in), nil)
	var out proto.PrepareRetrieveReply
	if r.h.Status == proto.StatusOK {
		require.NoError(c.w.t, proto.ParsePrepareRetrieveReply(r.body, &out))
	}
	return out, r.h.Status
}

func (c *client) endRetrieve(transfer uint64) proto.Status {
	c.w.t.Helper()
	return c.call(proto.OpCommitRetrieve, 0, proto.AppendCommitRetrieve(nil, &proto.CommitRetrieve{Transfer: transfer}), nil).h.Status
}

func (c *client) verify(slots []proto.Slot, keys ...string) {
	c.w.t.Helper()
	require.Len(c.w.t, slots, len(keys))
	for i, s := range slots {
		require.Equal(c.w.t, valueOf(keys[i], int(s.Len)), c.w.pool[s.Off:s.Off+s.Len], keys[i])
	}
}

func testKeys(names ...string) []proto.Key {
	keys := make([]proto.Key, len(names))
	for i, n := range names {
		h := xxh3.HashString128(n).Bytes()
		copy(keys[i][:], h[:])
	}
	return keys
}

// fillValue writes what belongs under a key.
func fillValue(p []byte, key string) {
	h := xxh3.HashString(key)
	for i := range p {
		p[i] = byte(h >> (i % 8 * 8) * uint64(i/8+1))
	}
}

func valueOf(key string, n int) []byte {
	p := make([]byte, n)
	fillValue(p, key)
	return p
}

// baseline requires that nothing is staged, held, quarantined or loading.
func (w *world) baseline() {
	w.t.Helper()
	u := w.e.table.Usage()
	require.Zero(w.t, u.Staged, "staged")
	require.Zero(w.t, u.Held, "held")
	require.Zero(w.t, u.Quarantined, "quarantined")
	require.Zero(w.t, u.Loading, "loading")
	require.Zero(w.t, u.Doomed, "doomed")
	require.Equal(w.t, u.Resident, u.Used)
	require.Zero(w.t, w.e.transfersOpen)
	require.Zero(w.t, w.e.opsBusy)
}

// names makes n key names.
func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(prefix, i)
	}
	return out
}
