package engine

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// collect looks at the replies that have come, and at those that come by what workers do
// about them: all are known before anybody does something else.
func (m *model) collect() {
	for before := -1; before != m.replies; {
		before = m.replies
		m.collectOnce()
	}
}

func (m *model) collectOnce() {
	for _, w := range slices.Concat(m.workers, m.zombies) {
		if w == nil {
			continue
		}
		for _, c := range slices.Clone(w.conns) {
			if m.closed[c.id] {
				m.dropConn(w, c)
			}
			for len(m.inbox[c.id]) > 0 {
				rep := m.inbox[c.id][0]
				m.inbox[c.id] = m.inbox[c.id][1:]
				key := asked{c.id, rep.h.Request}
				q, ok := w.pending[key]
				require.True(m.t, ok, "an unwanted reply to %v", rep.h.Op)
				delete(w.pending, key)
				m.replies++
				m.judge(w, c, q, rep)
			}
		}
	}
}

// refusals are the statuses that any request may get: a table is full, or the instance ended.
var refusals = []proto.Status{proto.StatusBusy, proto.StatusNotRegistered}

func (m *model) judge(w *modelWorker, c *client, q question, rep reply) {
	require.Equal(m.t, q.op, rep.h.Op)
	if q.op == proto.OpPrepareRetrieve || q.op == proto.OpCommitStore {
		m.judgeOwn(w, c, q, rep)
		return
	}
	if slices.Contains(refusals, rep.h.Status) {
		return
	}
	switch q.op { //nolint:exhaustive // the ops the model asks
	case proto.OpPrepareStore, proto.OpDelete, proto.OpClear, proto.OpPut:
		if w.readOnly && !q.alone {
			require.Equal(m.t, proto.StatusDenied, rep.h.Status)
			return
		}
	case proto.OpRelease:
		require.Contains(m.t, []proto.Status{proto.StatusOK, proto.StatusDenied}, rep.h.Status)
		return
	case proto.OpCommitRetrieve:
		require.Contains(m.t, []proto.Status{proto.StatusOK, proto.StatusStale, proto.StatusDenied}, rep.h.Status)
		return
	}
	switch q.op { //nolint:exhaustive // the ops the model asks
	case proto.OpPrepareStore:
		require.Equal(m.t, proto.StatusOK, rep.h.Status)
		var out proto.PrepareStoreReply
		require.NoError(m.t, proto.ParsePrepareStoreReply(rep.body, &out))
		m.judgePrepare(w, q, &out)
	case proto.OpLookup:
		require.Equal(m.t, proto.StatusOK, rep.h.Status)
		var out proto.LookupReply
		require.NoError(m.t, proto.ParseLookupReply(rep.body, &out))
		m.judgeLookup(w, q, &out)
	case proto.OpPut:
		if m.judgeTooLarge(sizeOf(q.keys[0]), rep.h.Status) {
			return
		}
		require.Contains(m.t, []proto.Status{proto.StatusOK, proto.StatusExists, proto.StatusNoSpace, proto.StatusStale, proto.StatusIO}, rep.h.Status)
		if rep.h.Status == proto.StatusOK {
			m.verdict[q.op]++
			m.stored[q.space][q.keys[0]] = q.epochs[0] + 1
		}
	case proto.OpDelete, proto.OpClear:
		require.Contains(m.t, []proto.Status{proto.StatusOK, proto.StatusOKNotDurable}, rep.h.Status)
		m.verdict[q.op]++
		if rep.h.Status == proto.StatusOK {
			for i, k := range q.keys {
				m.floor[q.space][k] = max(m.floor[q.space][k], q.epochs[i])
			}
		}
	}
}

// judgeOwn judges what refers to a holding.
func (m *model) judgeOwn(w *modelWorker, c *client, q question, rep reply) {
	switch q.op { //nolint:exhaustive // two of them
	case proto.OpCommitStore:
		if rep.h.Status == proto.StatusOK {
			m.verdict[q.op]++
			for i, k := range q.holding.keys {
				m.stored[q.space][k] = q.holding.epochs[i] + 1
			}
			return
		}
		if !q.holding.inline && q.life == w.life && !m.closed[c.id] && !m.receiving(c.id) {
			c.abort(q.holding.handle) // quarantined: it says that it is done with the slots
		}
	case proto.OpPrepareRetrieve:
		if rep.h.Status != proto.StatusOK {
			return
		}
		var out proto.PrepareRetrieveReply
		require.NoError(m.t, proto.ParsePrepareRetrieveReply(rep.body, &out))
		keys := q.keys[:len(out.Slots)]
		if len(keys) > 0 {
			m.verdict[q.op]++
		}
		epochs := m.epochsOf(q.space, keys)
		if q.holding != nil {
			epochs = q.epochs // what the lease has, deleted or not
			m.verdict[byLease]++
		}
		if q.inline {
			m.judgePayload(q, keys, epochs, rep.payload)
			return
		}
		m.hold(w, q, &holding{kind: kindRetrieve, handle: out.Transfer, keys: keys, epochs: epochs, slots: out.Slots})
	}
}

