package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/floor"
	"github.com/slotcache/slotcache/benchmarks/load"
	"github.com/slotcache/slotcache/benchmarks/report"
	"github.com/slotcache/slotcache/benchmarks/rig"
	"github.com/slotcache/slotcache/cmd/flags"
)

// rigFlags are what the commands that measure a server beside others have in common.
type rigFlags struct {
	programs
	Rounds    int           `help:"Rounds; each takes one sample of everything. Default: 7, or 3 with --quick."`
	Time      time.Duration `help:"How long a sample takes. Default: 500ms, or 150ms with --quick."`
	Quick     bool          `help:"Fewer and shorter samples."`
	Dir       string        `help:"Directory to make disk stores in." type:"existingdir" placeholder:"DIR"`
	Pool      flags.Size    `help:"Size of the servers' pools, which values go round in." default:"512MiB"`
	Objects   int           `help:"How many objects the figure of memory is of." default:"1000000" hidden:""`
	Idle      int           `help:"How many idle connections there are beside 100. Default: 9,900, or as many as may be open." hidden:""`
	ServerArg []string      `help:"Further flag for every slotcached, as --server-arg=--l1-policy=lru; may be repeated." placeholder:"FLAG" sep:"none"`
}

// open makes the rig and what is measured with it.
func (c *rigFlags) open() (*rig.Rig, rig.Selection, error) {
	rounds, span := 7, load.Span{Warm: 100 * time.Millisecond, Measure: 500 * time.Millisecond}
	if c.Quick {
		rounds, span = 3, load.Span{Warm: 30 * time.Millisecond, Measure: 150 * time.Millisecond}
	}
	if c.Rounds != 0 {
		rounds = c.Rounds
	}
	if c.Time != 0 {
		span = load.Span{Warm: c.Time / 5, Measure: c.Time}
	}
	if rounds < 1 || rounds > 1000 || span.Measure < time.Millisecond || span.Measure > time.Minute {
		return nil, rig.Selection{}, flags.Usagef("--rounds is between 1 and 1000, --time between 1ms and 1m")
	}
	if c.Objects < 1 || c.Idle < 0 {
		return nil, rig.Selection{}, flags.Usagef("--objects is at least 1, --idle at least 0")
	}
	if c.Pool < 128<<20 || c.Pool > 8<<30 {
		return nil, rig.Selection{}, flags.Usagef("--pool: %v is not between 128MiB and 8GiB", c.Pool)
	}
	if c.Idle == 0 {
		c.Idle = idleConns()
	}
	if c.Dir != "" {
		if err := unix.Access(c.Dir, unix.W_OK|unix.X_OK); err != nil {
			return nil, rig.Selection{}, flags.Usagef("--dir: no files can be made in %s: %w", c.Dir, err)
		}
	}
	self, server, err := c.find()
	if err != nil {
		return nil, rig.Selection{}, err
	}
	r, err := rig.New(rig.Options{
		Self: self, Server: server, Args: c.args(c.ServerArg...), Dir: c.Dir, Span: span,
		Pool: int64(c.Pool), Objects: c.Objects, Idle: c.Idle,
	})
	sel := rig.Selection{Rounds: rounds}
	var draw func(int)
	sel.Show = func(done, total int) {
		if draw == nil {
			draw = bar(total, "samples")
		}
		draw(done)
	}
	return r, sel, err
}

// idleConns is how many connections may be open beside the 100 that are active: 10,000 in all,
// or as many as the limit on open files leaves the server, which keeps some for instances.
func idleConns() int { return min(9900, rig.OpenFiles()-1200-100) }

// measure runs one measurement and describes where it ran.
func (c *rigFlags) measure(ctx context.Context, choose func(*rig.Rig, *rig.Selection)) (run *report.Run, err error) {
	r, sel, err := c.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	choose(r, &sel)
	if run, err = r.Measure(ctx, sel); err != nil {
		return nil, err
	}
	describe(run, r, sel.Rounds)
	return run, nil
}

// describe says where and how a run was made.
func describe(run *report.Run, r *rig.Rig, rounds int) {
	m := benchmarks.ThisMachine()
	run.Date, run.Machine, run.Commit = time.Now(), m, commit()
	run.Command = strings.Join(append([]string{name}, os.Args[1:]...), " ")
	dir, _ := os.MkdirTemp("", "") // only to ask what lies under it
	fs := benchmarks.FileSystem(filepath.Dir(dir))
	_ = os.Remove(dir)
	pinned := "servers pinned to the first CPU, load to the others, unless it is said otherwise"
	if !r.Pinned() {
		pinned = "one CPU: nothing is pinned"
	}
	run.Lines = append([]string{
		fmt.Sprintf("%d CPUs (%s), %s of memory, Linux %s, %s, %s", m.CPUs, m.Model, units.BytesSize(float64(m.Memory)), m.Kernel, fs, m.Go),
		fmt.Sprintf("commit %s, %s; %d rounds; %s", run.Commit, run.Date.Format(time.DateOnly), rounds, pinned),
		"made by: " + run.Command,
	}, rig.Versions()...)
}

