package ring

import "time"

// A lookout decides for how long a loop looks for work before it sleeps. To fall asleep and be woken costs both sides time, so that
// to look for about as long as that first costs at most twice as much, and nothing at all where work comes that soon. Whether it
// does is learnt: as long as most looks find something the loop goes on with them, else only one of probeEvery sleeps is tried.
//
// With one peer that awaits each answer, a look costs an enter that a sleep does not: one to submit, and one when work is seen. With
// several they are few for each completion. So unless it looks always, a loop looks only if one of its last waits brought several
// completions at once, or if the caller knows that a peer is about to ask for more.
//
// None of this is worth anything where the peer runs on the same processor: it has to have that to send, and then work is there
// without a look. That shows in how often the thread loses its processor to others, which is asked now and then.
type lookout struct {
	always   time.Duration // for which it looks whatever comes of it; 0: as long as that pays
	pays     time.Duration // for which it looks then
	several  uint8         // waits to go until the loop is taken for one with a single peer
	expected bool          // more is, before the next wait
	trust    uint8         // finds more than misses of late
	skipped  uint8         // sleeps without a look since the last one

	waits   uint32 // that were to sleep, since the thread's switches were last asked for
	yielded int64  // these switches, then
	rest    uint16 // sleeps to go without a look
}

const (
	severalFor = 32 // waits
	trustMax   = 8  // finds are forgotten after so many misses
	probeEvery = 16 // sleeps

	sampleEvery = 128 // waits
	restFor     = 512 // sleeps, when the thread had lost its processor in every other wait
)

// time returns for how long to look now; 0 means not at all. What was expected is so no more.
func (l *lookout) time() time.Duration {
	expected := l.expected
	l.expected = false
	l.waits++
	switch {
	case l.always > 0:
		return l.always
	case l.pays == 0 || l.several == 0 && !expected:
		return 0
	case l.rest > 0:
		l.rest--
		return 0
	case l.trust > 0:
		return l.pays
	}
	if l.skipped++; l.skipped < probeEvery {
		return 0
	}
	return l.pays
}

// looked notes whether a look found something, and tells whether contended is to be called.
func (l *lookout) looked(found bool) (ask bool) {
	l.skipped = 0
	switch {
	case found:
		l.trust = min(l.trust+1, trustMax)
	case l.trust > 0:
		l.trust--
	}
	return l.waits >= sampleEvery
}

// contended takes how often the thread has lost its processor to others so far, and stops looking for a while if they want it
// about as often as it waits.
func (l *lookout) contended(switches int64) {
	if switches-l.yielded >= int64(l.waits)/2 {
		l.rest, l.trust = restFor, 0
	}
	l.waits, l.yielded = 0, switches
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
