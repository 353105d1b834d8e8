package client_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
)

// puppetEnv, in the environment, makes the test binary a worker of the server at that
// address. It does what it reads, an order a line, and answers each with an outcome.
const puppetEnv = "SLOTCACHE_CLIENT_TEST_PUPPET"

// puppetInstanceEnv is the id that it registers; none or 0: a random one.
const puppetInstanceEnv = "SLOTCACHE_CLIENT_TEST_PUPPET_INSTANCE"

// An order is one thing for a puppet to do.
type order struct {
	Do    string // prepare, fill, commit, abort, lookup, retrieve, lease, verify, release or stir
	First int    // number of the first key
	N     int    // of keys
	Size  int    // of each value; 0: of value's
	Load  bool
	Slots bool
	Wait  time.Duration
	Lease uint64 // handle of another's
	Seed  uint64
}

// An outcome is what came of it.
type outcome struct {
	Err      string
	Stale    bool // the error is client.ErrStale
	Hits     int
	FromDisk int
	Lease    uint64
	Statuses map[string]int
	Wrong    int            // values that are not what was stored
	Counts   map[string]int // of a stir
}

// content is the value of a key at a size.
func content(i, size int) []byte {
	if size == 0 {
		return value(i)
	}
	b := make([]byte, size)
	for j := range b {
		b[j] = byte(i*131 ^ j ^ j>>8)
	}
	return b
}

// A performer is a puppet from within.
type performer struct {
	addr   string
	w      *client.Worker
	store  *client.Store
	read   *client.Retrieval
	lease  *client.Lease
	values [][]byte // to be verified
	last   order    // that made them
}

// perform is a puppet's life.
func perform(addr string) {
	p := &performer{addr: addr}
	ctx := context.Background()
	instance, err := strconv.ParseUint(cmp.Or(os.Getenv(puppetInstanceEnv), "0"), 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	p.w, err = client.Open(ctx, addr, client.Options{Name: "puppet", Logger: slog.New(slog.DiscardHandler)}, client.Registration{Instance: instance, Layouts: []client.Layout{chunk}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	_ = out.Encode(outcome{}) // who does not read it finds out by itself
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return // the parent has ended
		}
		res := outcome{}
		if err := p.do(ctx, &o, &res); err != nil {
			res.Err, res.Stale = err.Error(), errors.Is(err, client.ErrStale)
		}
		_ = out.Encode(res)
	}
}

func (p *performer) do(ctx context.Context, o *order, res *outcome) (err error) {
	switch o.Do {
	case "prepare":
		return p.prepare(ctx, o, res)
	case "fill":
		for i, r := range p.store.Results() {
			copy(r.Slot, content(p.last.First+i, p.last.Size))
		}
	case "commit":
		return p.store.Commit(ctx)
	case "abort":
		return p.store.Abort(ctx)
	case "lookup":
		return p.lookup(ctx, o, res)
	case "retrieve":
		p.read, err = p.w.Retrieve(ctx, 0, keys(o.First, o.N), client.RetrieveOptions{Load: o.Load, Wait: o.Wait, Prefix: true})
		return p.took(o, res, err)
	case "lease":
		p.read, err = p.w.RetrieveLease(ctx, o.Lease, 0, o.N)
		return p.took(o, res, err)
	case "verify":
		for i, v := range p.values {
			if string(v) != string(content(p.last.First+i, p.last.Size)) {
				res.Wrong++
			}
		}
		res.Hits = len(p.values)
	case "release":
		return p.release(ctx)
	case "stir":
		res.Counts, err = p.stir(ctx, o)
		return err
	default:
		return fmt.Errorf("no such order: %q", o.Do)
	}
	return nil
}

func (p *performer) prepare(ctx context.Context, o *order, res *outcome) (err error) {
	sizes := make([]uint64, o.N)
	for i := range sizes {
		sizes[i] = uint64(len(content(o.First+i, o.Size)))
	}
	p.store, err = p.w.PrepareStore(ctx, 0, keys(o.First, o.N), sizes, o.Wait)
	if err != nil {
		return err
	}
	p.last = *o
	res.Statuses = map[string]int{}
	for i := range o.N {
		res.Statuses[p.store.Status(i).String()]++
	}
	return nil
}

func (p *performer) lookup(ctx context.Context, o *order, res *outcome) error {
	r, err := p.w.Lookup(ctx, client.LookupRequest{Keys: keys(o.First, o.N), Hold: true, Load: o.Load, Slots: o.Slots, Wait: o.Wait})
	if err != nil {
		return err
	}
	res.Hits, res.FromDisk = r.Hits, r.FromDisk
	p.lease, p.last = r.Lease, *o
	if r.Lease != nil {
		res.Lease = r.Lease.Handle()
		p.values = r.Lease.Values()
	}
	return nil
}

// took notes what a retrieval has brought.
func (p *performer) took(o *order, res *outcome, err error) error {
	if err != nil {
		return err
	}
	p.values, p.last = p.read.Values(), *o
	res.Hits = len(p.values)
	return nil
}

func (p *performer) release(ctx context.Context) error {
	p.values = nil
	err := p.read.Release(ctx)
	p.read = nil
	if p.lease != nil {
		err = errors.Join(err, p.lease.Release(ctx))
		p.lease = nil
	}
	return err
}

// A puppet is a worker in a process of its own.
type puppet struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startPuppet starts one that is registered when it returns, and ends with the test.
func startPuppet(t testing.TB, addr string) *puppet {
	t.Helper()
	return startPuppetAs(t, addr, 0)
}

// startPuppetAs starts one that registers the given id.
func startPuppetAs(t testing.TB, addr string, instance uint64) *puppet {
	t.Helper()
	p := &puppet{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), puppetEnv+"="+addr, fmt.Sprintf("%s=%d", puppetInstanceEnv, instance))
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.kill)
	p.out = json.NewDecoder(bufio.NewReader(out))
	p.hear()
	return p
}

// send has the puppet do something and does not wait for it.
func (p *puppet) send(o order) {
	p.t.Helper()
	require.NoError(p.t, json.NewEncoder(p.in).Encode(o))
}

// hear waits for the next outcome.
func (p *puppet) hear() (res outcome) {
	p.t.Helper()
	stop := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() }) // the end is seen below
	defer stop.Stop()
	require.NoError(p.t, p.out.Decode(&res), "the puppet does not answer")
	return res
}

// ask has the puppet do something that must go well.
func (p *puppet) ask(o order) outcome {
	p.t.Helper()
	p.send(o)
	res := p.hear()
	require.Empty(p.t, res.Err, "%+v", o)
	require.Zero(p.t, res.Wrong, "%+v", o)
	return res
}

// kill ends the puppet as kill -9 does. It may have ended.
func (p *puppet) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // its state says how it ended
}
