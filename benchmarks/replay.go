package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/slotcache/slotcache/client"
)

// ReplayOptions describe a replay.
type ReplayOptions struct {
	Trace     string
	Requests  int // of the trace; 0: all
	Workers   int // processes
	BlockSize int // in bytes
	Addr      string
	Node      NodeOptions // the server to start where Addr is empty
	Exe       string      // path of slotbench, for the workers
	Show      func(done int64, total int)

	// Kills is how often the replay's own server is killed while it runs, at times drawn
	// from Seed.
	Kills int
	Seed  uint64
}

// killPause is the longest time between two kills, and between a start and a kill.
const killPause = 1200 * time.Millisecond

// Replay replays a trace and reports. The error says that it could not be done; what went
// wrong while it was done is in the report ([Report.Err]).
func Replay(ctx context.Context, opts ReplayOptions) (*Report, error) {
	requests, err := ReadTrace(opts.Trace, opts.Requests)
	if err != nil {
		return nil, err
	}
	r := newReport(&opts, requests)
	if opts.Addr != "" {
		return r, replayAt(ctx, &opts, r, nil)
	}
	node, err := StartNode(ctx, opts.Node)
	if err != nil {
		return nil, err
	}
	opts.Addr = node.Addr()
	guarded, release := context.WithCancel(ctx)
	running, abort := context.WithCancel(ctx) // without a server there is nothing to wait for
	guard := make(chan error, 1)
	go func() {
		err := node.Supervise(guarded)
		if err != nil {
			abort()
		}
		guard <- err
	}()
	err = replayAt(running, &opts, r, node)
	release()
	if lost := <-guard; lost != nil {
		err = lost
	}
	abort()
	if err == nil {
		err = node.Stop()
	}
	return r, errors.Join(err, node.Close())
}

// replayAt replays against a server that runs. Node is nil for one that is not ours.
func replayAt(ctx context.Context, opts *ReplayOptions, r *Report, node *Node) error {
	conn, err := client.Dial(ctx, opts.Addr, clientOptions(layoutName))
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing was sent that matters
	before, err := readPending(ctx, conn)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	r.Server = conn.Server()
	meter := newMeter(opts.Addr, node)
	begin := time.Now()
	f, err := startFleet(opts.Exe, ReplayerOptions{
		Addr: opts.Addr, Trace: opts.Trace, Requests: opts.Requests,
		Workers: opts.Workers, BlockSize: opts.BlockSize,
	}, func(n int64) {
		if opts.Show != nil {
			opts.Show(n, r.total)
		}
	})
	if err != nil {
		return err
	}
	err = f.waitKilling(ctx, opts, node)
	if err != nil {
		return err
	}
	r.Seconds = time.Since(begin).Seconds()
	if err := r.take(f); err != nil {
		return err
	}
	r.ServerCPU = meter.spent()
	if err := r.takeDisk(ctx, conn); err != nil {
		return err
	}
	r.Pending, err = settle(ctx, conn, &before)
	if err != nil {
		r.Leak = err.Error()
	}
	if node != nil {
		r.Restarts = node.Restarts()
	}
	return ctx.Err()
}

// waitKilling waits for the workers, killing the server meanwhile if that is asked for.
func (f *fleet) waitKilling(ctx context.Context, opts *ReplayOptions, node *Node) error {
	kill, stop := context.WithCancel(ctx)
	var killer sync.WaitGroup
	if node != nil && opts.Kills > 0 {
		killer.Go(func() { killNode(kill, node, opts.Kills, opts.Seed) })
	}
	err := f.wait(ctx)
	stop()
	killer.Wait()
	return err
}

// killNode kills the server a number of times, each time after it is back.
func killNode(ctx context.Context, node *Node, kills int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for kill := range kills {
		for node.Restarts() < kill {
			if !Pause(ctx, pollTime) {
				return
			}
		}
		if !Pause(ctx, time.Duration(r.Int64N(int64(killPause)))) {
			return
		}
		node.Kill()
	}
}

// Pause waits and reports whether ctx lives on.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// A meter measures the processor time of a server.
type meter struct {
	addr string
	node *Node
	pid  int
	then time.Duration
}

func newMeter(addr string, node *Node) *meter {
	m := &meter{addr: addr, node: node}
	if node != nil {
		m.then = node.CPU()
		return m
	}
	if pid, err := PeerPID(addr); err == nil {
		if then, err := CPUTime(pid); err == nil {
			m.pid, m.then = pid, then
		}
	}
	return m
}

// spent is what the server has used since, in seconds; nil where that is not known: on
// another host, in another PID namespace. Of a server that is not ours and was started
// again, it is what the last process has used.
func (m *meter) spent() *float64 {
	now := time.Duration(0)
	if m.node != nil {
		now = m.node.CPU()
	} else {
		pid, err := PeerPID(m.addr)
		if err != nil {
			return nil
		}
		if now, err = CPUTime(pid); err != nil {
			return nil
		}
		if pid != m.pid {
			m.then = 0
		}
	}
	seconds := (now - m.then).Seconds()
	return &seconds
}
