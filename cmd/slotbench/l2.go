package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/ring"
)

type l2Command struct {
	Size   []flags.Size `help:"Bytes of a value; several, separated by commas." default:"1MiB,4MiB,32MiB"`
	Dir    string       `help:"Directory to make the store's own directory in: the disk to be measured." type:"existingdir" placeholder:"DIR"`
	Depth  int          `help:"Values under way at once." default:"8"`
	Rounds int          `help:"Rounds; each writes and reads with the store and with fio." default:"7"`
	Bytes  flags.Size   `help:"Bytes to write and read in a round." default:"1GiB"`
	engineFlag
	JSON bool `name:"json" help:"Print the figures as one JSON list."`
}

// Run measures.
func (c *l2Command) Run(ctx context.Context) error {
	opts := benchmarks.L2Options{Dir: c.Dir, Depth: c.Depth, Rounds: c.Rounds, Bytes: int64(c.Bytes)}
	var err error
	if opts.Engine, err = ring.ParseEngine(c.IOEngine); err != nil {
		return flags.Usagef("--io-engine: %w", err)
	}
	if c.Depth < 1 || c.Depth > 64 || c.Rounds < 1 || c.Rounds > 1000 {
		return flags.Usagef("--depth is between 1 and 64, --rounds between 1 and 1000")
	}
	if c.Bytes < 64<<20 || c.Bytes > 1<<30 {
		return flags.Usagef("--bytes: %v is not between 64MiB and 1GiB", c.Bytes)
	}
	for _, size := range c.Size {
		if size < 4096 || size > 64<<20 || size%4096 != 0 {
			return flags.Usagef("--size: %v is no multiple of 4KiB up to 64MiB", size)
		}
		opts.Sizes = append(opts.Sizes, int64(size))
	}
	var draw func(int)
	opts.Show = func(done, total int) {
		if draw == nil {
			draw = bar(total, "rounds")
		}
		draw(done)
	}
	figures, err := benchmarks.MeasureL2(ctx, opts)
	if err != nil {
		return err
	}
	if figures[0].Reference == nil {
		fmt.Fprintln(os.Stderr, "no fio: figures without a reference (apt-get install fio)")
	}
	if c.JSON {
		return printJSON(figures)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "figure\tMB/s\tfio MB/s\tratio\t25 %\t75 %\tCPU s/GB\twithout sums\tfio\t")
	for i := range figures {
		f := &figures[i]
		_, _ = fmt.Fprintf(t, "%s\t%.0f\t%s\t%s\t%s\t%s\t%.3f\t%s\t%s\t\n", f.Figure, f.Value, optional("%.0f", f.RefValue),
			optional("%.2f", f.Ratio), optional("%.2f", f.RatioLow), optional("%.2f", f.RatioHigh),
			f.CPU, optional("%.3f", f.CPUNoSum), optional("%.3f", f.RefCPU))
	}
	return t.Flush()
}

// optional writes a number that may be missing.
func optional(format string, v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}
