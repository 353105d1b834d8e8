package engine

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// rest lets all work under way end. Then nobody waits for anything, however long they would.
func (m *model) rest() {
	for replies := -1; replies != m.replies; { // what they are told, workers answer
		replies = m.replies
		m.settle()
		m.collect()
	}
	if !m.whole {
		return // they may wait for more of the pool
	}
	require.Equal(m.t, none, m.e.parkedFirst, "a request waits and nothing is under way")
	for _, w := range slices.Concat(m.workers, m.zombies) {
		if w != nil {
			require.Empty(m.t, w.pending, "a request has no reply and nothing is under way")
		}
	}
}

// finish ends a run: whatever was broken mends itself, and all that anybody had comes back.
func (m *model) finish() {
	m.growWhole()
	m.calm = true
	for range 8 {
		m.rest()
		m.advance(time.Minute)
	}
	m.allReaped()
	for _, w := range slices.Concat(m.workers, m.zombies) {
		if w != nil {
			m.kill(w)
		}
	}
	m.workers, m.zombies = make([]*modelWorker, modelWorkers), nil
	m.settle()
	m.unpinAll()
	m.baseline()
	require.Empty(m.t, m.watches)
	for x := range m.e.insts {
		require.Equal(m.t, instFree, m.e.insts[x].state)
	}
}

// stop ends the engine in an orderly way, with whatever is under way.
func (m *model) stop() {
	m.e.BeginStop(m.now)
	m.check()
	for n := 0; !m.e.Stopped(); n++ {
		require.Less(m.t, n, 10_000, "the engine does not stop")
		m.flush()
		switch {
		case len(m.ios) > 0:
			m.endIO(m.r.IntN(len(m.ios)))
		case len(m.events) > 0:
			m.event(m.r.IntN(len(m.events)))
		}
	}
	if !m.cleanStop() {
		return
	}
	for space := range m.stored {
		for k, epoch := range m.stored[space] {
			if epoch == m.epoch[space][k]+1 {
				_, ok := m.log.Find(m.diskKeyOf(space, k))
				require.True(m.t, ok, "key %d of namespace %d was committed, and the stop lost it", k, space)
			}
		}
	}
}

// cleanStop says that the disk was to have all, had room for it and never failed: it lacks nothing.
func (m *model) cleanStop() bool {
	var s Metrics
	m.e.Metrics(&s)
	return m.setup.cfg.Write != WriteOff && !m.faulty && s.Counters.SpillsDropped == 0 && s.Disk.EvictedRecords == 0 &&
		s.Disk.BadRecords == 0 && s.Counters.TooLargeForDisk == 0 && s.Counters.AdmitRefused == 0
}

func (m *model) diskKeyOf(space, k int) *seglog.Key {
	layout := proto.Layout{Name: "bf16", Size: layoutMax}
	key := &seglog.Key{Namespace: spaceID(modelSpaces[space]), Layout: layoutID(&layout)}
	key.Hash = testKeys(keyNames([]int{k})...)[0]
	return key
}

// crash ends the process. The power may go with it: what was not made safe is then lost or
// torn, also the record of a delete, and a value that comes back is at least a whole one.
func (m *model) crash() {
	m.abandon(m.r)
	if m.r.IntN(2) == 0 {
		m.disk.cutPower(m.r)
		m.dark = true
		m.floor = [len(modelSpaces)][modelKeys]int{}
	}
}

// restart begins on the disk that is left and reads what is there: nothing that was known to
// be deleted, and whole values. It then goes on for a while.
func (m *model) restart() {
	var visible []seglog.Key
	for space := range m.epoch {
		for k := range m.epoch[space] {
			if d := m.diskKeyOf(space, k); !m.dark && m.there(d) {
				visible = append(visible, *d)
			}
		}
	}
	m.setup.cfg.Write = WriteMode(m.r.IntN(3))
	m.setup.cfg.Admit = AdmitMode(m.r.IntN(3))
	m.setup.slots = []int{modelSlots, 16, 4}[m.r.IntN(3)] // some objects may be larger than the pool
	t, disk := m.t, m.disk
	m.setup.recovered = func(l *seglog.Log) { // before it evicts to have a free segment
		for i := range visible {
			_, ok := l.Find(&visible[i])
			require.True(t, ok, "a record was on disk and is lost by a restart")
		}
	}
	m.begin(t, disk)
	m.growWhole()
	m.zombies, m.stored = nil, [len(modelSpaces)][modelKeys]int{}
	for space, name := range modelSpaces {
		c := m.connect(1)
		require.Equal(t, proto.StatusOK, c.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
			Instance: 99, Want: proto.TransportShared, Namespace: name, Layouts: []proto.Layout{{Name: "bf16", Size: layoutMax}},
		}), nil).h.Status)
		for k := range modelKeys {
			m.readBack(c, space, k)
		}
		c.close()
		m.dies(1)
	}
	m.run(300)
	m.finish()
}

func (m *model) there(k *seglog.Key) bool {
	_, ok := m.log.Find(k)
	return ok
}

// readBack requires that a key is a miss or has a value that may have survived.
func (m *model) readBack(c *client, space, k int) {
	id := c.lookup(proto.LookupHold|proto.LookupLoad|proto.LookupSlots, time.Minute, keyNames([]int{k})...)
	m.settle()
	out := c.found(id)
	if out.Hits == 0 {
		return
	}
	s := out.Slots[0]
	require.Equal(m.t, sizeOf(k), s.Len)
	epoch := m.epoch[space][k]
	for !slices.Equal(valueOf(m.value(space, k, epoch), int(s.Len)), m.pool[s.Off:s.Off+s.Len]) {
		epoch--
		require.GreaterOrEqual(m.t, epoch, m.floor[space][k], "key %d is back though its delete was acknowledged", k)
	}
	m.epoch[space][k] = epoch
	require.Equal(m.t, proto.StatusOK, c.release(out.Lease))
}
