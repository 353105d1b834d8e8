package ring

import "time"

// A lookout decides for how long a loop looks for work before it sleeps. To fall asleep and be woken costs both sides time, so that
// to look for about as long as that first costs at most twice as much, and nothing at all where work comes that soon. Whether it
// does is learnt: as long as most looks find something the loop goes on with them, else only one of probeEvery sleeps is tried.
//
// With one peer that awaits each answer, a look costs an enter that a sleep does not: one to submit, and one when work is seen. With
// several they are few for each completion. So unless it looks always, a loop looks only if one of its last waits brought several
// completions at once, or if the caller knows that a peer is about to ask for more.
type lookout struct {
	always   time.Duration // for which it looks whatever comes of it; 0: as long as that pays
	pays     time.Duration // for which it looks then
	several  uint8         // waits to go until the loop is taken for one with a single peer
	expected bool          // more is, before the next wait
	trust    uint8         // finds more than misses of late
	skipped  uint8         // sleeps without a look since the last one
}

const (
	severalFor = 32 // waits
	trustMax   = 8  // finds are forgotten after so many misses
	probeEvery = 16 // sleeps
)

// time returns for how long to look now; 0 means not at all. What was expected is so no more.
func (l *lookout) time() time.Duration {
	expected := l.expected
	l.expected = false
	switch {
	case l.always > 0:
		return l.always
	case l.pays == 0 || l.several == 0 && !expected:
		return 0
	case l.trust > 0:
		return l.pays
	}
	if l.skipped++; l.skipped < probeEvery {
		return 0
	}
	return l.pays
}

// looked notes whether a look found something.
func (l *lookout) looked(found bool) {
	l.skipped = 0
	switch {
	case found:
		l.trust = min(l.trust+1, trustMax)
	case l.trust > 0:
		l.trust--
	}
}

// brought notes how many completions a wait brought.
func (l *lookout) brought(n int) {
	switch {
	case n > 1:
		l.several = severalFor
	case l.several > 0:
		l.several--
	}
}

// watch looks at what the kernel shares with the process until there is work for an enter, or d has passed.
func (q *queue) watch(d time.Duration) bool {
	const looksPerTime = 32
	for start := time.Now(); ; {
		for range looksPerTime {
			if q.ready() || q.pending() {
				return true
			}
		}
		if time.Since(start) >= d {
			return false
		}
	}
}
