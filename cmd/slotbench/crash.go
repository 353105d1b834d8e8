package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/cmd/flags"
)

type crashCommand struct {
	Server crashServerCommand `cmd:"" help:"Kill the server while a trace is replayed; no byte may be wrong."`
}

type crashServerCommand struct {
	programs
	Rounds    int        `help:"How many kills." default:"100"`
	Seed      uint64     `help:"Seed of the times and blocks; 0 for another one each time." default:"0"`
	L1Size    flags.Size `name:"l1-size" help:"Pool of the server." default:"32MiB"`
	L2Size    flags.Size `name:"l2-size" help:"Disk store of the server." default:"512MiB"`
	L2Dir     string     `name:"l2-dir" help:"Directory to make the disk store's own directory in." type:"existingdir" placeholder:"DIR"`
	ServerArg []string   `help:"Further flag of the server; may be repeated." sep:"none" placeholder:"FLAG"`
	JSON      bool       `name:"json" help:"Print the report as one JSON object."`
	Trace     string     `help:"Trace to replay. Default: a synthetic one." placeholder:"FILE"`
	Requests  int        `help:"Requests of a pass; passes go on until there were so many kills." default:"2000"`
	Workers   int        `help:"Worker processes." default:"2"`
	BlockSize flags.Size `help:"Bytes of a block." default:"64KiB"`
}

// prepare checks the flags and gives this program's path and the server's description.
func (c *crashServerCommand) prepare() (string, benchmarks.NodeOptions, error) {
	node := benchmarks.NodeOptions{L1Size: int64(c.L1Size), L2Size: int64(c.L2Size), L2Dir: c.L2Dir, Args: c.args(c.ServerArg...)}
	if c.Rounds < 1 {
		return "", node, flags.Usagef("--rounds is at least 1")
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	self, server, err := c.find()
	node.Binary = server
	return self, node, err
}

// Run kills servers.
func (c *crashServerCommand) Run(ctx context.Context) error {
	if err := checkBlock(c.BlockSize); err != nil {
		return err
	}
	if c.Workers < 1 || c.Requests < 1 {
		return flags.Usagef("--workers and --requests are at least 1")
	}
	self, node, err := c.prepare()
	if err != nil {
		return err
	}
	trace := c.Trace
	if trace == "" {
		dir, err := os.MkdirTemp("", "slotbench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a small file in the temporary directory
		trace = filepath.Join(dir, "trace")
		if err := benchmarks.WriteSynthetic(trace, c.Requests, c.Seed); err != nil {
			return err
		}
	}
	var draw func(int)
	report, err := benchmarks.CrashServer(ctx, benchmarks.ReplayOptions{
		Trace: trace, Requests: c.Requests, Workers: c.Workers, BlockSize: int(c.BlockSize),
		Node: node, Exe: self, Kills: c.Rounds, Seed: c.Seed,
	}, func(done, total int) {
		if draw == nil {
			draw = bar(total, "kills")
		}
		draw(done)
	})
	if err != nil {
		return errors.Join(err, fmt.Errorf("seed %d", c.Seed))
	}
	if c.JSON {
		return printJSON(report)
	}
	fmt.Printf("killed the server %d times in %d passes of the trace, %.1f s, seed %d\n", report.Kills, report.Passes, report.Seconds, report.Seed)
	fmt.Printf("%d requests, %d begun again; %d blocks verified (%d from disk), no wrong byte, nothing left pending\n",
		report.Requests, report.Retries, report.Hits, report.DiskHits)
	return nil
}
