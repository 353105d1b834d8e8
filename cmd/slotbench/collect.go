package main

import (
	"context"
	"errors"
	"time"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/collect"
	"github.com/slotcache/slotcache/cmd/flags"
)

type collectCommand struct {
	programs
	Rounds  int           `help:"How often, each time with new servers." default:"3"`
	Time    time.Duration `help:"How long each kind of work is measured in a round." default:"1s"`
	L1Size  flags.Size    `name:"l1-size" help:"Pool of the servers." default:"256MiB"`
	Lenient bool          `help:"Do not end with 1 for times alone, as on a machine that is busy with something else."`
	JSON    bool          `name:"json" help:"Print the report as one JSON object."`
}

// Run measures servers that collect garbage all the time.
func (c *collectCommand) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Time < 10*time.Millisecond || c.Time > time.Hour {
		return flags.Usagef("--rounds is at least 1, --time between 10ms and 1h")
	}
	_, server, err := c.find()
	if err != nil {
		return err
	}
	report, err := collect.Run(ctx, collect.Options{
		Rounds: c.Rounds, Time: c.Time, Show: bar(c.Rounds, "rounds"),
		Node: benchmarks.NodeOptions{Binary: server, L1Size: int64(c.L1Size), Args: c.args()},
	})
	if err != nil {
		return err
	}
	report.Engine = c.IOEngine
	err = show(c.JSON, report, report.Write)
	if c.Lenient {
		return err
	}
	return errors.Join(err, report.Err())
}
