package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/go-units"

	"github.com/slotcache/slotcache/client"
)

// What the demonstration works with.
const (
	demoPool   = 64 << 20
	demoDisk   = 256 << 20
	demoBlock  = 1 << 20
	demoBlocks = 8
	demoTime   = 28 * time.Second
)

// DemoOptions are where the programs are and where to tell what happens.
type DemoOptions struct {
	Exe    string   // path of slotbench
	Server string   // path of slotcached
	Args   []string // further flags of it
	Out    io.Writer
}

// demo is a demonstration under way.
type demo struct {
	opts DemoOptions
	node *Node
	conn *client.Conn
	a, b *puppet
}

// Demo shows, with real processes, what the server is for: workers share chunks through
// one memory, the death of a worker gives back what it had, and the death of the server
// loses nothing that was on disk. The error says what did not hold.
func Demo(ctx context.Context, opts DemoOptions) error {
	ctx, cancel := context.WithTimeout(ctx, demoTime)
	defer cancel()
	begin := time.Now()
	d := &demo{opts: opts}
	err := d.run(ctx)
	if err = errors.Join(err, d.close()); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.say("all of it held, in %.1f s; everything is cleaned up", time.Since(begin).Seconds())
	return nil
}

// say tells what happens; whoever does not listen does not stop the demonstration.
func (d *demo) say(format string, args ...any) { _, _ = fmt.Fprintf(d.opts.Out, format+"\n", args...) }

func (d *demo) close() error {
	for _, p := range []*puppet{d.a, d.b} {
		if p != nil {
			p.kill()
		}
	}
	var err error
	if d.conn != nil {
		err = d.conn.Close()
	}
	if d.node != nil {
		err = errors.Join(err, d.node.Close())
	}
	return err
}

func (d *demo) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{d.begin, d.share, d.killWorker, d.killServer, d.end} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin starts the server and two workers.
func (d *demo) begin(ctx context.Context) error {
	var err error
	d.node, err = StartNode(ctx, NodeOptions{Binary: d.opts.Server, L1Size: demoPool, L2Size: demoDisk, Args: d.opts.Args})
	if err != nil {
		return err
	}
	d.say("server: process %d, %s of shared memory, %s of disk", d.node.PID(), units.BytesSize(demoPool), units.BytesSize(demoDisk))
	d.say("        slotcache --addr %s stats", d.node.Addr())
	if d.conn, err = client.Dial(ctx, d.node.Addr(), clientOptions("demo")); err != nil {
		return err
	}
	if d.a, err = startPuppet(ctx, d.opts.Exe, d.node.Addr(), "A", demoBlock); err != nil {
		return err
	}
	if d.b, err = startPuppet(ctx, d.opts.Exe, d.node.Addr(), "B", demoBlock); err != nil {
		return err
	}
	d.say("workers: A is process %d, B is process %d", d.a.p.pid(), d.b.p.pid())
	return nil
}

// share lets each worker store chunks and the other one read them.
func (d *demo) share(ctx context.Context) error {
	for i, pair := range [][2]*puppet{{d.a, d.b}, {d.b, d.a}} {
		first := uint64(i * demoBlocks)
		stored, err := pair[0].ask(ctx, Order{DoStore, first, demoBlocks})
		if err != nil {
			return err
		}
		if stored.Stored.Stored != demoBlocks {
			return fmt.Errorf("worker %s stored %d chunks of %d", pair[0].name, stored.Stored.Stored, demoBlocks)
		}
		if err := d.fetch(ctx, pair[1], first, demoBlocks, "memory"); err != nil {
			return err
		}
		d.say("%s stored %d chunks of %s; %s read them in place, every byte is right", pair[0].name, demoBlocks, units.BytesSize(demoBlock), pair[1].name)
	}
	return nil
}

// fetch has a worker read chunks, all of which must come from the tier named.
func (d *demo) fetch(ctx context.Context, w *puppet, first uint64, count int, tier string) error {
	got, err := w.ask(ctx, Order{DoFetch, first, count})
	if err != nil {
		return err
	}
	from := got.Memory
	if tier == "disk" {
		from = got.Disk
	}
	if got.Hits != count || from != count {
		return fmt.Errorf("worker %s got %d chunks of %d, %d of them from %s", w.name, got.Hits, count, from, tier)
	}
	return nil
}

// killWorker kills A between prepare and commit.
func (d *demo) killWorker(ctx context.Context) error {
	const first = 2 * demoBlocks
	begun, err := d.a.ask(ctx, Order{DoPrepare, first, demoBlocks})
	if err != nil {
		return err
	}
	want := uint64(begun.Stored.Stored) * demoBlock
	before, err := readPending(ctx, d.conn)
	if err != nil {
		return err
	}
	if want == 0 || before.Staged != want || before.Instances != 2 {
		return fmt.Errorf("worker A was granted %d bytes; the server has %d staged and %d instances", want, before.Staged, before.Instances)
	}
	d.say("A got slots for %d more and writes: instances %d, staged %s", begun.Stored.Stored, before.Instances, units.BytesSize(float64(before.Staged)))
	begin := time.Now()
	d.a.kill()
	after, err := settle(ctx, d.conn, &Pending{Instances: 1})
	if err != nil {
		return fmt.Errorf("worker A was killed: %w", err)
	}
	d.say("A killed (SIGKILL): %v later instances %d, staged %d, the slots are back", time.Since(begin).Round(time.Millisecond), after.Instances, after.Staged)
	seen, err := d.b.ask(ctx, Order{DoFetch, first, demoBlocks})
	if err != nil {
		return err
	}
	if seen.Hits != 0 {
		return fmt.Errorf("worker B can see %d chunks that A never committed", seen.Hits)
	}
	d.say("B sees none of what A had not committed")
	return nil
}

// killServer kills the server once the disk has everything and reads it from there.
func (d *demo) killServer(ctx context.Context) error {
	if _, err := await(ctx, d.conn, spilled); err != nil {
		return err
	}
	old := d.node.PID()
	begin := time.Now()
	if err := d.node.Restart(ctx); err != nil {
		return err
	}
	d.say("server killed (SIGKILL, process %d) and started again (process %d) in %v", old, d.node.PID(), time.Since(begin).Round(time.Millisecond))
	if err := d.fetch(ctx, d.b, 0, 2*demoBlocks, "disk"); err != nil {
		return err
	}
	d.say("B, connected again by itself, read the same %d chunks from disk: every byte is right", 2*demoBlocks)
	if err := d.fetch(ctx, d.b, 0, 2*demoBlocks, "memory"); err != nil {
		return err
	}
	d.say("B read them once more, now from memory")
	return nil
}

// end lets B and the server end as they should.
func (d *demo) end(ctx context.Context) error {
	if err := d.b.dismiss(ctx); err != nil {
		return err
	}
	if _, err := settle(ctx, d.conn, &Pending{}); err != nil {
		return fmt.Errorf("worker B has ended: %w", err)
	}
	if err := d.node.Stop(); err != nil {
		return err
	}
	d.say("B and the server have ended; nothing was left pending")
	return nil
}
