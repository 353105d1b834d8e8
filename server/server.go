// Package server runs the engine on sockets, a ring and a pool of memory.
//
// Everything in it runs on one goroutine, the loop, except Shutdown, the HTTP handlers and
// the helpers, which do what would hold it up: checksums of large values, making and
// removing files, reserving memory. They talk to the loop through a mutex and a wake-up of
// its ring. A turn of the loop has four phases: wait for completions, collect them as
// events, step the engine with each, and flush what it asked for; file reactor.go is the
// place to begin reading.
//
//	wait, collect   reactor.go, and by kind: listen.go, input.go, output.go, peer.go, disk.go
//	step, flush     reactor.go, input.go (frames), host.go (what the engine asks for)
//	beside          helper.go, metrics.go, stop.go
//	start           config.go, setup.go, listen.go
//
// What a peer does wrong ends its connection at most. What the environment does wrong at the
// start is an error that says what to do, and later a line in the log and a counter.
package server

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Server is a cache server. New opens what it needs, Run serves.
type Server struct {
	cfg   Config
	r     *reactor
	web   *web
	http  net.Listener // nil: none
	addrs []string

	once    sync.Once
	stopped chan struct{} // closed when the loop has ended without an error
	closer  closer        // of everything that New opened
}

// New opens the listeners, the ring, the pool and the disk tier, and recovers what is in it.
// After an error nothing is left open. Clients that connect before Run wait for it.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// The loop waits in the kernel without telling the Go scheduler, and everything else
	// needs a processor then. Bound to one CPU, Go would start with one.
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}
	s := &Server{cfg: cfg, stopped: make(chan struct{})}
	if err := s.open(); err != nil {
		s.closer.close(cfg.Logger, false)
		return nil, err
	}
	return s, nil
}

// ErrStuck says that the server has stopped while its disk hung: I/O was under way that did not end. Sockets and the
// pool's name are gone; memory and files are left to the end of the process, for the disk may still work on them.
var ErrStuck = errors.New("server: the disk hangs: what was not on it is lost")

// Run serves until Shutdown, and then closes everything. It may be called once. An error is
// one of the environment that the server cannot go on with, or ErrStuck.
func (s *Server) Run() error {
	err := fmt.Errorf("server: Run is called again")
	s.once.Do(func() { err = s.run() })
	return err
}

func (s *Server) run() error {
	runtime.LockOSThread() // the ring belongs to a thread
	defer runtime.UnlockOSThread()
	r := s.r
	defer r.hurry()()
	if r.dir != nil {
		if err := r.ring.HoldFile(r.dir.LockFd()); err != nil {
			r.log.Info("the lock on the disk tier may be free before the I/O of a killed server has ended", "err", err)
		}
		if err := r.ring.RegisterMemory(r.arena); err != nil {
			r.log.Debug("the log's memory is not registered", "err", err)
		}
	}
	r.helpers.start()
	r.helpers.populate(r.pool, s.cfg.FreeMemory)
	if s.web != nil {
		s.web.runs(r.ring.Wake)
	}
	r.start = time.Now()
	r.log.Info("listening; talk to it with: slotcache --addr "+s.addrs[0]+" stats",
		"listen", s.addrs, "pool", r.pool.Size(), "pages", r.pool.Pages(), "shared", s.shared(), "disk", s.cfg.L2Dir, "engine", r.engine, "connections", len(r.conns), "http", s.HTTPAddr())
	err := r.run()
	for i := range r.listeners { // before all that a disk can hold up
		r.listeners[i].unlink()
	}
	stuck := r.core.Stalled()
	if err == nil {
		close(s.stopped)
		if stuck {
			err = ErrStuck
		}
	}
	s.closer.close(r.log, stuck)
	return err
}

// Shutdown ends Run. The first call lets what is under way end, for five seconds at most;
// the second ends it at once. It may be called from any goroutine, also before Run.
func (s *Server) Shutdown() {
	s.r.stops.Add(1)
	s.r.ring.Wake()
}

// Stopped is closed when the loop has ended without an error. What is left to Run then is to
// close what is open, which the end of the process does as well.
func (s *Server) Stopped() <-chan struct{} { return s.stopped }

// Ready is closed when the server listens and has reserved its memory, or the first
// gibibyte of it.
func (s *Server) Ready() <-chan struct{} { return s.r.ready }

// Addrs returns the addresses that clients can dial, as Config.Listen has them, but with
// the port that was given where that said 0.
func (s *Server) Addrs() []string { return slices.Clone(s.addrs) }

// HTTPAddr returns HOST:PORT of the HTTP server, or "" if there is none.
func (s *Server) HTTPAddr() string {
	if s.http == nil {
		return ""
	}
	return s.http.Addr().String()
}
