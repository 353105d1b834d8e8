package server

import (
	"fmt"
	"time"

	"github.com/slotcache/slotcache/ring"
)

const (
	// stopTime is how long a graceful stop may take, so that the process has ended within
	// five seconds.
	stopTime = 4500 * time.Millisecond
	// stopDrain is how long of that a peer may take to take its replies.
	stopDrain = 2 * time.Second
	// stopTick is how often the engine is asked whether it has stopped.
	stopTick = 2 * time.Millisecond
)

// lifeState is where the loop is in its life.
//
//	running --Shutdown--> stopping --all done, or out of time, or Shutdown--> over
//	   +--------------------- failed ------------------------------------------^
type lifeState uint8

const (
	lifeRunning  lifeState = iota
	lifeStopping           // no new connections; what is open is ended
	lifeOver               // the loop ends with this turn
)

var lifeNames = [...]string{"running", "stopping", "over"}

// String names the state.
func (s lifeState) String() string {
	if int(s) < len(lifeNames) {
		return lifeNames[s]
	}
	return fmt.Sprintf("lifeState(%d)", uint8(s))
}

var lifeMoves = [...]uint8{
	lifeRunning:  1<<lifeStopping | 1<<lifeOver,
	lifeStopping: 1 << lifeOver,
	lifeOver:     1 << lifeOver,
}

// lifeTo changes the state.
func (r *reactor) lifeTo(s lifeState) {
	if lifeMoves[r.life]&(1<<s) == 0 {
		panic(fmt.Sprintf("server: the loop moves from %v to %v", r.life, s))
	}
	r.life = s
}

// stopping begins and ends a stop. It looks once a turn.
func (r *reactor) stopping() {
	stops := r.stops.Load()
	if stops > 0 && r.life == lifeRunning {
		r.lifeTo(lifeStopping)
		r.limit = r.now + stopTime
		r.closeListeners()
		r.core.BeginStop(r.now)
		r.stepDeferred()
		for _, index := range r.leaving { // all connections, for BeginStop has hung them up
			c := &r.conns[index]
			c.deadline = min(c.deadline, r.now+stopDrain)
		}
	}
	if r.life != lifeStopping {
		return
	}
	open := len(r.conns) - len(r.connsFree)
	switch {
	case stops > 1:
		r.log.Warn("stopped at once"+r.lost(), "connections", open)
	case r.core.Stopped() && open == 0:
		r.log.Info("stopped")
	case r.now >= r.limit:
		r.log.Warn("stopped before everything had ended"+r.lost(), "connections", open, "after", stopTime)
	default:
		return
	}
	r.lifeTo(lifeOver)
}

// lost says what an early end costs. Without a disk tier every end costs the same.
func (r *reactor) lost() string {
	if r.dir == nil {
		return ""
	}
	return ": what was not on disk is lost"
}

// alarmState is what the loop's one timer does.
type alarmState uint8

const (
	alarmOff   alarmState = iota // nothing is awaited
	alarmArmed                   // a timer is in the ring
)

// alarm is the timer for the earliest of all deadlines. An idle server has none. A timer
// that is replaced by an earlier one is paused, and known by its generation when it comes.
type alarm struct {
	state      alarmState
	due        bool // something is already: the next turn comes by itself, whatever the timer does
	at         time.Duration
	generation uint32
}

// fired takes the completion of a timer.
func (a *alarm) fired(t ring.Tag) {
	if t.Generation() == a.generation {
		a.state = alarmOff
	}
}

// earliest is the earliest of some times, if there is one.
type earliest struct {
	at    time.Duration
	found bool
}

// add takes in another time, if ok.
func (e *earliest) add(at time.Duration, ok bool) {
	if ok && (!e.found || at < e.at) {
		e.at, e.found = at, true
	}
}

// setAlarm has the loop woken for the earliest deadline.
func (r *reactor) setAlarm() {
	var next earliest
	next.add(r.core.NextTick())
	next.add(r.nextDeadline())
	next.add(r.retryWatches())
	next.add(r.nextListen())
	next.add(r.nextImpatience())
	next.add(r.now+stopTick, r.life == lifeStopping)
	a := &r.alarm
	a.due = next.found && next.at <= r.now
	if !next.found || a.due || a.state == alarmArmed && a.at <= next.at {
		return
	}
	if a.state == alarmArmed {
		r.ring.Pause(ring.NewTag(tagTimer, a.generation))
	}
	a.generation++ // a paused timer is not the alarm any more
	a.state = alarmArmed
	a.at = next.at
	r.ring.Timer(ring.NewTag(tagTimer, a.generation), next.at-r.now)
}
