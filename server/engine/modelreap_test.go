package engine

import (
	"slices"

	"github.com/stretchr/testify/require"
)

// busyConn is what the host says of a connection: that something is under way on it, as a reply that is owed, or bytes
// that were not looked at yet.
func (m *model) busyConn(c ConnID) bool {
	if m.receiving(c) {
		return true
	}
	for _, w := range slices.Concat(m.workers, m.zombies) {
		if w == nil {
			continue
		}
		for q := range w.pending {
			if q.conn == c {
				return true
			}
		}
	}
	return !m.calm && m.r.IntN(4) == 0
}

// hear takes the notice of an instance that is ended for its silence, and requires that it was silent for as long as it
// may be. What it means is looked at when the engine has returned.
func (m *model) hear(n *Notice) {
	if n.Kind != NoticeReaped {
		return
	}
	for x := range m.e.insts {
		i := &m.e.insts[x]
		if i.state != instLive || i.id != n.Instance || i.incarnation != n.Incarnation {
			continue
		}
		require.Zero(m.t, i.parked, "it waits for the server")
		for k := range m.e.conns {
			if c := &m.e.conns[k]; c.state == connReady && c.inst == uint32(x) && c.instGen == i.generation {
				require.LessOrEqual(m.t, m.heard[c.id]+m.e.cfg.ReapAfter, m.now, "instance %d was not silent", i.id)
				require.False(m.t, m.receiving(c.id))
			}
		}
		m.reaped = append(m.reaped, *n)
		return
	}
	m.t.Fatalf("instance %d is ended for its silence, and does not live", n.Instance)
}

// noticeReaped has the workers whose instances were ended notice that: they register again, and what they were told of
// is their own as long as their process lives, as after an eviction.
func (m *model) noticeReaped() {
	for len(m.reaped) > 0 {
		n := m.reaped[0]
		m.reaped = m.reaped[1:]
		m.verdict[reaped]++
		for _, w := range m.workers {
			if w == nil || w.instance != n.Instance || w.pid != n.Peer.PID {
				continue
			}
			if slices.ContainsFunc(m.holdings, func(h *holding) bool { return h.owner == w && !h.lost() && len(h.slots) > 0 }) {
				m.verdict[reapedWithSlots]++
			}
			m.reborn(w)
			m.collect()
		}
	}
}

// allReaped requires that nobody lives who has been silent for minutes.
func (m *model) allReaped() {
	if m.e.cfg.ReapAfter == 0 {
		return
	}
	for x := range m.e.insts {
		require.NotEqual(m.t, instLive, m.e.insts[x].state, "instance %d was silent for minutes", m.e.insts[x].id)
	}
	m.reaped = nil
}
