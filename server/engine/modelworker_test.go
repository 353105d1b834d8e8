package engine

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// A modelWorker is one process with some connections, which act for one instance.
type modelWorker struct {
	conns    []*client
	pid      int32 // 0: on another host
	instance uint64
	life     int // of the instance, as far as the worker knows
	space    int
	want     proto.Transport
	readOnly bool
	pending  map[asked]question
}

// asked names a request.
type asked struct {
	conn ConnID
	id   uint64
}

// A question is a request whose reply has not come.
type question struct {
	op      proto.Op
	space   int
	keys    []int
	sizes   []uint64
	epochs  []int // of the keys, when it was asked
	group   int
	mode    proto.LookupMode
	inline  bool
	holding *holding // that is to end, or the lease that is used
	alone   bool     // the connection acted for no instance, as when there was no place for it
	first   int      // of the lease
	life    int
}

// A holding is a transfer or lease as its owner knows it. While the owner's process lives
// the slots that it was told of are its own.
type holding struct {
	owner  *modelWorker
	life   int
	handle uint64
	kind   transferKind
	inline bool
	space  int
	keys   []int
	epochs []int
	slots  []proto.Slot // empty: it was not told
}

// lost says that the instance that has h ended for its process: nothing ends h but that.
func (h *holding) lost() bool { return h.life != h.owner.life }

func (m *model) spawn(instance uint64) *modelWorker {
	return m.spawnIn(instance, min(m.r.IntN(4), 1))
}

func (m *model) spawnIn(instance uint64, space int) *modelWorker {
	w := &modelWorker{
		instance: instance, space: space, want: proto.TransportShared, readOnly: m.r.IntN(8) == 0,
		pending: map[asked]question{},
	}
	switch m.r.IntN(6) {
	case 0:
		w.want = proto.TransportInline
	case 1:
		w.want = proto.TransportInline
		fallthrough
	default:
		m.pidNext++
		w.pid = m.pidNext
	}
	m.lifeNext++
	w.life = m.lifeNext
	m.addConn(w)
	return w
}

// addConn opens a further connection of a worker.
func (m *model) addConn(w *modelWorker) {
	if len(w.conns) == 3 || m.connsOpen() == len(m.e.conns) {
		return
	}
	c := m.connect(w.pid)
	w.conns = append(w.conns, c)
	m.enrol(w, c)
}

func (m *model) connsOpen() (n int) {
	for i := range m.e.conns {
		if m.e.conns[i].state != connFree {
			n++
		}
	}
	return n
}

// enrol registers a connection. The table of instances may be full.
func (m *model) enrol(w *modelWorker, c *client) bool {
	st := c.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: w.instance, Want: w.want, ReadOnly: w.readOnly, Namespace: modelSpaces[w.space],
		Layouts: []proto.Layout{{Name: "bf16", Size: layoutMax}},
	}), nil).h.Status
	require.Contains(m.t, []proto.Status{proto.StatusOK, proto.StatusBusy}, st)
	return st == proto.StatusOK
}

// pickConn chooses a connection that may send.
func (m *model) pickConn(w *modelWorker) *client {
	if len(w.conns) == 0 {
		return nil
	}
	c := w.conns[m.r.IntN(len(w.conns))]
	if m.closed[c.id] { // hung up by the server
		m.dropConn(w, c)
		return nil
	}
	if m.receiving(c.id) {
		return nil
	}
	return c
}

// dropConn breaks a connection: nobody hears of what was asked on it.
func (m *model) dropConn(w *modelWorker, c *client) {
	w.conns = slices.DeleteFunc(w.conns, func(o *client) bool { return o == c })
	for q := range w.pending {
		if q.conn == c.id {
			delete(w.pending, q)
		}
	}
	if len(w.conns) == 0 { // what was not told ends
		m.forget(func(h *holding) bool { return h.owner == w && (len(h.slots) == 0 || w.pid == 0) })
	}
	if !m.closed[c.id] {
		c.close()
	}
}

func (m *model) connectAgain(w *modelWorker) {
	m.addConn(w)
}

