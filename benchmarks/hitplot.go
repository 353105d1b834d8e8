package benchmarks

import (
	"errors"
	"fmt"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// PlotHitRatios draws the ratios over the capacity, a line for each policy, into an SVG
// file.
func PlotHitRatios(path string, results []HitRatio) error {
	if len(results) == 0 {
		return errors.New("plot: there is nothing to draw")
	}
	p := plot.New()
	p.X.Label.Text = "capacity, % of the distinct blocks"
	p.Y.Label.Text = "prefix hit ratio"
	p.Y.Min = 0
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, shareTicks(results)
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	var names []string
	lines := make(map[string]plotter.XYs)
	for _, r := range results {
		p.Title.Text = r.Trace
		if lines[r.Policy] == nil {
			names = append(names, r.Policy)
		}
		lines[r.Policy] = append(lines[r.Policy], plotter.XY{X: 100 * r.Capacity, Y: r.Ratio})
	}
	for i, name := range names {
		line, points, err := plotter.NewLinePoints(lines[name])
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(line, points)
		p.Legend.Add(name, line, points)
	}
	p.X.Min, p.X.Max = p.X.Min/1.1, p.X.Max*1.1 // one capacity alone has no width
	canvas := vgsvg.New(18*vg.Centimeter, 12*vg.Centimeter)
	p.Draw(draw.New(canvas))
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	if _, err := canvas.WriteTo(f); err != nil {
		_ = f.Close() // the write's error says more
		return fmt.Errorf("plot: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}

// shareTicks marks the capacities that were measured.
func shareTicks(results []HitRatio) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	seen := make(map[float64]bool)
	for _, r := range results {
		if !seen[r.Capacity] {
			seen[r.Capacity] = true
			ticks = append(ticks, plot.Tick{Value: 100 * r.Capacity, Label: fmt.Sprintf("%.4g", 100*r.Capacity)})
		}
	}
	return ticks
}
