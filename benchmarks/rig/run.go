package rig

import (
	"context"
	"errors"
	"slices"

	"github.com/slotcache/slotcache/benchmarks/load"
	"github.com/slotcache/slotcache/benchmarks/report"
)

// An outcome is what came of a cell.
type outcome struct {
	cell    *Cell
	samples []Sample
	why     string // there are none
	failed  bool   // that is nobody's choice
}

// Selection is what a run measures.
type Selection struct {
	Figures bool     // those of the report
	Only    []string // of the figures only these; empty: all
	Cells   []Cell   // and these
	Rounds  int
	Show    func(done, total int)
}

// FigureCells are the cells that figures need, each once; with names given, of these figures.
func (r *Rig) FigureCells(only []string) []Cell {
	needed := make(map[string]bool)
	for _, s := range r.specs() {
		if len(only) == 0 || slices.Contains(only, s.name) {
			for _, name := range s.cells {
				needed[name] = true
			}
		}
	}
	var cells []Cell
	seen := make(map[string]bool)
	for _, c := range slices.Concat(figureRequests(), figureData(), r.figureWhole()) {
		if !seen[c.Name] && (needed[c.Name] || len(only) == 0) {
			seen[c.Name] = true
			cells = append(cells, c)
		}
	}
	return cells
}

// Measure takes the samples: round by round all cells, in every other round in the opposite
// order, so that nothing always profits from its place. A cell that cannot be measured here, or
// fails, is named and left out.
func (r *Rig) Measure(ctx context.Context, sel Selection) (*report.Run, error) {
	cells := sel.Cells
	if sel.Figures {
		cells = append(r.FigureCells(sel.Only), cells...)
	}
	results := make(map[string]*outcome)
	var order []*outcome
	for i := range cells {
		if results[cells[i].Name] == nil {
			o := &outcome{cell: &cells[i]}
			results[o.cell.Name] = o
			order = append(order, o)
		}
	}
	done := 0
	for round := range sel.Rounds {
		turn := slices.Clone(order)
		if round%2 == 1 {
			slices.Reverse(turn)
		}
		for _, o := range turn {
			if o.take(ctx, r, round); ctx.Err() != nil {
				return nil, ctx.Err()
			}
			done++
			if sel.Show != nil {
				sel.Show(done, sel.Rounds*len(order))
			}
		}
	}
	run := new(report.Run)
	for _, o := range order {
		run.Measurements = append(run.Measurements, o.measurement())
		if o.failed {
			run.Failed++
		}
	}
	if sel.Figures {
		for _, s := range r.specs() {
			if len(sel.Only) == 0 || slices.Contains(sel.Only, s.name) {
				run.Figures = append(run.Figures, s.figure(results))
			}
		}
	}
	return run, nil
}

// take takes one sample of a cell. One that fails is not tried again, and has none.
func (o *outcome) take(ctx context.Context, r *Rig, round int) {
	if o.why != "" || o.cell.Once && round > 0 {
		return
	}
	s, err := o.cell.Take(ctx, r)
	switch {
	case errors.Is(err, ErrSkipped):
		o.why = err.Error()
	case err != nil:
		o.why, o.failed, o.samples = "failed: "+err.Error(), true, nil
	default:
		o.samples = append(o.samples, s)
	}
}

// measurement is the medians of a cell's rounds, and the percentiles of all of them.
func (o *outcome) measurement() report.Measurement {
	m := report.Measurement{
		Name: o.cell.Name, Group: string(o.cell.Group), Series: o.cell.Series, Size: o.cell.Size, Conns: o.cell.Conns,
		Runs: len(o.samples), Why: o.why,
	}
	if len(o.samples) == 0 {
		return m
	}
	of := func(f func(s *Sample) float64) float64 {
		var values []float64
		for i := range o.samples {
			values = append(values, f(&o.samples[i]))
		}
		return median(values)
	}
	m.Rate = of(func(s *Sample) float64 { return s.Rate })
	if o.cell.Size > 0 {
		m.Bytes = of(func(s *Sample) float64 { return s.Bytes }) / 1e9
	}
	m.CPU = of(func(s *Sample) float64 { return s.CPU })
	m.Calls = of(func(s *Sample) float64 { return s.Calls })
	if o.samples[0].Counted {
		m.Allocs = new(of(func(s *Sample) float64 { return s.Allocs }))
	}
	m.Value = of(func(s *Sample) float64 { return s.Value })
	m.Times = load.NewTimes()
	for i := range o.samples {
		if t := o.samples[i].Times; t != nil {
			m.Times.Merge(t)
		}
	}
	all := sampleOf(0, 0, 0, m.Times)
	m.P50, m.P99, m.P999, m.Max = all.P50, all.P99, all.P999, all.Max
	return m
}

// median is the middle value, or the mean of the middle two. It sorts its argument.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
