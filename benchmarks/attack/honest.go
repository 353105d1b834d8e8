package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/sched"
	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

// What the honest client does: every roundTime it looks up a key that is not there, stores an object under it, and
// retrieves and compares it; every newcomerRounds it comes in anew by a connection of its own.
const (
	roundTime      = 2 * time.Millisecond
	newcomerRounds = 25
	warmTime       = 300 * time.Millisecond // is not measured
	honestSize     = 64 << 10               // bytes of an object
	honestWait     = 10 * time.Second
	honestLongest  = 60_000_000 // us
)

// stepNames are the calls that are measured.
var stepNames = [...]string{"lookup", "store", "retrieve", "newcomer"}

const (
	stepLookup = iota
	stepStore
	stepRetrieve
	stepNewcomer
	stepCount
)

// HonestOptions describe an honest client.
type HonestOptions struct {
	Addr  string
	Time  time.Duration
	Phase string
}

// honest is the client.
type honest struct {
	opts  HonestOptions
	w     *client.Worker
	times [stepCount]*hdrhistogram.Histogram
	phase Phase
	next  uint64
	value []byte
}

// RunHonest works for a time, as a worker does, and writes a [Phase].
func RunHonest(ctx context.Context, opts HonestOptions, out io.Writer) error {
	h := &honest{opts: opts, phase: Phase{Phase: opts.Phase}, next: uint64(os.Getpid()) << 32}
	h.phase.Realtime = sched.First() == nil
	for i := range h.times {
		h.times[i] = hdrhistogram.New(1, honestLongest, 3)
	}
	var err error
	if h.w, err = h.open(ctx); err != nil {
		return err
	}
	h.work(ctx)
	h.phase.Seconds = opts.Time.Seconds()
	for i, t := range h.times {
		h.phase.Steps = append(h.phase.Steps, Step{
			Step: stepNames[i], Calls: t.TotalCount(), P50: float64(t.ValueAtQuantile(50)), P99: float64(t.ValueAtQuantile(99)), Max: float64(t.Max()),
		})
	}
	if err := h.w.Close(); err != nil {
		h.failed(err)
	}
	return json.NewEncoder(out).Encode(&h.phase)
}

func (h *honest) open(ctx context.Context) (*client.Worker, error) {
	return client.Open(ctx, h.opts.Addr, client.Options{Name: "honest"}, client.Registration{
		Name: "honest", Namespace: "honest", Layouts: []client.Layout{{Name: "honest", Size: honestSize}},
	})
}

// failed notes an error.
func (h *honest) failed(err error) {
	h.phase.Errors++
	if h.phase.Example == "" {
		h.phase.Example = err.Error()
	}
}

// work does round after round. One that comes late is not made up for, but the time that others would have waited
// meanwhile is counted: the histograms are corrected for that.
func (h *honest) work(ctx context.Context) {
	begin := time.Now()
	warm := min(warmTime, h.opts.Time/4)
	for n := 0; ctx.Err() == nil && time.Since(begin) < h.opts.Time; n++ {
		if warm > 0 && time.Since(begin) > warm { // the pool is mapped meanwhile
			warm = 0
			for _, t := range h.times {
				t.Reset()
			}
		}
		if err := h.round(ctx); err != nil {
			h.failed(err)
		}
		if n%newcomerRounds == 0 {
			if err := h.timed(stepNewcomer, newcomerRounds*roundTime, func() error { return h.newcomer(ctx) }); err != nil {
				h.failed(fmt.Errorf("newcomer: %w", err))
			}
		}
		passed := time.Since(begin)
		time.Sleep((passed/roundTime+1)*roundTime - passed)
	}
}

// timed measures a call that is made once in every so often.
func (h *honest) timed(step int, every time.Duration, call func() error) error {
	began := time.Now()
	err := call()
	took := min(max(time.Since(began).Microseconds(), 1), honestLongest)
	_ = h.times[step].RecordCorrectedValue(took, every.Microseconds()) // it is within the bounds
	return err
}

// round is a lookup, a store and a retrieval.
func (h *honest) round(ctx context.Context) error {
	h.next++
	key := benchmarks.BlockKey(h.next)
	keys := []client.Key{key}
	err := h.timed(stepLookup, roundTime, func() error {
		found, err := h.w.Lookup(ctx, client.LookupRequest{Keys: keys, Mode: proto.ModePrefix, Group: 1})
		if err == nil && found.Hits > 0 {
			return fmt.Errorf("key %d is there before it was stored", h.next)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = h.timed(stepStore, roundTime, func() error {
		open, err := h.w.PrepareStore(ctx, 0, keys, []uint64{honestSize}, honestWait)
		if err != nil {
			return err
		}
		if st := open.Status(0); st != proto.StatusReserved {
			_ = open.Abort(ctx)
			return fmt.Errorf("store: %v", st)
		}
		benchmarks.Fill(&key, open.Slot(0))
		return open.Commit(ctx)
	})
	if err != nil {
		return err
	}
	return h.timed(stepRetrieve, roundTime, func() error {
		value, ok, err := h.w.Fetch(ctx, 0, key, h.value[:0])
		h.value = value
		switch {
		case err != nil:
			return err
		case !ok:
			h.phase.Missed++
			return nil
		case len(value) != honestSize || benchmarks.Mismatches(&key, value) > 0:
			return fmt.Errorf("key %d has wrong bytes", h.next)
		}
		h.phase.Checked++
		return nil
	})
}

// newcomer connects, says hello, and asks for a sign of life.
func (h *honest) newcomer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, honestWait)
	defer cancel()
	c, err := client.Dial(ctx, h.opts.Addr, client.Options{Name: "newcomer"})
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing was changed through it
	_, err = c.Ping(ctx)
	return err
}
