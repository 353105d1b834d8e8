package seglog

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run only this seed of TestSimulation")
	simSeeds = flag.Int("sim.seeds", 30, "how many seeds TestSimulation runs")
	simTrace = flag.Bool("sim.trace", false, "log what happens")
	simSteps = flag.Int("sim.steps", 2000, "steps a seed")
)

const (
	simSlots    = 24
	simSlotSize = 64 << 10
)

// simGarbage is what memory holds that nobody wrote.
var simGarbage = bytes.Repeat([]byte{0xee}, simSlotSize)

// A simIO is an I/O in flight.
type simIO struct {
	io   IO
	snap simSnap
}

// A simAsk is a request in flight.
type simAsk struct {
	key  Key
	put  int
	slot int
	size int64
	kind OutcomeKind
}

// A sim runs one log on a simulated disk against the model.
type sim struct {
	t      *testing.T
	rng    *rand.Rand
	cfg    Config
	l      *Log
	disk   *simDisk
	model  *simModel
	pool   []byte
	slots  []int // free ones
	asks   map[Token]*simAsk
	flying []simIO
	tok    Token
	now    time.Duration
	nonces uint64
	steps  int

	faults     int // in a thousand I/Os
	createFail bool
	readFaults uint64 // injected since the last start
	torn       bool   // the power was cut
	keys       int
	small      bool
	steady     bool  // mostly puts and reads of favourites: segments are filled, evicted and reinserted from
	recent     []Key // of the last requests
	ended      map[string]int
	reinserted uint64
}

func newSim(t *testing.T, seed uint64) *sim {
	rng := rand.New(rand.NewPCG(seed, 1))
	segment := int64(16+rng.IntN(48)) * BlockSize
	s := &sim{
		t: t, rng: rng, model: newSimModel(), asks: make(map[Token]*simAsk), pool: make([]byte, simSlots*simSlotSize),
		keys: 5 + rng.IntN(60), small: rng.IntN(3) == 0, faults: []int{0, 0, 3, 30}[rng.IntN(4)], ended: make(map[string]int),
	}
	s.cfg = Config{
		Size: segment*int64(4+rng.IntN(5)) + int64(rng.IntN(5000)), SegmentSize: segment,
		Arena:      make([]byte, ArenaMin+rng.IntN(120)*BlockSize),
		MaxEntries: 100 + rng.IntN(200), MaxQueue: 4 + rng.IntN(60), MaxFences: 8 + rng.IntN(40),
		MaxInFlight: 4 + rng.IntN(28), MaxInFlightBytes: int64(1+rng.IntN(20)) * 16384, IOSize: int64(1+rng.IntN(6)) * BlockSize,
		Nonce: s.nonce, Seed: seed,
	}
	if rng.IntN(4) == 0 {
		s.cfg.WriteLimit = 1 << (14 + rng.IntN(8))
	}
	if rng.IntN(3) == 0 { // I/Os are late now and then
		s.cfg.StallTime = time.Duration(100+rng.IntN(2000)) * time.Millisecond
	}
	if rng.IntN(3) == 0 {
		s.steady = true
		s.faults /= 10
	}
	if rng.IntN(3) == 0 {
		s.cfg.HashMask = 7
	}
	s.disk = newSimDisk(rng, s.cfg.Size)
	s.start()
	return s
}

func (s *sim) nonce() (n [16]byte) {
	s.nonces++
	binary.LittleEndian.PutUint64(n[:], s.nonces*0x9e3779b97f4a7c15)
	return n
}

// start recovers the log from the disk.
func (s *sim) start() Report {
	for at := 0; at < len(s.cfg.Arena); at += BlockSize {
		copy(s.cfg.Arena[at:], simGarbage[:BlockSize])
	}
	if s.l != nil {
		s.reinserted += s.l.stats.Reinserted
	}
	l, report, err := Recover(s.cfg, s.disk)
	require.NoError(s.t, err)
	s.l = l
	s.slots = s.slots[:0]
	for i := range simSlots {
		s.slots = append(s.slots, i)
	}
	clear(s.asks)
	s.flying = s.flying[:0]
	s.readFaults = 0
	s.now = 0
	return report
}

func (s *sim) key() Key {
	k := Key{Namespace: uint64(s.rng.IntN(3)), Layout: uint64(s.rng.IntN(2))}
	k.Hash[31] = byte(s.rng.IntN(s.keys))
	return k
}

// favourite is a key that is read often and written seldom, so that evictions reinsert it.
func (s *sim) favourite() Key {
	k := Key{Namespace: uint64(s.rng.IntN(2))}
	k.Hash[31] = byte(200 + s.rng.IntN(3))
	return k
}

// tracef says what happens, if asked to.
func (s *sim) tracef(format string, args ...any) {
	if *simTrace {
		s.t.Logf("%d: %s", s.steps, fmt.Sprintf(format, args...))
	}
}