// unregister gives all back that the instance has.
func (m *model) unregister(w *modelWorker, c *client) {
	m.forget(func(h *holding) bool { return h.owner == w && !h.lost() })
	r := c.call(proto.OpUnregister, 0, nil, nil)
	require.Contains(m.t, []proto.Status{proto.StatusOK, proto.StatusNotRegistered}, r.h.Status)
	if r.h.Status == proto.StatusOK { // it touches nothing any more, of former lives neither
		m.forget(func(h *holding) bool { return h.owner == w })
	}
	m.reborn(w)
}

// moveToOtherSpace registers the same id in another namespace: another instance.
func (m *model) moveToOtherSpace(w *modelWorker, c *client) {
	if w.pid == 0 && len(w.conns) > 1 {
		return // nothing says that the others are the same process: they would stay behind
	}
	w.space = 1 - w.space
	if !m.enrol(w, c) {
		w.space = 1 - w.space // there is no place for another instance: the old one goes on
		return
	}
	m.reborn(w)
}

// reborn registers all connections again, for a new life of the instance.
func (m *model) reborn(w *modelWorker) {
	m.lifeNext++
	w.life = m.lifeNext
	m.forget(func(h *holding) bool { return h.owner == w && len(h.slots) == 0 })
	for _, c := range w.conns {
		if !m.receiving(c.id) && !m.closed[c.id] {
			m.enrol(w, c)
		}
	}
}

// usurp has another process take the id of a worker's instance.
func (m *model) usurp(i int) {
	old := m.workers[i]
	next := m.spawnIn(old.instance, old.space)
	if old.pid == 0 && next.pid == 0 || m.e.instanceByID(old.instance, m.e.findSpace(modelSpaces[old.space])) == none {
		m.workers[i] = next
		m.kill(old)
		return
	}
	m.lifeNext++
	old.life = m.lifeNext // it has lost it
	m.forget(func(h *holding) bool { return h.owner == old && len(h.slots) == 0 })
	m.zombies = append(m.zombies, old)
	m.workers[i] = next
}

// kill ends a process, its connections first or its watch first.
func (m *model) kill(w *modelWorker) {
	first := m.r.IntN(2) == 0
	if first {
		m.dies(w.pid)
	}
	for len(w.conns) > 0 {
		m.dropConn(w, w.conns[0])
	}
	if !first {
		m.dies(w.pid)
	}
	m.forget(func(h *holding) bool { return h.owner == w })
}

// evictOne has somebody end an instance, whose process may be killed by it.
func (m *model) evictOne(c *client) {
	i := m.r.IntN(len(m.workers))
	m.killed = nil
	_, st := c.evict(uint64(i+1), m.r.IntN(3) == 0)
	if st != proto.StatusOK {
		require.Contains(m.t, []proto.Status{proto.StatusDenied, proto.StatusStale}, st)
		return
	}
	m.verdict[proto.OpEvict]++
	m.zombies = slices.DeleteFunc(m.zombies, func(z *modelWorker) bool {
		dies := z.instance == uint64(i+1) && slices.Contains(m.killed, z.pid)
		if dies {
			m.kill(z)
		}
		return dies
	})
	w := m.workers[i]
	switch {
	case w == nil:
	case slices.Contains(m.killed, w.pid):
		m.kill(w)
		m.workers[i] = nil
	default:
		m.reborn(w)
	}
}

// giveBackLost ends what a worker had in a former life of its instance.
func (m *model) giveBackLost(w *modelWorker, c *client) {
	for _, h := range m.holdings {
		if h.owner != w || !h.lost() || len(h.slots) == 0 {
			continue
		}
		st := c.use([...]proto.Op{kindStore: proto.OpAbortStore, kindRetrieve: proto.OpCommitRetrieve, kindLease: proto.OpRelease}[h.kind], h.handle)
		if st == proto.StatusOK {
			m.verdict[proto.OpAbortStore]++
			m.forget(func(o *holding) bool { return o == h })
		}
		return
	}
}

// scribble has all processes write to the slots they were given to write to, whether or not
// the server would still take them.
func (m *model) scribble() {
	for _, h := range m.holdings {
		if h.kind != kindStore {
			continue
		}
		for _, s := range h.slots {
			for i := range m.pool[s.Off : s.Off+s.Len] {
				m.pool[s.Off:][i] = 0xEE
			}
		}
	}
}

// forget drops holdings.
func (m *model) forget(which func(*holding) bool) {
	m.holdings = slices.DeleteFunc(m.holdings, which)
}
