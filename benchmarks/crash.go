package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/slotcache/slotcache/client"
)

// CrashOptions describe a series of workers killed one after the other.
type CrashOptions struct {
	Exe       string // path of slotbench
	Node      NodeOptions
	BlockSize int // in bytes
	Rounds    int // of each kind
	Seed      uint64
	Show      func(done, total int)
}

// A CrashReport says what was seen. There is one only when all went well.
type CrashReport struct {
	Seed     uint64  `json:"seed"`
	Rounds   int     `json:"rounds"`          // workers killed
	Storing  int     `json:"killed_storing"`  // between prepare and commit
	Reading  int     `json:"killed_reading"`  // holding and reading
	Loading  int     `json:"killed_loading"`  // with loads from disk under way, as far as that can be met
	Checked  int     `json:"blocks_verified"` // by the survivor between the kills
	Pending  Pending `json:"pending"`         // at the end
	Seconds  float64 `json:"seconds"`
	Machine  Machine `json:"machine"`
	Restarts int     `json:"restarts"` // of the server: none
}

// crashBlocks is how many blocks a victim works on at most.
const crashBlocks = 24

// crash is a series under way.
type crash struct {
	opts     CrashOptions
	r        *rand.Rand
	node     *Node
	conn     *client.Conn
	survivor *puppet
	shared   int    // blocks [0,shared) are stored by the survivor and never change
	fresh    uint64 // the next block nobody has begun to store
	report   CrashReport
}

// CrashWorkers kills workers while they store, read and load, and checks after each that
// everything it had is back, that nothing it had not committed can be seen, and that
// another worker's blocks are whole.
func CrashWorkers(ctx context.Context, opts CrashOptions) (*CrashReport, error) {
	node, err := StartNode(ctx, opts.Node)
	if err != nil {
		return nil, err
	}
	c := &crash{opts: opts, r: rand.New(rand.NewPCG(opts.Seed, 1)), node: node, report: CrashReport{Seed: opts.Seed, Machine: ThisMachine()}}
	begin := time.Now()
	err = c.run(ctx)
	if c.conn != nil {
		err = errors.Join(err, c.conn.Close())
	}
	if c.survivor != nil {
		c.survivor.kill()
	}
	if err == nil {
		err = node.Stop()
	}
	c.report.Seconds = time.Since(begin).Seconds()
	if err = errors.Join(err, node.Close()); err != nil {
		return nil, fmt.Errorf("crash (seed %d, round %d): %w", opts.Seed, c.report.Rounds, err)
	}
	return &c.report, nil
}

func (c *crash) run(ctx context.Context) error {
	var err error
	if c.conn, err = client.Dial(ctx, c.node.Addr(), clientOptions(layoutName)); err != nil {
		return err
	}
	if c.survivor, err = startPuppet(ctx, c.opts.Exe, c.node.Addr(), "survivor", c.opts.BlockSize); err != nil {
		return err
	}
	if err := c.furnish(ctx); err != nil {
		return err
	}
	rounds := []func(context.Context) error{c.storing, c.reading, c.loading}
	for n := range c.opts.Rounds * len(rounds) {
		if err := rounds[n%len(rounds)](ctx); err != nil {
			return err
		}
		c.report.Rounds++
		if c.opts.Show != nil {
			c.opts.Show(c.report.Rounds, c.opts.Rounds*len(rounds))
		}
	}
	if err := c.survivor.dismiss(ctx); err != nil {
		return err
	}
	c.report.Pending, err = settle(ctx, c.conn, &Pending{})
	return err
}

// furnish stores twice as many blocks as the pool holds, so that half are on disk only.
func (c *crash) furnish(ctx context.Context) error {
	c.shared = max(int(2*c.opts.Node.L1Size)/c.opts.BlockSize, 2*crashBlocks)
	for first := 0; first < c.shared; first += crashBlocks {
		a, err := c.survivor.ask(ctx, Order{DoStore, uint64(first), min(crashBlocks, c.shared-first)})
		if err != nil {
			return err
		}
		if a.Failed > 0 {
			return fmt.Errorf("%d blocks found no room", a.Failed)
		}
	}
	c.fresh = uint64(c.shared)
	_, err := await(ctx, c.conn, spilled)
	return err
}

