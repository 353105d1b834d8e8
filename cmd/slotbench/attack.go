package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/attack"
	"github.com/slotcache/slotcache/cmd/flags"
)

type attackCommand struct {
	programs
	Time      time.Duration `help:"How long the attack is, all rounds together; the honest client is as long alone, and half as long beside the control." default:"60s"`
	Rounds    int           `help:"How often an idle phase, the control and the attack come in turn, each time with all attackers anew." default:"1"`
	Only      []string      `help:"Attack by these kinds alone: connect, silent, slowloris, garbage, reset, halfclose, deaf, requests, stores, halves." placeholder:"KIND"`
	Halves    bool          `help:"Besides, send halves of large frames: they take the 64 MiB that the server has for unfinished ones."`
	Seed      uint64        `help:"Seed of what is sent; 0 for another one each time." default:"0"`
	L1Size    flags.Size    `name:"l1-size" help:"Pool of the server." default:"256MiB"`
	L2Size    flags.Size    `name:"l2-size" help:"Disk store of the server; 0 for none." default:"0"`
	ServerArg []string      `help:"Further flag of the server; may be repeated." sep:"none" placeholder:"FLAG"`
	Lenient   bool          `help:"Do not end with 1 for times alone, as on a machine that is busy with something else."`
	JSON      bool          `name:"json" help:"Print the report as one JSON object."`
}

// Run attacks a server.
func (c *attackCommand) Run(ctx context.Context) error {
	if c.Time < 100*time.Millisecond || c.Time > time.Hour {
		return flags.Usagef("--time is between 100ms and 1h")
	}
	if c.Rounds < 1 || c.Rounds > 100 {
		return flags.Usagef("--rounds is between 1 and 100")
	}
	for _, kind := range c.Only {
		if !slices.Contains(attack.Kinds(), kind) {
			return flags.Usagef("--only: %q is none of %s", kind, strings.Join(attack.Kinds(), ", "))
		}
	}
	if c.Halves && len(c.Only) > 0 {
		return flags.Usagef("--halves is for the attack by all kinds: name it in --only")
	}
	if c.Halves {
		c.Only = attack.Kinds()
	}
	self, server, err := c.find()
	if err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	report, err := attack.Run(ctx, attack.Options{
		Exe: self, Time: c.Time, Rounds: c.Rounds, Kinds: c.Only, Seed: c.Seed,
		Node: benchmarks.NodeOptions{Binary: server, L1Size: int64(c.L1Size), L2Size: int64(c.L2Size), Args: c.args(c.ServerArg...)},
	})
	if err != nil {
		return err
	}
	report.Engine = c.IOEngine
	err = show(c.JSON, report, report.Write)
	if c.Lenient {
		return errors.Join(err, report.Broken())
	}
	return errors.Join(err, report.Err())
}

type attackerCommand struct {
	Kind string
	Unix string
	TCP  string `name:"tcp"`
	Seed uint64
	Idle bool
}

// Run is an attacker's process.
func (c *attackerCommand) Run(ctx context.Context) error {
	return attack.RunAttacker(ctx, attack.AttackerOptions{Kind: c.Kind, Unix: c.Unix, TCP: c.TCP, Seed: c.Seed, Idle: c.Idle}, os.Stdin, os.Stdout)
}

type honestCommand struct {
	Addr  string
	Time  time.Duration
	Phase string
}

// Run is the honest client's process.
func (c *honestCommand) Run(ctx context.Context) error {
	return attack.RunHonest(ctx, attack.HonestOptions{Addr: c.Addr, Time: c.Time, Phase: c.Phase}, os.Stdout)
}
