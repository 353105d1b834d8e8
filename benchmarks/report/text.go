package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteFigureTable writes the figures for people.
func (r *Run) WriteFigureTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "figure\tvalue\t\treference\t\tratio\tspread\ttarget\t") // Flush gives the error
	for i := range r.Figures {
		f := &r.Figures[i]
		verdict := "missed"
		switch {
		case f.Value == nil:
			verdict = "not measured: " + f.Why
		case f.Meets():
			verdict = "reached"
		}
		reference := "-"
		if f.Reference != nil {
			reference = *f.Reference
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s..%s\t%s\t%s\n", f.Figure, number(f.Value), f.Unit, number(f.ReferenceValue),
			reference, number(f.Ratio), number(f.Min), number(f.Max), f.Target, verdict)
	}
	return t.Flush()
}

// WriteMeasurements writes the measurements for people.
func (r *Run) WriteMeasurements(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "measured\t/s\tGB/s\tp50 us\tp99 us\tp99.9 us\tserver CPU us\tsyscalls\tallocs\tother\t")
	for i := range r.Measurements {
		m := &r.Measurements[i]
		if m.Why != "" {
			_, _ = fmt.Fprintf(t, "%s\t%s\t\t\t\t\t\t\t\t\t\n", m.Name, m.Why)
			continue
		}
		_, _ = fmt.Fprintf(t, "%s\t%.0f\t%s\t%.1f\t%.1f\t%.1f\t%s\t%s\t%s\t%s\t\n", m.Name, m.Rate, nonzero("%.2f", m.Bytes), m.P50, m.P99, m.P999,
			nonzero("%.2f", m.CPU), nonzero("%.3f", m.Calls), allocs(m.Allocs), nonzero("%.4g", m.Value))
	}
	return t.Flush()
}

// number writes a number that may be missing with three digits or all before the point.
func number(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v >= 100 || *v <= -100:
		return fmt.Sprintf("%.0f", *v)
	}
	return fmt.Sprintf("%.3g", *v)
}

// nonzero writes a number, and nothing for 0.
func nonzero(format string, v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf(format, v)
}

// allocs writes a number of heap objects, and nothing where they were not counted.
func allocs(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.4f", *v)
}
