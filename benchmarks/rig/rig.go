// Package rig starts what a measurement needs (servers, floors, peers and workers, pinned to
// CPUs or not) and takes samples with it, the ones to be compared in turn.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/load"
	"github.com/slotcache/slotcache/benchmarks/peers"
)

// Options are what all measurements have in common.
type Options struct {
	Self   string    // path of slotbench, which is floors and workers too
	Server string    // path of slotcached
	Args   []string  // further flags for every slotcached
	Dir    string    // where disk stores are made; empty: the temporary directory
	Span   load.Span // of every sample
	Log    func(format string, args ...any)

	Objects int   // of the figure of memory
	Idle    int   // connections of the figure of idle connections
	Pool    int64 // of the servers, in bytes
}

// A Rig is what has been started so far. It belongs to one goroutine.
type Rig struct {
	opts    Options
	dir     string // sockets of all that is no slotcached
	cpus    []int
	servers map[Place]*server
	workers map[seat]*worker
	program string // the floor in C; empty: not built
}

// A Place is a server, and whether it is pinned to the first CPU and its load to the others.
type Place struct {
	Name Name
	Free bool // not pinned
}

// A Name is a kind of server.
type Name string

// The servers.
const (
	Main      Name = "slotcached"
	Rotating  Name = "slotcached --l1-policy=lru" // the slots of stores go over the whole pool in turn, as a floor's do
	Spinning  Name = "slotcached --spin"
	Tiered    Name = "slotcached with a disk"
	Crowded   Name = "slotcached with idle connections"
	Epoll     Name = "epoll"
	EpollC    Name = "epoll in C"
	Spin      Name = "spin"
	Net       Name = "net"
	Raw       Name = "raw"
	Redis     Name = "redis"
	Memcached Name = "memcached"
	Pickle    Name = "pickle"
)

// spinTime is how long a spinning server looks for work before it sleeps.
const spinTime = 50 * time.Microsecond

// ErrSkipped says that a sample cannot be had on this machine, and why.
var ErrSkipped = errors.New("skipped")

// New makes a rig with nothing started.
func New(opts Options) (*Rig, error) {
	dir, err := os.MkdirTemp("", "slotbench-rig-")
	if err != nil {
		return nil, fmt.Errorf("rig: %w", err)
	}
	return &Rig{opts: opts, dir: dir, cpus: benchmarks.CPUs(), servers: map[Place]*server{}, workers: map[seat]*worker{}}, nil
}

// Close ends all that was started.
func (r *Rig) Close() error {
	var failures []error
	for _, w := range r.workers {
		w.close()
	}
	for _, s := range r.servers {
		failures = append(failures, s.close())
	}
	return errors.Join(append(failures, os.RemoveAll(r.dir))...)
}

// Pinned tells whether there are CPUs to pin a server and its load apart.
func (r *Rig) Pinned() bool { return len(r.cpus) > 1 }

// serverCPUs are those of a place's server, and loadCPUs those of its workers.
func (r *Rig) serverCPUs(free bool) []int {
	if free || !r.Pinned() {
		return nil
	}
	return r.cpus[:1]
}

func (r *Rig) loadCPUs(free bool) []int {
	if free || !r.Pinned() {
		return nil
	}
	return r.cpus[1:]
}

// A server is one that runs.
type server struct {
	socket string
	node   *benchmarks.Node  // of ours
	child  *benchmarks.Child // of others
}

func (s *server) pid() int {
	if s.node != nil {
		return s.node.PID()
	}
	return s.child.PID()
}

func (s *server) close() error {
	if s.node != nil {
		return s.node.Close()
	}
	s.child.Kill()
	return nil
}

// server starts a server, if it does not run.
func (r *Rig) server(ctx context.Context, p Place) (*server, error) {
	if s := r.servers[p]; s != nil {
		return s, nil
	}
	s, err := r.start(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("rig: start %s: %w", p.Name, err)
	}
	r.servers[p] = s
	return s, nil
}

