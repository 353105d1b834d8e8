package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/cmd/flags"
)

type tortureCommand struct {
	programs
	Loops     int        `help:"How many kills, each followed by a look at every key." default:"100"`
	Seed      uint64     `help:"Seed of times, steps and damage; 0 for another one each time." default:"0"`
	Workers   int        `help:"Worker processes." default:"3"`
	Keys      int        `help:"Keys of each worker." default:"300"`
	Largest   flags.Size `help:"Most bytes of a value." default:"512KiB"`
	L1Size    flags.Size `name:"l1-size" help:"Pool of the server." default:"16MiB"`
	L2Size    flags.Size `name:"l2-size" help:"Disk store of the server." default:"24MiB"`
	L2Dir     string     `name:"l2-dir" help:"Directory to make the disk store's own directory in." type:"existingdir" placeholder:"DIR"`
	ServerArg []string   `help:"Further flag of the server; may be repeated." sep:"none" placeholder:"FLAG"`
	JSON      bool       `name:"json" help:"Print the report as one JSON object."`
}

// Run tortures a server.
func (c *tortureCommand) Run(ctx context.Context) error {
	switch {
	case c.Loops < 1 || c.Workers < 1 || c.Workers > 64:
		return flags.Usagef("--loops is at least 1, --workers between 1 and 64")
	case c.Keys < 8 || c.Keys > 1<<20:
		return flags.Usagef("--keys is between 8 and %d", 1<<20)
	case c.Largest < 16 || c.Largest > 64<<20:
		return flags.Usagef("--largest: %v is not between 16 bytes and 64MiB", c.Largest)
	}
	self, server, err := c.find()
	if err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	fmt.Fprintf(os.Stderr, "seed %d\n", c.Seed)
	var draw func(int)
	report, err := benchmarks.Torture(ctx, benchmarks.TortureOptions{
		Exe: self, Workers: c.Workers, Keys: c.Keys, Largest: int(c.Largest), Loops: c.Loops, Seed: c.Seed,
		Node: benchmarks.NodeOptions{Binary: server, L1Size: int64(c.L1Size), L2Size: int64(c.L2Size), L2Dir: c.L2Dir, Args: c.args(c.ServerArg...)},
		Show: func(done, total int) {
			if draw == nil {
				draw = bar(total, "kills")
			}
			draw(done)
		},
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(report)
	} else {
		err = report.Write(os.Stdout)
	}
	return errors.Join(err, report.Err())
}

type torturerCommand struct {
	Addr         string
	Worker       int
	Keys         int
	Largest      int
	Seed         uint64
	FirstVersion uint64
}

// Run is a worker process.
func (c *torturerCommand) Run(ctx context.Context) error {
	err := benchmarks.RunTorturer(ctx, benchmarks.TorturerOptions{
		Addr: c.Addr, Worker: c.Worker, Keys: c.Keys, Largest: c.Largest, Seed: c.Seed, Version: c.FirstVersion,
	}, os.Stdin, os.Stdout)
	if err != nil {
		return fmt.Errorf("torturer %d: %w", c.Worker, err)
	}
	return nil
}
