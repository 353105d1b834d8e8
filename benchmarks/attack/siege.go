package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/observe"
	"github.com/slotcache/slotcache/client"
)

// told are the server's counters that the report shows, of its metrics.
var told = []string{"slotcache_accepted_total", "slotcache_refused_total", "slotcache_displaced_total", "slotcache_slow_peers_total", "slotcache_bad_frames_total", "slotcache_frames_total"}

const (
	sampleTime = 100 * time.Millisecond // between looks at the server's memory
	restTime   = time.Minute            // in which the server is to come to rest
	buildTime  = 3 * time.Second        // in which the attackers open their connections, before the honest client is measured
)

// A siege is an attack under way.
type siege struct {
	opts   Options
	node   *benchmarks.Node
	report Report
	seats  seats
	seen   [phaseCount][]seen // by round
}

// seats say who runs on which processors: the server on the first, the honest client on the second, the attackers on
// the others, or beside the honest client with what that leaves.
type seats struct{ server, honest, attackers []int }

// all are the CPUs of the three.
func (s *seats) all() []int {
	all := slices.Concat(s.server, s.honest, s.attackers)
	slices.Sort(all)
	return slices.Compact(all)
}

func seatsOf(cpus []int) seats {
	if len(cpus) == 1 {
		return seats{cpus, cpus, cpus}
	}
	s := seats{server: cpus[:1], honest: cpus[1:2], attackers: cpus[1:2]}
	if len(cpus) > 2 {
		s.attackers = cpus[2:]
	}
	return s
}

// open starts the server and waits until its memory is what it will be.
func open(ctx context.Context, opts Options) (*siege, error) {
	if len(opts.Kinds) == 0 {
		opts.Kinds = slices.DeleteFunc(Kinds(), func(kind string) bool { return kind == Halves })
	}
	opts.Rounds = max(opts.Rounds, 1)
	s := &siege{opts: opts, seats: seatsOf(benchmarks.CPUs()), report: Report{Seed: opts.Seed, Machine: benchmarks.ThisMachine()}}
	opts.Node.CPUs, opts.Node.HTTP, opts.Node.TCP = s.seats.server, true, true
	var err error
	if s.node, err = benchmarks.StartNode(ctx, opts.Node); err != nil {
		return nil, fmt.Errorf("attack: %w", err)
	}
	return s, nil
}

func (s *siege) close() error { return errors.Join(s.node.Stop(), s.node.Close()) }

// run is all the rounds.
func (s *siege) run(ctx context.Context) error {
	if err := s.node.AwaitPool(ctx); err != nil {
		return err
	}
	if _, err := s.honest(ctx, "warm", max(warmTime, shortest)); err != nil { // so that what it grows by once is there
		return err
	}
	var err error
	if s.report.Before, err = s.rest(ctx); err != nil {
		return err
	}
	if err := s.rounds(ctx); err != nil {
		return err
	}
	s.judge()
	return nil
}

// rest waits until the server has nothing of any client, and measures it then.
func (s *siege) rest(ctx context.Context) (f Footprint, err error) {
	conn, err := client.Dial(ctx, s.node.Addr(), client.Options{Name: "attack"})
	if err != nil {
		return f, err
	}
	defer conn.Close() //nolint:errcheck // nothing was changed through it
	if s.report.Pending, err = benchmarks.Settled(ctx, conn); err != nil {
		return f, err
	}
	for deadline := time.Now().Add(restTime); ; {
		now, err := observe.Scrape(ctx, s.node.HTTPAddr())
		if err != nil {
			return f, err
		}
		if open := now["slotcache_connections"]; open <= 1 {
			return s.footprint()
		} else if time.Now().After(deadline) {
			return f, fmt.Errorf("%v connections are open after all clients have gone", open)
		}
		if !benchmarks.Pause(ctx, sampleTime) {
			return f, ctx.Err()
		}
	}
}

// footprint looks at the server's process.
func (s *siege) footprint() (f Footprint, err error) {
	if f.Memory, err = observe.Memory(s.node.PID()); err != nil {
		return f, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.node.PID()))
	f.Files = len(files)
	return f, err
}

