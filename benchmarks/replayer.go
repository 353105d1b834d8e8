package benchmarks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// progressTime is how often a worker reports.
	progressTime = 200 * time.Millisecond
	// retryTime is how long a request is begun again before the worker gives up: longer
	// than a server takes to start.
	retryTime = 90 * time.Second
	// retryPause comes before a request is begun again.
	retryPause = 20 * time.Millisecond
	// errorsMax is how many requests may be refused before the worker gives up.
	errorsMax = 10
	// lookupMax is the longest lookup that is told from longer ones, in microseconds.
	lookupMax = 600_000_000
)

// ReplayerOptions are a replaying worker's share of the work.
type ReplayerOptions struct {
	Addr      string
	Trace     string
	Requests  int // of the trace, over all workers; 0: all
	Workers   int
	Worker    int // this one: it takes the requests whose number modulo Workers is its own
	BlockSize int // in bytes
}

// A Replayer is a worker process that replays its share of a trace.
type Replayer struct {
	opts  ReplayerOptions
	m     *mover
	piece int // blocks handled at once
	out   *json.Encoder
	hist  *hdrhistogram.Histogram
	now   Progress
}

// RunReplayer replays the share and writes a [Progress] a line.
func RunReplayer(ctx context.Context, opts ReplayerOptions, out io.Writer) error {
	requests, err := ReadTrace(opts.Trace, opts.Requests)
	if err != nil {
		return err
	}
	m, err := openPatiently(ctx, &opts)
	if err != nil {
		return err
	}
	r := &Replayer{
		opts:  opts,
		m:     m,
		piece: pieceBlocks(m.w.PoolSize(), opts.Workers, opts.BlockSize),
		out:   json.NewEncoder(out),
		hist:  hdrhistogram.New(1, lookupMax, 3),
	}
	return errors.Join(r.run(ctx, requests), m.w.Close())
}

// openPatiently registers, trying again while the server may be on its way up.
func openPatiently(ctx context.Context, opts *ReplayerOptions) (*mover, error) {
	for deadline := time.Now().Add(retryTime); ; {
		m, err := openMover(ctx, opts.Addr, fmt.Sprintf("replay-%d", opts.Worker), opts.BlockSize)
		if err == nil || ctx.Err() != nil || hopeless(err) || time.Now().After(deadline) {
			return m, err
		}
		if !Pause(ctx, retryPause) {
			return nil, ctx.Err()
		}
	}
}

// pieceBlocks is how many blocks a worker handles at once: all workers together hold at
// most half of the pool, so that there is always something to evict, and a request fits
// into a frame.
func pieceBlocks(pool int64, workers, block int) int {
	const most = 2048
	return int(min(max(pool/int64(2*workers*block), 1), most))
}

func (r *Replayer) run(ctx context.Context, requests []Request) error {
	next := time.Now()
	for i := r.opts.Worker; i < len(requests); i += r.opts.Workers {
		if err := r.request(ctx, requests[i].Blocks); err != nil {
			return err
		}
		if time.Now().After(next) {
			if err := r.out.Encode(&r.now); err != nil {
				return err
			}
			next = time.Now().Add(progressTime)
		}
	}
	encoded, err := r.hist.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return err
	}
	r.now.Done, r.now.Lookups = true, encoded
	return r.out.Encode(&r.now)
}

// request does one request, beginning again as long as the server may come back. Only the
// run that succeeds counts, but a wrong byte always does. The error says that the worker
// must end.
func (r *Replayer) request(ctx context.Context, ids []uint64) error {
	for deadline := time.Now().Add(retryTime); ; {
		done, err := r.once(ctx, ids)
		if boot := r.m.w.Conn().Boot(); !slices.Contains(r.now.Boots, boot) {
			r.now.Boots = append(r.now.Boots, boot)
		}
		if err == nil {
			r.now.add(&done)
			return nil
		}
		r.now.WrongBytes += done.WrongBytes
		r.now.LastError = err.Error()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no way for %v: %w", retryTime, err)
		}
		if hopeless(err) {
			r.now.Requests++
			r.now.Blocks += int64(len(ids))
			r.now.Missed += int64(len(ids))
			if r.now.Errors++; r.now.Errors >= errorsMax {
				return fmt.Errorf("%d requests failed, the last one: %w", r.now.Errors, err)
			}
			return nil
		}
		r.now.Retries++
		if !Pause(ctx, retryPause) {
			return ctx.Err()
		}
	}
}

// once does one request: fetch the leading blocks that are cached, store the rest. Both
// go in pieces, and a piece is fetched only if all before it came.
func (r *Replayer) once(ctx context.Context, ids []uint64) (Tally, error) {
	t := Tally{Requests: 1, Blocks: int64(len(ids))}
	hits := 0
	begin := time.Now()
	for hits < len(ids) {
		piece := ids[hits:min(hits+r.piece, len(ids))]
		f, took, err := r.m.fetch(ctx, piece)
		t.WrongBytes += int64(f.Wrong)
		if err != nil {
			return t, err
		}
		if err := r.hist.RecordValue(min(took.Microseconds(), lookupMax)); err != nil {
			return t, err
		}
		t.MemoryHits += int64(f.Memory)
		t.DiskHits += int64(f.Disk)
		hits += f.Hits
		if f.Hits < len(piece) {
			break
		}
	}
	stored := time.Now()
	t.RetrieveTime = stored.Sub(begin)
	t.Missed = int64(len(ids) - hits)
	for piece := range slices.Chunk(ids[hits:], r.piece) {
		s, err := r.m.store(ctx, piece)
		if err != nil {
			return t, err
		}
		t.Stored += int64(s.Stored)
		t.Existed += int64(s.Existed)
		t.FailedStores += int64(s.Failed)
	}
	t.StoreTime = time.Since(stored)
	return t, nil
}
