package benchmarks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slotcache/slotcache/benchmarks/observe"
)

const (
	// startTime is how long a server may take to say that it is ready. Recovery of a
	// large store and populating a large pool come before that.
	startTime = 60 * time.Second
	// stopTime is how long a server may take to end after SIGTERM.
	stopTime = 30 * time.Second
	// logTail is how much of a server's log an error shows, in bytes.
	logTail = 2000
)

// NodeOptions describe a server to start.
type NodeOptions struct {
	Binary string   // path of slotcached
	L1Size int64    // of the pool, in bytes
	L2Size int64    // of the disk store, in bytes; 0: none
	L2Dir  string   // where the disk store's own directory is made; empty: in the temporary directory
	Args   []string // further flags
	CPUs   []int    // where it may run; empty: on those of this process
	HTTP   bool     // serve metrics, see HTTPAddr
	TCP    bool     // listen on TCP, too, see TCPAddr
}

// A Node is a slotcached child process with a socket and a disk store of its own, which
// outlive the process: it can be killed and started again. Close removes them. It is safe
// for concurrent use.
type Node struct {
	opts  NodeOptions
	dir   string // socket and log
	http  string // address of the metrics; empty: none
	tcp   string // address of the TCP listener; empty: none
	l2    string // of the disk store; empty: none
	spent time.Duration

	mu     sync.Mutex
	p      *process
	out    *os.File // the read end of its standard output
	starts int
	closed bool
}

// StartNode makes the directories and starts the server.
func StartNode(ctx context.Context, opts NodeOptions) (*Node, error) {
	dir, err := os.MkdirTemp("", "slotbench-")
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	n := &Node{opts: opts, dir: dir}
	if opts.HTTP {
		if n.http, err = freePort(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	if opts.TCP {
		if n.tcp, err = freePort(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	if opts.L2Size > 0 {
		if n.l2, err = os.MkdirTemp(opts.L2Dir, "slotbench-l2-"); err != nil {
			return nil, errors.Join(fmt.Errorf("node: %w", err), n.Close())
		}
	}
	if err := n.Start(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Addr is the server's address, the same for every start.
func (n *Node) Addr() string { return "unix:" + filepath.Join(n.dir, "slotcached.sock") }

// HTTPAddr is where the server tells its metrics, HOST:PORT.
func (n *Node) HTTPAddr() string { return n.http }

// TCPAddr is its address on this machine's loopback device.
func (n *Node) TCPAddr() string { return "tcp:" + n.tcp }

// freePort finds an address of this machine where nobody listens now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// PID is the number of the server's process, of the last one when it is dead.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.p.pid()
}

// Restarts is how often the server was started again.
func (n *Node) Restarts() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.starts-1, 0)
}

func (n *Node) args() []string {
	args := []string{
		"--listen", n.Addr(), "--http=" + n.http, "--log-level=warn",
		"--l1-size", strconv.FormatInt(n.opts.L1Size, 10), "--l2-dir=" + n.l2,
	}
	if n.tcp != "" {
		args = append(args, "--listen", n.TCPAddr())
	}
	if n.l2 != "" {
		args = append(args, "--l2-size", strconv.FormatInt(n.opts.L2Size, 10))
	}
	return append(args, n.opts.Args...)
}

// Start starts the server, which must not run, and returns when it is ready.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.launch(); err != nil {
		return err
	}
	if err := awaitReady(ctx, n.p, n.out); err != nil {
		n.p.kill()
		return fmt.Errorf("node: %s: %w\n%s", filepath.Base(n.opts.Binary), err, n.Log())
	}
	return nil
}

// AwaitPool waits until the server, which tells its metrics, has reserved all of its pool: a server that is ready may go on with
// that for a while, and is not at rest before it has.
func (n *Node) AwaitPool(ctx context.Context) error {
	reserved := 0.0
	for deadline := time.Now().Add(startTime); ; {
		now, err := observe.Scrape(ctx, n.http)
		if err != nil {
			return fmt.Errorf("node: %w", err)
		}
		switch have := now["slotcache_pool_populated_bytes"]; {
		case have >= float64(n.opts.L1Size):
			return nil
		case have > reserved:
			reserved, deadline = have, time.Now().Add(startTime)
		case time.Now().After(deadline):
			return fmt.Errorf("node: %.0f of %d bytes of the pool are reserved, and no more for %v", reserved, n.opts.L1Size, startTime)
		}
		if !Pause(ctx, pollTime) {
			return ctx.Err()
		}
	}
}

// startAndKill starts the server, which must not run, and kills it after a time. It
// reports whether it was not ready yet; one that ended by itself is an error.
func (n *Node) startAndKill(ctx context.Context, after time.Duration) (early bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.launch(); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	err = awaitReady(ctx, n.p, n.out)
	early = errors.Is(err, context.DeadlineExceeded)
	if err == nil {
		<-ctx.Done()
	} else if !early {
		err = fmt.Errorf("node: %s: %w\n%s", filepath.Base(n.opts.Binary), err, n.Log())
	}
	n.p.kill()
	if early {
		err = nil
	}
	return early, err
}

// launch starts the process. The lock must be held.
func (n *Node) launch() error {
	if n.closed {
		return errors.New("node: closed")
	}
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	cmd := exec.Command(n.opts.Binary, n.args()...)
	cmd.Stdout, cmd.Stderr = w, log
	p, err := startPinned(cmd, n.opts.CPUs)
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return fmt.Errorf("node: %w", err)
	}
	n.reap()
	n.p, n.out = p, r
	n.starts++
	return nil
}

