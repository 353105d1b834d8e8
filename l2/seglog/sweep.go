package seglog

// A sweep removes, a few entries at a time, what a clear made invisible at once.
type sweep struct {
	namespace uint64
	seq       uint64 // entries below it go
	cursor    uint32 // where the walk stood when the sweep began
	round     uint64 // and in which round
	all       bool   // of every namespace
}

// sweepStep is the most index slots that one step looks at.
const sweepStep = 1024

// covered says whether a clear overtook the record.
func (l *Log) covered(r *record) bool {
	return r.seq < l.clearedAll || len(l.cleared) > 0 && r.seq < l.cleared[r.key.Namespace]
}

// beginSweep makes everything of the namespace (or at all) below seq invisible.
func (l *Log) beginSweep(namespace, seq uint64, all bool) {
	if all {
		l.clearedAll = seq
		// It covers what those before it do, which must not collect while a put from before them is held up.
		clear(l.cleared)
		for l.sweeps.n > 0 {
			l.sweeps.pop()
		}
	} else {
		l.cleared[namespace] = seq
	}
	l.sweeps.push(sweep{namespace: namespace, seq: seq, cursor: l.cursor, round: l.round, all: all})
}

// sweepSome takes a bounded step. Log.cleared keeps a clear until the walk has been all round since it came and no put from
// before it is left, so that nothing it covers can be found or become visible.
func (l *Log) sweepSome() {
	if l.sweeps.n == 0 {
		return
	}
	x := &l.index
	for n := min(sweepStep, x.high); n > 0 && l.sweeping(); n-- {
		if l.cursor >= x.high {
			l.cursor = 1
			l.round++
		}
		if l.cursor < x.high {
			e := &x.entries[l.cursor]
			if e.used() && l.coveredEntry(e) {
				x.remove(l.cursor)
			}
			l.cursor++
		}
	}
	for l.sweeps.n > 0 {
		s := l.sweeps.at(0)
		if !l.swept(s) || l.lowestPut() < s.seq {
			return
		}
		if !s.all && l.cleared[s.namespace] == s.seq {
			delete(l.cleared, s.namespace)
		}
		l.sweeps.pop()
	}
}

// sweeping says that the walk is needed.
func (l *Log) sweeping() bool { return l.sweeps.n > 0 && !l.swept(l.sweeps.at(l.sweeps.n-1)) }

// swept says that the walk has been all round since the sweep began.
func (l *Log) swept(s *sweep) bool {
	return l.round > s.round+1 || l.round == s.round+1 && l.cursor >= s.cursor
}

// coveredEntry is covered for an entry.
func (l *Log) coveredEntry(e *entry) bool {
	return e.seq < l.clearedAll || len(l.cleared) > 0 && e.seq < l.cleared[l.index.namespace(e)]
}