// step does one random thing.
func (s *sim) step() {
	n := s.rng.IntN(100)
	if s.steady && n >= 34 && n < 96 {
		n = []int{0, 30, 40, 50, 50, 60, 60, 60, 60, 60, n}[s.rng.IntN(11)]
	}
	switch {
	case n < 22:
		s.put()
	case n < 34:
		s.read()
	case n < 38:
		s.delete()
	case n < 39 && s.rng.IntN(4) == 0:
		s.clear()
	case n < 48:
		s.l.Flush()
	case n < 60:
		s.begin(1 + s.rng.IntN(8))
	case n < 96:
		s.complete()
	case n < 98:
		s.now += time.Duration(s.rng.IntN(2000)) * time.Millisecond
		s.l.Tick(s.now)
	default:
		if s.rng.IntN(20) == 0 {
			s.l.SetFree(int64(s.rng.IntN(int(2 * s.cfg.Size))))
		}
		if s.rng.IntN(60) == 0 {
			s.createFail = !s.createFail && s.faults > 0
		}
	}
	s.drain()
	s.steps++
	if s.steady && s.steps%4 != 0 {
		return
	}
	if err := s.l.CheckInvariants(); err != nil {
		s.t.Fatalf("step %d: %v", s.steps, err)
	}
	if s.l.fenceUnsynced.n+s.l.fenceSyncing.n+s.l.fenceWaiting.n+s.l.fencesWriting+s.l.fenceQueue.n+s.l.unsynced == 0 {
		s.model.bury()
	}
}

func (s *sim) slot() (int, bool) {
	if len(s.slots) == 0 {
		return 0, false
	}
	i := s.slots[len(s.slots)-1]
	s.slots = s.slots[:len(s.slots)-1]
	return i, true
}

func (s *sim) mem(slot int) []byte { return s.pool[slot*simSlotSize:][:simSlotSize] }

func (s *sim) put() {
	slot, ok := s.slot()
	if !ok {
		return
	}
	k, loved := s.key(), s.rng.IntN(12) == 0
	sizes := [...]int64{1, 511, 4095, 4096, 4097, 9000, int64(s.rng.IntN(30000)), int64(s.rng.IntN(60000)), 0}
	size := sizes[s.rng.IntN(len(sizes))]
	if loved {
		k = s.favourite()
	}
	if s.small || loved {
		size = sizes[s.rng.IntN(4)] // many records a segment: the index is what runs out
	}
	if size == 0 && !loved && s.rng.IntN(3) != 0 {
		size = 100
	}
	p := s.mem(slot)
	copy(p[size:AlignUp(size)], simGarbage)
	simFill(p[:size], len(s.model.puts))
	s.tok++
	src := Mem{Off: int64(slot * simSlotSize), Len: simSlotSize}
	// The put must be known before it can end inside the call.
	id := s.model.put(k, size)
	s.asks[s.tok] = &simAsk{key: k, put: id, slot: slot, size: size, kind: OutcomePut}
	if s.rng.IntN(2) == 0 {
		ok = s.l.PutSummed(&k, src, size, xxh3.Hash(p[:size]), s.tok)
	} else {
		ok = s.l.Put(&k, src, size, s.tok)
	}
	if !ok {
		delete(s.asks, s.tok)
		s.slots = append(s.slots, slot)
		s.model.byKey[k] = s.model.byKey[k][:len(s.model.byKey[k])-1]
		s.model.puts = s.model.puts[:id]
	}
}

func (s *sim) read() {
	slot, ok := s.slot()
	if !ok {
		return
	}
	k := s.key()
	if s.rng.IntN(3) != 0 {
		k = s.favourite()
	}
	size, found := s.l.Find(&k)
	s.tok++
	s.asks[s.tok] = &simAsk{key: k, slot: slot, size: size, kind: OutcomeRead}
	started := s.l.ReadFor(uint8(s.rng.IntN(3)), &k, Mem{Off: int64(slot * simSlotSize), Len: simSlotSize}, s.tok)
	require.Equal(s.t, found, started)
	if !started {
		delete(s.asks, s.tok)
		s.slots = append(s.slots, slot)
	}
}

func (s *sim) delete() {
	keys := make([]Key, 1+s.rng.IntN(3))
	s.tok++
	for i := range keys {
		keys[i] = s.key()
		if n := len(s.recent); n > 0 && s.rng.IntN(2) == 0 {
			keys[i] = s.recent[n-1-s.rng.IntN(min(n, 8))] // where something may still be under way
		}
		s.recent = append(s.recent, keys[i])
		s.model.hide(keys[i], s.tok)
	}
	fenced := s.l.Delete(keys, s.tok)
	s.tracef("delete %d: %x, fenced %t, stale %d", s.tok, keys, fenced, s.l.stale)
	s.fence(fenced)
	for i := range keys {
		_, ok := s.l.Find(&keys[i])
		require.False(s.t, ok, "found after delete")
	}
	checkFindAll(s.t, s.l, s.model.keys)
}

