package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/load"
)

// A seat is a worker process: one of several at a time, on some CPUs.
type seat struct {
	number int
	at     location
}

// A location is where a worker runs.
type location uint8

const (
	atLoad   location = iota // on the CPUs that are not the servers'
	atServer                 // on the servers' CPU
	atAny                    // not pinned
)

// A worker is a process that does jobs.
type worker struct {
	child *benchmarks.Child
	in    *os.File
	out   *os.File
	jobs  *json.Encoder
	said  *json.Decoder
	lost  bool // it does not answer any more
}

// worker starts a worker, if it does not run.
func (r *Rig) worker(s seat) (*worker, error) {
	if w := r.workers[s]; w != nil {
		if !w.lost {
			return w, nil
		}
		r.leave(s)
	}
	var cpus []int
	switch s.at {
	case atLoad:
		cpus = r.loadCPUs(false)
	case atServer:
		cpus = r.serverCPUs(false)
	case atAny:
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("rig: %w", err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rig: %w", err), theirIn.Close(), in.Close())
	}
	cmd := exec.Command(r.opts.Self, "loader")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, os.Stderr
	c, err := benchmarks.StartChild(cmd, cpus)
	_, _ = theirIn.Close(), theirOut.Close()
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	w := &worker{child: c, in: in, out: out, jobs: json.NewEncoder(in), said: json.NewDecoder(out)}
	r.workers[s] = w
	return w, nil
}

// do has a worker do a job.
func (w *worker) do(ctx context.Context, j *load.Job) (load.Result, error) {
	var result load.Result
	if err := w.jobs.Encode(j); err != nil {
		w.lost = true
		return result, fmt.Errorf("rig: %w", err)
	}
	ended := context.AfterFunc(ctx, w.child.Kill) // so that the answer comes to an end
	defer ended()
	if err := w.said.Decode(&result); err != nil {
		w.lost = true
		return result, errors.Join(fmt.Errorf("rig: a worker during %s: %w", j.Kind, err), ctx.Err())
	}
	if result.Error != "" {
		return result, errors.New(result.Error)
	}
	return result, nil
}

// close has the worker end, and waits for it.
func (w *worker) close() {
	_ = w.in.Close()
	w.child.Kill()
	_ = w.out.Close()
}

// leave ends a worker with all that it holds.
func (r *Rig) leave(s seat) {
	if w := r.workers[s]; w != nil {
		delete(r.workers, s)
		w.close()
	}
}

// output runs a client to its end, where workers run, and returns what it says.
func (r *Rig) output(cmd *exec.Cmd) ([]byte, error) {
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("rig: %w", err)
	}
	defer out.Close() //nolint:errcheck // only read
	cmd.Stdout, cmd.Stderr = theirs, os.Stderr
	c, err := benchmarks.StartChild(cmd, r.loadCPUs(false))
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(out)
	<-c.Done()
	if err == nil {
		err = c.Err()
	}
	return text, err
}
