package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
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
	t        testing.TB
	e        *Engine
	log      *seglog.Log
	now      time.Duration
	pool     []byte
	arena    []byte
	disk     *simDisk
	ios      []seglog.IO        // started and not ended
	syncs    map[uint64]simSnap // of the syncs among them
	events   []Event            // host events that are due
	inbox    map[ConnID][]reply
	closed   map[ConnID]bool
	watches  map[WatchID]int32 // to the watched process
	blind    bool              // no process can be watched
	nameless bool              // no process can be told from others now
	unread   map[ConnID]bool   // whose peers do not read
	peers    map[ConnID]Peer
	nextID   uint32
	payload  []byte // of the frame being stepped
	fail     func(io *seglog.IO) int64
	slow     bool // payloads move when their event is stepped, not when asked for
	moves    map[OpID]move
	quiet    bool    // no invariants after each step (for measurements)
	perTurn  int     // events that are stepped before a flush; 0: one
	steps    int     // since the last flush
	eager    bool    // the policy is told of all uses in their step
	killed   []int32 // processes, by Kill
	immortal bool    // no process can be killed
	notices  []Notice
	token    string // of whom connects next
	watched  int32  // the process watched next, where the peer's number is not known
	sighted  map[uint64]bool
	opinions []Event                  // that were not given yet
	mute     bool                     // no opinion is given
	left     map[ConnID]bool          // connections whose peers are known to have gone
	loud     map[ConnID]bool          // connections on which something is under way
	underWay func(ConnID) bool        // says so, too; may be nil
	told     func(*Notice)            // hears of what the engine tells; may be nil
	heard    map[ConnID]time.Duration // when the last frame came
}

// A move is a payload on its way, in or out.
type move struct {
	conn    ConnID
	frame   []byte
	parts   []table.Extent
	payload []byte // in
}

// A reply is a frame the engine sent.
type reply struct {
	h       proto.Header
	body    []byte
	payload []byte
}

// setup is what a test may choose.
type setup struct {
	slots     int // the pool's size in slots of slotSize
	grown     int // of them, populated; 0: all
	diskSize  int64
	segment   int64
	records   int   // of the disk's index
	arena     int   // of the disk, in bytes
	limit     int64 // bytes written to it a second; 0: any
	stall     time.Duration
	quiet     bool              // from the start
	disk      *simDisk          // a disk of an earlier world
	recovered func(*seglog.Log) // sees the log before it does anything
	cfg       Config
}

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{
		t: t, heard: map[ConnID]time.Duration{}, inbox: map[ConnID][]reply{}, closed: map[ConnID]bool{},
		watches: map[WatchID]int32{}, peers: map[ConnID]Peer{}, moves: map[OpID]move{}, syncs: map[uint64]simSnap{}, disk: s.disk, quiet: s.quiet,
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
			w.disk = newSimDisk()
		}
		if s.records == 0 {
			s.records = 4096
		}
		if s.arena == 0 {
			s.arena = seglog.ArenaSize
		}
		w.arena = aligned(s.arena)
		w.disk.lives++
		nonce := rand.New(rand.NewPCG(w.disk.lives, 77))
		log, _, err := seglog.Recover(seglog.Config{
			Size: s.diskSize, SegmentSize: s.segment, Arena: w.arena, HashMask: cfg.HashMask, WriteLimit: s.limit, StallTime: s.stall,
			MaxEntries: s.records, MaxQueue: 512, MaxFences: 512,
			Nonce: func() (n [16]byte) {
				binary.LittleEndian.PutUint64(n[:], nonce.Uint64())
				binary.LittleEndian.PutUint64(n[8:], nonce.Uint64())
				return n
			},
		}, w.disk)
		require.NoError(t, err)
		cfg.Disk, w.log = log, log
		if s.recovered != nil {
			s.recovered(log)
		}
	}
	e, err := New(cfg, w)
	require.NoError(t, err)
	w.e = e
	if s.grown == 0 {
		s.grown = s.slots
	}
	w.step(Event{Kind: EventReady, Res: int64(s.grown) * slotSize})
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
	if w.eager {
		w.e.settleUses()
	}
	w.check()
	if w.steps++; w.steps >= w.perTurn {
		w.flush()
	}
}

// endTurn flushes what was stepped since the last flush.
func (w *world) endTurn() {
	if w.steps > 0 {
		w.flush()
	}
}

func (w *world) flush() {
	w.steps = 0
	w.e.Flush(w.now)
	require.Negative(w.t, w.e.admission.filling, "sightings that nobody was asked about")
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
	w.endTurn()
	for n := 0; len(w.events) > 0 || len(w.ios) > 0 || w.tickDue(); n++ {
		require.Less(w.t, n, 100_000, "the engine does not come to rest")
		for len(w.events) > 0 {
			w.event(0)
		}
		if len(w.ios) > 0 {
			w.endIO(0)
		} else {
			w.step(Event{Kind: EventTick})
		}
		w.endTurn()
	}
}

// tickDue says that the engine wants a turn now though nothing happened.
func (w *world) tickDue() bool {
	at, ok := w.e.NextTick()
	return ok && at <= w.now
}

