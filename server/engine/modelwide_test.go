package engine

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// wideStall is after how long the disk of a wide model is given up: some of what it is given stays under way for longer.
const wideStall = 700 * time.Millisecond

// pickMany chooses more keys in a row than the pool has memory for, some of them several times.
func (m *model) pickMany() []int {
	keys := make([]int, 8+m.r.IntN(modelKeys))
	first, step := m.r.IntN(modelKeys), 1+m.r.IntN(2)
	for i := range keys {
		keys[i] = (first + i*step) % modelKeys
	}
	return keys
}

// actWide does what only a wide model does.
func (m *model) actWide(w *modelWorker, c *client) {
	switch m.r.IntN(8) {
	case 0, 1:
		m.touchSome(w, c)
	case 2:
		m.ask(w, c, 0, question{op: proto.OpPing}, nil, nil)
	case 3:
		m.releaseMany(w, c)
	case 4:
		m.prepareOversized(w, c)
	case 5:
		m.lookUpAndLeave(w, c)
	default:
		m.list(c)
	}
}

// touchSome uses some keys. The reply is there at once: it counts what is in memory now.
func (m *model) touchSome(w *modelWorker, c *client) {
	keys := m.pick()
	before := m.known(w, keys)
	r := c.call(proto.OpTouch, 0, proto.AppendTouch(nil, &proto.Touch{Keys: testKeys(keyNames(keys)...)}), nil)
	if r.h.Status != proto.StatusOK {
		require.Contains(m.t, refusals, r.h.Status)
		return
	}
	var out proto.TouchReply
	require.NoError(m.t, proto.ParseTouchReply(r.body, &out))
	ready := 0
	for _, st := range before {
		if st == table.StateReady {
			ready++
		}
	}
	require.EqualValues(m.t, ready, out.Touched)
	m.checkPinned()
}

// releaseMany ends all leases of a worker with one request, and what is no lease.
func (m *model) releaseMany(w *modelWorker, c *client) {
	in := proto.Release{Leases: []uint64{0, 1 << 60}}
	for _, h := range m.holdings {
		if h.owner == w && h.kind == kindLease && !h.lost() {
			m.checkIntact(h)
			in.Leases = append(in.Leases, h.handle)
		}
	}
	m.forget(func(h *holding) bool { return h.owner == w && h.kind == kindLease && !h.lost() })
	m.ask(w, c, 0, question{op: proto.OpRelease}, proto.AppendRelease(nil, &in), nil)
}

// prepareOversized asks for what is larger than its layout, beside what is not.
func (m *model) prepareOversized(w *modelWorker, c *client) {
	keys := m.pick()
	in := proto.PrepareStore{WaitMs: uint32(m.r.IntN(2) * 200), Keys: testKeys(keyNames(keys)...)}
	large := make([]bool, len(keys))
	for i, k := range keys {
		in.Sizes = append(in.Sizes, sizeOf(k))
		if large[i] = m.r.IntN(3) == 0; large[i] {
			in.Sizes[i] = []uint64{layoutMax + 1, 1 << 40, 1<<64 - 1}[m.r.IntN(3)]
		}
	}
	f, inline := m.flags(w)
	m.ask(w, c, f, question{op: proto.OpPrepareStore, keys: keys, sizes: in.Sizes, inline: inline}, proto.AppendPrepareStore(nil, &in), nil)
}

// lookUpAndLeave has a lookup whose connection breaks at once.
func (m *model) lookUpAndLeave(w *modelWorker, c *client) {
	m.lookupSome(w, c)
	m.dropConn(w, c)
}

// list asks for all that is open, and requires that it is what the engine has.
func (m *model) list(c *client) {
	m.endTurn()
	var held, quarantined int64
	for x := range m.e.insts {
		if i := &m.e.insts[x]; i.state != instFree {
			held += i.held
			quarantined += i.quarantined
		}
	}
	if len(m.e.conns) == 0 || m.e.connOf(c.id) == nil {
		return
	}
	for _, i := range c.instances() {
		held -= int64(i.Held)
		quarantined -= int64(i.Quarantined)
	}
	require.Zero(m.t, held)
	require.Zero(m.t, quarantined)
	require.Len(m.t, c.transfers(), m.listed())
}

// listed is how many transfers there are for an operator.
func (m *model) listed() (n int) {
	for t := range m.e.transfers {
		if m.e.transfers[t].state != transferFree {
			n++
		}
	}
	return n
}
