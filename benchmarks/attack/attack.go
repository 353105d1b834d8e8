// Package attack has hostile processes besiege a server, and says what an honest client beside them notices of it.
package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slotcache/slotcache/benchmarks"
)

// Options describe an attack.
type Options struct {
	Exe  string // path of slotbench, for the others
	Node benchmarks.NodeOptions
	Time time.Duration // of the attack, all rounds together; as long idle, and half as long beside the control
	// Rounds is how often the phases come in turn, before a last one that is idle; 0 is 1.
	Rounds int
	Kinds  []string // who attacks; empty: all of [Kinds] but [Halves]
	Seed   uint64
}

// What an attack is allowed to cost.
const (
	// SlowerMax is how many times its idle p99 the honest client's may be.
	SlowerMax = 3
	// GrowthMax is how much more memory the server may have than before, in bytes.
	GrowthMax = 32 << 20
	// HalvesMax is how much more than that it may have beside halves of frames, which it has 64 MiB for and a quarter of that
	// until its collector has noticed them.
	HalvesMax = 80 << 20
)

// A Phase is what the honest client saw in all rounds of it together.
type Phase struct {
	Phase    string  `json:"phase"` // idle, control or attack
	Rounds   int     `json:"rounds"`
	Seconds  float64 `json:"seconds"`
	Steps    []Step  `json:"steps"`
	Missed   int64   `json:"missed"`   // objects that were evicted before they were read
	Checked  int64   `json:"verified"` // objects read and compared
	Errors   int64   `json:"errors"`
	Realtime bool    `json:"realtime"` // the honest client goes before all others on its processor
	Example  string  `json:"error,omitempty"`
	// What the machine's host took from the CPUs of server, honest client and attackers, in percent of their time.
	Stolen     float64 `json:"stolen_percent"`
	StolenMost float64 `json:"stolen_percent_most"` // of a round
}

// A Step is one kind of call of the honest client, in microseconds.
type Step struct {
	Step   string  `json:"step"`
	Calls  int64   `json:"calls"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	Max    float64 `json:"max_us"`
	Slower float64 `json:"slower_p99"` // times the p99 of the idle phase
	Caused float64 `json:"slower_p99_than_control"`
	// SlowerRounds is Slower for each round alone, against the idle phases before and after it.
	SlowerRounds []float64 `json:"slower_p99_rounds,omitempty"`
}

// bounds says between what the rounds were.
func (s *Step) bounds() string {
	if len(s.SlowerRounds) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f..%.2f", slices.Min(s.SlowerRounds), slices.Max(s.SlowerRounds))
}

// A Report says what was seen.
type Report struct {
	Engine   string             `json:"io_engine"`
	Seed     uint64             `json:"seed"`
	Phases   []Phase            `json:"phases"`
	Attacks  []Tally            `json:"attacks"`
	Slower   float64            `json:"slower_p99"` // the worst of the attack phase
	Caused   float64            `json:"slower_p99_than_control"`
	Before   Footprint          `json:"before"`
	Peak     Footprint          `json:"peak"`  // the most of each, by samples
	After    Footprint          `json:"after"` // at rest again
	Counters map[string]uint64  `json:"server_counters"`
	Machine  benchmarks.Machine `json:"machine"`
	Pending  benchmarks.Pending `json:"pending"`
}

// A Footprint is what a server's process takes.
type Footprint struct {
	Memory int64 `json:"memory_bytes"` // resident, but for the pool
	Files  int   `json:"files"`        // open descriptors
}

// Err is what was not as it must be, nil when nothing.
func (r *Report) Err() error {
	var wrong []string
	if r.Slower > SlowerMax {
		wrong = append(wrong, fmt.Sprintf("a p99 is %.2f times that of the idle server, at most %d are meant", r.Slower, SlowerMax))
	}
	return errors.Join(r.Broken(), joined(wrong))
}

// Broken is what was not as it must be however busy the machine is: errors of the honest client, memory, descriptors.
func (r *Report) Broken() error {
	var wrong []string
	for i := range r.Phases {
		if p := &r.Phases[i]; p.Errors > 0 {
			wrong = append(wrong, fmt.Sprintf("%d errors of the honest client, as: %s", p.Errors, p.Example))
		}
	}
	most := int64(GrowthMax)
	if slices.ContainsFunc(r.Attacks, func(t Tally) bool { return t.Kind == Halves }) {
		most += HalvesMax
	}
	if grown := r.Peak.Memory - r.Before.Memory; grown >= most {
		wrong = append(wrong, fmt.Sprintf("the server has grown by %d bytes", grown))
	}
	if r.After.Files > r.Before.Files {
		wrong = append(wrong, fmt.Sprintf("%d descriptors stayed open", r.After.Files-r.Before.Files))
	}
	return joined(wrong)
}

func joined(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	return errors.New("attack: " + strings.Join(wrong, "; "))
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	out := func(format string, args ...any) (err error) {
		_, err = fmt.Fprintf(w, format, args...)
		return err
	}
	failed := out("engine %s, seed %d\n%-8s %-9s %8s %10s %10s %10s %8s %12s %11s\n", r.Engine, r.Seed, "phase", "step", "calls", "p50 us", "p99 us", "max us", "p99/idle", "of rounds", "p99/control")
	for i := range r.Phases {
		p := &r.Phases[i]
		for _, s := range p.Steps {
			failed = errors.Join(failed, out("%-8s %-9s %8d %10.0f %10.0f %10.0f %8.2f %12s %11.2f\n", p.Phase, s.Step, s.Calls, s.P50, s.P99, s.Max, s.Slower, s.bounds(), s.Caused))
		}
		failed = errors.Join(failed, out("%-8s %.0f s in %d rounds, %d verified, %d evicted before they were read, %d errors; the host took %.1f %% of the CPUs, %.1f %% in a round\n",
			p.Phase, p.Seconds, p.Rounds, p.Checked, p.Missed, p.Errors, p.Stolen, p.StolenMost))
	}
	for _, t := range r.Attacks {
		failed = errors.Join(failed, out("%-12s %10d connections %12d frames %14d bytes\n", t.Kind, t.Connections, t.Frames, t.Bytes))
	}
	for _, name := range told {
		failed = errors.Join(failed, out("%s %d  ", name, r.Counters[name]))
	}
	return errors.Join(failed, out("\nmemory %.1f MiB before, %.1f at most, %.1f after; descriptors %d, %d, %d; p99 %.2f times idle, %.2f times control at worst\n",
		mib(r.Before.Memory), mib(r.Peak.Memory), mib(r.After.Memory), r.Before.Files, r.Peak.Files, r.After.Files, r.Slower, r.Caused))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// Run measures the honest client alone, beside attackers that only burn processor time, and beside the attack, in turn. The
// report is there even if what it says is bad; the error is of the environment.
func Run(ctx context.Context, opts Options) (*Report, error) {
	s, err := open(ctx, opts)
	if err != nil {
		return nil, err
	}
	err = s.run(ctx)
	log := s.node.Log()
	if err = errors.Join(err, s.close()); err != nil {
		return nil, fmt.Errorf("attack (seed %d): %w\n%s", opts.Seed, err, log)
	}
	return &s.report, nil
}
