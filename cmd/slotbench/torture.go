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
	Clients   bool       `help:"Kill workers instead, while the server lives: as they store, read, load and send. After each it must be as before."`
	Loops     int        `help:"How many kills, each followed by a look at every key; with --clients so many of each kind." default:"100"`
	Seed      uint64     `help:"Seed of times, steps and damage; 0 for another one each time." default:"0"`
	Workers   int        `help:"Worker processes." default:"3"`
	Keys      int        `help:"Keys of each worker." default:"300"`
	Largest   flags.Size `help:"Most bytes of a value." default:"512KiB"`
	BlockSize flags.Size `help:"Bytes of a block, with --clients." default:"256KiB"`
	L1Size    flags.Size `name:"l1-size" help:"Pool of the server. Default: 16MiB, with --clients 32MiB." placeholder:"SIZE"`
	L2Size    flags.Size `name:"l2-size" help:"Disk store of the server. Default: 24MiB, with --clients 512MiB." placeholder:"SIZE"`
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
	if c.Clients {
		return c.clients(ctx, self, c.node(server, 32<<20, 512<<20))
	}
	report, err := benchmarks.Torture(ctx, benchmarks.TortureOptions{
		Exe: self, Workers: c.Workers, Keys: c.Keys, Largest: int(c.Largest), Loops: c.Loops, Seed: c.Seed,
		Node: c.node(server, 16<<20, 24<<20), Show: bars("kills"),
	})
	if err != nil {
		return err
	}
	err = show(c.JSON, report, report.Write)
	return errors.Join(err, report.Err())
}

// node describes the server, with sizes where none are given.
func (c *tortureCommand) node(server string, l1, l2 int64) benchmarks.NodeOptions {
	if c.L1Size > 0 {
		l1 = int64(c.L1Size)
	}
	if c.L2Size > 0 {
		l2 = int64(c.L2Size)
	}
	return benchmarks.NodeOptions{Binary: server, L1Size: l1, L2Size: l2, L2Dir: c.L2Dir, Args: c.args(c.ServerArg...)}
}

// bars shows progress once there is some.
func bars(what string) func(done, total int) {
	var draw func(int)
	return func(done, total int) {
		if draw == nil {
			draw = bar(total, what)
		}
		draw(done)
	}
}

// clients tortures a server by clients that die.
func (c *tortureCommand) clients(ctx context.Context, self string, node benchmarks.NodeOptions) error {
	if err := checkBlock(c.BlockSize); err != nil {
		return err
	}
	report, err := benchmarks.TortureClients(ctx, benchmarks.ClientsOptions{
		Exe: self, Node: node, BlockSize: int(c.BlockSize), Loops: c.Loops, Seed: c.Seed, Show: bars("loops"),
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(report)
	}
	fmt.Printf("killed %d workers in %d loops (%d storing, %d reading, %d loading, %d sending) in %.1f s, seed %d\n",
		report.Killed, report.Loops, report.Storing, report.Reading, report.Loading, report.Sending, report.Seconds, report.Seed)
	fmt.Printf("after each: nothing staged, held, quarantined or loading, used = resident; %d blocks verified by a survivor, no wrong byte\n", report.Checked)
	fmt.Printf("after each loop: %d descriptors; %s of memory beside the pool, %s more at most\n", report.Files, flags.Size(report.Memory), flags.Size(report.Grown))
	return nil
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
