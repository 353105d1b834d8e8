package seglog

import (
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// crash kills the process, or the machine, and starts again.
func (s *sim) crash(power bool) {
	s.tracef("crash, power %t", power)
	visible := make(map[Key]bool)
	for k := range s.model.byKey {
		if _, ok := s.l.Find(&k); ok {
			visible[k] = true
		}
	}
	// What was in flight may or may not have reached the disk, sector by sector.
	for i := range s.flying {
		if f := &s.flying[i]; f.io.Kind == IOWrite {
			some := s.rng.IntN(3)
			s.disk.write(f.io.Addr.Segment, s.ioMem(f.io.Mem), f.io.Addr.Off, func() bool {
				return some == 2 || some == 1 && s.rng.IntN(2) == 0
			})
		}
	}
	if power {
		s.disk.cutPower()
		s.torn = true
	}
	s.model.restart(power)
	report := s.start()
	require.NoError(s.t, s.l.CheckInvariants())
	if !power && report.Dropped == 0 {
		for k := range visible {
			_, ok := s.l.Find(&k)
			require.True(s.t, ok, "step %d: %v was acknowledged and is gone", s.steps, k)
		}
	}
	for i := range s.l.segs {
		g := &s.l.segs[i]
		s.tracef("segment %d: %v, generation %d, stale %t", g.id, g.state, g.generation, g.stale)
	}
	s.verifyAll()
}

// verifyAll reads every key of the model straight from the disk.
func (s *sim) verifyAll() {
	for k := range s.model.byKey {
		e := s.l.visible(&k)
		if e == 0 {
			continue
		}
		en := &s.l.index.entries[e]
		p := make([]byte, en.size())
		_, err := s.disk.ReadAt(s.l.segs[en.segment].id, p, int64(en.at)*unit)
		require.NoError(s.t, err)
		if xxh3.Hash(p) != en.sum && (s.torn || !s.model.acknowledged(k, en.size(), en.sum)) {
			s.readFaults++ // its header went out early; a read will find that out
			continue
		}
		if err := s.model.check(k, p); err != nil {
			s.t.Fatalf("step %d: after restart: %v: %v", s.steps, k, err)
		}
	}
}

// settle turns faults off and demands that all comes to rest.
func (s *sim) settle(idle func() bool) {
	faults := s.faults
	s.faults, s.createFail = 0, false
	s.l.SetFree(1 << 40)
	for range 20000 {
		s.l.Flush()
		s.begin(1000)
		s.complete()
		s.drain()
		if len(s.flying) == 0 {
			s.now += 500 * time.Millisecond
			s.l.Tick(s.now)
		}
		if idle() {
			s.faults = faults
			return
		}
	}
	s.t.Fatalf("step %d: no rest: %v, %d in flight, %+v", s.steps, s.l.State(), len(s.flying), s.l.Stats())
}

// calm is the baseline of an open log.
func (s *sim) calm() bool {
	return s.l.Idle() && s.l.State() == StateOK && s.l.fenceQueue.n == 0 && !s.l.Pending()
}

// closeAndReopen stops cleanly; nothing may be lost.
func (s *sim) closeAndReopen() {
	s.tracef("close")
	s.settle(s.calm)
	s.l.BeginClose()
	s.settle(s.l.Idle)
	require.Equal(s.t, StateClosed, s.l.State())
	require.Empty(s.t, s.asks)
	require.Empty(s.t, s.flying)
	records := s.l.Stats().Records
	s.model.bury()
	s.model.restart(false)
	report := s.start()
	if report.Dropped == 0 {
		require.GreaterOrEqual(s.t, s.l.Stats().Records, records)
	}
	s.verifyAll()
}
