package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

const (
	modelKeys    = 48
	modelClients = 4
)

// A model drives an engine with random workers and checks every answer against what it
// knows: which generation of a value each key may have, and who was told of which slots.
type model struct {
	*world
	r       *rand.Rand
	workers []*modelWorker
	epoch   [modelKeys]int // grows with each delete: a value of an earlier epoch must not come back
	granted []grant
	pidNext int32
	faults  bool
	replies int
	verdict map[proto.Op]int
}

// A grant is a slot some living process was told of.
type grant struct {
	pid    int32
	off    uint64
	end    uint64
	write  bool
	handle uint64
	kind   transferKind
	key    int
	epoch  int
}

// A modelWorker is one process with one connection.
type modelWorker struct {
	*client
	instance uint64
	pending  map[uint64]question
	open     []uint64 // transfers and leases it can end
}

// A question is a request whose reply has not come.
type question struct {
	op    proto.Op
	keys  []int
	epoch [modelKeys]int
}

func (m *model) value(key, epoch int) string { return fmt.Sprint("key ", key, " epoch ", epoch) }

func keyNames(keys []int) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = fmt.Sprint("m", k)
	}
	return out
}

func sizeOf(key int) uint64 { return uint64([]int{0, 100, 4096, 5000, 9000, 20000}[key%6]) }

func TestModel(t *testing.T) {
	seeds := []uint64{1, 2}
	steps := 2000
	if testing.Short() {
		steps = 1000
	}
	for _, seed := range append(seeds, uint64(time.Now().UnixNano())) {
		for _, cfg := range []Config{
			{}, {Write: WriteBack}, {Write: WriteOff}, {HashMask: 3}, {InstanceCap: 1 << 40, ParkedCap: 2},
		} {
			runModel(t, seed, steps, cfg)
		}
	}
}

func runModel(t *testing.T, seed uint64, steps int, cfg Config) {
	t.Helper()
	t.Logf("seed %d, write %v, hash mask %#x", seed, cfg.Write, cfg.HashMask)
	m := &model{
		world: newWorld(t, setup{slots: 64, diskSize: 1 << 20, segment: 64 << 10, cfg: cfg}),
		r:     rand.New(rand.NewPCG(seed, 1)), pidNext: 1000, verdict: map[proto.Op]int{},
	}
	m.fail = m.fault
	m.workers = make([]*modelWorker, modelClients)
	for i := range steps {
		m.faults = i%1000 > 700
		m.act()
		m.collect()
	}
	m.faults = false
	for range 8 { // whatever was broken mends itself
		m.settle()
		m.collect()
		m.advance(time.Minute)
	}
	for i, w := range m.workers {
		if w != nil {
			m.kill(i)
		}
	}
	m.settle()
	m.baseline()
	for _, op := range []proto.Op{proto.OpPrepareStore, proto.OpCommitStore, proto.OpLookup, proto.OpPrepareRetrieve, proto.OpDelete} {
		require.NotZero(t, m.verdict[op], "%v never succeeded: the model tests nothing", op)
	}
}

// fault breaks some I/Os.
func (m *model) fault(io *seglog.IO) int64 {
	if !m.faults || m.r.IntN(40) != 0 || io.Kind == seglog.IOSum {
		return 0
	}
	return -int64([]syscall.Errno{syscall.EIO, syscall.ENOSPC}[m.r.IntN(2)])
}

// act does one random thing.
func (m *model) act() {
	n := m.r.IntN(100)
	switch {
	case n < 30 && len(m.ios) > 0:
		m.endIO(m.r.IntN(len(m.ios)))
		return
	case n < 45 && len(m.events) > 0:
		m.event(m.r.IntN(len(m.events)))
		return
	case n < 50:
		m.advance(time.Duration(m.r.IntN(300)) * time.Millisecond)
		return
	}
	i := m.r.IntN(len(m.workers))
	w := m.workers[i]
	if w == nil {
		m.pidNext++
		w = &modelWorker{client: m.worker(uint64(i+1), m.pidNext), instance: uint64(i + 1), pending: map[uint64]question{}}
		m.workers[i] = w
		return
	}
	switch n := m.r.IntN(100); {
	case n < 25:
		m.prepareSome(w)
	case n < 50:
		m.lookupSome(w)
	case n < 60:
		m.retrieveSome(w)
	case n < 88:
		m.endOne(w)
	case n < 94:
		m.deleteSome(w)
	case n < 95:
		m.clearAll(w)
	case n < 97:
		m.reconnect(w)
	default:
		m.kill(i)
	}
}

