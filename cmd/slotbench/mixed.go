package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/cmd/flags"
)

type mixedCommand struct {
	programs
	Rounds    int           `help:"Rounds, of an idle and a busy slice each." default:"8"`
	Slice     time.Duration `help:"How long a slice is." default:"1s"`
	L1Size    flags.Size    `name:"l1-size" help:"Pool of the server." default:"256MiB"`
	L2Size    flags.Size    `name:"l2-size" help:"Disk store of the server." default:"16GiB"`
	L2Dir     string        `name:"l2-dir" help:"Directory to make the disk store's own directory in." type:"existingdir" placeholder:"DIR"`
	ServerArg []string      `help:"Further flag of the server; may be repeated." sep:"none" placeholder:"FLAG"`
	JSON      bool          `name:"json" help:"Print the figures as one JSON array."`
}

// Run measures latencies beside a busy disk.
func (c *mixedCommand) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Rounds > 1000 || c.Slice < 10*time.Millisecond || c.Slice > time.Minute {
		return flags.Usagef("--rounds is between 1 and 1000, --slice between 10ms and 1m")
	}
	self, server, err := c.find()
	if err != nil {
		return err
	}
	opts := benchmarks.MixedOptions{
		Exe: self, Rounds: c.Rounds, Slice: c.Slice,
		Node: benchmarks.NodeOptions{Binary: server, L1Size: int64(c.L1Size), L2Size: int64(c.L2Size), L2Dir: c.L2Dir, Args: c.args(c.ServerArg...)},
	}
	var draw func(int)
	opts.Show = func(done, total int) {
		if draw == nil {
			draw = bar(total, "rounds")
		}
		draw(done)
	}
	figures, err := benchmarks.MeasureMixed(ctx, opts)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(figures)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "figure\tbusy\t\tidle\tratio\t")
	for i := range figures {
		f := &figures[i]
		_, _ = fmt.Fprintf(t, "%s\t%.0f\t%s\t%s\t%s\t\n", f.Figure, f.Value, f.Unit, optional("%.0f", f.RefValue), optional("%.2f", f.Ratio))
	}
	return t.Flush()
}

type mixerCommand struct {
	Addr string
	Kind string `enum:"store,load" required:""`
	Old  uint64 `required:""`
}

// Run keeps the disk busy.
func (c *mixerCommand) Run(ctx context.Context) error {
	return benchmarks.RunMixer(ctx, c.Addr, c.Kind, max(c.Old, 1))
}