func (s *sim) clear() {
	ns := uint64(s.rng.IntN(3))
	s.recent = s.recent[:0]
	s.tok++
	for _, k := range s.model.keys {
		if k.Namespace == ns {
			s.recent = append(s.recent, k)
			s.model.hide(k, s.tok)
		}
	}
	s.tracef("clear %d: %d", s.tok, ns)
	s.fence(s.l.Clear(ns, s.tok))
}

func (s *sim) fence(fenced bool) {
	if !fenced {
		s.model.acknowledge(s.tok)
		return
	}
	s.asks[s.tok] = &simAsk{kind: OutcomeFence}
}

// drain takes the outcomes and holds them against the model.
func (s *sim) drain() {
	for {
		o, ok := s.l.Outcome()
		if !ok {
			return
		}
		a := s.asks[o.Token]
		require.NotNil(s.t, a, "outcome %v for nothing asked", o)
		require.Equal(s.t, a.kind, o.Kind)
		delete(s.asks, o.Token)
		s.tracef("%v: put %d of %x", o, a.put, a.key)
		s.ended[fmt.Sprintf("%v %v", o.Kind, o.Result)]++
		switch o.Kind {
		case OutcomePut:
			s.recent = append(s.recent, a.key)
			s.model.puts[a.put].ok = o.Result == ResultOK
			require.NotEqual(s.t, ResultNotDurable, o.Result)
		case OutcomeRead:
			if o.Result == ResultOK {
				if err := s.model.check(a.key, s.mem(a.slot)[:a.size]); err != nil {
					s.t.Fatalf("step %d: read: %v", s.steps, err)
				}
			}
		case OutcomeFence:
			if o.Result == ResultOK {
				s.model.acknowledge(o.Token)
			}
			continue
		}
		copy(s.mem(a.slot)[:AlignUp(a.size)], simGarbage) // the memory is somebody else's now
		s.slots = append(s.slots, a.slot)
	}
}

// begin starts up to n I/Os.
func (s *sim) begin(n int) {
	for range n {
		io, ok := s.l.NextIO()
		if !ok {
			return
		}
		if s.l.Stalled() {
			require.True(s.t, io.Load && (io.Kind == IOSum || io.Kind == IOCopy), "%v is given to a stalled disk", io.Kind)
		}
		f := simIO{io: *io}
		if io.Kind == IOSync {
			f.snap = s.disk.beginSync(io.Addr.Segment)
		}
		s.flying = append(s.flying, f)
	}
	require.LessOrEqual(s.t, len(s.flying), s.cfg.MaxInFlight)
}

func (s *sim) ioMem(m Mem) []byte {
	if m.Own {
		return s.cfg.Arena[m.Off:][:m.Len]
	}
	return s.pool[m.Off:][:m.Len]
}

// complete ends one I/O, well or badly.
func (s *sim) complete() {
	if len(s.flying) == 0 {
		return
	}
	i := s.rng.IntN(len(s.flying))
	f := s.flying[i]
	s.flying = slices.Delete(s.flying, i, i+1)
	res, sum := s.carryOut(&f, s.rng.IntN(1000) < s.faults)
	s.l.Done(f.io.ID, res, sum)
}

func (s *sim) run(steps int) {
	if s.steady {
		steps *= 4
	}
	for range steps {
		s.step()
		odds := 1200
		if s.steady {
			odds = 4000
		}
		switch s.rng.IntN(odds) {
		case 0, 1:
			s.crash(false)
		case 2:
			s.crash(true)
		case 3:
			s.closeAndReopen()
		}
		if s.l.Stats().NotDurable > 0 && s.l.owed > 0 {
			k := s.key()
			_, ok := s.l.Find(&k)
			require.False(s.t, ok, "served while a delete is owed to the disk")
		}
		if s.l.Stalled() {
			s.ended["stalled"]++
		}
		if !s.torn {
			require.LessOrEqual(s.t, s.l.stats.BadRecords, s.readFaults, "a record that was written does not verify")
		}
	}
	s.settle(s.calm)
	require.Empty(s.t, s.asks, "requests without an outcome")
	require.Len(s.t, s.slots, simSlots)
	require.NoError(s.t, s.l.CheckInvariants())
	s.crash(false)
}

func TestSimulation(t *testing.T) {
	seeds := make([]uint64, 0, *simSeeds)
	for i := range *simSeeds {
		seeds = append(seeds, uint64(i+1))
	}
	if *simSeed != 0 {
		seeds = []uint64{*simSeed}
	}
	ended := make(map[string]int)
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Logf("seed %d: go test ./l2/seglog -run TestSimulation -sim.seed %d", seed, seed)
			s := newSim(t, seed)
			s.run(*simSteps)
			for what, n := range s.ended {
				ended[what] += n
			}
			ended["reinserted"] += int(s.reinserted)
		})
	}
	t.Logf("outcomes: %v", ended)
	if len(seeds) >= 30 {
		require.Greater(t, ended["reinserted"], 50)
		require.Greater(t, ended["stalled"], 50)
	}
}