func (m *model) pick() []int {
	keys := make([]int, 1+m.r.IntN(6))
	first := m.r.IntN(modelKeys)
	for i := range keys {
		keys[i] = (first + i) % modelKeys
	}
	return keys
}

func (m *model) ask(w *modelWorker, op proto.Op, keys []int, body []byte) {
	id := w.lastID + 1
	w.pending[id] = question{op: op, keys: keys, epoch: m.epoch}
	w.post(op, 0, body, nil)
}

func (m *model) prepareSome(w *modelWorker) {
	keys := m.pick()
	in := proto.PrepareStore{WaitMs: uint32(m.r.IntN(3) * 200), Keys: testKeys(keyNames(keys)...)}
	for _, k := range keys {
		in.Sizes = append(in.Sizes, sizeOf(k))
	}
	m.ask(w, proto.OpPrepareStore, keys, proto.AppendPrepareStore(nil, &in))
}

func (m *model) lookupSome(w *modelWorker) {
	keys := m.pick()
	in := proto.Lookup{
		Mode: proto.LookupMode(m.r.IntN(2)), Group: 1, WaitMs: uint32(m.r.IntN(3) * 200),
		Options: []proto.LookupOptions{
			0, proto.LookupHold, proto.LookupLoad, proto.LookupHold | proto.LookupLoad,
			proto.LookupHold | proto.LookupSlots, proto.LookupHold | proto.LookupLoad | proto.LookupSlots,
		}[m.r.IntN(6)],
		Keys: testKeys(keyNames(keys)...),
	}
	m.ask(w, proto.OpLookup, keys, proto.AppendLookup(nil, &in))
}

func (m *model) retrieveSome(w *modelWorker) {
	keys := m.pick()
	in := proto.PrepareRetrieve{
		Mode: proto.RetrieveMode(m.r.IntN(2)), WaitMs: uint32(m.r.IntN(2) * 200),
		Keys: testKeys(keyNames(keys)...),
	}
	m.ask(w, proto.OpPrepareRetrieve, keys, proto.AppendPrepareRetrieve(nil, &in))
}

func (m *model) deleteSome(w *modelWorker) {
	keys := m.pick()
	m.ask(w, proto.OpDelete, keys, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys(keyNames(keys)...)}))
	for _, k := range keys {
		m.epoch[k]++
	}
}

func (m *model) clearAll(w *modelWorker) {
	m.ask(w, proto.OpClear, nil, proto.AppendClear(nil, &proto.Clear{}))
	for k := range m.epoch {
		m.epoch[k]++
	}
}

// endOne commits, aborts or releases something that is open.
func (m *model) endOne(w *modelWorker) {
	if len(w.open) == 0 {
		return
	}
	i := m.r.IntN(len(w.open))
	h := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	kind := m.kindOf(w.pid, h)
	switch {
	case kind == kindStore && m.r.IntN(5) == 0:
		w.abort(h)
	case kind == kindStore:
		m.writeGranted(w.pid, h)
		if w.commit(h) == proto.StatusOK {
			m.verdict[proto.OpCommitStore]++
		} else {
			w.abort(h) // quarantined: it says that it is done with the slots
		}
	case kind == kindRetrieve:
		m.checkGranted(w.pid, h)
		w.endRetrieve(h)
	default:
		m.checkGranted(w.pid, h)
		w.release(h)
	}
	m.forget(func(g grant) bool { return g.pid == w.pid && g.handle == h })
}

func (m *model) kindOf(pid int32, handle uint64) transferKind {
	for _, g := range m.granted {
		if g.pid == pid && g.handle == handle {
			return g.kind
		}
	}
	return kindLease
}

func (m *model) writeGranted(pid int32, handle uint64) {
	for _, g := range m.granted {
		if g.pid == pid && g.handle == handle {
			fillValue(m.pool[g.off:g.end], m.value(g.key, g.epoch))
		}
	}
}

// checkGranted requires that what a worker was told to read still is what it was.
func (m *model) checkGranted(pid int32, handle uint64) {
	for _, g := range m.granted {
		if g.pid == pid && g.handle == handle {
			require.Equal(m.t, valueOf(m.value(g.key, g.epoch), int(g.end-g.off)), m.pool[g.off:g.end])
		}
	}
}

func (m *model) forget(which func(grant) bool) {
	m.granted = slices.DeleteFunc(m.granted, which)
}

// reconnect breaks the connection; the same process comes back and may end what it had.
func (m *model) reconnect(w *modelWorker) {
	w.close()
	again := m.worker(w.instance, w.pid)
	w.client = again
	w.pending = map[uint64]question{}
}