// judgePayload requires that a payload is the values.
func (m *model) judgePayload(q question, keys, epochs []int, payload []byte) {
	var want []byte
	for i, k := range keys {
		epoch := epochs[i]
		if q.holding == nil { // the bytes were sent before, and a delete may have come between
			for epoch > q.epochs[i] && !slices.Equal(valueOf(m.value(q.space, k, epoch), int(sizeOf(k))), payload[len(want):][:sizeOf(k)]) {
				epoch--
			}
		}
		want = append(want, valueOf(m.value(q.space, k, epoch), int(sizeOf(k)))...)
	}
	require.True(m.t, slices.Equal(want, payload), "a payload for keys %v is none of their values", keys)
}

func (m *model) judgeLookup(w *modelWorker, q question, out *proto.LookupReply) {
	hit := q.keys[:min(int(out.Hits), len(q.keys))]
	if q.mode == proto.ModeAny {
		hit = nil
		for i, k := range q.keys {
			if out.Bitmap[i/8]>>(i%8)&1 != 0 {
				hit = append(hit, k)
			}
		}
	} else {
		require.Zero(m.t, int(out.Hits)%q.group, "hits come in whole groups")
	}
	require.Len(m.t, hit, int(out.Hits))
	require.EqualValues(m.t, out.Hits, out.FromDisk+out.FromMemory)
	if out.Hits > 0 {
		m.verdict[q.op]++
	}
	if out.Lease != 0 {
		m.hold(w, q, &holding{kind: kindLease, handle: out.Lease, keys: hit, epochs: m.epochsOf(q.space, hit), slots: out.Slots})
	} else {
		require.Empty(m.t, out.Slots)
	}
}

// judgePrepare notes the slots a worker is to write.
func (m *model) judgePrepare(w *modelWorker, q question, out *proto.PrepareStoreReply) {
	h := &holding{kind: kindStore, handle: out.Transfer, inline: q.inline}
	for i, r := range out.Results {
		if r.Status != proto.StatusReserved {
			require.Contains(m.t, []proto.Status{proto.StatusExists, proto.StatusBusy, proto.StatusNoSpace, proto.StatusTooLarge}, r.Status)
			m.judgeTooLarge(q.sizes[i], r.Status)
			continue
		}
		h.keys = append(h.keys, q.keys[i])
		require.Equal(m.t, q.sizes[i], r.Slot.Len)
		if !q.inline {
			h.slots = append(h.slots, r.Slot)
		}
	}
	h.epochs = m.epochsOf(q.space, h.keys)
	require.Equal(m.t, len(h.keys) > 0, out.Transfer != 0)
	if out.Transfer != 0 {
		m.verdict[q.op]++
		m.hold(w, q, h)
	}
}

// hold notes a holding and requires that no slot is given to two who live, and that what is
// to be read is the values of now.
func (m *model) hold(w *modelWorker, q question, h *holding) {
	if h.handle == 0 {
		return
	}
	h.owner, h.space, h.life = w, q.space, q.life
	for _, o := range m.holdings {
		if o.kind != kindStore && h.kind != kindStore {
			continue
		}
		for _, s := range h.slots {
			for _, t := range o.slots {
				if s.Off < t.Off+t.Len && t.Off < s.Off+s.Len {
					m.t.Fatalf("slot [%d,%d) is given to process %d while process %d has [%d,%d)", s.Off, s.Off+s.Len, w.pid, o.owner.pid, t.Off, t.Off+t.Len)
				}
			}
		}
	}
	for i, s := range h.slots {
		require.LessOrEqual(m.t, s.Off+s.Len, uint64(m.grown)*slotSize)
		require.Equal(m.t, sizeOf(h.keys[i]), s.Len)
	}
	if h.kind != kindStore {
		m.checkIntact(h)
	}
	if h.life == w.life || len(h.slots) > 0 {
		m.holdings = append(m.holdings, h)
	}
}

// judgeTooLarge tells whether a store of so many bytes was too large, which it is for the pool that there is; before it is known
// that nothing more comes, for the one that is to be.
func (m *model) judgeTooLarge(size uint64, st proto.Status) bool {
	if st == proto.StatusTooLarge {
		require.Greater(m.t, size, uint64(m.most)*slotSize)
		return true
	}
	require.LessOrEqual(m.t, size, uint64(m.setup.slots)*slotSize)
	return false
}
