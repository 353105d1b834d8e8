package seglog

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// A simPut is what the model knows of one put. Its number is its place in simModel.puts, and in its bytes.
type simPut struct {
	key    Key
	size   int64
	ok     bool // it was acknowledged
	hidden bool // a delete since: not visible in this process
	dead   bool // that delete was acknowledged: never visible again, but for a cut of the power
	buried bool // and that acknowledgement is synced
	fence  Token
}

// A simModel says which value may be seen under which key.
type simModel struct {
	puts   []simPut
	byKey  map[Key][]int
	keys   []Key // in the order of their first put
	loose  []int // dead and not buried
	frozen int   // puts before it were made before the power was cut: the newest acknowledged one may be lost
}

func newSimModel() *simModel { return &simModel{byKey: make(map[Key][]int)} }

func (m *simModel) put(k Key, size int64) int {
	m.puts = append(m.puts, simPut{key: k, size: size})
	id := len(m.puts) - 1
	if _, ok := m.byKey[k]; !ok {
		m.keys = append(m.keys, k)
	}
	m.byKey[k] = append(m.byKey[k], id)
	return id
}

// hide notes a delete, to be acknowledged as fence.
func (m *simModel) hide(k Key, fence Token) {
	for _, id := range m.byKey[k] {
		if p := &m.puts[id]; !p.hidden {
			p.hidden, p.fence = true, fence
		}
	}
}

// acknowledge notes that a delete holds for good.
func (m *simModel) acknowledge(fence Token) {
	for id := range m.puts {
		if p := &m.puts[id]; p.hidden && !p.dead && p.fence == fence {
			p.dead = true
			m.loose = append(m.loose, id)
		}
	}
}

// bury notes that all acknowledgements are synced.
func (m *simModel) bury() {
	for _, id := range m.loose {
		m.puts[id].buried = true
	}
	m.loose = m.loose[:0]
}

// restart forgets what was not acknowledged.
func (m *simModel) restart(power bool) {
	for id := range m.puts {
		p := &m.puts[id]
		p.dead = p.dead && (!power || p.buried)
		p.hidden = p.dead
	}
	m.loose = m.loose[:0]
	if power {
		m.frozen = len(m.puts)
	} else {
		for id := range m.puts {
			if p := &m.puts[id]; p.dead && !p.buried {
				m.loose = append(m.loose, id)
			}
		}
	}
}

// newest is the newest put of k that is acknowledged, not hidden, and not from before a cut of the power; or -1.
func (m *simModel) newest(k Key) int {
	ids := m.byKey[k]
	for i := len(ids) - 1; i >= 0; i-- {
		if p := &m.puts[ids[i]]; ids[i] >= m.frozen && p.ok && !p.hidden {
			return ids[i]
		}
	}
	return -1
}

// acknowledged says whether a put of k whose value has this size and checksum was acknowledged, and is not deleted.
func (m *simModel) acknowledged(k Key, size int64, sum uint64) bool {
	p := make([]byte, size)
	for _, id := range m.byKey[k] {
		if v := &m.puts[id]; v.ok && !v.hidden && v.size == size {
			if simFill(p, id); xxh3.Hash(p) == sum {
				return true
			}
		}
	}
	return false
}

// simFill writes value id: in every sector its number and place, over and over.
func simFill(p []byte, id int) {
	var b [simSector]byte
	for at := 0; at < len(p); at += simSector {
		binary.LittleEndian.PutUint64(b[:], uint64(id)*0x9e3779b97f4a7c15+uint64(at)+1)
		for n := 8; n < simSector; n *= 2 {
			copy(b[n:], b[:n])
		}
		copy(p[at:], b[:])
	}
}

// check says whether p may be the value of k now.
func (m *simModel) check(k Key, p []byte) error {
	want := make([]byte, len(p))
	err := fmt.Errorf("%d bytes that were never put", len(p))
	for _, id := range m.byKey[k] {
		v := &m.puts[id]
		if v.size != int64(len(p)) {
			continue
		}
		simFill(want, id)
		if string(want) != string(p) {
			continue
		}
		switch { // short values may be equal: one that may be seen is enough
		case v.hidden:
			err = fmt.Errorf("value %d was deleted (acknowledged %t)", id, v.dead)
		case id < m.newest(k):
			err = fmt.Errorf("value %d is older than %d, which was acknowledged", id, m.newest(k))
		default:
			return nil
		}
	}
	return err
}

func TestModelItself(t *testing.T) {
	m := newSimModel()
	k := Key{Namespace: 1}
	a, b := m.put(k, 100), m.put(k, 100)
	p, q := make([]byte, 100), make([]byte, 100)
	simFill(p, a)
	simFill(q, b)
	require.NoError(t, m.check(k, p))
	m.puts[b].ok = true
	require.Error(t, m.check(k, p), "older than an acknowledged one")
	require.NoError(t, m.check(k, q))
	q[50] ^= 1
	require.Error(t, m.check(k, q), "wrong bytes")
	q[50] ^= 1
	m.hide(k, 7)
	require.Error(t, m.check(k, q), "deleted")
	m.restart(false)
	require.NoError(t, m.check(k, q), "the delete was not acknowledged")
	m.hide(k, 8)
	m.acknowledge(8)
	m.restart(false)
	require.Error(t, m.check(k, q))
}
