package server

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/l2/segwatch"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server/access"
	"github.com/slotcache/slotcache/server/engine"
)

const (
	// turnCompletions is how many completions are handled in a turn. What they bring is
	// bounded by inputTurn.
	turnCompletions = 512
	// flushRounds is how often the engine is asked for work at the end of a turn, when what
	// it asked for was done at once.
	flushRounds = 4
)

// Armed operations are found by their tags, so each kind has a range of its own.
const (
	tagListen uint32 = 1 << 24 // above the connections
	tagWatch  uint32 = 1 << 25
	tagTimer  uint32 = 1 << 30
)

// core is the engine, as the reactor sees it.
type core interface {
	Step(ev *engine.Event)
	Flush(now time.Duration)
	NextTick() (time.Duration, bool)
	BeginStop(now time.Duration)
	SetAccess(now time.Duration, l *access.List)
	Stopped() bool
	Metrics(dst *engine.Metrics)
	Stalled() bool
}

// reactor is the loop and what it owns. Everything in it belongs to the goroutine that
// runs it, except helpers, scrape, reread and stops, which say how they are shared.
type reactor struct {
	core   core
	ring   ring.Interface
	engine ring.Engine // of ring
	pool   *l1.Pool
	dir    *segdir.Dir // nil: no disk tier
	arena  []byte      // the log's memory
	tier   *seglog.Log // the engine's: what a disk tells its log, and what is said of it, goes round that
	log    *slog.Logger

	access *access.List
	reread atomic.Pointer[access.List] // the next one, by Reload

	start time.Time
	now   time.Duration // of this turn, since start
	life  lifeState
	stops atomic.Int32  // calls of Shutdown
	limit time.Duration // when a graceful stop ends

	completions []ring.Completion
	drained     bool           // completions are all that there were
	events      []engine.Event // to be stepped
	deferred    []engine.Event // to be stepped before anything else
	ev          engine.Event   // being stepped
	stepping    *conn          // whose frame is being stepped

	conns       []conn
	connsFree   []uint32
	touched     []uint32 // to be settled at the end of the turn
	resumed     []uint32 // whose frames wait for the next step phase
	resumedNext []uint32 // the other half of resumed
	tried       []uint32 // with a try whose outcome is not known
	hastened    bool     // some were tried in the step phase: what was queued behind these goes in a turn that no completion may announce
	leaving     []uint32 // on their way out
	pollfd      [1]unix.PollFd

	input   int // bytes of reassembly buffers
	holders holders
	spares  proto.Spares
	share   int // of this turn's input, in bytes
	output  int // bytes of queued frames

	segments     []segment // of output; the first is not used
	segmentsFree []uint32
	buffers      buffers
	poolFds      [2]int // by engine.PoolAccess

	listeners []listener
	waits     waits
	watches   watches
	disk      []diskOp
	diskFree  []uint32
	diskErr   error // of the last of its I/Os that failed
	diskWatch segwatch.Watch
	helpers   helpers
	sighter   *sighter // nil: nobody asks
	results   []result
	opinions  []opinion
	alarm     alarm

	populated  int64 // bytes of the pool that the engine knows of
	registered int64 // bytes of the pool that the ring was told of
	fixed      int64 // of these it took
	readyAt    int64 // how many must be populated until the server is ready; 0: it is
	ready      chan struct{}
	failure    error // why the loop ended

	stats   reactorStats
	limiter *limiter // of log
	scrape  scrape
}

// run is the loop.
func (r *reactor) run() error {
	r.flush()
	for r.life != lifeOver {
		if err := r.turn(); err != nil {
			return err
		}
	}
	return r.failure
}

// turn runs the four phases of the loop, in this order and nowhere else.
func (r *reactor) turn() error {
	if err := r.wait(); err != nil { // the only call that blocks
		return err
	}
	r.collect() // completions become events; the engine does not run here
	r.step()    // the engine
	r.flush()   // what it asked for is queued; the next wait submits it
	return nil
}

// wait blocks until something has happened. Where there is work that no completion will
// announce, it only looks. So it does after a turn whose completions may not have been all: what
// was tried is not settled then, and what is queued behind that must not wait for an event.
func (r *reactor) wait() error {
	var err error
	if len(r.events) > 0 || len(r.deferred) > 0 || len(r.resumed) > 0 || r.hastened || !r.drained || r.registered < r.populated || r.alarm.due {
		r.completions, err = r.ring.Pass(r.completions[:0])
	} else {
		r.completions, err = r.ring.Wait(r.completions[:0])
	}
	r.hastened = false
	if err != nil {
		return fmt.Errorf("server: wait for I/O: %w", err)
	}
	if len(r.tried) > 0 { // without a system call, unless the kernel took only a part of what was queued
		if err = r.ring.Submit(); err != nil {
			return fmt.Errorf("server: submit I/O: %w", err)
		}
	}
	if len(r.completions) < cap(r.completions) {
		r.completions = r.ring.Collect(r.completions)
	}
	r.drained = len(r.completions) < cap(r.completions)
	r.now = time.Since(r.start)
	r.stats.Turns++
	return nil
}

// collect turns completions into events.
func (r *reactor) collect() {
	for i := range r.completions {
		r.reap(&r.completions[i])
	}
	if r.drained {
		r.resolve()
	}
	r.reapLeaving()
}

// reap is where every completion goes, by the kind of its operation.
func (r *reactor) reap(done *ring.Completion) {
	switch done.Kind {
	case ring.KindAccept:
		r.accepted(done)
	case ring.KindRecv:
		r.received(done)
	case ring.KindSend:
		r.sent(done)
	case ring.KindRead, ring.KindWrite, ring.KindSync:
		r.fileDone(done)
	case ring.KindPoll:
		r.gone(done)
	case ring.KindTimer:
		r.alarm.fired(done.Tag)
	case ring.KindWake:
		r.news()
	}
}

