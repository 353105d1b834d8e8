// Package report is what a run of the benchmarks found: figures, each beside the reference it
// is held against, and the measurements behind them, as text, JSON and HTML.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Figure is a number that a claim hangs on. Value and reference are the medians of the
// rounds. The ratio is the median of the rounds' ratios, and min and max are its spread; of a
// figure without a ratio they are the value's.
type Figure struct {
	Figure         string   `json:"figure"`
	Value          *float64 `json:"value"` // null: it was not measured, and Why says why
	Unit           string   `json:"unit"`
	Reference      *string  `json:"reference"` // null: the value itself is held against the target
	ReferenceValue *float64 `json:"reference_value"`
	Ratio          *float64 `json:"ratio"`
	Target         string   `json:"target"` // of the ratio, or of the value where there is none
	Runs           int      `json:"runs"`
	Min            *float64 `json:"min"`
	Max            *float64 `json:"max"`
	Why            string   `json:"why,omitempty"`
}

// Meets tells whether the target is reached; false, too, for what was not measured.
func (f *Figure) Meets() bool {
	v := f.Ratio
	if v == nil {
		v = f.Value
	}
	if v == nil {
		return false
	}
	sign, bound := f.bound()
	if sign == ">=" {
		return *v >= bound
	}
	return *v <= bound
}

// bound takes the target apart.
func (f *Figure) bound() (sign string, bound float64) {
	if n, err := fmt.Sscanf(f.Target, "%s %g", &sign, &bound); n != 2 || err != nil {
		panic("report: a target like " + f.Target)
	}
	return sign, bound
}

// A Measurement is one thing that was measured: the medians of its rounds. Percentiles are of
// all its operations. Times are in microseconds.
type Measurement struct {
	Name   string  `json:"name"`
	Group  string  `json:"group"`
	Series string  `json:"series,omitempty"`
	Size   int64   `json:"size_bytes,omitempty"`
	Conns  int     `json:"conns,omitempty"`
	Runs   int     `json:"runs"`
	Rate   float64 `json:"per_second"`
	Bytes  float64 `json:"gb_per_second,omitempty"` // 10^9 bytes
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	P999   float64 `json:"p999_us"`
	Max    float64 `json:"max_us"`
	CPU    float64 `json:"server_cpu_us,omitempty"`   // an operation
	Calls  float64 `json:"server_syscalls,omitempty"` // an operation
	Value  float64 `json:"value,omitempty"`
	Why    string  `json:"why,omitempty"` // it was not measured

	Allocs *float64 `json:"server_allocs,omitempty"` // heap objects of the server an operation, where they were counted

	Times *hdrhistogram.Histogram `json:"-"`
}

// A Run is all that one run found.
type Run struct {
	Date    time.Time `json:"date"`
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Machine any       `json:"machine"`
	Lines   []string  `json:"-"` // the machine and what took part, for people

	Failed       int           `json:"failed"` // measurements that could not be made, and should have been
	Figures      []Figure      `json:"figures"`
	Measurements []Measurement `json:"measurements"`
}

// WriteFigures writes one JSON object a line for each figure into a file.
func (r *Run) WriteFigures(path string) error {
	return create(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false) // targets have < and >
		for i := range r.Figures {
			if err := e.Encode(&r.Figures[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteJSON writes everything as one JSON value.
func (r *Run) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// create writes a file.
func create(path string, f func(io.Writer) error) error {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := errors.Join(f(out), out.Close()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Err says that something could not be measured that should have been.
func (r *Run) Err() error {
	if r.Failed == 0 {
		return nil
	}
	return fmt.Errorf("report: %d measurements failed", r.Failed)
}
