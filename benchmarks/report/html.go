package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed report.html
var page string

// pageData is what the page is made of.
type pageData struct {
	*Run
	Diagrams []template.HTML
}

// WriteHTML writes the report as one page with its diagrams into a file.
func (r *Run) WriteHTML(path string) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"number":  number,
		"allocs":  allocs,
		"nonzero": func(v float64) string { return nonzero("%.3g", v) },
		"verdict": func(f Figure) string {
			switch {
			case f.Value == nil:
				return "not measured: " + f.Why
			case f.Meets():
				return "reached"
			}
			return "missed"
		},
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	data := pageData{Run: r}
	for _, draw := range []func() (template.HTML, error){
		func() (template.HTML, error) { return ratios(r.Figures) },
		func() (template.HTML, error) {
			return bars("Latency, half of the operations", "us", r.Figures, medians)
		},
		func() (template.HTML, error) {
			return bars("Throughput", "GB/s", r.Figures, func(*Figure) bool { return true })
		},
		func() (template.HTML, error) { return latencies(r.Measurements) },
		func() (template.HTML, error) { return throughputs(r.Measurements) },
	} {
		diagram, err := draw()
		if err != nil {
			return err
		}
		if diagram != "" {
			data.Diagrams = append(data.Diagrams, diagram)
		}
	}
	return create(path, func(w io.Writer) error { return t.Execute(w, data) })
}
