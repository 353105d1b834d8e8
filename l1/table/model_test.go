package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// key returns a key that differs from others in each of its parts by turns.
func key(n int) Key {
	k := Key{Namespace: uint64(n % 2), Layout: uint64(n / 2 % 3)}
	k.Hash[n/6%32] = byte(n/6/32 + 1)
	return k
}

type modelObject struct {
	ref   Ref
	key   Key
	size  int64
	state State
	holds uint32
	dirty bool
	data  uint32
	pin   Pin

	spilling bool
}

func (o *modelObject) evictable() bool {
	return o.state == StateReady && o.holds == 0 && !o.dirty && o.pin != PinHard
}

// A model does with a map what the table does with arrays.
type model struct {
	t     *testing.T
	rng   *rand.Rand
	tab   *Table
	max   int
	size  int64
	ready int64
	byKey map[Key]*modelObject
	all   []*modelObject
	ends  map[Result]int
	vain  int // wants that were refused without an eviction though the bytes were there
	steps int
}

func (m *model) forget(o *modelObject) {
	m.unindex(o)
	for i, p := range m.all {
		if p == o {
			m.all[i] = m.all[len(m.all)-1]
			m.all = m.all[:len(m.all)-1]
			return
		}
	}
}

func (m *model) unindex(o *modelObject) {
	if m.byKey[o.key] == o {
		delete(m.byKey, o.key)
	}
}

// evicted removes what the table evicted, which must be what it may evict.
func (m *model) evicted(before uint64, soft bool) int {
	n := 0
	for i := 0; i < len(m.all); {
		o := m.all[i]
		if m.tab.Alive(o.ref) {
			i++
			continue
		}
		require.True(m.t, o.evictable() && (soft || o.pin != PinSoft), "evicted %+v", *o)
		m.forget(o)
		n++
	}
	require.Equal(m.t, int(m.tab.Usage().Evictions-before), n)
	require.LessOrEqual(m.t, n, workMax/evictionWork+1)
	return n
}

func (m *model) freeBytes(soft bool) (free, evictable int64) {
	free = m.ready
	for _, o := range m.all {
		free -= Footprint(o.size)
		if o.evictable() && (soft || o.pin != PinSoft) {
			evictable += Footprint(o.size)
		}
	}
	return free, evictable
}

func (m *model) pickSize() int64 {
	switch m.rng.IntN(10) {
	case 0:
		return 0
	case 1:
		return m.rng.Int64N(m.size + m.size/4)
	case 2:
		return m.size
	case 3, 4, 5:
		return 8 * Unit
	default:
		return 1 + m.rng.Int64N(6*Unit)
	}
}

func (m *model) start() {
	k := key(m.rng.IntN(120))
	size := m.pickSize()
	s, soft := StateStaged, m.rng.IntN(3) == 0
	if m.rng.IntN(3) == 0 {
		s = StateLoading
	}
	free, evictable := m.freeBytes(soft)
	before := m.tab.Usage().Evictions
	ref, ext, res := m.tab.Start(&k, size, s, soft)
	m.ends[res]++
	old := m.byKey[k]
	require.Equal(m.t, old != nil, res == ExistsReady || res == ExistsBusy)
	if old != nil {
		require.Equal(m.t, old.ref, ref)
		require.Equal(m.t, old.state == StateReady, res == ExistsReady)
		require.Equal(m.t, before, m.tab.Usage().Evictions)
		return
	}
	n := m.evicted(before, soft)
	switch res {
	case Staged:
		require.Equal(m.t, size, ext.Len)
		o := &modelObject{ref: ref, key: k, size: size, state: s}
		m.all = append(m.all, o)
		m.byKey[k] = o
	case TooLarge:
		require.Greater(m.t, size, m.size)
		require.Zero(m.t, n)
	case NoSpace:
		m.noSpace(size, free, evictable, n, soft)
	case Again:
		require.NotZero(m.t, n, "asking again must end")
	case ExistsReady, ExistsBusy:
	}
}

// act does one legal thing to one object.
func (m *model) act() {
	if len(m.all) == 0 {
		return
	}
	o := m.all[m.rng.IntN(len(m.all))]
	switch o.state {
	case StateStaged, StateFenced:
		m.writer(o)
	case StateLoading, StateAbandoned:
		m.loader(o)
	case StateReady, StateDoomed:
		m.reader(o)
	case StateQuarantined:
		m.tab.FreeQuarantined(o.ref)
		m.forget(o)
	case StateFree:
		m.t.Fatal("a free object in the model")
	}
}

