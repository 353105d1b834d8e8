package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

// MixedOptions describe a measurement of one worker's latencies while others keep the disk busy.
type MixedOptions struct {
	Exe    string // path of slotbench, for the others
	Node   NodeOptions
	Rounds int           // each has an idle and a busy slice
	Slice  time.Duration // how long one is
	Show   func(done, total int)
}

// A MixedFigure is a latency while the disk is busy, and the same in the idle slices between, or a rate in the busy ones.
type MixedFigure struct {
	Figure    string   `json:"figure"`
	Value     float64  `json:"value"`
	Unit      string   `json:"unit"`
	Reference *string  `json:"reference"`
	RefValue  *float64 `json:"reference_value"`
	Ratio     *float64 `json:"ratio"`
}

// The blocks of the measurement. Block ids tell them apart; none comes twice among those stored meanwhile.
const (
	mixedBlock    = 1 << 20
	mixedPools    = 4    // how many pools the blocks fill that the loader reads again and again
	mixedSmall    = 4096 // bytes of the block that stays in memory
	mixedBatch    = 16   // blocks in a request of the others
	mixedPause    = 10 * time.Millisecond
	mixedSettle   = 300 * time.Millisecond
	mixedFirstOld = 1 << 32
	mixedFirstNew = 1 << 33
	mixedMax      = 60_000_000 // us
)

// latencies are those of one kind of slice, in microseconds.
type latencies struct{ hit, load *hdrhistogram.Histogram }

func newLatencies() latencies {
	return latencies{hit: hdrhistogram.New(1, mixedMax, 3), load: hdrhistogram.New(1, mixedMax, 3)}
}

// mixed is a measurement under way.
type mixed struct {
	opts   MixedOptions
	node   *Node
	others []*process
	small  *mover
	big    *mover
	old    uint64 // how many blocks the loader reads
	probes uint64 // how many blocks there are to be read from disk once
	probe  uint64 // the next of them
	idle   latencies
	busy   latencies
	bytes  [2]uint64 // written and read by the disk store in the busy slices
	time   time.Duration
}

// MeasureMixed measures one worker's hits in memory, and its reads of single blocks from disk, while two others store and load
// as fast as they can, and while they do not, in turn.
func MeasureMixed(ctx context.Context, opts MixedOptions) (figures []MixedFigure, err error) {
	m := &mixed{opts: opts, idle: newLatencies(), busy: newLatencies()}
	m.old = uint64(mixedPools*opts.Node.L1Size/mixedBlock+mixedBatch) &^ (mixedBatch - 1)
	m.probes = uint64(opts.Rounds)*uint64(opts.Slice/mixedPause)&^(mixedBatch-1) + mixedBatch
	if m.node, err = StartNode(ctx, opts.Node); err != nil {
		return nil, err
	}
	defer func() {
		for _, p := range m.others {
			p.kill()
		}
		err = errors.Join(err, m.node.Stop(), m.node.Close())
	}()
	if err := m.prepare(ctx); err != nil {
		return nil, fmt.Errorf("mixed: %w", err)
	}
	for round := range opts.Rounds {
		if err := m.round(ctx); err != nil {
			return nil, fmt.Errorf("mixed: %w", err)
		}
		if opts.Show != nil {
			opts.Show(round+1, opts.Rounds)
		}
	}
	return m.figures(), nil
}

// prepare stores what is read later, and starts the others, which are stopped at once.
func (m *mixed) prepare(ctx context.Context) (err error) {
	if m.small, err = openMover(ctx, m.node.Addr(), "small", mixedSmall); err != nil {
		return err
	}
	if m.big, err = openMover(ctx, m.node.Addr(), "big", mixedBlock); err != nil {
		return err
	}
	if err := m.small.flood(ctx, []uint64{1}); err != nil {
		return err
	}
	for first := uint64(0); first < m.old+m.probes; first += mixedBatch {
		ids := make([]uint64, mixedBatch)
		for i := range ids {
			ids[i] = mixedFirstOld + first + uint64(i)
		}
		if err := m.big.flood(ctx, ids); err != nil {
			return err
		}
	}
	for _, kind := range []string{"store", "load"} {
		cmd := exec.Command(m.opts.Exe, "mixer", "--addr", m.node.Addr(), "--kind", kind, "--old", strconv.FormatUint(m.old, 10))
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		p, err := startProcess(cmd)
		if err != nil {
			return err
		}
		m.others = append(m.others, p)
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
	}
	return nil
}

