package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

const (
	modelKeys    = 48
	modelWorkers = 5
	modelSlots   = 64
)

// What is counted among the verdicts beside ops: retrieves by lease, instances that were silent, and those of them whose
// process kept slots.
const (
	byLease proto.Op = 200 + iota
	reaped
	reapedWithSlots
)

var modelSpaces = [...]string{"space", "elsewhere"}

// A model drives an engine with random workers and checks every answer against what it
// knows: which generation of a value each key may have, and who was told of which slots.
type model struct {
	*world
	setup    setup
	r        *rand.Rand
	workers  []*modelWorker // by instance id less one; nil: nobody now
	zombies  []*modelWorker // processes whose instance another has taken
	holdings []*holding
	pidNext  int32
	lifeNext int
	grown    int  // slots of the pool
	most     int  // of them, that there are to be
	whole    bool // nothing more is populated
	wide     bool // asks for more, and the disk hangs at times
	faults   bool
	faulty   bool     // there were
	dark     bool     // the power was cut
	calm     bool     // nothing is under way but what is known of
	reaped   []Notice // of instances that their workers do not know of yet
	verdict  map[proto.Op]int
	replies  int

	pinned [len(modelSpaces)]map[int]modelPin // by namespace and key

	// By namespace and key. A delete begins an epoch: a value of an earlier one must not
	// come back.
	epoch  [len(modelSpaces)][modelKeys]int
	floor  [len(modelSpaces)][modelKeys]int // the epoch that a delete is known to have begun on disk
	stored [len(modelSpaces)][modelKeys]int // the epoch plus one of what a commit has published
}

// value names the bytes of a key.
func (m *model) value(space, key, epoch int) string {
	return fmt.Sprint(space, " key ", key, " epoch ", epoch)
}

func keyNames(keys []int) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = fmt.Sprint("m", k)
	}
	return out
}

func sizeOf(key int) uint64 { return uint64([]int{0, 100, 4096, 5000, 9000, 20000}[key%6]) }

// modelConfigs are the engines and disks that the model runs on. Small tables get full.
func modelConfigs() []setup {
	small := Config{Conns: 24, Ops: 96, Entries: 96, Transfers: 32, Parked: 8, Instances: 12, Objects: 80, PinTime: 2 * time.Second}
	set := func(disk, segment int64, f func(c *Config)) setup {
		s := setup{slots: modelSlots, diskSize: disk, segment: segment, records: 256, cfg: small}
		f(&s.cfg)
		return s
	}
	return []setup{
		set(1<<20, 64<<10, func(*Config) {}),
		set(16<<20, 1<<20, func(c *Config) {
			c.Write, c.Admit = WriteBack, AdmitTinyLFU
			c.ReapAfter = 250 * time.Millisecond
		}),
		set(1<<20, 64<<10, func(c *Config) { c.Write = WriteOff }),
		set(16<<20, 1<<20, func(c *Config) { c.HashMask = 3; c.Objects = 256 }),
		set(1<<20, 64<<10, func(c *Config) {
			c.InstanceCap = 1 << 40
			c.ParkedCap = 2
			c.FenceCap, c.FenceKeysCap = 2, 8
			c.ReapAfter = 400 * time.Millisecond
			c.LeaseTime = time.Second
			c.TransferTime = 5 * time.Second
		}),
		set(16<<20, 1<<20, func(c *Config) {
			c.Admit = AdmitSeenTwice
			c.Write, c.InstanceCap, c.Entries, c.Transfers, c.Ops = WriteBack, 1<<40, 512, 128, 512
		}),
	}
}

// TestModel runs the model from many seeds, each on one of the configs. MODEL_SEED runs one
// seed, MODEL_SEEDS that many, MODEL_STEPS other than the usual number of steps.
func TestModel(t *testing.T) {
	steps, count := fromEnv("MODEL_STEPS", 1200), 200
	if testing.Short() || cmdtest.Race {
		steps, count = 600, 24
	}
	seeds := []uint64{
		uint64(time.Now().UnixNano()), // one that nobody has tried
		1796031108363648303,           // a lookup loaded for ever what its next try had to evict
	}
	for n := range fromEnv("MODEL_SEEDS", count) - len(seeds) {
		seeds = append(seeds, uint64(n+1))
	}
	if n := fromEnv("MODEL_SEED", 0); n != 0 {
		seeds = []uint64{uint64(n)}
	}
	configs := modelConfigs()
	var mu sync.Mutex
	verdict := map[proto.Op]int{}
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			i := int(seed % uint64(len(configs)))
			t.Run(fmt.Sprintf("seed %d config %d", seed, i), func(t *testing.T) {
				t.Parallel()
				own := map[proto.Op]int{}
				runModel(t, seed, steps, withPolicy(configs[i], seed/uint64(len(configs))), own)
				mu.Lock()
				defer mu.Unlock()
				for op, n := range own {
					verdict[op] += n
				}
			})
		}
	})
	if t.Failed() || len(seeds) < len(configs) {
		return
	}
	for _, op := range []proto.Op{
		proto.OpPrepareStore, proto.OpCommitStore, proto.OpLookup, proto.OpPrepareRetrieve, proto.OpDelete, proto.OpClear,
		proto.OpPin, proto.OpUnpin, proto.OpPut,
	} {
		require.NotZero(t, verdict[op], "%v never succeeded: the model tests nothing", op)
	}
	// These are rare: not every seed has them.
	t.Logf("evictions %d, slots of a former life given back %d, retrievals by a lease %d, silent instances ended %d, keeping slots %d",
		verdict[proto.OpEvict], verdict[proto.OpAbortStore], verdict[byLease], verdict[reaped], verdict[reapedWithSlots])
}

func fromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// runModel runs one model and counts in verdict what succeeded.
func runModel(t *testing.T, seed uint64, steps int, s setup, verdict map[proto.Op]int) {
	t.Helper()
	t.Logf("seed %d, %v", seed, s)
	m := &model{setup: s, r: rand.New(rand.NewPCG(seed, 1)), pidNext: 1000, verdict: verdict, wide: seed%2 == 0}
	if m.wide {
		m.setup.stall = wideStall
	}
	m.begin(t, nil)
	defer func() {
		if t.Failed() {
			t.Logf("again: MODEL_SEED=%d MODEL_STEPS=%d go test -run '^TestModel$' ./server/engine", seed, steps)
		}
	}()
	m.run(steps)
	switch m.r.IntN(3) {
	case 0:
		m.finish()
	case 1:
		m.stop()
		m.restart()
	default:
		m.crash()
		m.restart()
	}
}

// begin starts an engine, on a disk that was used before or a new one.
func (m *model) begin(t testing.TB, disk *simDisk) {
	s := m.setup
	s.disk = disk
	s.grown = 1 + m.r.IntN(m.setup.slots)
	m.grown, m.most, m.whole = s.grown, m.setup.slots, false
	m.world = newWorld(t, s)
	m.perTurn = 1 + m.r.IntN(8)
	m.slow = true
	m.fail = m.fault
	m.workers = make([]*modelWorker, modelWorkers)
	m.zombies, m.holdings, m.reaped, m.calm = nil, nil, nil, false
	m.underWay, m.told = m.busyConn, m.hear
	for space := range m.pinned {
		m.pinned[space] = map[int]modelPin{}
	}
}

func (m *model) run(steps int) {
	for i := range steps {
		m.faults = i%1000 > 700
		m.faulty = m.faulty || m.faults
		m.act()
		m.collect()
		m.noticeReaped()
		m.checkPinned()
	}
	m.faults = false
}

// fault breaks some I/Os: they fail, or come short.
func (m *model) fault(io *seglog.IO) int64 {
	if !m.faults || m.r.IntN(40) != 0 || io.Kind == seglog.IOSum || io.Kind == seglog.IOCopy {
		return 0
	}
	if (io.Kind == seglog.IORead || io.Kind == seglog.IOWrite) && io.Mem.Len > simSector && m.r.IntN(3) == 0 {
		return simSector * (1 + m.r.Int64N((io.Mem.Len-1)/simSector)) // short
	}
	return -int64([]syscall.Errno{syscall.EIO, syscall.ENOSPC}[m.r.IntN(2)])
}

// act does one random thing.
func (m *model) act() {
	n := m.r.IntN(100)
	switch {
	case n < 30 && len(m.ios) > 0:
		m.endIO(m.r.IntN(len(m.ios)))
	case n < 42 && len(m.events) > 0:
		m.event(m.r.IntN(len(m.events)))
	case n < 46:
		m.advance(time.Duration(m.r.IntN(300)) * time.Millisecond)
	case n < 47:
		m.grow()
	case n < 48:
		m.rest()
	case n < 50:
		m.scribble()
	default:
		m.actOf(m.r.IntN(len(m.workers)))
	}
}

// grow populates more of the pool.
func (m *model) grow() {
	if m.whole {
		return
	}
	m.grown = min(m.grown+1+m.r.IntN(16), m.setup.slots)
	m.step(Event{Kind: EventReady, Res: int64(m.grown) * slotSize})
	if m.grown == m.setup.slots || m.r.IntN(20) == 0 {
		m.most, m.whole = m.grown, true
		m.step(Event{Kind: EventPopulated})
	}
}

// growWhole populates all of the pool, if there is to be more.
func (m *model) growWhole() {
	if m.whole {
		return
	}
	m.grown, m.whole = m.setup.slots, true
	m.step(Event{Kind: EventReady, Res: int64(m.grown) * slotSize})
	m.step(Event{Kind: EventPopulated})
}

// actOf has one worker do something.
func (m *model) actOf(i int) {
	w := m.workers[i]
	if w == nil {
		m.workers[i] = m.spawn(uint64(i + 1))
		return
	}
	c := m.pickConn(w)
	if c == nil {
		if len(w.conns) == 0 {
			m.connectAgain(w)
		}
		return
	}
	if m.wide && m.r.IntN(12) == 0 {
		m.actWide(w, c)
		return
	}
	switch n := m.r.IntN(224); {
	case n >= 216:
		m.putOne(w, c)
	case n >= 208:
		m.pinSome(w, c)
	case n >= 204:
		m.unpinSome(w, c)
	case n >= 202:
		m.evictOne(c)
	case n >= 200:
		m.giveBackLost(w, c)
	case n < 50:
		m.prepareSome(w, c)
	case n < 90:
		m.lookupSome(w, c)
	case n < 108:
		m.retrieveSome(w, c)
	case n < 120:
		m.retrieveByLease(w, c)
	case n < 168:
		m.endOne(w, c)
	case n < 180:
		m.deleteSome(w, c)
	case n < 182:
		m.clearAll(w, c)
	case n < 186:
		m.dropConn(w, c)
	case n < 188:
		m.addConn(w)
	case n < 190:
		m.unregister(w, c)
	case n < 191:
		m.moveToOtherSpace(w, c)
	case n < 193:
		m.usurp(i)
	case n < 195:
		if len(m.zombies) > 0 {
			m.kill(m.zombies[0])
			m.zombies = m.zombies[1:]
		}
	case n < 198:
		m.kill(w)
		m.workers[i] = nil
	default:
		for range 8 {
			m.dropConn(w, c)
			if c = m.pickConn(w); c == nil {
				return
			}
		}
	}
}