func (m *model) writer(o *modelObject) {
	fenced := o.state == StateFenced
	switch m.rng.IntN(8) {
	case 0:
		m.tab.Abort(o.ref)
		m.forget(o)
	case 1:
		m.tab.Quarantine(o.ref)
		m.unindex(o)
		o.state = StateQuarantined
	case 2:
		require.False(m.t, m.tab.Delete(o.ref))
		m.unindex(o)
		o.state = StateFenced
	default:
		dirty := m.rng.IntN(3) == 0
		require.Equal(m.t, !fenced, m.tab.Publish(o.ref, dirty))
		if fenced {
			m.forget(o)
			return
		}
		o.state, o.dirty = StateReady, dirty
	}
}

func (m *model) loader(o *modelObject) {
	abandoned := o.state == StateAbandoned
	switch m.rng.IntN(8) {
	case 0, 1:
		m.tab.Hold(o.ref)
		o.holds++
	case 2:
		require.Equal(m.t, !abandoned, m.tab.Delete(o.ref))
		m.unindex(o)
		o.state = StateAbandoned
	case 3:
		m.tab.LoadFailed(o.ref)
		m.retired(o)
	default:
		require.Equal(m.t, !abandoned, m.tab.Loaded(o.ref))
		if abandoned {
			m.retired(o)
			return
		}
		o.state = StateReady
	}
}

func (m *model) retired(o *modelObject) {
	if o.holds == 0 {
		m.forget(o)
		return
	}
	m.unindex(o)
	o.state, o.dirty, o.pin = StateDoomed, false, PinNone
}

func (m *model) reader(o *modelObject) {
	doomed := o.state == StateDoomed
	switch n := m.rng.IntN(14); {
	case n < 3 && o.holds < 4:
		var size [1]int64
		if doomed || m.rng.IntN(2) == 0 {
			m.tab.Hold(o.ref)
		} else if m.tab.HoldAll([]Ref{o.ref}, size[:], o.size-1) != 0 || m.tab.HoldAll([]Ref{o.ref}, size[:], o.size) != 1 || size[0] != o.size {
			m.t.Fatal("not held as it should be")
		}
		o.holds++
		m.used(o)
	case n < 7 && o.holds > 0 && (o.holds > 1 || !o.spilling):
		m.tab.Release(o.ref)
		if o.holds--; o.holds == 0 && doomed {
			m.forget(o)
		}
	case n < 8:
		m.disk(o)
	case n < 9:
		m.tab.Touch(o.ref)
		m.used(o)
	case n < 13:
		m.pin(o)
	default:
		require.Equal(m.t, !doomed, m.tab.Delete(o.ref))
		if !doomed {
			m.retired(o)
		}
	}
}

func (m *model) used(o *modelObject) {
	if o.pin == PinLapsed {
		o.pin = PinNone
	}
}

// disk goes on with what the disk does with an object.
func (m *model) disk(o *modelObject) {
	switch {
	case o.spilling:
		m.tab.Spilled(o.ref)
		o.spilling, o.dirty = false, false
		if o.holds--; o.holds == 0 && o.state == StateDoomed {
			m.forget(o)
		}
	case o.state == StateReady && m.rng.IntN(2) == 0:
		m.tab.Spill(o.ref)
		o.spilling = true
		o.holds++
	default:
		m.tab.Cleaned(o.ref)
		o.dirty = false
	}
}

// pin changes the pin of an object. Those that live are a few, so that the pool does not
// fill up with them.
func (m *model) pin(o *modelObject) {
	if o.state != StateReady {
		return
	}
	switch n := m.rng.IntN(6); {
	case n == 0 && o.pin != PinHard:
		m.tab.Pin(o.ref, PinSoft)
		o.pin = PinSoft
	case n == 1:
		m.tab.Pin(o.ref, PinHard)
		o.pin = PinHard
	case n < 4:
		require.Equal(m.t, o.pin.pinned(), m.tab.Lapse(o.ref.Entry()))
		if o.pin.pinned() {
			o.pin = PinLapsed
		}
	default:
		require.Equal(m.t, o.pin.pinned(), m.tab.Unpin(o.ref))
		if o.pin.pinned() {
			o.pin = PinNone
		}
	}
}

