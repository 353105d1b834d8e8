package engine

import (
	"slices"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/proto"
)

// pick chooses some keys in a row, perhaps none, perhaps one twice.
func (m *model) pick() []int {
	if m.wide && m.r.IntN(10) == 0 {
		return m.pickMany()
	}
	keys := make([]int, m.r.IntN(7))
	first := m.r.IntN(modelKeys)
	for i := range keys {
		keys[i] = (first + i) % modelKeys
	}
	if len(keys) > 1 && m.r.IntN(8) == 0 {
		keys[1] = keys[0]
	}
	return keys
}

func (m *model) epochsOf(space int, keys []int) []int {
	out := make([]int, len(keys))
	for i, k := range keys {
		out[i] = m.epoch[space][k]
	}
	return out
}

// ask sends a request. Some ask for no reply.
func (m *model) ask(w *modelWorker, c *client, flags proto.Flags, q question, body, payload []byte) uint64 {
	q.space, q.life = w.space, w.life
	q.alone = m.e.liveInstance(m.e.connOf(c.id)) == none
	if q.epochs == nil {
		q.epochs = m.epochsOf(w.space, q.keys)
	}
	if flags&proto.FlagNoReply == 0 {
		w.pending[asked{c.id, c.lastID + 1}] = q
	}
	return c.post(q.op, flags, body, payload)
}

// flags are those of a request: an inline worker sets inline, others do at times.
func (m *model) flags(w *modelWorker) (proto.Flags, bool) {
	inline := w.want == proto.TransportInline || w.pid == 0
	var f proto.Flags
	if inline || m.r.IntN(6) == 0 {
		inline = true
		f |= proto.FlagInline
	}
	if m.r.IntN(40) == 0 {
		f |= proto.FlagNoReply
	}
	return f, inline
}

func (m *model) prepareSome(w *modelWorker, c *client) {
	keys := m.pick()
	in := proto.PrepareStore{WaitMs: uint32(m.r.IntN(3) * 200), Keys: testKeys(keyNames(keys)...)}
	for _, k := range keys {
		in.Sizes = append(in.Sizes, sizeOf(k))
	}
	f, inline := m.flags(w)
	m.ask(w, c, f, question{op: proto.OpPrepareStore, keys: keys, sizes: in.Sizes, inline: inline}, proto.AppendPrepareStore(nil, &in), nil)
}

func (m *model) putOne(w *modelWorker, c *client) {
	k := m.r.IntN(modelKeys)
	flags := proto.FlagInline
	if m.r.IntN(40) == 0 {
		flags |= proto.FlagNoReply
	}
	value := valueOf(m.value(w.space, k, m.epoch[w.space][k]), int(sizeOf(k)))
	m.ask(w, c, flags, question{op: proto.OpPut, keys: []int{k}}, proto.AppendPut(nil, &proto.Put{Key: testKeys(keyNames([]int{k})...)[0]}), value)
}

func (m *model) lookupSome(w *modelWorker, c *client) {
	keys := m.pick()
	in := proto.Lookup{
		Mode: proto.LookupMode(m.r.IntN(2)), Group: uint16(1 + m.r.IntN(3)), WaitMs: uint32(m.r.IntN(3) * 200),
		Options: []proto.LookupOptions{
			0, proto.LookupHold, proto.LookupLoad, proto.LookupHold | proto.LookupLoad,
			proto.LookupHold | proto.LookupSlots, proto.LookupHold | proto.LookupLoad | proto.LookupSlots,
		}[m.r.IntN(6)],
		Keys: testKeys(keyNames(keys)...),
	}
	f, _ := m.flags(w)
	m.ask(w, c, f, question{op: proto.OpLookup, keys: keys, group: int(in.Group), mode: in.Mode}, proto.AppendLookup(nil, &in), nil)
}

func (m *model) retrieveSome(w *modelWorker, c *client) {
	keys := m.pick()
	in := proto.PrepareRetrieve{
		Mode: proto.RetrieveMode(m.r.IntN(2)), WaitMs: uint32(m.r.IntN(2) * 200),
		Keys: testKeys(keyNames(keys)...),
	}
	f, inline := m.flags(w)
	m.ask(w, c, f, question{op: proto.OpPrepareRetrieve, keys: keys, inline: inline}, proto.AppendPrepareRetrieve(nil, &in), nil)
}

