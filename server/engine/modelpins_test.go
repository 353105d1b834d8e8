package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// A modelPin is a pin as the model knows it. It keeps what was stored in an epoch.
type modelPin struct {
	hard  bool
	until time.Duration
	epoch int
}

// pinSome pins some keys. The reply is there at once, so that what it says holds now.
func (m *model) pinSome(w *modelWorker, c *client) {
	keys := m.pick()
	in := proto.Pin{
		Hard: m.r.IntN(2) == 0, TTLMs: uint32([]int{0, 1, 300, 1000, 60_000}[m.r.IntN(5)]), Keys: testKeys(keyNames(keys)...),
	}
	before := m.known(w, keys)
	r := c.call(proto.OpPin, 0, proto.AppendPin(nil, &in), nil)
	if !m.pinsAreServed(w, r) {
		return
	}
	var out proto.PinReply
	require.NoError(m.t, proto.ParsePinReply(r.body, &out))
	require.Len(m.t, out.Results, len(keys))
	require.LessOrEqual(m.t, time.Duration(out.TTLMs)*time.Millisecond, m.e.cfg.PinTime)
	for i, st := range out.Results {
		require.Equal(m.t, before[i] == table.StateFree, st == proto.StatusMiss, "key %d is %v and the pin %v", keys[i], before[i], st)
		require.Equal(m.t, before[i] == table.StateStaged || before[i] == table.StateLoading, st == proto.StatusBusy)
		if st != proto.StatusOK {
			require.Contains(m.t, []proto.Status{proto.StatusMiss, proto.StatusBusy, proto.StatusNoSpace, proto.StatusTooLarge}, st)
			continue
		}
		m.verdict[proto.OpPin]++
		p := modelPin{
			hard: in.Hard, epoch: m.epoch[w.space][keys[i]],
			until: m.now + time.Duration(out.TTLMs)*time.Millisecond - time.Duration(i),
		}
		if old, ok := m.pinOf(w.space, keys[i]); ok {
			p.hard = p.hard || old.hard
			p.until = max(p.until, old.until)
		}
		m.pinned[w.space][keys[i]] = p
	}
	m.checkPinned()
}

func (m *model) unpinSome(w *modelWorker, c *client) {
	keys := m.pick()
	r := c.call(proto.OpUnpin, 0, proto.AppendUnpin(nil, &proto.Unpin{Keys: testKeys(keyNames(keys)...)}), nil)
	if !m.pinsAreServed(w, r) {
		return
	}
	var out proto.UnpinReply
	require.NoError(m.t, proto.ParseUnpinReply(r.body, &out))
	least := 0
	for _, k := range keys {
		if p, ok := m.pinOf(w.space, k); ok && p.hard {
			least++ // a soft one may have gone with its object
		}
		delete(m.pinned[w.space], k)
	}
	require.GreaterOrEqual(m.t, int(out.Unpinned), least)
	require.LessOrEqual(m.t, int(out.Unpinned), len(keys))
	m.verdict[proto.OpUnpin]++
	m.checkPinned()
}

// pinsAreServed says whether a reply is more than a refusal that was to be expected.
func (m *model) pinsAreServed(w *modelWorker, r reply) bool {
	if slices.Contains(refusals, r.h.Status) {
		return false
	}
	if w.readOnly {
		require.Equal(m.t, proto.StatusDenied, r.h.Status)
		return false
	}
	require.Equal(m.t, proto.StatusOK, r.h.Status)
	return true
}

// pinOf is the pin of a key, as long as the key was not deleted since and its time is not over.
func (m *model) pinOf(space, k int) (modelPin, bool) {
	p, ok := m.pinned[space][k]
	return p, ok && p.epoch == m.epoch[space][k] && p.until > m.now
}

// known is what the table has under keys of a worker's namespace.
func (m *model) known(w *modelWorker, keys []int) []table.State {
	out := make([]table.State, len(keys))
	for i, k := range keys {
		out[i], _ = m.inTable(w.space, k)
	}
	return out
}

func (m *model) inTable(space, k int) (table.State, table.Ref) {
	s := m.e.findSpace(modelSpaces[space])
	if s == none {
		return table.StateFree, 0
	}
	layout := proto.Layout{Name: "bf16", Size: layoutMax}
	ref, st, ok := m.e.table.Find(&table.Key{Namespace: m.e.spaces[s].key, Layout: layoutID(&layout), Hash: testKeys(keyNames([]int{k})...)[0]})
	if !ok {
		return table.StateFree, 0
	}
	return st, ref
}

// checkPinned requires that what is pinned hard is in memory, and that nothing is pinned that
// the model does not know of, nor differently.
func (m *model) checkPinned() {
	hard, soft := 0, 0
	for space := range m.pinned {
		for k := range m.pinned[space] {
			p, ok := m.pinOf(space, k)
			if !ok {
				delete(m.pinned[space], k)
				continue
			}
			st, ref := m.inTable(space, k)
			if p.hard {
				hard++
				require.Equal(m.t, table.StateReady, st, "key %d is pinned hard until %v, now is %v", k, p.until, m.now)
				require.Equal(m.t, table.PinHard, m.e.table.PinOf(ref))
				require.Equal(m.t, p.until, m.e.pins.at[ref.Entry()])
				continue
			}
			soft++
			if st == table.StateReady && m.e.table.PinOf(ref) == table.PinSoft {
				require.Equal(m.t, p.until, m.e.pins.at[ref.Entry()])
			} else {
				delete(m.pinned[space], k) // it was evicted, and is none if it came back
				soft--
			}
		}
	}
	seen := [2]int{}
	m.e.table.EachPinned(func(r table.Ref) {
		if m.e.spaceByKey(m.e.table.Key(r).Namespace) == none || m.e.pins.at[r.Entry()] <= m.now {
			return // cleared, and about to be swept; or over, and about to be noticed
		}
		if m.e.table.PinOf(r) == table.PinHard {
			seen[0]++
		} else {
			seen[1]++
		}
	})
	require.Equal(m.t, [2]int{hard, soft}, seen, "pinned hard and softly")
}

// unpinAll lets all pins end by time.
func (m *model) unpinAll() {
	m.advance(m.e.cfg.PinTime)
	m.settle()
	u := m.e.table.Usage()
	require.Zero(m.t, u.PinnedHard+u.PinnedSoft+int64(u.Pinned), "pins whose time is over")
}

// modelPolicies are those a server can have.
var modelPolicies = [...]table.Policy{table.PolicyLRU, table.PolicyS3FIFO, table.PolicyAdaptive}

// withPolicy gives a config one of the policies.
func withPolicy(s setup, n uint64) setup {
	s.cfg.Policy = modelPolicies[n%uint64(len(modelPolicies))]
	return s
}

func (s setup) String() string {
	return fmt.Sprintf("policy %v, write %v, hash mask %#x", s.cfg.Policy, s.cfg.Write, s.cfg.HashMask)
}
