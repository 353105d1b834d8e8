package seglog

import "time"

// phaseState is where the log is on its way from start to end.
//
//	open --BeginClose--> closing --all written and sealed--> closed
type phaseState uint8

const (
	phaseOpen phaseState = iota
	phaseClosing
	phaseClosed
)

var phaseMoves = moves{
	phaseOpen:    to(phaseClosing),
	phaseClosing: to(phaseClosed),
	phaseClosed:  0,
}

// String names the state.
func (s phaseState) String() string {
	names := [...]string{"open", "closing", "closed"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// healthState says whether the disk can be written.
//
//	ok --failed write--> degraded --write that succeeds--> ok
//	 |                    |    ^
//	 +- an I/O takes -----+    | all in flight
//	    too long          v    | has ended
//	                     stalled
type healthState uint8

const (
	healthOK healthState = iota
	healthDegraded
	healthStalled // see stall.go
)

var healthMoves = moves{
	healthOK:       to(healthDegraded, healthStalled),
	healthDegraded: to(healthOK, healthStalled),
	healthStalled:  to(healthDegraded),
}

// String names the state.
func (s healthState) String() string {
	names := [...]string{"ok", "degraded", "stalled"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// The first retry of a degraded log comes after backoffMin, each further one after twice the time.
const (
	backoffMin = time.Second
	backoffMax = 30 * time.Second
)

// fail notes that segment i, or none in particular, could not be written: puts are refused and queued ones end, deletes are
// owed.
func (l *Log) fail(i uint32) {
	l.prepare = false
	if l.health == healthStalled {
		return // what ends now was given up before
	}
	if i != none && i == l.active {
		s := &l.segs[i]
		s.failures++
		if s.failures >= failuresMax && l.spare != none && l.segs[l.spare].state == segmentReady {
			l.sealActive() // perhaps it is only this one
		}
	}
	if l.health == healthDegraded {
		return
	}
	move(healthMoves, "health", &l.health, healthDegraded)
	l.stats.Degradations++
	l.backoff = backoffMin
	l.retryAt = l.now + l.backoff
	for f := l.fenceQueue.head; f != 0; f = l.fences.links[f].next {
		if l.fences.at(f).ack != 0 {
			l.oweFence(f)
		}
	}
	l.closeGroup()
	l.pump() // ends the queued puts
}

// heal notes that a write succeeded.
func (l *Log) heal() {
	l.prepare = false
	if l.health != healthDegraded {
		return
	}
	move(healthMoves, "health", &l.health, healthOK)
	l.backoff = 0
}

// Tick tells the time since start. The driver calls it about once a second: it drives the retries of a
// degraded log and the limit on what is written, and finds I/Os that take too long.
func (l *Log) Tick(now time.Duration) {
	now = max(l.now, now)
	l.clock += min(now-l.now, clockStep)
	l.now = now
	if l.health != healthStalled && l.overdue() {
		l.stall()
	}
	l.limit.fill(l.now)
	if l.health == healthDegraded && l.now >= l.retryAt && l.phase == phaseOpen {
		l.backoff = min(2*l.backoff, backoffMax)
		l.retryAt = l.now + l.backoff
		l.probe()
	}
	l.step()
}

// probe tries a real write: what is owed, or an empty group, or a new segment if none is active or the active one seems lost.
func (l *Log) probe() {
	l.closeGroup()
	if l.active != none && l.spare == none && l.segs[l.active].failures >= evictFailures {
		l.prepare = true
		return
	}
	if g, ok := l.openGroup(groupProbe, 0, blockRecords); ok {
		l.fillFences(g)
		return
	}
	l.prepare = l.active == none
}

// BeginClose starts a clean stop: no more puts; what is queued is written, the active segment is sealed and synced. The driver
// goes on calling Flush, NextIO and Done until Idle.
func (l *Log) BeginClose() {
	if l.phase != phaseOpen {
		return
	}
	move(phaseMoves, "log", &l.phase, phaseClosing)
	l.Flush()
}

// closeSome takes the steps of a clean stop as they become possible.
func (l *Log) closeSome() {
	if l.phase != phaseClosing || l.writing() {
		return
	}
	if l.active != none && l.segs[l.active].planned > 0 && l.health == healthOK {
		l.sealActive()
		return
	}
	if l.quiet() {
		move(phaseMoves, "log", &l.phase, phaseClosed)
	}
}

// writing says that puts or fences wait or are on their way. A degraded log does not wait for what it owes.
func (l *Log) writing() bool {
	return l.queue.n > 0 || len(l.groupFree) < len(l.groups) || l.fenceQueue.n > 0 && l.health == healthOK
}

// quiet says that nothing is in flight and nothing waits to be written.
func (l *Log) quiet() bool {
	return !l.writing() && len(l.opFree) == len(l.ops) && l.control.n == 0 && l.reads.used() == 0 && l.footing == none &&
		l.fenceUnsynced.n == 0 && (l.unsynced == 0 || l.health != healthOK)
}

// Idle says that nothing is in flight and nothing waits to be written. After BeginClose the log is then closed.
func (l *Log) Idle() bool {
	if l.phase == phaseOpen {
		return l.quiet()
	}
	return l.phase == phaseClosed
}

// State returns the log's state.
func (l *Log) State() State {
	switch {
	case l.phase == phaseClosed:
		return StateClosed
	case l.phase == phaseClosing:
		return StateClosing
	case l.health == healthDegraded:
		return StateDegraded
	case l.health == healthStalled:
		return StateStalled
	}
	return StateOK
}