func (r *Rig) start(ctx context.Context, p Place) (*server, error) {
	switch p.Name {
	case Main:
		return r.slotcached(ctx, p.Free, benchmarks.NodeOptions{L1Size: r.opts.Pool})
	case Rotating:
		return r.slotcached(ctx, p.Free, benchmarks.NodeOptions{L1Size: r.opts.Pool, Args: []string{"--l1-policy=lru"}})
	case Spinning:
		return r.slotcached(ctx, p.Free, benchmarks.NodeOptions{L1Size: r.opts.Pool, Args: []string{"--spin", spinTime.String()}})
	case Tiered:
		return r.slotcached(ctx, p.Free, benchmarks.NodeOptions{
			L1Size: tieredPool, L2Size: 16 * tieredPool, Args: []string{"--l1-policy=lru"},
		})
	case Crowded:
		// One process gets no more than three quarters; half as many again would be more than a ring has room for.
		most := (r.opts.Idle+crowdActive)*4/3 + 64
		return r.slotcached(ctx, p.Free, benchmarks.NodeOptions{L1Size: 64 << 20, Args: []string{fmt.Sprintf("--connections=%d", most)}})
	case Epoll, Spin, Net, Raw:
		return r.foreign(ctx, p, exec.Command(r.opts.Self, "floor", string(p.Name), r.socket(p)))
	case EpollC:
		return r.epollC(ctx, p)
	case Redis, Memcached, Pickle:
		return r.peer(ctx, p)
	}
	return nil, fmt.Errorf("rig: no server %q", p.Name)
}

// slotcached starts one of ours, without a disk store unless the options have one.
func (r *Rig) slotcached(ctx context.Context, free bool, opts benchmarks.NodeOptions) (*server, error) {
	opts.Binary, opts.CPUs, opts.HTTP, opts.L2Dir = r.opts.Server, r.serverCPUs(free), true, r.opts.Dir
	opts.Args = append(opts.Args, r.opts.Args...)
	n, err := benchmarks.StartNode(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &server{socket: n.Addr()[len("unix:"):], node: n}, nil
}

func (r *Rig) socket(p Place) string {
	name := string(p.Name) + ".sock"
	if p.Free {
		name = "free-" + name
	}
	return filepath.Join(r.dir, name)
}

// foreign starts a server that is no slotcached and waits until its socket takes connections.
func (r *Rig) foreign(ctx context.Context, p Place, cmd *exec.Cmd) (*server, error) {
	log, err := os.Create(r.socket(p) + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	c, err := benchmarks.StartChild(cmd, r.serverCPUs(p.Free))
	if err != nil {
		return nil, err
	}
	for tries := range 1000 {
		l, err := load.Dial(r.socket(p))
		if err == nil {
			return &server{socket: r.socket(p), child: c}, l.Close()
		}
		select {
		case <-c.Done():
			tries = 999
		case <-ctx.Done():
			tries = 999
		case <-time.After(10 * time.Millisecond):
		}
		if tries == 999 {
			break
		}
	}
	c.Kill()
	text, _ := os.ReadFile(log.Name()) // for the message only
	return nil, fmt.Errorf("%s does not listen: %s", p.Name, text)
}

// machineFree is how much memory there is, in bytes.
func machineFree() int64 {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0
	}
	return int64(s.Totalram) * int64(s.Unit)
}

// OpenFiles is how many files a process may have open.
func OpenFiles() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return int(min(l.Max, 1<<20))
}

// Versions are the peers that there are, for people.
func Versions() []string {
	var lines []string
	for _, kind := range []peers.Kind{peers.Redis, peers.Memcached, peers.Pickle} {
		version := peers.Version(kind)
		if version == "" {
			version = "absent: what is held against it is skipped"
		}
		lines = append(lines, fmt.Sprintf("%s: %s", kind, version))
	}
	return lines
}