// commit names what was built.
func commit() string {
	if v := flags.Version(); v != "" {
		return v
	}
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// output is how the matrices are shown.
type output struct {
	JSON bool `name:"json" help:"Print everything as one JSON value."`
}

func (o *output) print(run *report.Run) error {
	if o.JSON {
		return errors.Join(run.WriteJSON(os.Stdout), run.Err())
	}
	fmt.Println(strings.Join(run.Lines, "\n"))
	return errors.Join(run.WriteMeasurements(os.Stdout), run.Err())
}

type rpcCommand struct {
	rigFlags
	output
	Free  bool  `help:"Pin nothing."`
	Conns []int `help:"Numbers of connections, separated by commas." default:"1,16,256"`
}

// Run measures requests.
func (c *rpcCommand) Run(ctx context.Context) error {
	for _, n := range c.Conns {
		if n < 1 || n > 1000 {
			return flags.Usagef("--conns: %d is not between 1 and 1000", n)
		}
	}
	run, err := c.measure(ctx, func(_ *rig.Rig, s *rig.Selection) { s.Cells = rig.Requests(c.Free, c.Conns) })
	if err != nil {
		return err
	}
	return c.print(run)
}

type dataCommand struct {
	rigFlags
	output
	Size []flags.Size `help:"Sizes of the values, separated by commas." default:"4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,32MiB,64MiB"`
}

// Run measures bytes.
func (c *dataCommand) Run(ctx context.Context) error {
	sizes, err := sizesOf(c.Size)
	if err != nil {
		return err
	}
	run, err := c.measure(ctx, func(_ *rig.Rig, s *rig.Selection) { s.Cells = rig.Values(sizes) })
	if err != nil {
		return err
	}
	return c.print(run)
}

type peersCommand struct {
	rigFlags
	output
	Size []flags.Size `help:"Sizes of the values, separated by commas." default:"64KiB,1MiB,32MiB"`
}

// sizesOf checks sizes of values.
func sizesOf(list []flags.Size) ([]int64, error) {
	var sizes []int64
	for _, size := range list {
		if size < 1 || size > 64<<20 {
			return nil, flags.Usagef("--size: %v is not between 1 byte and 64MiB", size)
		}
		sizes = append(sizes, int64(size))
	}
	return sizes, nil
}

// Run measures peers.
func (c *peersCommand) Run(ctx context.Context) error {
	sizes, err := sizesOf(c.Size)
	if err != nil {
		return err
	}
	run, err := c.measure(ctx, func(_ *rig.Rig, s *rig.Selection) { s.Cells = rig.Against(sizes) })
	if err != nil {
		return err
	}
	return c.print(run)
}

type reportCommand struct {
	rigFlags
	Only []string `help:"Only these figures, separated by commas." placeholder:"FIGURE"`
	JSON string   `name:"json" help:"Write one JSON object a figure into a file." placeholder:"FILE"`
	HTML string   `name:"html" help:"Write a report with diagrams into a file." placeholder:"FILE"`
}

// Run measures the figures.
func (c *reportCommand) Run(ctx context.Context) error {
	known := rig.FigureNames()
	for _, name := range c.Only {
		if !slices.Contains(known, name) {
			return flags.Usagef("--only: %q is none of %s", name, strings.Join(known, ", "))
		}
	}
	if err := errors.Join(checkFile("--json", c.JSON), checkFile("--html", c.HTML)); err != nil {
		return err
	}
	run, err := c.measure(ctx, func(_ *rig.Rig, s *rig.Selection) {
		s.Figures, s.Only = true, c.Only
		if c.HTML != "" {
			s.Cells = rig.Curves()
		}
	})
	if err != nil {
		return err
	}
	// What took minutes is seen even if a file cannot be written.
	fmt.Println(strings.Join(run.Lines, "\n"))
	err = errors.Join(run.WriteFigureTable(os.Stdout), run.WriteMeasurements(os.Stdout), run.Err())
	if c.JSON != "" {
		err = errors.Join(err, run.WriteFigures(c.JSON))
	}
	if c.HTML != "" {
		err = errors.Join(err, run.WriteHTML(c.HTML))
	}
	return err
}

type loaderCommand struct{}

// Run is a worker process.
func (loaderCommand) Run() error { return load.Work(os.Stdin, os.Stdout) }

type floorCommand struct {
	Kind floor.Kind `arg:""`
	Path string     `arg:""`
}

// Run is a server process.
func (c *floorCommand) Run() error { return floor.Serve(c.Kind, c.Path, func() {}) }
