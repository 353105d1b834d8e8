package main

import (
	"context"
	"errors"
	"os"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/cmd/flags"
)

type replayCommand struct {
	programs
	Trace     string     `help:"Trace to replay: JSON lines with hash_ids, gzipped or not." required:"" placeholder:"FILE"`
	Requests  int        `help:"How many of its requests; 0 for all." default:"0"`
	Workers   int        `help:"Worker processes; request i goes to worker i modulo W." default:"1"`
	BlockSize flags.Size `help:"Bytes of a block." default:"64KiB"`
	Addr      string     `help:"Server to drive instead of one of its own." placeholder:"ADDR"`
	L1Size    flags.Size `name:"l1-size" help:"Pool of its own server." default:"256MiB"`
	L2Size    flags.Size `name:"l2-size" help:"Disk store of its own server; 0 for none." default:"4GiB"`
	L2Dir     string     `name:"l2-dir" help:"Directory to make the disk store's own directory in." type:"existingdir" placeholder:"DIR"`
	ServerArg []string   `help:"Further flag of its own server; may be repeated." sep:"none" placeholder:"FLAG"`
	JSON      bool       `name:"json" help:"Print the report as one JSON object."`
}

// Run replays.
func (c *replayCommand) Run(ctx context.Context) error {
	opts := benchmarks.ReplayOptions{
		Trace: c.Trace, Requests: c.Requests, Workers: c.Workers, BlockSize: int(c.BlockSize), Addr: c.Addr,
		Node: benchmarks.NodeOptions{L1Size: int64(c.L1Size), L2Size: int64(c.L2Size), L2Dir: c.L2Dir, Args: c.args(c.ServerArg...)},
	}
	if err := c.check(&opts); err != nil {
		return err
	}
	var draw func(int)
	opts.Show = func(done int64, total int) {
		if draw == nil {
			draw = bar(total, "replay")
		}
		draw(int(done))
	}
	report, err := benchmarks.Replay(ctx, opts)
	if err != nil {
		return err
	}
	err = show(c.JSON, report, report.WriteTable)
	return errors.Join(err, report.Err())
}

// check finds the programs and refuses what cannot be meant.
func (c *replayCommand) check(opts *benchmarks.ReplayOptions) error {
	if err := checkBlock(c.BlockSize); err != nil {
		return err
	}
	if c.Workers < 1 || c.Workers > 256 || c.Requests < 0 {
		return flags.Usagef("--workers is between 1 and 256, --requests at least 0")
	}
	if c.Addr != "" {
		if err := flags.CheckAddr(c.Addr); err != nil {
			return flags.Usagef("--addr: %w", err)
		}
		self, err := os.Executable()
		opts.Exe = self
		return err
	}
	var err error
	opts.Exe, opts.Node.Binary, err = c.find()
	return err
}