// awaitReady waits for the first line of the server's output.
func awaitReady(ctx context.Context, p *process, out *os.File) error {
	line := make(chan error, 1)
	go func() {
		text, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && !strings.Contains(text, "ready") {
			err = fmt.Errorf("it says %q", text)
		}
		line <- err
	}()
	timer := time.NewTimer(startTime)
	defer timer.Stop()
	select {
	case err := <-line:
		if err != nil {
			return fmt.Errorf("it did not become ready: %w", err)
		}
		return nil
	case <-p.done:
		return fmt.Errorf("it ended before it was ready: %v", p.cmd.ProcessState)
	case <-timer.C:
		return fmt.Errorf("it was not ready after %v", startTime)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reap takes over what the last process leaves. The lock must be held.
func (n *Node) reap() {
	if n.p == nil {
		return
	}
	n.spent += n.p.cpu()
	_ = n.out.Close()
	n.p, n.out = nil, nil
}

// Kill ends the server with SIGKILL.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.p.kill()
}

// Restart kills the server and starts it again on the same socket and disk store.
func (n *Node) Restart(ctx context.Context) error {
	n.Kill()
	return n.Start(ctx)
}

// Supervise starts the server again whenever it dies, until ctx ends. The error says that
// it could not be started, or that it ended by itself with something else than a signal.
func (n *Node) Supervise(ctx context.Context) error {
	for {
		n.mu.Lock()
		p := n.p
		n.mu.Unlock()
		select {
		case <-p.done:
		case <-ctx.Done():
			return nil
		}
		if state := p.cmd.ProcessState; state.Exited() {
			return fmt.Errorf("node: the server ended by itself: %v\n%s", state, n.Log())
		}
		if err := n.Start(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// CPU is the processor time of all lives of the server so far.
func (n *Node) CPU() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.spent + n.p.cpu()
}

// Stop ends the server with SIGTERM. An exit code other than 0 is an error.
func (n *Node) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.p.stop(stopTime); err != nil {
		return fmt.Errorf("node: stop the server: %w\n%s", err, n.Log())
	}
	return nil
}

func (n *Node) logPath() string { return filepath.Join(n.dir, "slotcached.log") }

// Log is the end of what the server logged.
func (n *Node) Log() string {
	text, err := os.ReadFile(n.logPath())
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-logTail):])
}

// Close kills the server if it still runs and removes its directories.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.p != nil {
		n.p.kill()
		n.reap()
	}
	err := os.RemoveAll(n.dir)
	if n.l2 != "" {
		err = errors.Join(err, os.RemoveAll(n.l2))
	}
	return err
}
