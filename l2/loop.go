package l2

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/l2/segwatch"
	"github.com/slotcache/slotcache/ring"
)

const (
	// maxInFlight is how many I/Os the log may have started at once. With pieces of
	// 1 MiB a fraction of it is enough for any disk; small values need the rest.
	maxInFlight = 128
	// ioSize is the length in bytes of the longest single I/O. Smaller ones cost more
	// processor time a byte, a value in a single one leaves the disk idle when it is alone.
	ioSize = 4 << 20
	// controlOps is the ring's share for the timer and its like.
	controlOps = 8
	// sumInline is the length in bytes up to which the loop computes a checksum
	// itself. It takes some 50 microseconds at most, which is less than handing it to
	// a helper and back costs, and keeps a processor that is shared busy less.
	sumInline = 1 << 20
	// tickEvery is how often the log hears the time.
	tickEvery = time.Second
	// timerTag is the timer's; only one is armed.
	timerTag = ring.Tag(0)
)

// loopConfig is what a loop works with. It owns all of it but the memory.
type loopConfig struct {
	ring   ring.Interface
	engine ring.Engine
	log    *seglog.Log
	dir    *segdir.Dir
	box    *inbox
	logger *slog.Logger
	memory *memory
	arena  *memory
	report seglog.Report
	sum    func([]byte) uint64

	unregistered bool
}

// A loop is the goroutine that owns the ring and the log. Everything in it but
// done, and closeAll and stats after that, belongs to that goroutine.
type loop struct {
	loopConfig
	helpers *helpers
	start   time.Time
	done    chan struct{} // closed at the end of run

	// waiting are the requests whose outcome the log owes; the index is the token.
	waiting []*request
	vacant  []seglog.Token  // unused indexes of waiting
	parked  []*request      // puts that the log's queue had no room for
	owing   map[int64]*debt // of the puts that the log has, by where their values are

	completions []ring.Completion
	requests    []*request
	results     []result

	watch   segwatch.Watch
	lastErr error // of the last I/O that failed
	closing bool  // the log was told to come to an end
	broken  error // of the ring
}

// newLoop returns a loop that is not running.
func newLoop(cfg loopConfig) *loop {
	return &loop{
		loopConfig:  cfg,
		helpers:     newHelpers(cfg.dir, cfg.box, cfg.sum),
		start:       time.Now(),
		done:        make(chan struct{}),
		owing:       make(map[int64]*debt),
		completions: make([]ring.Completion, 0, 2*maxInFlight),
		watch:       segwatch.New(cfg.log, cfg.logger),
	}
}

// run turns until the log is closed or the ring broken.
func (l *loop) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.done)
	l.prepare()
	for l.broken == nil {
		l.step()
		if l.closing && l.log.Idle() && l.outstanding() == 0 {
			break
		}
		l.broken = l.await()
	}
	l.end()
}

// prepare tells the ring what it works with. That it can't have it is no failure.
func (l *loop) prepare() {
	if err := l.ring.HoldFile(l.dir.LockFd()); err != nil {
		l.logger.Debug("the lock ends before the I/O of a killed process", "err", err)
	}
	l.ring.Timer(timerTag, tickEvery)
	if l.unregistered {
		return
	}
	for _, m := range []*memory{l.memory, l.arena} {
		if err := l.ring.RegisterMemory(m.bytes); err != nil {
			l.logger.Debug("I/O without registered memory", "err", err)
			break
		}
	}
}

// await blocks until there is something to do, and does what the kernel reports.
func (l *loop) await() error {
	var done []ring.Completion
	var err error
	if l.log.Pending() {
		done, err = l.ring.Pass(l.completions[:0])
	} else {
		done, err = l.ring.Wait(l.completions[:0])
	}
	if err != nil {
		return fmt.Errorf("l2: %w", err)
	}
	for i := range done {
		l.complete(&done[i])
	}
	return nil
}