// retrieveByLease uses a lease of anybody.
func (m *model) retrieveByLease(w *modelWorker, c *client) {
	var leases []*holding
	for _, h := range m.holdings {
		if h.kind == kindLease && len(h.keys) > 0 {
			leases = append(leases, h)
		}
	}
	if len(leases) == 0 {
		return
	}
	h := leases[m.r.IntN(len(leases))]
	first := m.r.IntN(len(h.keys))
	count := 1 + m.r.IntN(len(h.keys)-first)
	in := proto.PrepareRetrieve{Lease: h.handle, First: uint32(first), Count: uint32(count)}
	f, inline := m.flags(w)
	m.ask(w, c, f, question{
		op: proto.OpPrepareRetrieve, keys: h.keys[first : first+count], epochs: h.epochs[first : first+count],
		holding: h, first: first, inline: inline,
	}, proto.AppendPrepareRetrieve(nil, &in), nil)
}

// deleteSome begins an epoch of some keys, if the delete is not refused.
func (m *model) deleteSome(w *modelWorker, c *client) {
	keys := m.pick()
	m.remove(w, c, question{op: proto.OpDelete, keys: keys}, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys(keyNames(keys)...)}))
}

// clearAll does so for all keys of the worker's namespace.
func (m *model) clearAll(w *modelWorker, c *client) {
	all := make([]int, modelKeys)
	for k := range all {
		all[k] = k
	}
	name := ""
	if m.r.IntN(2) == 0 {
		name = modelSpaces[w.space]
	}
	m.remove(w, c, question{op: proto.OpClear, keys: all}, proto.AppendClear(nil, &proto.Clear{Namespace: name}))
}

func (m *model) remove(w *modelWorker, c *client, q question, body []byte) {
	before := m.epoch[w.space]
	for _, k := range q.keys {
		m.epoch[w.space][k] = before[k] + 1
	}
	id := m.ask(w, c, 0, q, body, nil)
	for _, r := range m.inbox[c.id] {
		if r.h.Request == id && r.h.Status != proto.StatusOK && r.h.Status != proto.StatusOKNotDurable {
			m.epoch[w.space] = before // refused
		}
	}
}

// endOne commits, aborts or releases something that is open.
func (m *model) endOne(w *modelWorker, c *client) {
	var mine []*holding
	for _, h := range m.holdings {
		if h.owner == w && !h.lost() {
			mine = append(mine, h)
		}
	}
	if len(mine) == 0 {
		return
	}
	h := mine[m.r.IntN(len(mine))]
	if h.kind == kindStore {
		m.endStore(w, c, h)
		return
	}
	m.checkIntact(h)
	m.forget(func(o *holding) bool { return o == h })
	var flags proto.Flags
	if m.r.IntN(3) == 0 {
		flags = proto.FlagNoReply
	}
	if h.kind == kindRetrieve {
		m.ask(w, c, flags, question{op: proto.OpCommitRetrieve}, proto.AppendCommitRetrieve(nil, &proto.CommitRetrieve{Transfer: h.handle}), nil)
		return
	}
	m.ask(w, c, flags, question{op: proto.OpRelease}, proto.AppendRelease(nil, &proto.Release{Leases: []uint64{h.handle, h.handle}}), nil)
}

func (m *model) endStore(w *modelWorker, c *client, h *holding) {
	m.forget(func(o *holding) bool { return o == h })
	if m.r.IntN(5) == 0 {
		c.abort(h.handle)
		return
	}
	in := proto.CommitStore{Transfer: h.handle}
	var payload []byte
	var flags proto.Flags
	sums := m.r.IntN(2) == 0
	for i, k := range h.keys {
		v := valueOf(m.value(h.space, k, h.epochs[i]), int(sizeOf(k)))
		if sums {
			in.Sums = append(in.Sums, xxh3.Hash(v))
		}
		if h.inline {
			payload = append(payload, v...)
		} else {
			copy(m.pool[h.slots[i].Off:], v)
		}
	}
	if h.inline {
		flags = proto.FlagInline
	}
	m.ask(w, c, flags, question{op: proto.OpCommitStore, holding: h}, proto.AppendCommitStore(nil, &in), payload)
	if !h.inline && m.r.IntN(8) == 0 {
		st := c.commit(h.handle)
		require.NotEqual(m.t, proto.StatusOK, st, "a second commit")
		require.NotEqual(m.t, proto.StatusBusy, st)
	}
}

// checkIntact requires that what a worker was told to read still is what it was.
func (m *model) checkIntact(h *holding) {
	for i, s := range h.slots {
		v := valueOf(m.value(h.space, h.keys[i], h.epochs[i]), int(s.Len))
		if !slices.Equal(v, m.pool[s.Off:s.Off+s.Len]) {
			m.t.Fatalf("key %d in slot [%d,%d) of process %d changed while it was held", h.keys[i], s.Off, s.Off+s.Len, h.owner.pid)
		}
	}
}
