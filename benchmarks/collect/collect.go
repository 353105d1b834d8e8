// Package collect measures what Go's garbage collector does to a server's clients when it never rests.
package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/observe"
	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

// Options describe a measurement.
type Options struct {
	Node   benchmarks.NodeOptions
	Rounds int           // each has a server that collects as it likes, and one that does nothing else
	Time   time.Duration // of each kind of work in a round
	Show   func(done int)
}

// What a collection is allowed to cost, and a server that has nothing to do.
const (
	StallMax   = 10 * time.Millisecond
	IdleCPUMax = time.Millisecond // a second
)

// always is the server's flag.
const always = "--collect-always"

const (
	valueSize = 64 << 10
	restful   = 20 * time.Millisecond // between the signs of life that an idle server is asked for
	longest   = 60_000_000            // us
)

// works are what is measured: a server that sleeps but for a PING now and then, and one that is asked without a pause.
var works = [...]string{"idle", "ping", "store"}

const (
	workIdle = iota
	workPing
	workStore
)

// A Cell is one kind of work, in all rounds together. Times are in microseconds.
type Cell struct {
	Work   string  `json:"work"`
	Always bool    `json:"always"` // the server collects without a pause
	Calls  int64   `json:"calls"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	Max    float64 `json:"max_us"`
	Stalls int64   `json:"stalls"`      // calls that took longer than StallMax
	Count  int64   `json:"collections"` // of the server meanwhile
}

// A Report says what was seen.
type Report struct {
	Engine  string             `json:"io_engine"`
	Cells   []Cell             `json:"cells"`
	IdleCPU float64            `json:"idle_cpu_ms_per_second"` // of servers that nobody asks anything, and that collect as they like
	Pause   float64            `json:"longest_pause_us"`       // that the collector made, by its own account, at most
	Machine benchmarks.Machine `json:"machine"`
}

// Err is what was not as it must be. A stall that the machine makes without collections as well is not blamed on them.
func (r *Report) Err() error {
	var wrong []string
	if r.IdleCPU > float64(IdleCPUMax.Microseconds())/1000 {
		wrong = append(wrong, fmt.Sprintf("an idle server takes %.2f ms of a processor in a second, %v is meant", r.IdleCPU, IdleCPUMax))
	}
	control := r.worst(false)
	if w := r.worst(true); w > float64(StallMax.Microseconds()) && w > control {
		wrong = append(wrong, fmt.Sprintf("a call took %.1f ms beside collections and %.1f ms without, %v is meant", w/1000, control/1000, StallMax))
	}
	if len(wrong) == 0 {
		return nil
	}
	return errors.New("collections: " + strings.Join(wrong, "; "))
}

// worst is the longest call of all kinds.
func (r *Report) worst(always bool) (us float64) {
	for i := range r.Cells {
		if r.Cells[i].Always == always {
			us = max(us, r.Cells[i].Max)
		}
	}
	return us
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "engine %s\n%-6s %-12s %9s %9s %9s %9s %12s %12s\n", r.Engine, "work", "collections", "calls", "p50 us", "p99 us", "max us", "over 10 ms", "collections")
	for i := range r.Cells {
		c := &r.Cells[i]
		how := "as it likes"
		if c.Always {
			how = "always"
		}
		_, e := fmt.Fprintf(w, "%-6s %-12s %9d %9.0f %9.0f %9.0f %12d %12d\n", c.Work, how, c.Calls, c.P50, c.P99, c.Max, c.Stalls, c.Count)
		err = errors.Join(err, e)
	}
	_, e := fmt.Fprintf(w, "an idle server takes %.2f ms of a processor in a second; the collector's longest pause is %.0f us at most\n", r.IdleCPU, r.Pause)
	return errors.Join(err, e)
}

// run is a measurement under way.
type run struct {
	opts   Options
	times  [2][len(works)]*hdrhistogram.Histogram // by whether the server collects always
	counts [2][len(works)]int64
	idle   time.Duration // processor time of idle servers
	rested time.Duration // in how long
	pause  float64
	key    uint64
}

// Run measures. The report is there even if what it says is bad; the error is of the environment.
func Run(ctx context.Context, opts Options) (*Report, error) {
	m := &run{opts: opts}
	for i := range m.times {
		for n := range m.times[i] {
			m.times[i][n] = hdrhistogram.New(1, longest, 3)
		}
	}
	for round := range opts.Rounds {
		for i := range m.times {
			if err := m.server(ctx, i); err != nil {
				return nil, fmt.Errorf("collections: %w", err)
			}
		}
		opts.Show(round + 1)
	}
	r := &Report{Machine: benchmarks.ThisMachine(), Pause: 1e6 * m.pause}
	r.IdleCPU = float64(m.idle.Microseconds()) / 1000 / m.rested.Seconds()
	for n := range works {
		for i := range m.times {
			t := m.times[i][n]
			c := Cell{
				Work: works[n], Always: i == 1, Calls: t.TotalCount(), Count: m.counts[i][n],
				P50: float64(t.ValueAtQuantile(50)), P99: float64(t.ValueAtQuantile(99)), Max: float64(t.Max()),
			}
			for _, b := range t.Distribution() {
				if b.From > StallMax.Microseconds() {
					c.Stalls += b.Count
				}
			}
			r.Cells = append(r.Cells, c)
		}
	}
	return r, nil
}

// server measures one server.
func (m *run) server(ctx context.Context, kind int) (err error) {
	opts := m.opts.Node
	opts.HTTP = true
	if kind == 1 {
		opts.Args = append(opts.Args[:len(opts.Args):len(opts.Args)], always)
	}
	node, err := benchmarks.StartNode(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop(), node.Close()) }()
	if err := node.AwaitPool(ctx); err != nil {
		return err
	}
	if kind == 0 {
		if err := m.rest(ctx, node); err != nil {
			return err
		}
	}
	w, err := client.Open(ctx, node.Addr(), client.Options{Name: "collect"}, client.Registration{
		Name: "collect", Namespace: "collect", Layouts: []client.Layout{{Name: "collect", Size: valueSize}},
	})
	if err != nil {
		return err
	}
	defer w.Close() //nolint:errcheck // all it did was acknowledged
	for n := range works {
		if err := m.work(ctx, node, w, kind, n); err != nil {
			return fmt.Errorf("%s: %w", works[n], err)
		}
	}
	return nil
}

// rest measures what a server takes that nobody asks anything.
func (m *run) rest(ctx context.Context, node *benchmarks.Node) error {
	if !benchmarks.Pause(ctx, 200*time.Millisecond) { // what its start has left behind
		return ctx.Err()
	}
	before, err := observe.CPU(node.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if !benchmarks.Pause(ctx, m.opts.Time) {
		return ctx.Err()
	}
	after, err := observe.CPU(node.PID())
	m.idle += after - before
	m.rested += time.Since(began)
	return err
}

// work measures one kind of work.
func (m *run) work(ctx context.Context, node *benchmarks.Node, w *client.Worker, kind, n int) error {
	before, err := observe.Scrape(ctx, node.HTTPAddr())
	if err != nil {
		return err
	}
	value := make([]byte, valueSize)
	for end := time.Now().Add(m.opts.Time); time.Now().Before(end); {
		m.key++
		key := benchmarks.BlockKey(m.key)
		began := time.Now()
		switch n {
		case workIdle, workPing:
			_, err = w.Ping(ctx)
		case workStore:
			var st proto.Status
			if st, err = w.Put(ctx, 0, key, value); err == nil && st != proto.StatusOK {
				err = fmt.Errorf("a store is %v", st)
			}
		}
		if err != nil {
			return err
		}
		if err := m.times[kind][n].RecordValue(min(max(time.Since(began).Microseconds(), 1), longest)); err != nil {
			return err
		}
		if n == workIdle {
			if !benchmarks.Pause(ctx, restful) {
				return ctx.Err()
			}
		}
	}
	after, err := observe.Scrape(ctx, node.HTTPAddr())
	if err != nil {
		return err
	}
	m.counts[kind][n] += int64(after["go_gc_duration_seconds_count"] - before["go_gc_duration_seconds_count"])
	m.pause = max(m.pause, after[`go_gc_duration_seconds{quantile="1"}`])
	return nil
}