// step hands the events to the engine. A received piece is cut into its frames here, for
// what a frame is can depend on the one before it. What an event leaves to a tick comes in the next turn, when its reply is out, which
// the wait sends; and behind the replies to what is new in that turn.
func (r *reactor) step() {
	r.stepDeferred()
	at, ok := r.core.NextTick()
	due := ok && at <= r.now // left by the last turn
	r.share = 0
	for i := 0; i < len(r.events); i++ {
		if r.events[i].Kind == engine.EventFrame {
			r.feed(r.events[i].Conn, r.events[i].Body)
		} else {
			r.ev = r.events[i]
			r.ev.Now = r.now
			r.core.Step(&r.ev)
		}
		r.stepDeferred()
	}
	r.events = r.events[:0]
	if due || len(r.resumed) > 0 {
		r.hasten()
	}
	if due {
		r.ev = engine.Event{Kind: engine.EventTick, Now: r.now}
		r.core.Step(&r.ev)
		r.stepDeferred()
	}
	r.stepResumed()
}

// stepResumed goes on with connections whose frames wait for their turn. Who does not get it
// in this one is among the first of the next.
func (r *reactor) stepResumed() {
	r.share = 0 // they have a share of their own
	list := r.resumed
	r.resumed = r.resumedNext[:0]
	done := 0
	for ; done < len(list) && r.share < inputTurn; done++ {
		c := &r.conns[list[done]]
		c.marks &^= markResumed
		if c.state == connOpen {
			r.pump(c)
			r.stepDeferred()
		}
	}
	left := append(list[:0], list[done:]...)
	r.resumedNext = r.resumed
	r.resumed = append(left, r.resumed...)
}

// stepDeferred steps what the host's methods found out at once.
func (r *reactor) stepDeferred() {
	for i := 0; i < len(r.deferred); i++ {
		r.ev = r.deferred[i]
		r.ev.Now = r.now
		r.core.Step(&r.ev)
	}
	r.deferred = r.deferred[:0]
}

// flush queues what the turn has led to.
func (r *reactor) flush() {
	for range flushRounds {
		r.core.Flush(r.now)
		if len(r.deferred) == 0 {
			break
		}
		r.stepDeferred()
	}
	r.reportDisk()
	r.reload()
	r.stopping()
	r.reapLeaving()
	r.helpers.hand()
	for _, index := range r.touched {
		c := &r.conns[index]
		c.marks &^= markTouched
		r.advance(c)
		r.steer(c)
		r.await(c)
	}
	r.touched = r.touched[:0]
	r.forgetAsked()
	r.losePatience()
	r.listen()
	r.register()
	r.setAlarm()
	r.scrape.publish(r)
}

// fileDone takes the completion of an I/O on a segment's file.
func (r *reactor) fileDone(done *ring.Completion) {
	x := done.Tag.Index()
	if r.disk[x].generation != done.Tag.Generation() {
		panic(fmt.Sprintf("server: completion for disk I/O %#x, which is not there", uint64(done.Tag)))
	}
	r.diskDone(x, int64(done.Res), 0)
}

// news takes what the helpers have done.
func (r *reactor) news() {
	var ready int64
	var failure error
	r.results, ready, failure = r.helpers.news(r.results[:0])
	if free, ok := r.helpers.freeSpace(); ok {
		r.tier.SetFree(free)
	}
	for i := range r.results {
		r.diskDone(r.results[i].op, r.results[i].res, r.results[i].sum)
	}
	if r.sighter != nil {
		r.opinions = r.sighter.take(r.opinions[:0])
		for _, o := range r.opinions {
			r.post(engine.Event{Kind: engine.EventSighted, Op: engine.OpID(o.batch), Sum: o.known})
		}
	}
	before := r.populated
	if ready > r.populated {
		r.populated = ready
		r.post(engine.Event{Kind: engine.EventReady, Res: ready})
	}
	r.announce(before, failure)
}

// announce says that the server is ready, once as much memory is reserved as that takes;
// before is how much there was until now. Where no more can be reserved it goes on with
// what there is.
func (r *reactor) announce(before int64, failure error) {
	switch {
	case failure != nil && r.populated == 0:
		r.failure = failure
		r.lifeTo(lifeOver)
		return
	case failure != nil:
		r.log.Warn("the pool is smaller than it was meant to be: give it less, or free some memory", "bytes", r.populated, "err", failure)
		r.readyAt = min(r.readyAt, r.populated)
	}
	if failure != nil || r.populated == r.pool.Size() && r.populated > before {
		r.post(engine.Event{Kind: engine.EventPopulated})
	}
	if r.readyAt > 0 && r.populated >= r.readyAt {
		r.readyAt = 0
		close(r.ready)
	}
}

// register tells the ring of the pool's populated memory, one step a turn, since each holds
// up the loop for a millisecond.
func (r *reactor) register() {
	if r.dir == nil {
		r.registered = r.populated // only files are read into registered memory
	}
	if r.registered >= r.populated {
		return
	}
	to := min(r.registered+populateStep, r.populated)
	if err := r.ring.RegisterMemory(r.pool.Bytes(r.registered, to-r.registered)); err != nil {
		hint := ""
		if errors.Is(err, unix.ENOMEM) {
			hint = fmt.Sprintf(": raise the limit on locked memory (ulimit -l) to %d KiB", (r.pool.Size()+int64(len(r.arena))+lockedRest)>>10)
		}
		r.log.Info("disk I/O without registered memory, which costs some CPU"+hint, "err", err)
		to = r.pool.Size()
	} else {
		r.fixed += to - r.registered
	}
	r.registered = to
}