// event lets the engine have host event i.
func (w *world) event(i int) {
	ev := w.events[i]
	w.events = append(w.events[:i], w.events[i+1:]...)
	if m, ok := w.moves[ev.Op]; ok && (ev.Kind == EventSent || ev.Kind == EventPayload) {
		delete(w.moves, ev.Op)
		w.move(&m, ev)
	}
	w.step(ev)
}

// move carries out a payload's way, half of it when it fails.
func (w *world) move(m *move, ev Event) {
	if ev.Kind == EventSent {
		if ev.Res == 0 {
			w.deliver(m.conn, m.frame, w.gather(m.parts))
		}
		return
	}
	p := m.payload
	if ev.Res < 0 {
		p = p[:len(p)/2]
	}
	for _, x := range m.parts {
		p = p[copy(w.pool[x.Off:x.Off+x.Len], p):]
	}
}

func (w *world) gather(parts []table.Extent) (payload []byte) {
	for _, x := range parts {
		payload = append(payload, w.pool[x.Off:x.Off+x.Len]...)
	}
	return payload
}

// receiving says that a payload of the connection is on its way: its next frame has to wait.
func (w *world) receiving(c ConnID) bool {
	for i := range w.events {
		if w.events[i].Kind == EventPayload && w.moves[w.events[i].Op].conn == c {
			return true
		}
	}
	return false
}

// breakMoves fails what is on its way on a connection.
func (w *world) breakMoves(c ConnID) {
	for i := range w.events {
		if m, ok := w.moves[w.events[i].Op]; ok && m.conn == c {
			w.events[i].Res = -int64(syscall.EPIPE)
		}
	}
}

// endIO carries out I/O i and reports it.
func (w *world) endIO(i int) {
	io := w.ios[i]
	w.ios = append(w.ios[:i], w.ios[i+1:]...)
	res, sum := w.carryOut(&io)
	w.step(Event{Kind: EventDisk, Disk: io.ID, Res: res, Sum: sum})
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
	if w.slow {
		w.moves[op] = move{conn: c, frame: bytes.Clone(frame), parts: slices.Clone(parts)}
	} else {
		w.deliver(c, frame, w.gather(parts))
	}
	w.events = append(w.events, Event{Kind: EventSent, Op: op})
}

func (w *world) SendPoolFD(c ConnID, frame []byte, _ PoolAccess) { w.deliver(c, frame, nil) }

func (w *world) Receive(c ConnID, parts []table.Extent, op OpID) {
	m := move{conn: c, parts: slices.Clone(parts), payload: bytes.Clone(w.payload)}
	size := 0
	for _, x := range parts {
		size += int(x.Len)
	}
	require.Len(w.t, m.payload, size, "the parts do not take the payload")
	if w.slow {
		w.moves[op] = m
	} else {
		w.move(&m, Event{Kind: EventPayload})
	}
	w.events = append(w.events, Event{Kind: EventPayload, Op: op})
}

func (w *world) Hangup(c ConnID) {
	w.breakMoves(c)
	w.events = append(w.events, Event{Kind: EventClosed, Conn: c})
	w.closed[c] = true
}

func (w *world) Passable(c ConnID) bool { return !w.unread[c] }
func (w *world) Process(c ConnID) (uint64, bool) {
	return w.peers[c].Process, !w.nameless
}
func (w *world) Watchable(ConnID) bool { return !w.blind }
func (w *world) Watch(c ConnID, id WatchID) {
	w.watches[id] = w.peers[c].PID
	if w.peers[c].PID == 0 {
		w.watches[id] = w.watched
	}
}
func (w *world) Unwatch(id WatchID) { delete(w.watches, id) }

// Kill has the process die when its event is stepped.
func (w *world) Kill(id WatchID) bool {
	require.Contains(w.t, w.watches, id, "a process is killed that nobody watches")
	if w.immortal {
		return false
	}
	w.killed = append(w.killed, w.watches[id])
	w.events = append(w.events, Event{Kind: EventGone, Watch: id})
	return true
}

func (w *world) Quiet(c ConnID) bool {
	return !w.loud[c] && (w.underWay == nil || !w.underWay(c))
}

func (w *world) Hears(c ConnID) bool { return !w.closed[c] && !w.left[c] }

func (w *world) Tell(n *Notice) {
	w.notices = append(w.notices, *n)
	if w.told != nil {
		w.told(n)
	}
}

// Sight knows what was told of before, and answers when its event is stepped.
func (w *world) Sight(batch int, hashes []uint64) {
	if w.sighted == nil {
		w.sighted = map[uint64]bool{}
	}
	known := uint64(0)
	for i, h := range hashes {
		if w.sighted[h] {
			known |= 1 << i
		}
		w.sighted[h] = true
	}
	w.opinions = append(w.opinions, Event{Kind: EventSighted, Op: OpID(batch), Sum: known})
	if !w.mute {
		w.events = append(w.events, w.opinions...)
		w.opinions = nil
	}
}

func (w *world) DiskRoom() int { return 64 - len(w.ios) }

func (w *world) Disk(io *seglog.IO) {
	if io.Kind == seglog.IOSync {
		w.syncs[io.ID] = w.disk.beginSync(io.Addr.Segment)
	}
	w.ios = append(w.ios, *io)
}

// dies ends a process: its watches fire.
func (w *world) dies(pid int32) {
	for id, p := range w.watches {
		if p == pid {
			w.step(Event{Kind: EventGone, Watch: id})
		}
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
