// Command slotcached is the cache server of one machine: it shares a pool of memory with
// the worker processes on it and keeps what does not fit on disk.
//
// It ends with 0 after a clean stop (by a signal; a second one stops at once,
// without writing what is only in memory), with 1 when it cannot start or fails while
// running, and with 2 when the command line is wrong.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/alecthomas/kong"

	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/server"
)

const name = "slotcached"

// How long the server may take to end after the first signal and after the second. Only I/O
// that the kernel does not give back, as that of a disk that hangs, takes it longer.
const (
	stopTime = 4800 * time.Millisecond
	haltTime = time.Second
)

const description = `The key-value cache server of one machine for LLM inference workers.

Runs without any flag, as any user: it then listens on a socket only this user can reach.
SIGINT, SIGTERM and (without --token-file) SIGHUP stop it cleanly, a second one at once.
Exit codes: 0 stopped cleanly, 1 cannot start or failed, 2 wrong command line.`

// gcPercent is how much garbage there may be beside what lives, in percent of it, unless GOGC
// says otherwise. What lives is tables without pointers, and a request leaves nothing behind, so
// that a collection is cheap and rare; waiting until the tables' size has been wasted is not.
const gcPercent = 25

// versionFlag prints the version.
type versionFlag = kong.VersionFlag

// The first thread only waits for the end. The kernel offers a signal for the process to it
// before any other, and one that is held in the I/O of a disk that hangs would keep it.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only there the thread is surely the first

func main() {
	var c command
	flags.Parse(name, &c, kong.Description(description), kong.Vars{
		"socket": flags.DefaultSocket(),
		"http":   defaultHTTP,
	})
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	metrics.ExposeMetadata(true)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(c.LogLevel)}))
	ended := make(chan error)
	go func() { ended <- run(&c, log) }()
	flags.Exit(name, <-ended)
}

// run is the life of the server.
func run(c *command, log *slog.Logger) error {
	signals := make(chan os.Signal, 4)
	reload := make(chan os.Signal, 1)
	if c.Access.TokenFile == nil {
		signal.Notify(signals, flags.EndSignals()...)
	} else {
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		signal.Notify(reload, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGPIPE) // whoever reads our output may end before us

	if c.Collect {
		go collectAlways()
	}
	built := make(chan building, 1)
	go func() { built <- build(c, log) }()
	b, err := await(built, signals)
	if err == nil {
		err = b.err
	}
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- b.server.Run() }()
	return watch(b.server, b.disk, log, signals, reload, ended)
}

// collectAlways has one garbage collection after the other, to measure what that does to clients.
func collectAlways() {
	for {
		runtime.GC()
	}
}

// A building is a server that does not run yet, or why there is none.
type building struct {
	server *server.Server
	disk   bool // there is a disk store
	err    error
}

func build(c *command, log *slog.Logger) (b building) {
	cfg, err := c.config(log)
	if err != nil {
		return building{err: err}
	}
	b.disk = cfg.L2Dir != ""
	b.server, b.err = server.New(cfg)
	return b
}

// await gives what is built. A signal does not wait for it any longer than for a running server:
// it is left for who looks next, or ends the waiting.
func await(built <-chan building, signals chan os.Signal) (building, error) {
	var late <-chan time.Time
	for {
		select {
		case b := <-built:
			return b, nil
		case sig := <-signals:
			if late != nil {
				return building{}, errStart
			}
			late = time.After(stopTime)
			defer func() { signals <- sig }()
		case <-late:
			return building{}, errStart
		}
	}
}

var errStart = errors.New("stopped while it started")

// watch tells when the server is ready, hands signals to it and gives its end. Disk says
// that there is a disk store.
func watch(s *server.Server, disk bool, log *slog.Logger, signals, reload <-chan os.Signal, ended <-chan error) error {
	ready := s.Ready()
	var late <-chan time.Time
	stops := 0
	for {
		select {
		case <-ready:
			ready = nil
			announce(s.Addrs())
		case <-reload:
			if err := s.Reload(); err != nil {
				log.Error("the tokens are as before", "err", err)
			}
		case sig := <-signals:
			stops++
			if stops == 1 {
				log.Info("stopping; a second signal stops at once", "signal", sig)
				late = time.After(stopTime)
			} else {
				log.Warn("stopping at once", "signal", sig)
				late = time.After(haltTime)
			}
			s.Shutdown()
		case err := <-ended:
			return err
		case <-late:
			return overdue(s, disk, stops)
		}
	}
}

// overdue is the end of a process that does not wait for the server's end any more. When
// the loop has stopped, all that is left is to give memory and files back, as the kernel does:
// that takes long while the pool is being reserved. Only a disk that is to be written before
// the end, as after the first signal, can have lost something.
func overdue(s *server.Server, disk bool, stops int) error {
	select {
	case <-s.Stopped():
		if stops > 1 || !disk {
			return nil
		}
	default:
	}
	if disk {
		return errors.New("the server has not ended in time after the signal: is the disk stuck? What was not on it is lost")
	}
	return errors.New("the server has not ended in time after the signal")
}

// announce says on standard output how to talk to the server. Programs that start it
// wait for this line.
func announce(addrs []string) {
	for _, addr := range addrs {
		if strings.HasPrefix(addr, "unix:") {
			addrs = []string{addr}
			break
		}
	}
	if len(addrs) > 0 {
		fmt.Printf("slotcached is ready; talk to it with: slotcache --addr %s stats\n", addrs[0])
	}
}