// spilled waits for the disk to have everything.
func spilled(p *Pending) string {
	if p.dirty > 0 || p.queue > 0 {
		return fmt.Sprintf("%d bytes and %d objects on the way to disk", p.dirty, p.queue)
	}
	return ""
}

// window draws a run of shared blocks.
func (c *crash) window() (first uint64, count int) {
	count = 1 + c.r.IntN(crashBlocks)
	return uint64(c.r.IntN(c.shared - count)), count
}

// victim starts a worker to be killed.
func (c *crash) victim(ctx context.Context) (*puppet, error) {
	return startPuppet(ctx, c.opts.Exe, c.node.Addr(), fmt.Sprintf("victim-%d", c.report.Rounds), c.opts.BlockSize)
}

// storing kills a worker between prepare and commit.
func (c *crash) storing(ctx context.Context) error {
	v, err := c.victim(ctx)
	if err != nil {
		return err
	}
	defer v.kill()
	first, count := c.fresh, 1+c.r.IntN(crashBlocks)
	c.fresh += uint64(count)
	a, err := v.ask(ctx, Order{DoPrepare, first, count})
	if err != nil {
		return err
	}
	p, err := readPending(ctx, c.conn)
	if err != nil {
		return err
	}
	if want := uint64(a.Stored.Stored * c.opts.BlockSize); a.Stored.Stored == 0 || p.Staged < want {
		return fmt.Errorf("a worker was granted %d blocks, the server has %d bytes staged", a.Stored.Stored, p.Staged)
	}
	v.kill()
	c.report.Storing++
	if err := c.aftermath(ctx); err != nil {
		return err
	}
	seen, err := c.survivor.ask(ctx, Order{DoFetch, first, count})
	if err == nil && seen.Hits > 0 {
		err = fmt.Errorf("%d blocks can be seen that were never committed", seen.Hits)
	}
	return err
}

// reading kills a worker that holds blocks and reads them.
func (c *crash) reading(ctx context.Context) error {
	v, err := c.victim(ctx)
	if err != nil {
		return err
	}
	defer v.kill()
	first, count := c.window()
	a, err := v.ask(ctx, Order{DoHold, first, count})
	if err != nil {
		return err
	}
	p, err := readPending(ctx, c.conn)
	if err != nil {
		return err
	}
	if want := uint64(a.Hits * c.opts.BlockSize); a.Hits == 0 || p.Held < want {
		return fmt.Errorf("a worker holds %d blocks, the server has %d bytes held", a.Hits, p.Held)
	}
	if !pause(ctx, time.Duration(c.r.Int64N(int64(2*time.Millisecond)))) {
		return ctx.Err()
	}
	v.kill()
	c.report.Reading++
	return c.aftermath(ctx)
}

// loading kills a worker at a random time after it asked for blocks, most of them on disk.
func (c *crash) loading(ctx context.Context) error {
	v, err := c.victim(ctx)
	if err != nil {
		return err
	}
	defer v.kill()
	first, count := c.window()
	if _, err := v.ask(ctx, Order{DoLoad, first, count}); err != nil {
		return err
	}
	if !pause(ctx, time.Duration(c.r.Int64N(int64(3*time.Millisecond)))) {
		return ctx.Err()
	}
	v.kill()
	c.report.Loading++
	return c.aftermath(ctx)
}

// aftermath waits until the dead worker has left nothing behind, and lets the survivor
// read blocks of its own.
func (c *crash) aftermath(ctx context.Context) error {
	if _, err := settle(ctx, c.conn, &Pending{Instances: 1}); err != nil {
		return fmt.Errorf("after a worker was killed: %w", err)
	}
	first, count := c.window()
	a, err := c.survivor.ask(ctx, Order{DoFetch, first, count})
	if err != nil {
		return err
	}
	if a.Hits != count {
		return fmt.Errorf("%d of blocks %d-%d can be had, the disk has them all", a.Hits, first, int(first)+count-1)
	}
	c.report.Checked += a.Hits
	return nil
}
