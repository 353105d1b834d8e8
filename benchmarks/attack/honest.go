package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/sched"
	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

// What the honest client does: every roundTime it looks up a key that is not there, stores an object under it, and
// retrieves and compares it; every newcomerRounds it comes in anew by a connection of its own, and as often another worker of
// it, which has no shared memory, sends two large frames: a lookup of the most keys, and a store.
const (
	roundTime      = 2 * time.Millisecond
	newcomerRounds = 25
	warmTime       = 300 * time.Millisecond // is not measured
	honestSize     = 64 << 10               // bytes of an object
	largeSize      = 1 << 20                // and of one of the worker without shared memory
	honestWait     = 10 * time.Second
	honestLongest  = 60_000_000 // us
)

// stepNames are the calls that are measured.
var stepNames = [...]string{"lookup", "store", "retrieve", "newcomer", "large"}

const (
	stepLookup = iota
	stepStore
	stepRetrieve
	stepNewcomer
	stepLarge
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
	large *client.Worker // without shared memory
	seen  seen
	next  uint64
	value []byte
}

// RunHonest works for a time, as a worker does, and writes what it has seen.
func RunHonest(ctx context.Context, opts HonestOptions, out io.Writer) error {
	h := &honest{opts: opts, seen: seen{Phase: Phase{Phase: opts.Phase, Seconds: opts.Time.Seconds()}, times: newTimes()}, next: uint64(os.Getpid()) << 32}
	h.seen.Realtime = sched.First() == nil
	var err error
	if h.w, err = h.open(ctx, honestSize, false); err != nil {
		return err
	}
	if h.large, err = h.open(ctx, largeSize, true); err != nil {
		return errors.Join(err, h.w.Close())
	}
	h.work(ctx)
	if err := errors.Join(h.w.Close(), h.large.Close()); err != nil {
		h.failed(err)
	}
	if err := h.seen.encode(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(&h.seen)
}

func (h *honest) open(ctx context.Context, size uint64, inline bool) (*client.Worker, error) {
	return client.Open(ctx, h.opts.Addr, client.Options{Name: "honest"}, client.Registration{
		Name: "honest", Namespace: "honest", Layouts: []client.Layout{{Name: fmt.Sprint("honest ", size), Size: size}}, Inline: inline,
	})
}

// failed notes an error.
func (h *honest) failed(err error) {
	h.seen.Errors++
	if h.seen.Example == "" {
		h.seen.Example = err.Error()
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
			for _, t := range h.seen.times {
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
			if err := h.timed(stepLarge, newcomerRounds*roundTime, func() error { return h.frames(ctx) }); err != nil {
				h.failed(fmt.Errorf("large frames: %w", err))
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
	_ = h.seen.times[step].RecordCorrectedValue(took, every.Microseconds()) // it is within the bounds
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
	if err := h.timed(stepStore, roundTime, func() error { return h.store(ctx, h.w, key, honestSize) }); err != nil {
		return err
	}
	return h.timed(stepRetrieve, roundTime, func() error {
		value, ok, err := h.w.Fetch(ctx, 0, key, h.value[:0])
		h.value = value
		switch {
		case err != nil:
			return err
		case !ok:
			h.seen.Missed++
			return nil
		case len(value) != honestSize || benchmarks.Mismatches(&key, value) > 0:
			return fmt.Errorf("key %d has wrong bytes", h.next)
		}
		h.seen.Checked++
		return nil
	})
}

// store stores an object.
func (h *honest) store(ctx context.Context, w *client.Worker, key client.Key, size uint64) error {
	open, err := w.PrepareStore(ctx, 0, []client.Key{key}, []uint64{size}, honestWait)
	if err != nil {
		return err
	}
	if st := open.Status(0); st != proto.StatusReserved {
		_ = open.Abort(ctx)
		return fmt.Errorf("store: %v", st)
	}
	benchmarks.Fill(&key, open.Slot(0))
	return open.Commit(ctx)
}

// frames sends large frames: a lookup and a store.
func (h *honest) frames(ctx context.Context) error {
	keys := make([]client.Key, proto.MaxKeys)
	for i := range keys {
		keys[i] = benchmarks.BlockKey(h.next)
	}
	if _, err := h.large.Lookup(ctx, client.LookupRequest{Keys: keys, Mode: proto.ModeAny, Group: 1}); err != nil {
		return err
	}
	return h.store(ctx, h.large, benchmarks.BlockKey(h.next), largeSize)
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
