package seglog

import "time"

// A disk may hang without an error: a suspended device, a frozen file system, a server of files that does not answer. An I/O that
// has not ended within Config.StallTime makes the log stalled, until everything in flight has ended. Meanwhile nothing is given to
// the disk, what waits for it ends (puts and reads without their I/O, deletes not durable), and what an I/O in flight moves the
// bytes of stays, until that ends.

// clockStep is the most that one Tick adds to the age of an I/O: when this process, or its machine, was stopped, the disk was not
// what took the time.
const clockStep = time.Second

// overdue says that an I/O in flight takes too long.
func (l *Log) overdue() bool {
	i := l.flight.head
	return l.cfg.StallTime > 0 && i != 0 && l.clock-l.ops[i-1].since >= l.cfg.StallTime
}

// Overdue says when the log wants a Tick at the latest, to notice that an I/O takes too long. With none in flight there is no need.
func (l *Log) Overdue() (time.Duration, bool) {
	i := l.flight.head
	if l.cfg.StallTime <= 0 || i == 0 || l.health == healthStalled {
		return 0, false
	}
	left := l.ops[i-1].since + l.cfg.StallTime - l.clock
	return l.now + min(max(left, 0), clockStep), true
}

// StallTime is after which time in flight an I/O stalls the log; less than 0: none does.
func (l *Log) StallTime() time.Duration { return l.cfg.StallTime }

// Stalled says that an I/O in flight takes too long, in whatever [State] the log is otherwise.
func (l *Log) Stalled() bool { return l.health == healthStalled }

// stall gives up waiting for the disk.
func (l *Log) stall() {
	l.closeGroup()
	move(healthMoves, "health", &l.health, healthStalled)
	l.stats.Stalls++
	l.prepare = false
	for i := range l.groups {
		switch g := &l.groups[i]; g.state {
		case groupClosed:
			l.failGroup(uint32(i))
		case groupHeader, groupValues:
			l.stallValues(uint32(i))
		case groupFree, groupOpen, groupFailing:
		}
	}
	l.stallTasks()
	l.stallReads()
	l.stallFences()
	l.pump() // ends the queued puts
}

// stallValues gives up the values that group i lists and that were not handed out.
func (l *Log) stallValues(i uint32) {
	g := &l.groups[i]
	for _, it := range g.items[:g.count] {
		if it != 0 && g.kind == groupPuts && l.puts.at(it).issuing() {
			l.forsake(it, i)
		}
	}
	l.advance(i)
}

// stallTasks takes back the writes of headers, packs and reinsertions that were not handed out: as if they had failed. What
// concerns a segment waits for the disk, for nobody waits for it.
func (l *Log) stallTasks() {
	for range l.control.n {
		t, _ := l.control.pop()
		if t.use == useHeader || t.use == usePack || t.use == useCopyWrite {
			l.dispatch(t, false, 0)
		} else {
			l.control.push(t)
		}
	}
}

// stallReads ends the reads of which not all was handed out, as soon as the disk does not move their bytes any more. Their records
// are as good as before.
func (l *Log) stallReads() {
	for l.readWork.n > 0 {
		i := l.readWork.head()
		l.readWork.remove(&l.reads, i)
		r := l.reads.at(i)
		move(readMoves, "read", &r.state, readFailing)
		r.spared = true
		if r.flying == 0 {
			l.endRead(i, ResultIO)
		}
	}
}

// stallFences answers for the fences that wait. Those that were given to the disk are owed like the others, until it has them.
func (l *Log) stallFences() {
	for i := l.fenceQueue.head; i != 0; i = l.fences.links[i].next {
		if l.fences.at(i).ack != 0 {
			l.oweFence(i)
		}
	}
	for k := range l.groups {
		g := &l.groups[k]
		if g.state != groupHeader || g.kind == groupPuts {
			continue
		}
		for _, i := range g.items[:g.count] {
			if i != 0 && l.fences.at(i).ack != 0 {
				l.oweFence(i)
			}
		}
	}
	for i := l.fenceWaiting.head; i != 0; i = l.fences.links[i].next {
		if f := l.fences.at(i); f.ack != 0 { // it is written: nothing is owed
			l.tell(f.ack, ResultNotDurable)
			l.dropAck(i)
		}
	}
}

// unstall goes on after a stall, once all that was in flight has ended: with a write that finds out whether the disk works.
func (l *Log) unstall() {
	if l.health != healthStalled || l.flight.n > 0 {
		return
	}
	move(healthMoves, "health", &l.health, healthDegraded)
	l.backoff = backoffMin
	l.retryAt = l.now
}