// round is an idle slice and a busy one.
func (m *mixed) round(ctx context.Context) error {
	if _, err := await(ctx, m.big.w.Conn(), spilled); err != nil {
		return err
	}
	time.Sleep(mixedSettle)
	if err := m.slice(ctx, &m.idle); err != nil {
		return err
	}
	if err := m.signal(syscall.SIGCONT); err != nil {
		return err
	}
	time.Sleep(mixedSettle)
	before, err := m.moved(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := m.slice(ctx, &m.busy); err != nil {
		return err
	}
	m.time += time.Since(begin)
	after, err := m.moved(ctx)
	if err != nil {
		return err
	}
	for i := range m.bytes {
		m.bytes[i] += after[i] - before[i]
	}
	return m.signal(syscall.SIGSTOP)
}

func (m *mixed) signal(sig syscall.Signal) error {
	for _, p := range m.others {
		select {
		case <-p.done:
			return fmt.Errorf("a worker has ended: %w", p.err)
		default:
		}
		if err := p.cmd.Process.Signal(sig); err != nil {
			return err
		}
	}
	return nil
}

// moved is how many bytes the disk store has written and read.
func (m *mixed) moved(ctx context.Context) (bytes [2]uint64, err error) {
	counters, err := m.big.w.Conn().Stats(ctx)
	for _, k := range counters {
		switch k.Name {
		case "l2_write_bytes_total":
			bytes[0] = k.Value
		case "l2_read_bytes_total":
			bytes[1] = k.Value
		}
	}
	return bytes, err
}

// slice measures hits in memory for one half of a slice, and reads from disk for the other.
func (m *mixed) slice(ctx context.Context, l *latencies) error {
	kept, err := m.small.lease(ctx, []uint64{1}) // it is in memory from here on
	if err != nil {
		return err
	}
	if kept.Lease == nil {
		return errors.New("a small block was lost")
	}
	for end := time.Now().Add(m.opts.Slice / 2); time.Now().Before(end); {
		begin := time.Now()
		r, err := m.small.w.Retrieve(ctx, 0, m.small.name([]uint64{1}), client.RetrieveOptions{})
		if err != nil {
			return fmt.Errorf("a block in memory: %w", err)
		}
		if err := r.Release(ctx); err != nil {
			return err
		}
		_ = l.hit.RecordValue(time.Since(begin).Microseconds()) // within its bounds
	}
	if err := kept.Lease.Release(ctx); err != nil {
		return err
	}
	for end := time.Now().Add(m.opts.Slice / 2); time.Now().Before(end); time.Sleep(mixedPause) {
		id := mixedFirstOld + m.old + m.probe%m.probes
		m.probe++
		begin := time.Now()
		found, err := m.big.lease(ctx, []uint64{id})
		took := time.Since(begin)
		if err != nil {
			return err
		}
		if found.FromDisk == 1 {
			_ = l.load.RecordValue(took.Microseconds()) // within its bounds
		}
		if found.Lease != nil {
			if err := found.Lease.Release(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// figures are the results.
func (m *mixed) figures() []MixedFigure {
	var out []MixedFigure
	for _, f := range []struct {
		name       string
		busy, idle *hdrhistogram.Histogram
		quantile   float64
	}{
		{"l1_p50_under_l2", m.busy.hit, m.idle.hit, 50},
		{"l1_p99_under_l2", m.busy.hit, m.idle.hit, 99},
		{"l2_load_p50_under_l2", m.busy.load, m.idle.load, 50},
		{"l2_load_p99_under_l2", m.busy.load, m.idle.load, 99},
	} {
		busy, idle := float64(f.busy.ValueAtQuantile(f.quantile)), float64(f.idle.ValueAtQuantile(f.quantile))
		reference, ratio := "idle, in the same run", busy/max(idle, 1)
		out = append(out, MixedFigure{f.name, busy, "us", &reference, &idle, &ratio})
	}
	for i, name := range []string{"l2_write", "l2_read"} {
		out = append(out, MixedFigure{Figure: name, Value: float64(m.bytes[i]) / 1e6 / m.time.Seconds(), Unit: "MB/s"})
	}
	return out
}

// flood stores blocks without writing their bytes: what is measured is the server.
func (m *mover) flood(ctx context.Context, ids []uint64) error {
	m.sizes = m.sizes[:0]
	for range ids {
		m.sizes = append(m.sizes, uint64(m.size))
	}
	s, err := m.w.PrepareStore(ctx, 0, m.name(ids), m.sizes, storeWait)
	if err != nil {
		return err
	}
	return s.Commit(ctx)
}

// RunMixer is a worker that keeps the disk busy until it is killed: it stores new blocks, or loads the old ones, of
// which there are so many.
func RunMixer(ctx context.Context, addr, kind string, old uint64) error {
	m, err := openMover(ctx, addr, kind, mixedBlock)
	if err != nil {
		return err
	}
	ids := make([]uint64, mixedBatch)
	for at := uint64(0); ctx.Err() == nil; at += uint64(len(ids)) {
		for i := range ids {
			ids[i] = mixedFirstNew + at + uint64(i)
			if kind == "load" {
				ids[i] = mixedFirstOld + (at+uint64(i))%old
			}
		}
		if kind == "store" {
			err = m.flood(ctx, ids)
		} else {
			err = m.prefetch(ctx, ids)
		}
		var refusal *client.StatusError
		if err != nil && !errors.As(err, &refusal) {
			return err
		}
	}
	return ctx.Err()
}

// prefetch loads blocks and lets go of them.
func (m *mover) prefetch(ctx context.Context, ids []uint64) error {
	found, err := m.w.Lookup(ctx, client.LookupRequest{
		Keys: m.name(ids), Mode: proto.ModeAny, Group: 1, Hold: true, Load: true, Wait: fetchWait,
	})
	if err != nil || found.Lease == nil {
		return err
	}
	return found.Lease.Release(ctx)
}
