package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// outcome is how a test ended, in the words of go test -json.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// A result is one test, subtest or check.
type result struct {
	Name    string  `json:"name"`
	Outcome outcome `json:"outcome"`
}

// event is a line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// collector follows the events of one go test.
type collector struct {
	show    io.Writer
	results []result
	open    map[string][]string // output of the tests that run, by package and name
	bad     map[string]bool     // packages with a failed test
}

// collect reads the events of a go test -json to their end, shows what failed and a line
// for each package, and gives the results. What is not an event is shown as it is.
func collect(r io.Reader, show io.Writer) ([]result, error) {
	c := collector{show: show, open: map[string][]string{}, bad: map[string]bool{}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				c.add(&e)
			} else {
				c.print("%s", line)
			}
		}
		if err == io.EOF {
			c.end()
			return c.results, nil
		}
		if err != nil {
			return c.results, err
		}
	}
}

// print shows something; what cannot be shown is counted all the same.
func (c *collector) print(format string, args ...any) { _, _ = fmt.Fprintf(c.show, format, args...) }

func (c *collector) add(e *event) {
	name := e.Package
	if e.Test != "" {
		name += "." + e.Test
	}
	switch e.Action {
	case "run":
		c.open[name] = []string{}
	case "output":
		c.open[name] = append(c.open[name], e.Output)
	case "build-output":
		c.print("%s", e.Output)
	case "pass", "fail", "skip":
		c.finish(e, name)
	}
}

// finish takes the end of a test or of a package. A package is only a result of its own
// when it failed without a failed test: it did not build, or its process died.
func (c *collector) finish(e *event, name string) {
	output := c.open[name]
	delete(c.open, name)
	if e.Test != "" {
		c.results = append(c.results, result{name, outcome(e.Action)})
		if e.Action == string(failed) {
			c.bad[e.Package] = true
			c.print("%s", strings.Join(output, ""))
		}
		return
	}
	if e.Action == string(failed) {
		c.print("%s", strings.Join(output, ""))
		c.abandon(e.Package + ".")
		if !c.bad[e.Package] {
			c.bad[e.Package] = true
			c.results = append(c.results, result{name, failed})
		}
	}
	c.print("%-4s %s %.1fs\n", e.Action, e.Package, e.Elapsed)
}

// abandon fails the tests of a package that ended before they did.
func (c *collector) abandon(prefix string) {
	for name, output := range c.open {
		if strings.HasPrefix(name, prefix) {
			c.print("%s", strings.Join(output, ""))
			c.results = append(c.results, result{name, failed})
			c.bad[strings.TrimSuffix(prefix, ".")] = true
			delete(c.open, name)
		}
	}
}

// end fails what never ended: go test itself died.
func (c *collector) end() {
	for name, output := range c.open {
		if strings.Join(output, "") == "" {
			continue // a package without an end and without a word
		}
		c.results = append(c.results, result{name, failed})
	}
}

func anyFailed(results []result) bool {
	return slices.ContainsFunc(results, func(r result) bool { return r.Outcome == failed })
}

// record adds results to the file, a line of JSON each.
func record(path string, results []result) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, r := range results {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, _ = w.Write(append(line, '\n')) // Flush gives the error
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

func load(path string) ([]result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var results []result
	for line := range strings.Lines(string(text)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// sum lists what was skipped and what failed, ends with the line that counts, and reports
// whether the suite passed. A suite in which nothing passed did not run.
func sum(results []result, w io.Writer) bool {
	counts := map[outcome]int{}
	for _, r := range results {
		counts[r.Outcome]++
		if r.Outcome == skipped {
			_, _ = fmt.Fprintf(w, "skipped: %s\n", r.Name)
		}
	}
	for _, r := range results {
		if r.Outcome == failed {
			_, _ = fmt.Fprintf(w, "failed: %s\n", r.Name)
		}
	}
	_, _ = fmt.Fprintf(w, "%d passed, %d failed\n", counts[passed], counts[failed])
	return counts[failed] == 0 && counts[passed] > 0
}
