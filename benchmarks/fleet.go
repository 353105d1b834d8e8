package benchmarks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A fleet is the worker processes of a replay and what they have reported.
type fleet struct {
	workers []*process
	readers sync.WaitGroup
	show    func(requests int64) // told after every report, by one goroutine at a time

	mu   sync.Mutex
	last []Progress // of each worker
}

// startFleet starts the workers. Exe is slotbench.
func startFleet(exe string, opts ReplayerOptions, show func(int64)) (*fleet, error) {
	f := &fleet{show: show, last: make([]Progress, opts.Workers)}
	for opts.Worker = range opts.Workers {
		if err := f.launch(exe, opts); err != nil {
			f.kill()
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) launch(exe string, opts ReplayerOptions) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	cmd := exec.Command(exe, "replayer", "--addr", opts.Addr, "--trace", opts.Trace,
		"--requests", strconv.Itoa(opts.Requests), "--workers", strconv.Itoa(opts.Workers),
		"--worker", strconv.Itoa(opts.Worker), "--block-size", strconv.Itoa(opts.BlockSize))
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	p, err := startProcess(cmd)
	_ = w.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("replay: %w", err), r.Close())
	}
	f.workers = append(f.workers, p)
	f.readers.Go(func() { f.read(opts.Worker, r) })
	return nil
}

// read takes a worker's reports until its output ends.
func (f *fleet) read(worker int, r *os.File) {
	defer r.Close() //nolint:errcheck // only read
	for d := json.NewDecoder(r); ; {
		var p Progress
		if d.Decode(&p) != nil {
			return
		}
		f.take(worker, p)
	}
}

// take keeps a worker's report and shows how many requests are done by all.
func (f *fleet) take(worker int, p Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[worker] = p
	var n int64
	for i := range f.last {
		n += f.last[i].Requests
	}
	f.show(n)
}

func (f *fleet) kill() {
	for _, p := range f.workers {
		p.kill()
	}
	f.readers.Wait()
}

// wait waits for all workers. The error is that of the first one that failed; the others
// are ended then.
func (f *fleet) wait(ctx context.Context) error {
	for i, p := range f.workers {
		if err := p.wait(ctx); err != nil {
			f.kill()
			return errors.Join(fmt.Errorf("replay: worker %d: %w", i, err), ctx.Err())
		}
	}
	f.readers.Wait()
	return nil
}

// sum adds up the last reports of workers that have ended.
func (f *fleet) sum() (t Tally, lookups *hdrhistogram.Histogram, boots int, lastError string, err error) {
	lookups = hdrhistogram.New(1, lookupMax, 3)
	var seen []uint64
	for i := range f.last {
		p := &f.last[i]
		if !p.Done {
			return t, nil, 0, "", fmt.Errorf("replay: worker %d ended before it was done", i)
		}
		t.add(&p.Tally)
		h, err := hdrhistogram.Decode(p.Lookups)
		if err != nil {
			return t, nil, 0, "", fmt.Errorf("replay: worker %d: %w", i, err)
		}
		lookups.Merge(h)
		seen = append(seen, p.Boots...)
		if p.LastError != "" {
			lastError = p.LastError
		}
	}
	slices.Sort(seen)
	return t, lookups, len(slices.Compact(seen)), lastError, nil
}