// kill ends a process, its connection first or its watch first.
func (m *model) kill(i int) {
	w := m.workers[i]
	m.workers[i] = nil
	if m.r.IntN(2) == 0 {
		w.close()
		m.dies(w.pid)
	} else {
		m.dies(w.pid)
		w.close()
	}
	m.forget(func(g grant) bool { return g.pid == w.pid })
}

// collect looks at the replies that have come.
func (m *model) collect() {
	for _, w := range m.workers {
		if w == nil {
			continue
		}
		for _, rep := range m.inbox[w.id] {
			q, ok := w.pending[rep.h.Request]
			require.True(m.t, ok, "a second reply to %v", rep.h.Op)
			delete(w.pending, rep.h.Request)
			m.judge(w, q, rep)
			m.replies++
		}
		m.inbox[w.id] = nil
	}
}

func (m *model) judge(w *modelWorker, q question, rep reply) {
	switch q.op { //nolint:exhaustive // the ops the model asks and waits for
	case proto.OpPrepareStore:
		require.Equal(m.t, proto.StatusOK, rep.h.Status)
		var out proto.PrepareStoreReply
		require.NoError(m.t, proto.ParsePrepareStoreReply(rep.body, &out))
		m.judgePrepare(w, q, &out)
	case proto.OpLookup:
		require.Equal(m.t, proto.StatusOK, rep.h.Status)
		var out proto.LookupReply
		require.NoError(m.t, proto.ParseLookupReply(rep.body, &out))
		if out.Hits > 0 {
			m.verdict[q.op]++
		}
		if out.Lease != 0 {
			w.open = append(w.open, out.Lease)
		}
		hit := q.keys[:min(int(out.Hits), len(q.keys))]
		if len(out.Bitmap) > 0 {
			hit = nil
			for i, k := range q.keys {
				if out.Bitmap[i/8]>>(i%8)&1 != 0 {
					hit = append(hit, k)
				}
			}
		}
		m.judgeRead(w, q, kindLease, out.Lease, hit, out.Slots)
	case proto.OpPrepareRetrieve:
		if rep.h.Status != proto.StatusOK {
			return
		}
		var out proto.PrepareRetrieveReply
		require.NoError(m.t, proto.ParsePrepareRetrieveReply(rep.body, &out))
		if out.Transfer != 0 {
			m.verdict[q.op]++
			w.open = append(w.open, out.Transfer)
		}
		m.judgeRead(w, q, kindRetrieve, out.Transfer, q.keys[:len(out.Slots)], out.Slots)
	case proto.OpDelete, proto.OpClear:
		require.Contains(m.t, []proto.Status{proto.StatusOK, proto.StatusOKNotDurable}, rep.h.Status)
		m.verdict[q.op]++
	}
}

// judgePrepare requires that no slot is given to two who live.
func (m *model) judgePrepare(w *modelWorker, q question, out *proto.PrepareStoreReply) {
	if out.Transfer != 0 {
		m.verdict[proto.OpPrepareStore]++
		w.open = append(w.open, out.Transfer)
	}
	for i, r := range out.Results {
		if r.Status != proto.StatusReserved {
			continue
		}
		g := grant{
			pid: w.pid, off: r.Slot.Off, end: r.Slot.Off + r.Slot.Len, write: true,
			handle: out.Transfer, kind: kindStore, key: q.keys[i], epoch: m.epoch[q.keys[i]],
		}
		for _, o := range m.granted {
			if g.off < o.end && o.off < g.end {
				m.t.Fatalf("slot [%d,%d) is given to process %d while process %d has [%d,%d)", g.off, g.end, g.pid, o.pid, o.off, o.end)
			}
		}
		m.granted = append(m.granted, g)
	}
}

// judgeRead requires that slots hold a value of their key from the time of the request.
func (m *model) judgeRead(w *modelWorker, q question, kind transferKind, handle uint64, keys []int, slots []proto.Slot) {
	for i, s := range slots {
		k := keys[i]
		require.Equal(m.t, sizeOf(k), s.Len)
		found := -1
		for ep := q.epoch[k]; ep <= m.epoch[k] && found < 0; ep++ {
			if string(m.pool[s.Off:s.Off+s.Len]) == string(valueOf(m.value(k, ep), int(s.Len))) {
				found = ep
			}
		}
		if found < 0 {
			m.t.Fatalf("key %d is served with bytes that are none of its values of epochs %d to %d", k, q.epoch[k], m.epoch[k])
		}
		m.granted = append(m.granted, grant{
			pid: w.pid, off: s.Off, end: s.Off + s.Len, handle: handle, kind: kind, key: k, epoch: found,
		})
	}
}