// compare asks the table for everything that the model knows.
func (m *model) compare() {
	require.NoError(m.t, m.tab.CheckInvariants())
	u := m.tab.Usage()
	want := Usage{Capacity: m.size, Ready: m.ready, Objects: len(m.all), Evictions: u.Evictions}
	for _, o := range m.all {
		bytes := Footprint(o.size)
		want.Used += bytes
		switch o.state {
		case StateStaged, StateFenced:
			want.Staged += bytes
		case StateLoading, StateAbandoned:
			want.Loading += bytes
		case StateReady:
			want.Resident += bytes
		case StateDoomed:
			want.Doomed += bytes
		case StateQuarantined:
			want.Quarantined += bytes
		case StateFree:
		}
		if o.holds > 1 || o.holds == 1 && !o.spilling {
			want.Held += bytes
		}
		if o.dirty {
			want.Dirty += bytes
		}
		switch cleaning := o.spilling && o.holds == 1 || o.dirty && o.holds == 0; {
		case !cleaning || o.pin == PinHard:
		case o.pin == PinSoft:
			want.Softening += bytes
		case o.spilling:
			want.Spilling += bytes
		default:
			want.Unspilled += bytes
		}
		m.countPin(&want, o)
		got := modelObject{
			ref: o.ref, key: *m.tab.Key(o.ref), size: m.tab.Extent(o.ref).Len, state: m.tab.State(o.ref),
			holds: m.tab.Holds(o.ref), dirty: m.tab.Dirty(o.ref), data: m.tab.Data(o.ref),
			pin: m.tab.PinOf(o.ref), spilling: o.spilling,
		}
		if got != *o { // not require: it is slow, and these are millions
			m.t.Fatalf("got %+v, want %+v", got, *o)
		}
	}
	require.Equal(m.t, want, u)
	require.Equal(m.t, u.Used, u.Staged+u.Loading+u.Resident+u.Doomed+u.Quarantined)
	if m.steps++; m.steps%8 != 0 { // CheckInvariants looked for all that is there
		return
	}
	for n := range 120 {
		k := key(n)
		r, s, ok := m.tab.Find(&k)
		o := m.byKey[k]
		if (o != nil) != ok || ok && (o.ref != r || o.state != s) {
			m.t.Fatalf("got %x, %v, %v, want %+v", r, s, ok, o)
		}
	}
}

func (m *model) countPin(want *Usage, o *modelObject) {
	bytes := Footprint(o.size)
	if o.pin.pinned() {
		want.Pinned++
	}
	if o.pin == PinSoft {
		want.PinnedSoft += bytes
	}
	if o.pin == PinHard {
		want.PinnedHard += bytes
	}
	switch {
	case !o.evictable():
	case o.pin == PinSoft:
		want.Yielding += bytes
	default:
		want.Evictable += bytes
	}
}

func (m *model) step() {
	switch n := m.rng.IntN(100); {
	case n < 45:
		m.start()
	case n < 96:
		m.act()
	case n < 97 && m.ready < m.size:
		m.ready += Unit * m.rng.Int64N((m.size-m.ready)/Unit+1)
		m.tab.Grow(m.ready)
	case len(m.all) > 0:
		o := m.all[m.rng.IntN(len(m.all))]
		o.data = m.rng.Uint32()
		m.tab.SetData(o.ref, o.data)
	}
}

func TestRandomOperationsAgreeWithAMap(t *testing.T) {
	for _, policy := range policies {
		for _, mask := range []uint64{0, 0xff} {
			for seed := range uint64(6) {
				if policy == PolicyLRU || seed%3 == 1 {
					t.Run(fmt.Sprintf("%v mask %x seed %d", policy, mask, seed), func(t *testing.T) {
						t.Parallel()
						runModel(t, policy, mask, seed)
					})
				}
			}
		}
	}
}

func runModel(t *testing.T, policy Policy, mask, seed uint64) {
	t.Logf("seed %d", seed)
	const units = 160
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(seed, mask)), max: 20 + int(seed)*20, size: units * Unit, ready: 16 * Unit,
		byKey: map[Key]*modelObject{}, ends: map[Result]int{},
	}
	m.tab = New(Config{Size: m.size, MaxObjects: m.max, Seed: seed, HashMask: mask, Policy: policy})
	m.tab.Grow(m.ready)
	for range 2500 {
		m.step()
		m.compare()
	}
	t.Logf("results %v, evictions %d", m.ends, m.tab.Usage().Evictions)
	for _, res := range []Result{Staged, ExistsReady, ExistsBusy, NoSpace, TooLarge} {
		require.NotZero(t, m.ends[res], "%v never happened", res)
	}
	require.NotZero(t, m.vain)
	m.drain()
}

// drain ends everything and asks for the whole pool at once.
func (m *model) drain() {
	for len(m.all) > 0 {
		o := m.all[0]
		switch o.state {
		case StateStaged, StateFenced:
			m.tab.Abort(o.ref)
			m.forget(o)
		case StateLoading, StateAbandoned:
			m.tab.LoadFailed(o.ref)
			m.retired(o)
		case StateQuarantined:
			m.tab.FreeQuarantined(o.ref)
			m.forget(o)
		case StateReady:
			m.tab.Delete(o.ref)
			m.retired(o)
		case StateDoomed:
			if o.spilling {
				m.disk(o)
				continue
			}
			m.tab.Release(o.ref)
			if o.holds--; o.holds == 0 {
				m.forget(o)
			}
		case StateFree:
		}
	}
	m.compare()
	m.tab.Grow(m.size)
	k := key(1)
	_, ext, res := m.tab.Stage(&k, m.size)
	require.Equal(m.t, Staged, res)
	require.Equal(m.t, Extent{Off: 0, Len: m.size}, ext)
}
