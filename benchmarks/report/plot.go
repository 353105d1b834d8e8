package report

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of the diagrams.
const (
	plotWidth  = 24 * vg.Centimeter
	plotHeight = 12 * vg.Centimeter
)

// svg draws p as an element for HTML.
func svg(p *plot.Plot, height vg.Length) (template.HTML, error) {
	canvas := vgsvg.New(plotWidth, height)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("report: draw: %w", err)
	}
	text := b.String()
	text = text[strings.Index(text, "<svg"):] // the XML declaration does not belong into HTML
	// Letters of about the width that the drawing reckons with, also where there is no such font.
	return template.HTML(strings.ReplaceAll(text, "font-family:Liberation Sans", "font-family:'Liberation Sans',Arial,Helvetica,sans-serif")), nil
}

// newPlot is an empty diagram.
func newPlot(title string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.Title.Padding = title, vg.Points(6)
	return p
}

// percentiles are the parts of all operations that a diagram of latencies marks.
var percentiles = []float64{0, 50, 75, 90, 95, 99, 99.9, 99.99}

// latencies draws the percentiles of the measurements of one connection, over how rare they
// are.
func latencies(measured []Measurement) (template.HTML, error) {
	p := newPlot("Latency of one connection, percentiles")
	p.Y.Label.Text = "us"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	var ticks plot.ConstantTicks
	rarity := func(q float64) float64 { return -math.Log10(1 - q/100) }
	for _, q := range percentiles {
		ticks = append(ticks, plot.Tick{Value: rarity(q), Label: fmt.Sprintf("%g", q)})
	}
	p.X.Label.Text, p.X.Tick.Marker = "percentile", ticks
	p.Add(plotter.NewGrid())
	n := 0
	for i := range measured {
		m := &measured[i]
		if m.Group != "rpc" || m.Conns != 1 || m.Times == nil || m.Times.TotalCount() < 100 {
			continue
		}
		var line plotter.XYs
		for _, q := range percentiles {
			if float64(m.Times.TotalCount())*(1-q/100) >= 1 {
				line = append(line, plotter.XY{X: rarity(q), Y: float64(m.Times.ValueAtQuantile(q)) / 1e3})
			}
		}
		if err := addLine(p, m.Name, line, n); err != nil {
			return "", err
		}
		n++
	}
	if n == 0 {
		return "", nil
	}
	p.Legend.Top, p.Legend.Left = true, true
	return svg(p, plotHeight)
}

// throughputs draws bytes a second over the size of the values, a line for each series that
// was measured at three sizes at least.
func throughputs(measured []Measurement) (template.HTML, error) {
	lines := make(map[string]plotter.XYs)
	var names []string
	for i := range measured {
		if m := &measured[i]; m.Series != "" && m.Size > 0 && m.Bytes > 0 {
			if lines[m.Series] == nil {
				names = append(names, m.Series)
			}
			lines[m.Series] = append(lines[m.Series], plotter.XY{X: float64(m.Size), Y: m.Bytes})
		}
	}
	p := newPlot("Throughput against the size of a value")
	p.X.Label.Text, p.Y.Label.Text = "KiB", "GB/s"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	ticks := make(map[float64]bool)
	n := 0
	for _, name := range names {
		line := lines[name]
		// What is used in place has no throughput of its own: it grows with the size.
		if len(line) < 3 || name == "get_in_place" {
			continue
		}
		slices.SortFunc(line, func(a, b plotter.XY) int { return int(a.X - b.X) })
		for _, at := range line {
			ticks[at.X] = true
		}
		if err := addLine(p, name, line, n); err != nil {
			return "", err
		}
		n++
	}
	if n == 0 {
		return "", nil
	}
	var marks plot.ConstantTicks
	for at := range ticks {
		marks = append(marks, plot.Tick{Value: at, Label: fmt.Sprintf("%g", at/1024)})
	}
	p.X.Tick.Marker = marks
	p.Legend.Top, p.Legend.Left = true, true
	return svg(p, plotHeight)
}

// addLine adds line n of a diagram.
func addLine(p *plot.Plot, name string, line plotter.XYs, n int) error {
	l, points, err := plotter.NewLinePoints(line)
	if err != nil {
		return fmt.Errorf("report: draw %s: %w", name, err)
	}
	l.Color, points.Color, points.Shape = plotutil.Color(n), plotutil.Color(n), plotutil.Shape(n)
	p.Add(l, points)
	p.Legend.Add(name, l, points)
	return nil
}
