package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/slotcache/slotcache/benchmarks/observe"
	"github.com/slotcache/slotcache/client"
)

// ClientsOptions describe a torture of a server that lives by workers that die.
type ClientsOptions struct {
	Exe       string // path of slotbench
	Node      NodeOptions
	BlockSize int // in bytes
	Loops     int // each kills a worker of each kind, in any order
	Seed      uint64
	Show      func(done, total int)
}

// A ClientsReport says what was seen. There is one only when all went well.
type ClientsReport struct {
	Seed    uint64  `json:"seed"`
	Loops   int     `json:"loops"`
	Killed  int     `json:"killed"`
	Storing int     `json:"killed_storing"`     // between prepare and commit
	Reading int     `json:"killed_reading"`     // holding and reading
	Loading int     `json:"killed_loading"`     // with loads from disk under way, as far as that can be met
	Sending int     `json:"killed_sending"`     // within a frame or its payload
	Checked int     `json:"blocks_verified"`    // by the survivor between the kills; none was wrong
	Pending Pending `json:"pending"`            // at the end
	Files   int     `json:"files"`              // open descriptors of the server, before and after each loop
	Memory  int64   `json:"memory_bytes"`       // of the server, without the pool, after the first loop
	Grown   int64   `json:"memory_grown_bytes"` // at most, after any other loop
	Seconds float64 `json:"seconds"`
	Machine Machine `json:"machine"`
}

// clientsGrowth is how much more memory the server may have after a loop than after the first, in bytes: what it keeps
// for the next worker, and what its collector has not looked at yet.
const clientsGrowth = 16 << 20

// victimBlocks is how many blocks a victim works on at most.
const victimBlocks = 24

// clients is a torture under way.
type clients struct {
	opts     ClientsOptions
	r        *rand.Rand
	node     *Node
	conn     *client.Conn
	survivor *puppet
	shared   int    // blocks [0,shared) are stored by the survivor and never change
	fresh    uint64 // the next block nobody has begun to store
	report   ClientsReport
}

// TortureClients kills workers while they store, read, load and send, and checks after each that
// everything it had is back, that nothing it had not committed can be seen, and that
// another worker's blocks are whole; and after each loop that the server takes no more than before.
func TortureClients(ctx context.Context, opts ClientsOptions) (*ClientsReport, error) {
	node, err := StartNode(ctx, opts.Node)
	if err != nil {
		return nil, err
	}
	c := &clients{opts: opts, r: rand.New(rand.NewPCG(opts.Seed, 1)), node: node, report: ClientsReport{Seed: opts.Seed, Machine: ThisMachine()}}
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
		return nil, fmt.Errorf("torture of clients (seed %d, loop %d): %w", opts.Seed, c.report.Loops, err)
	}
	return &c.report, nil
}

func (c *clients) run(ctx context.Context) error {
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
	kinds := []func(context.Context) error{c.storing, c.reading, c.loading, c.sending}
	for range c.opts.Loops {
		c.r.Shuffle(len(kinds), func(i, k int) { kinds[i], kinds[k] = kinds[k], kinds[i] })
		for _, kill := range kinds {
			if err := kill(ctx); err != nil {
				return err
			}
			c.report.Killed++
		}
		if err := c.footprint(ctx); err != nil {
			return err
		}
		c.report.Loops++
		if c.opts.Show != nil {
			c.opts.Show(c.report.Loops, c.opts.Loops)
		}
	}
	if err := c.survivor.dismiss(ctx); err != nil {
		return err
	}
	c.report.Pending, err = settle(ctx, c.conn, &Pending{})
	return err
}

// furnish stores twice as many blocks as the pool holds, so that half are on disk only.
func (c *clients) furnish(ctx context.Context) error {
	c.shared = max(int(2*c.opts.Node.L1Size)/c.opts.BlockSize, 2*victimBlocks)
	for first := 0; first < c.shared; first += victimBlocks {
		a, err := c.survivor.ask(ctx, Order{DoStore, uint64(first), min(victimBlocks, c.shared-first)})
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
func (c *clients) window() (first uint64, count int) {
	count = 1 + c.r.IntN(victimBlocks)
	return uint64(c.r.IntN(c.shared - count)), count
}

// victim starts a worker to be killed.
func (c *clients) victim(ctx context.Context) (*puppet, error) {
	return startPuppet(ctx, c.opts.Exe, c.node.Addr(), fmt.Sprintf("victim-%d", c.report.Killed), c.opts.BlockSize)
}

// storing kills a worker between prepare and commit.
func (c *clients) storing(ctx context.Context) error {
	v, err := c.victim(ctx)
	if err != nil {
		return err
	}
	defer v.kill()
	first, count := c.fresh, 1+c.r.IntN(victimBlocks)
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
func (c *clients) reading(ctx context.Context) error {
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
	if !Pause(ctx, time.Duration(c.r.Int64N(int64(2*time.Millisecond)))) {
		return ctx.Err()
	}
	v.kill()
	c.report.Reading++
	return c.aftermath(ctx)
}

// loading kills a worker at a random time after it asked for blocks, most of them on disk.
func (c *clients) loading(ctx context.Context) error {
	v, err := c.victim(ctx)
	if err != nil {
		return err
	}
	defer v.kill()
	first, count := c.window()
	if _, err := v.ask(ctx, Order{DoLoad, first, count}); err != nil {
		return err
	}
	if !Pause(ctx, time.Duration(c.r.Int64N(int64(3*time.Millisecond)))) {
		return ctx.Err()
	}
	v.kill()
	c.report.Loading++
	return c.aftermath(ctx)
}

// sending kills a worker that has sent a part of a frame and waits for nothing. What it has prepared meanwhile is staged.
func (c *clients) sending(ctx context.Context) error {
	v, err := c.victim(ctx)
	if err != nil {
		return err
	}
	defer v.kill()
	first := c.fresh
	c.fresh++
	// The part is drawn from all of the frame: its header, its body, and the payload, which is most of it.
	if _, err := v.ask(ctx, Order{Do: DoSend, First: first, Count: c.r.IntN(1000)}); err != nil {
		return err
	}
	v.kill()
	c.report.Sending++
	if err := c.aftermath(ctx); err != nil {
		return err
	}
	seen, err := c.survivor.ask(ctx, Order{DoFetch, first, 1})
	if err == nil && seen.Hits > 0 {
		err = errors.New("a block can be seen of which a part was sent")
	}
	return err
}

// footprint looks whether the server's process takes more than after the first loop, in which it may have grown by what
// it keeps.
func (c *clients) footprint(ctx context.Context) error {
	for deadline := time.Now().Add(settleTime); ; {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.node.PID()))
		if err != nil {
			return err
		}
		memory, err := observe.Memory(c.node.PID())
		if err != nil {
			return err
		}
		if c.report.Loops == 0 {
			c.report.Files, c.report.Memory = len(files), memory
			return nil
		}
		grown := memory - c.report.Memory
		if len(files) <= c.report.Files && grown < clientsGrowth {
			c.report.Grown = max(c.report.Grown, grown)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d descriptors after the first loop and %d now; the memory has grown by %d bytes", c.report.Files, len(files), grown)
		}
		if !Pause(ctx, pollTime) {
			return ctx.Err()
		}
	}
}

// aftermath waits until the dead worker has left nothing behind, and lets the survivor
// read blocks of its own.
func (c *clients) aftermath(ctx context.Context) error {
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
