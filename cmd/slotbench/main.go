// Command slotbench measures a server, and tries to break it, with real worker processes:
// it replays request traces, kills workers and servers, and checks every byte.
//
// It ends with 0 when all that was to hold held, with 1 when something did not or could
// not be done, and with 2 when the command line is wrong.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"

	"github.com/alecthomas/kong"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/cmd/flags"
)

const name = "slotbench"

const description = `Measures slotcached with real worker processes and checks every byte.

It starts a slotcached of its own, from the directory it lies in, unless told otherwise.
Exit codes: 0 all of it held, 1 something did not, 2 wrong command line.`

// command is the command line.
type command struct {
	Report  reportCommand  `cmd:"" help:"Measure the figures that the project's claims hang on, each beside its reference."`
	RPC     rpcCommand     `cmd:"" name:"rpc" help:"Measure requests, beside echoes over the same sockets."`
	Data    dataCommand    `cmd:"" help:"Measure values in and out, beside copies of memory."`
	Peers   peersCommand   `cmd:"" help:"Measure values in and out, beside redis, memcached and pickle over a socket."`
	Replay  replayCommand  `cmd:"" help:"Replay a trace and report hit ratio, rates and latencies."`
	Crash   crashCommand   `cmd:"" help:"Kill workers or servers and look for what is left."`
	Torture tortureCommand `cmd:"" help:"Kill a server under load, damage its files, and look at every key after each start."`
	Attack  attackCommand  `cmd:"" help:"Attack a server by hostile processes, and measure what an honest client notices of it."`
	GC      collectCommand `cmd:"" name:"gc" help:"Measure a server that collects garbage all the time, beside one that does so as it likes."`
	L2      l2Command      `cmd:"" name:"l2" help:"Measure the disk store against fio on the same disk."`
	Mixed   mixedCommand   `cmd:"" help:"Measure a client's latencies while others keep the disk busy, and while they do not: two figures of the report."`
	Demo    demoCommand    `cmd:"" help:"Show sharing, the death of a worker and of the server, in seconds."`
	Stage   stageCommand   `cmd:"" help:"Take slots and never commit, as a worker in the middle of a store."`

	Hitratio hitRatioCommand `cmd:"" help:"Replay a trace through the eviction policies, without a server."`
	Alloc    allocCommand    `cmd:"" help:"Measure the allocator of the pool, without a server."`

	Loader   loaderCommand   `cmd:"" hidden:"" help:"A worker of report, rpc, data and peers."`
	Floor    floorCommand    `cmd:"" hidden:"" help:"A server that does nothing but the exchange."`
	Replayer replayerCommand `cmd:"" hidden:"" help:"A worker of replay."`
	Torturer torturerCommand `cmd:"" hidden:"" help:"A worker of torture."`
	Attacker attackerCommand `cmd:"" hidden:"" help:"A hostile process of attack."`
	Honest   honestCommand   `cmd:"" hidden:"" help:"The honest client of attack."`
	Actor    actorCommand    `cmd:"" hidden:"" help:"A worker of crash and demo."`
}

func main() {
	var c command
	parsed := flags.Parse(name, &c, kong.Description(description))
	ctx, cancel := signal.NotifyContext(context.Background(), flags.EndSignals()...)
	parsed.BindTo(ctx, (*context.Context)(nil))
	err := parsed.Run()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	cancel()
	flags.Exit(name, err)
}

// programs are the executables that take part.
type programs struct {
	Server string `help:"The slotcached to start. Default: the one beside this program." placeholder:"PATH"`
	engineFlag
}

// engineFlag is the I/O engine of what is started.
type engineFlag struct {
	IOEngine string `name:"io-engine" help:"The I/O engine of its own server or store: auto, uring or epoll." enum:"auto,uring,epoll" default:"auto" env:"SLOTCACHE_IO_ENGINE"`
}

// args are the flags of the server to start, those that were given last.
func (e *engineFlag) args(given ...string) []string {
	return append([]string{"--io-engine", e.IOEngine}, given...)
}

// find gives the paths of this program and of the server.
func (p *programs) find() (self, server string, err error) {
	if self, err = os.Executable(); err != nil {
		return "", "", err
	}
	server = p.Server
	if server == "" {
		server = filepath.Join(filepath.Dir(self), "slotcached")
	}
	if err := unix.Access(server, unix.X_OK); err != nil {
		return "", "", flags.Usagef("no server at %s (%w): run make build, or give --server PATH", server, err)
	}
	return self, server, nil
}

// block is a size of blocks.
func checkBlock(size flags.Size) error {
	if size < 1 || size > 64<<20 {
		return flags.Usagef("--block-size: %v is not between 1 byte and 64MiB", size)
	}
	return nil
}

// checkFile refuses a file that cannot be written, before a measurement that takes long. An empty path is none.
func checkFile(flag, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return flags.Usagef("%s: %s is a directory", flag, path)
	case err == nil:
		err = unix.Access(path, unix.W_OK)
	case errors.Is(err, fs.ErrNotExist):
		err = unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return flags.Usagef("%s: cannot write %s: %w", flag, path, err)
	}
	return nil
}

// bar shows progress on a terminal, and lines elsewhere.
func bar(total int, what string) func(done int) {
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err != nil {
		return tenths(total, what)
	}
	b := progressbar.NewOptions(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
	return func(done int) { _ = b.Set(done) } // a bar that cannot be drawn is no failure
}

// tenths tells how far something is, in a line for every tenth of it: what a bar is to a
// terminal, for a log.
func tenths(total int, what string) func(done int) {
	told := 0
	return func(done int) {
		if total > 0 && done*10/total > told {
			told = done * 10 / total
			fmt.Fprintf(os.Stderr, "%d of %d %s\n", done, total, what)
		}
	}
}

// printJSON writes one object on one line.
func printJSON(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// show prints a report: as one JSON object, or as it writes itself.
func show(asJSON bool, report any, write func(io.Writer) error) error {
	if asJSON {
		return printJSON(report)
	}
	return write(os.Stdout)
}

type demoCommand struct {
	programs
}

// Run shows the demonstration.
func (c *demoCommand) Run(ctx context.Context) error {
	self, server, err := c.find()
	if err != nil {
		return err
	}
	return benchmarks.Demo(ctx, benchmarks.DemoOptions{Exe: self, Server: server, Args: c.args(), Out: os.Stdout})
}

type replayerCommand struct {
	Addr      string
	Trace     string
	Requests  int
	Workers   int
	Worker    int
	BlockSize int
}

// Run is a worker process.
func (c *replayerCommand) Run(ctx context.Context) error {
	runtime.GOMAXPROCS(2) // a worker that works and one that waits; more only adds noise
	return benchmarks.RunReplayer(ctx, benchmarks.ReplayerOptions{
		Addr: c.Addr, Trace: c.Trace, Requests: c.Requests, Workers: c.Workers, Worker: c.Worker, BlockSize: c.BlockSize,
	}, os.Stdout)
}

type actorCommand struct {
	Addr      string
	Name      string
	BlockSize int
}

// Run is a worker process.
func (c *actorCommand) Run(ctx context.Context) error {
	if err := benchmarks.RunActor(ctx, c.Addr, c.Name, c.BlockSize, os.Stdin, os.Stdout); err != nil {
		return fmt.Errorf("worker %s: %w", c.Name, err)
	}
	return nil
}