// complete passes on what the kernel did.
func (l *loop) complete(c *ring.Completion) {
	switch c.Kind {
	case ring.KindRead, ring.KindWrite:
		var err error
		if c.Res < 0 {
			err = unix.Errno(-c.Res)
		}
		l.finishIO(result{id: uint64(c.Tag), res: int64(c.Res), err: err})
	case ring.KindTimer:
		l.log.Tick(time.Since(l.start))
		l.ring.Timer(timerTag, tickEvery)
	case ring.KindWake: // the inbox is looked at every turn
	case ring.KindAccept, ring.KindRecv, ring.KindSend, ring.KindSync, ring.KindPoll:
		panic("l2: completion of a " + c.Kind.String() + " that nobody asked for")
	}
}

// finishIO gives the log what came of an I/O.
func (l *loop) finishIO(r result) {
	if r.err != nil {
		l.lastErr = r.err
	}
	if r.freeKnown {
		l.log.SetFree(r.free)
	}
	l.log.Done(r.id, r.res, r.sum)
}

// step does all that can be done without waiting.
func (l *loop) step() {
	var closing bool
	l.requests, l.results, closing = l.box.take(l.requests, l.results)
	for i := range l.results {
		if r := &l.results[i]; r.by != nil {
			l.pay(r.by, r.sum)
		} else {
			l.finishIO(*r)
		}
	}
	clear(l.results)
	l.unpark()
	for i, r := range l.requests {
		l.requests[i] = nil
		l.take(r)
	}
	if closing && !l.closing && len(l.parked) == 0 {
		l.closing = true
		l.log.BeginClose()
	}
	l.drain()
	l.log.Flush()
	for l.ring.Room() > 0 {
		io, ok := l.log.NextIO()
		if !ok {
			break
		}
		l.begin(io)
	}
	l.drain()
	l.watch.Look(time.Since(l.start), l.lastErr)
}

// begin starts an I/O.
func (l *loop) begin(io *seglog.IO) {
	switch io.Kind {
	case seglog.IORead, seglog.IOWrite:
		fd, err := l.dir.Fd(io.Addr.Segment)
		if err != nil {
			l.finishIO(result{id: io.ID, res: -segdir.Errno(err), err: err})
			return
		}
		if io.Kind == seglog.IORead {
			l.ring.Read(ring.Tag(io.ID), fd, io.Addr.Off, l.bytes(io.Mem))
		} else {
			l.ring.Write(ring.Tag(io.ID), fd, io.Addr.Off, l.bytes(io.Mem))
		}
	case seglog.IOSum:
		if l.owedSum(io) {
			return
		}
		p := l.bytes(io.Mem)
		if len(p) <= sumInline {
			l.finishIO(result{id: io.ID, res: io.Mem.Len, sum: l.sum(p)})
			return
		}
		l.helpers.sum(sumJob{io.ID, p})
	case seglog.IOCopy:
		l.finishIO(result{id: io.ID, res: int64(copy(l.bytes(io.Mem), l.bytes(io.From)))})
	case seglog.IOCreate, seglog.IOSync, seglog.IORemove, seglog.IOSpace:
		l.helpers.file(*io)
	}
}

// bytes returns the memory that m stands for.
func (l *loop) bytes(m seglog.Mem) []byte {
	from := l.memory
	if m.Own {
		from = l.arena
	}
	return from.bytes[m.Off : m.Off+m.Len : m.Off+m.Len]
}

// end gives back what the loop owns, once nothing is in flight.
func (l *loop) end() {
	l.helpers.close()
	if err := l.ring.Close(); l.broken == nil && err != nil {
		l.broken = fmt.Errorf("l2: %w", err)
	}
	refusal := l.broken
	if refusal == nil {
		refusal = ErrClosed
	}
	for _, r := range l.box.fail(refusal) {
		l.finish(r, refusal)
	}
	for _, r := range l.parked {
		l.finish(r, refusal)
	}
	for token, r := range l.waiting {
		if r != nil {
			l.waiting[token] = nil
			l.finish(r, refusal)
		}
	}
	l.parked = nil
}

// closeAll frees the rest: after done, when no caller uses the memory any more.
func (l *loop) closeAll() error {
	return errors.Join(l.broken, l.dir.Close(), l.memory.close(), l.arena.close())
}

// stats returns the counters.
func (l *loop) stats() Stats {
	return Stats{
		Stats:      l.log.Stats(),
		Report:     l.report,
		State:      l.log.State().String(),
		Direct:     l.dir.Direct(),
		Engine:     l.engine,
		MemoryFree: l.memory.available(),
	}
}
