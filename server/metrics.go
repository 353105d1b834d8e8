package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server/engine"
)

const (
	// scrapeTime is how long the loop may take to answer a scrape, until it counts as sick.
	scrapeTime = time.Second
	// httpTime bounds a request's header, so that idle clients don't pile up.
	httpTime = 10 * time.Second
)

// reactorStats are the loop's counters.
type reactorStats struct {
	Turns        uint64
	Accepted     uint64
	Refused      uint64 // connections over the limit
	Displaced    uint64 // connections closed for newcomers
	Closed       uint64
	AcceptErrors uint64
	SendErrors   uint64
	Frames       uint64
	BadFrames    uint64 // connections closed for one
	SlowPeers    uint64 // connections closed for keeping the server waiting
	OverBudget   uint64 // connections closed for want of reassembly memory
	Received     uint64 // bytes
	Sent         uint64 // bytes
	Faults       uint64 // damages of the pool's memory that were met
}

// complain logs what may happen thousands of times a second. What the limiter would drop
// anyhow costs next to nothing.
func (r *reactor) complain(text string, args ...any) {
	if !r.limiter.shut(text) {
		r.log.Warn(text, args...)
	}
}

// A snapshot is what the loop tells of itself.
type snapshot struct {
	engine engine.Metrics
	server reactorStats
	ring   ring.Stats

	inputBytes, outputBytes, outputHeld, populated, registered int64
	life                                                       lifeState
	readyAt                                                    int64 // how many bytes must be populated until the server is ready; 0: it is
}

// scrape is how the HTTP goroutines ask the loop for a snapshot: they set asked and wake
// it, it fills last at the end of its turn and tells by filled.
type scrape struct {
	asked  atomic.Bool
	mutex  sync.Mutex // of last
	last   snapshot
	filled chan struct{} // holds one token
}

// publish fills the snapshot, if somebody asked.
func (s *scrape) publish(r *reactor) {
	if !s.asked.Load() {
		return
	}
	s.asked.Store(false)
	s.mutex.Lock()
	r.core.Metrics(&s.last.engine)
	s.last.server = r.stats
	s.last.ring = r.ring.Stats()
	s.last.inputBytes, s.last.outputBytes, s.last.outputHeld = int64(r.input), int64(r.output), r.buffers.held
	s.last.populated, s.last.registered = r.populated, r.fixed
	s.last.life, s.last.readyAt = r.life, r.readyAt
	s.mutex.Unlock()
	select {
	case s.filled <- struct{}{}:
	default:
	}
}

// errSick is the answer when the loop doesn't answer.
var errSick = errors.New("the loop does not answer")

// take asks the loop for a snapshot and waits for it.
func (s *scrape) take(ctx context.Context, wake func()) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	select {
	case <-s.filled: // of a request that gave up
	default:
	}
	s.asked.Store(true)
	wake()
	select {
	case <-s.filled:
	case <-ctx.Done():
		return snapshot{}, errSick
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.last, nil
}

// web is the HTTP server beside the loop: /metrics, /healthz, /readyz.
type web struct {
	scrape   *scrape
	wake     func()                 // valid once the loop runs
	starting atomic.Pointer[string] // what is done before that; nil: it runs
	turn     sync.Mutex             // one scrape at a time
	server   http.Server
	group    sync.WaitGroup
}

// openWeb listens on addr, HOST:PORT.
func openWeb(addr string) (net.Listener, error) {
	addr = orLoopback(addr)
	l, err := net.Listen(tcpNetwork(addr), addr)
	if err != nil {
		return nil, fmt.Errorf("server: serve metrics on %s: %w: give another address, or none", addr, err)
	}
	return newFew(l, httpConns), nil
}

