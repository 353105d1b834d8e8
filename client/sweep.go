package client

import (
	"slices"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// sweepDelays are the times between the sweeps after a connection was made again. The
// first finds what there is; the others what the server did with requests that it read
// from the lost connection after that.
var sweepDelays = [...]time.Duration{0, 250 * time.Millisecond, 2 * time.Second}

// sweepTick is how often a sweep looks whether the calls that it waits for have ended.
const sweepTick = 5 * time.Millisecond

// sweep gives back what the server keeps for this instance and nobody here uses: grants
// whose replies were lost with one of the past links. Handles that are still open here
// are left alone until they are ended. It owns a reference on s.
func (w *Worker) sweep(s *session, past []*link) {
	defer s.leave()
	for _, delay := range sweepDelays {
		if !s.pause(delay) || !w.sweepOnce(s, past) {
			return
		}
	}
}

// sweepAgain is for the end of the last other worker of the instance: while there was one, nobody knew what
// lost connections had left.
func (w *Worker) sweepAgain() {
	if w.lock.acquire(w.base, nil) != nil {
		return
	}
	s, past := w.session.Load(), slices.Clone(w.past)
	w.lock.release()
	if s.live() && s.enter() {
		w.sweep(s, past)
	}
}

// sweepOnce reports whether it could be done.
func (w *Worker) sweepOnce(s *session, past []*link) bool {
	list, err := s.link.transfers(w.base)
	if err != nil {
		s.link.log.Debug("client: transfers", "err", err)
		return false
	}
	own := list[:0]
	for _, t := range list { // former lives too: what is another process' the server refuses to end
		if t.Instance == w.reg.Instance {
			own = append(own, t)
		}
	}
	// What the present link was granted before the list was made is known by now, except
	// for calls that were waiting then: those have to end before an unknown handle is
	// surely a lost one.
	waiting := s.link.waiting()
	for len(own) > 0 && s.link.anyWaits(waiting) {
		if !s.pause(sweepTick) {
			return false
		}
	}
	if !present.alone(s.identity(), w) {
		return false
	}
	for i := range own {
		t := &own[i]
		known := s.link.granted(t.Handle)
		for _, l := range past {
			known = known || l.granted(t.Handle)
		}
		if known {
			continue
		}
		switch t.Kind {
		case proto.TransferStore:
			s.link.end(proto.OpAbortStore, t.Handle)
		case proto.TransferRetrieve:
			s.link.end(proto.OpCommitRetrieve, t.Handle)
		case proto.TransferLease:
			s.link.end(proto.OpRelease, t.Handle)
		}
	}
	return true
}

// pause waits. It reports false if the session ends meanwhile.
func (s *session) pause(d time.Duration) bool {
	if d == 0 {
		return s.live()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return s.live()
	case <-s.link.gone:
	case <-s.worker.base.Done():
	}
	return false
}

// waiting returns the ids of the calls whose replies have not been read.
func (l *link) waiting() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []uint64
	for id := range l.pending {
		ids = append(ids, id)
	}
	if l.reading != 0 {
		ids = append(ids, l.reading)
	}
	return ids
}

// anyWaits reports whether one of the calls' replies has not been read.
func (l *link) anyWaits(ids []uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if _, ok := l.pending[id]; ok || id == l.reading {
			return true
		}
	}
	return false
}
