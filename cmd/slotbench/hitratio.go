package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/l1/table"
)

type hitRatioCommand struct {
	Trace     string     `help:"Trace to replay: JSON lines with hash_ids, gzipped or not." required:"" placeholder:"FILE"`
	Requests  int        `help:"How many of its requests; 0 for all." default:"0"`
	Capacity  []string   `help:"Capacities, as parts of the trace's distinct blocks." default:"1%,3%,10%,30%" placeholder:"P%"`
	Policy    []string   `help:"Policies: fifo, lru, s3fifo, adaptive, optimum (which knows the future), or all." default:"all" placeholder:"NAME"`
	BlockSize flags.Size `help:"Bytes of a block. The server's table, and what it remembers of evicted objects, goes by the bytes of the pool." default:"256KiB"`
	JSON      bool       `name:"json" help:"Print the results as one JSON array."`
	Plot      string     `help:"Draw the results into a file." placeholder:"FILE.svg"`
}

// Run replays through the table, without a server.
func (c *hitRatioCommand) Run(ctx context.Context) error {
	opts := benchmarks.HitRatioOptions{Trace: c.Trace, BlockSize: int64(c.BlockSize)}
	if err := c.check(&opts); err != nil {
		return err
	}
	requests, err := benchmarks.ReadTrace(c.Trace, c.Requests)
	if err != nil {
		return err
	}
	var draw func(int)
	opts.Show = func(done, total int) {
		if draw == nil {
			draw = bar(total, "hit ratio")
		}
		draw(done)
	}
	results, err := benchmarks.HitRatios(ctx, requests, opts)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(results)
	} else {
		err = printHitRatios(results, len(opts.Capacities))
	}
	if err == nil && c.Plot != "" { // after what was measured is told, which may have taken long
		err = benchmarks.PlotHitRatios(c.Plot, results)
	}
	return err
}

func (c *hitRatioCommand) check(opts *benchmarks.HitRatioOptions) error {
	if err := checkBlock(c.BlockSize); err != nil {
		return err
	}
	if c.Requests < 0 {
		return flags.Usagef("--requests is at least 0")
	}
	if c.Plot != "" && filepath.Ext(c.Plot) != ".svg" {
		return flags.Usagef("--plot: %s does not end with .svg", c.Plot)
	}
	if err := checkFile("--plot", c.Plot); err != nil {
		return err
	}
	for _, text := range c.Capacity {
		number, percent := strings.CutSuffix(text, "%")
		share, err := strconv.ParseFloat(number, 64)
		if percent {
			share /= 100
		}
		if err != nil || !(share > 0 && share <= 1) {
			return flags.Usagef("--capacity: %q is not above 0 and at most 100%%", text)
		}
		opts.Capacities = append(opts.Capacities, share)
	}
	slices.Sort(opts.Capacities)
	opts.Capacities = slices.Compact(opts.Capacities)
	if len(opts.Capacities) == 0 {
		return flags.Usagef("--capacity: there is none")
	}
	return c.checkPolicies(opts)
}

func (c *hitRatioCommand) checkPolicies(opts *benchmarks.HitRatioOptions) error {
	all := []string{
		table.PolicyFIFO.String(), table.PolicyLRU.String(), table.PolicyS3FIFO.String(),
		table.PolicyAdaptive.String(), benchmarks.Optimum,
	}
	for _, name := range c.Policy {
		switch {
		case name == "all":
			opts.Policies = all
			return nil
		case !slices.Contains(all, name):
			return flags.Usagef("--policy: %q is none of %s", name, strings.Join(all, ", "))
		case !slices.Contains(opts.Policies, name):
			opts.Policies = append(opts.Policies, name)
		}
	}
	if len(opts.Policies) == 0 {
		return flags.Usagef("--policy: there is none")
	}
	return nil
}

// printHitRatios prints a row for each policy; results are sorted by policy and have so many
// capacities each.
func printHitRatios(results []benchmarks.HitRatio, capacities int) error {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(t, "policy") // Flush gives the error
	for _, r := range results[:capacities] {
		_, _ = fmt.Fprintf(t, "\t%.4g%%", 100*r.Capacity)
	}
	for i, r := range results {
		if i%capacities == 0 {
			_, _ = fmt.Fprintf(t, "\n%s", r.Policy)
		}
		_, _ = fmt.Fprintf(t, "\t%.4f", r.Ratio)
	}
	_, _ = fmt.Fprintln(t)
	return t.Flush()
}