// phase lets the honest client work, and others beside it.
func (s *siege) phase(ctx context.Context, phase int, d time.Duration) error {
	var attackers []*attacker
	defer func() {
		for _, a := range attackers {
			a.child.Kill()
			_ = a.orders.Close()
		}
	}()
	if phase != phaseIdle {
		for _, kind := range s.opts.Kinds {
			a, err := s.attacker(kind, phase == phaseControl)
			if err != nil {
				return err
			}
			attackers = append(attackers, a)
		}
		if !benchmarks.Pause(ctx, min(buildTime, d/4)) {
			return ctx.Err()
		}
	}
	watched := s.watch(phase == phaseAttack)
	p, err := s.observed(ctx, phaseNames[phase], d)
	if err = errors.Join(err, watched()); err != nil {
		return err
	}
	s.seen[phase] = append(s.seen[phase], p)
	for i, a := range attackers {
		t, err := a.dismiss()
		if err != nil {
			return err
		}
		if phase == phaseAttack {
			s.tally(i, &t)
		}
	}
	attackers = nil
	if phase != phaseAttack {
		return nil
	}
	now, err := observe.Scrape(ctx, s.node.HTTPAddr())
	if err != nil {
		return err
	}
	s.report.Counters = make(map[string]uint64)
	for _, name := range told {
		s.report.Counters[name] = uint64(now[name])
	}
	s.report.After, err = s.rest(ctx)
	return err
}

// tally adds what the attacker with a number did in a round.
func (s *siege) tally(i int, t *Tally) {
	if i == len(s.report.Attacks) {
		s.report.Attacks = append(s.report.Attacks, Tally{Kind: t.Kind})
	}
	sum := &s.report.Attacks[i]
	sum.Connections += t.Connections
	sum.Frames += t.Frames
	sum.Bytes += t.Bytes
}

// watch samples the server's memory and descriptors until its result is called.
func (s *siege) watch(on bool) (end func() error) {
	if !on {
		return func() error { return nil }
	}
	stop, result := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			f, err := s.footprint()
			if err != nil {
				result <- err
				return
			}
			s.report.Peak.Memory = max(s.report.Peak.Memory, f.Memory)
			s.report.Peak.Files = max(s.report.Peak.Files, f.Files)
			select {
			case <-stop:
				result <- nil
				return
			case <-time.After(sampleTime):
			}
		}
	}()
	return func() error { close(stop); return <-result }
}

// honest runs the honest client in a process of its own.
func (s *siege) honest(ctx context.Context, phase string, d time.Duration) (p seen, err error) {
	cmd := exec.Command(s.opts.Exe, "honest", "--addr", s.node.Addr(), "--time", d.String(), "--phase", phase)
	out, err := output(cmd)
	if err != nil {
		return p, err
	}
	defer out.Close() //nolint:errcheck // only read
	child, err := benchmarks.StartChild(cmd, s.seats.honest)
	_ = cmd.Stdout.(*os.File).Close() // the child's
	if err != nil {
		return p, err
	}
	stop := context.AfterFunc(ctx, child.Kill)
	defer stop()
	if err = json.NewDecoder(out).Decode(&p); err == nil {
		err = p.decode()
	}
	return p, errors.Join(err, child.Err(), ctx.Err())
}

// output gives a command a pipe to write to. The command's end is to be closed once it runs.
func output(cmd *exec.Cmd) (*os.File, error) {
	r, w, err := os.Pipe()
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	return r, err
}

// An attacker is a hostile process.
type attacker struct {
	child  *benchmarks.Child
	orders *os.File // it ends when this is closed
	out    *os.File
}

// attacker starts one; with idle set it only burns processor time.
func (s *siege) attacker(kind string, idle bool) (*attacker, error) {
	cmd := exec.Command(s.opts.Exe, "attacker", "--kind", kind, "--unix", s.node.Addr(), "--tcp", s.node.TCPAddr(), "--seed", strconv.FormatUint(s.opts.Seed, 10))
	if idle {
		cmd.Args = append(cmd.Args, "--idle")
	}
	in, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin = in
	defer in.Close() //nolint:errcheck // the child's
	out, err := output(cmd)
	if err != nil {
		return nil, errors.Join(err, orders.Close())
	}
	child, err := benchmarks.StartChild(cmd, s.seats.attackers)
	_ = cmd.Stdout.(*os.File).Close() // the child's
	if err != nil {
		return nil, errors.Join(err, orders.Close(), out.Close())
	}
	return &attacker{child, orders, out}, nil
}

// dismiss ends it and takes what it has counted.
func (a *attacker) dismiss() (t Tally, err error) {
	err = a.orders.Close()
	timer := time.AfterFunc(10*time.Second, a.child.Kill)
	defer timer.Stop()
	decoded := json.NewDecoder(a.out).Decode(&t)
	if errors.Is(decoded, io.EOF) {
		decoded = errors.New("an attacker ended without a word")
	}
	return t, errors.Join(err, decoded, a.child.Err(), a.out.Close())
}