// newWeb makes the HTTP server of a loop that does not run yet.
func newWeb(s *scrape, log *slog.Logger) *web {
	w := &web{scrape: s}
	w.startsWith("starting")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", w.metrics)
	mux.HandleFunc("GET /healthz", w.health)
	mux.HandleFunc("GET /readyz", w.ready)
	w.server = http.Server{
		Handler: mux, ReadHeaderTimeout: httpTime, WriteTimeout: httpTime, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return w
}

// startsWith says what the start of the server is at.
func (w *web) startsWith(what string) { w.starting.Store(&what) }

// runs says that the loop runs, which wake wakes.
func (w *web) runs(wake func()) {
	w.wake = wake
	w.starting.Store(nil)
}

// start serves on l.
func (w *web) start(l net.Listener) {
	w.group.Go(func() { _ = w.server.Serve(l) }) // it ends by stop
}

// stop ends serving.
func (w *web) stop() {
	_ = w.server.Close() // what is served now ends too
	w.group.Wait()
}

// snapshot asks the loop.
func (w *web) snapshot(ctx context.Context) (snapshot, error) {
	if what := w.starting.Load(); what != nil {
		return snapshot{}, &startingError{*what}
	}
	w.turn.Lock()
	defer w.turn.Unlock()
	return w.scrape.take(ctx, w.wake)
}

// A startingError is the answer while the loop does not run yet.
type startingError struct{ what string }

// Error says what the start is at.
func (e *startingError) Error() string { return e.what }

func (w *web) metrics(out http.ResponseWriter, in *http.Request) {
	s, err := w.snapshot(in.Context())
	if err != nil {
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return
	}
	out.Header().Set("Content-Type", "text/plain; version=0.0.4")
	var text bytes.Buffer
	s.each(func(name string, value uint64) { writeMetric(&text, name, value) })
	var process bytes.Buffer
	metrics.WriteProcessMetrics(&process)
	_, _ = io.WriteString(out, text.String()+withoutEmptyHelp(process.String())) // the client may be gone
}

// health tells a server that works, or is starting, from one that does neither.
func (w *web) health(out http.ResponseWriter, in *http.Request) {
	var starting *startingError
	if _, err := w.snapshot(in.Context()); err != nil && !errors.As(err, &starting) {
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(out, "ok\n") // the client may be gone
}

func (w *web) ready(out http.ResponseWriter, in *http.Request) {
	s, err := w.snapshot(in.Context())
	if err == nil {
		err = s.unready()
	}
	if err != nil {
		http.Error(out, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(out, "ready\n") // the client may be gone
}

// unready says why the server is not ready, or nil.
func (s *snapshot) unready() error {
	switch {
	case s.life != lifeRunning:
		return errors.New("it is stopping")
	case s.readyAt > 0:
		return fmt.Errorf("%d %% of the memory it starts with is reserved (%d of %d MiB)", 100*s.populated/s.readyAt, s.populated>>20, s.readyAt>>20)
	}
	return nil
}

// each calls f with every number. Those of the engine come first, under the names that
// STATS gives them.
func (s *snapshot) each(f func(name string, value uint64)) {
	s.engine.Each(f)
	f("input_buffer_bytes", uint64(s.inputBytes))
	f("output_queued_bytes", uint64(s.outputBytes))
	f("output_buffer_bytes", uint64(s.outputHeld))
	f("pool_populated_bytes", uint64(s.populated))
	f("pool_registered_bytes", uint64(s.registered))
	f("ring_in_flight", uint64(s.ring.InFlight))
	f("turns_total", s.server.Turns)
	f("accepted_total", s.server.Accepted)
	f("refused_total", s.server.Refused)
	f("displaced_total", s.server.Displaced)
	f("closed_total", s.server.Closed)
	f("accept_errors_total", s.server.AcceptErrors)
	f("send_errors_total", s.server.SendErrors)
	f("frames_total", s.server.Frames)
	f("bad_frames_total", s.server.BadFrames)
	f("over_budget_total", s.server.OverBudget)
	f("slow_peers_total", s.server.SlowPeers)
	f("received_bytes_total", s.server.Received)
	f("sent_bytes_total", s.server.Sent)
	f("pool_faults_total", s.server.Faults)
	f("ring_enters_total", s.ring.Enters)
	f("ring_looks_total", s.ring.Looks)
	f("ring_looks_found_total", s.ring.Found)
	f("ring_completions_total", s.ring.Completions)
	f("ring_overflows_total", s.ring.Overflows)
	f("ring_fixed_io_total", s.ring.FixedIO)
	f("ring_plain_io_total", s.ring.PlainIO)
	f("ring_short_io_total", s.ring.ShortIO)
	f("ring_retries_total", s.ring.Retries)
	f("ring_stale_total", s.ring.Stale)
}
