package report

import (
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colours of what is ours, of what it is held against, and of what misses its target.
var (
	oursColour   = color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}
	refColour    = color.RGBA{R: 0xaa, G: 0xaa, B: 0xaa, A: 0xff}
	missedColour = color.RGBA{R: 0xd6, G: 0x6a, B: 0x2f, A: 0xff}
)

// listed is a diagram with a line for each name, from the top down.
func listed(title string, names []string) *plot.Plot {
	p := newPlot(title)
	slices.Reverse(names)
	p.NominalY(names...)
	p.Y.Tick.Label.Font.Size = vg.Points(9)
	p.Y.Padding = vg.Points(14) // where letters are wider than reckoned with
	p.Legend.Top = true
	return p
}

// listHeight is the height of a diagram of so many lines.
func listHeight(n int) vg.Length { return vg.Length(n+4) * vg.Points(20) }

// medians tells whether a figure's value is a time that half of the operations took at most.
func medians(f *Figure) bool {
	return f.Unit == "us" && !strings.Contains(f.Figure, "p99") && !strings.Contains(f.Figure, "cpu")
}

// bars draws the values of some figures in one unit, each beside that of its reference: pairs of bars.
func bars(title, unit string, figures []Figure, of func(f *Figure) bool) (template.HTML, error) {
	var ours, refs plotter.Values
	var names []string
	most := 0.0
	for i := range figures {
		if f := &figures[i]; f.Unit == unit && f.Value != nil && f.ReferenceValue != nil && of(f) {
			ours, refs = append(ours, *f.Value), append(refs, *f.ReferenceValue)
			names = append(names, f.Figure+" / "+*f.Reference)
			most = max(most, *f.Value, *f.ReferenceValue)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	slices.Reverse(ours)
	slices.Reverse(refs)
	p := listed(title, names)
	p.X.Label.Text, p.X.Min, p.X.Max = unit, 0, 1.2*most // with room for the legend
	width := vg.Points(6)
	for i, values := range []plotter.Values{refs, ours} {
		b, err := plotter.NewBarChart(values, width)
		if err != nil {
			return "", fmt.Errorf("report: draw: %w", err)
		}
		b.Horizontal, b.LineStyle.Width = true, 0
		b.Color, b.Offset = refColour, -width/2
		label := "reference"
		if i == 1 {
			b.Color, b.Offset, label = oursColour, width/2, "slotcache"
		}
		p.Add(b)
		p.Legend.Add(label, b)
	}
	return svg(p, listHeight(len(names)))
}

// ratios draws how many times its reference each figure is, from 1 to the ratio, with the spread of the rounds and a mark at the
// target.
func ratios(figures []Figure) (template.HTML, error) {
	var shown []*Figure
	var names []string
	for i := range figures {
		if f := &figures[i]; f.Ratio != nil && *f.Ratio > 0 && *f.Min > 0 {
			shown = append(shown, f)
			names = append(names, f.Figure+" / "+*f.Reference)
		}
	}
	if len(shown) == 0 {
		return "", nil
	}
	p := listed("Ratio to the reference, and target", names)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	least, most := 1.0, 1.0
	var targets plotter.XYs
	for i, f := range shown {
		y := float64(len(shown) - 1 - i)
		colour := oursColour
		if !f.Meets() {
			colour = missedColour
		}
		for _, part := range []struct {
			from, to float64
			width    vg.Length
		}{{1, *f.Ratio, vg.Points(7)}, {*f.Min, *f.Max, vg.Points(1.5)}} {
			l, err := plotter.NewLine(plotter.XYs{{X: part.from, Y: y}, {X: part.to, Y: y}})
			if err != nil {
				return "", fmt.Errorf("report: draw %s: %w", f.Figure, err)
			}
			l.Color, l.Width = colour, part.width
			p.Add(l)
		}
		_, bound := f.bound()
		targets = append(targets, plotter.XY{X: bound, Y: y})
		least, most = min(least, *f.Min, bound), max(most, *f.Max, bound)
	}
	marks, err := plotter.NewScatter(targets)
	if err != nil {
		return "", fmt.Errorf("report: draw: %w", err)
	}
	marks.Shape, marks.Radius = draw.PlusGlyph{}, vg.Points(5)
	p.Add(marks)
	p.Legend.Add("target", marks)
	for _, kind := range []struct {
		name   string
		colour color.Color
	}{{"reached", oursColour}, {"missed", missedColour}} {
		l := &plotter.Line{LineStyle: draw.LineStyle{Color: kind.colour, Width: vg.Points(7)}}
		p.Legend.Add(kind.name, l)
	}
	p.X.Min, p.X.Max = least/1.2, most*math.Pow(most/least, 0.3) // with room for the legend
	return svg(p, listHeight(len(shown)))
}
