package benchmarks

import (
	"context"
	"fmt"
	"time"
)

// A CrashServerReport says what was seen. There is one only when all went well.
type CrashServerReport struct {
	Seed     uint64  `json:"seed"`
	Kills    int     `json:"kills"`
	Passes   int     `json:"passes"` // replays of the trace, each with a server of its own
	Requests int64   `json:"requests"`
	Retries  int64   `json:"retries"`
	Hits     int64   `json:"prefix_hit_blocks"`
	DiskHits int64   `json:"l2_hit_blocks"`
	Seconds  float64 `json:"seconds"`
	Machine  Machine `json:"machine"`
}

// passesMax bounds the replays, should they be too short for a kill.
const passesMax = 1000

// CrashServer replays a trace and kills the server meanwhile, pass after pass until it was
// killed opts.Kills times. A wrong byte, a request that is not served in the end, or
// anything left pending is an error.
func CrashServer(ctx context.Context, opts ReplayOptions, show func(done, total int)) (*CrashServerReport, error) {
	report := &CrashServerReport{Seed: opts.Seed, Machine: ThisMachine()}
	begin := time.Now()
	for kills := opts.Kills; report.Kills < kills; report.Passes++ {
		if report.Passes == passesMax {
			return nil, fmt.Errorf("crash: %d passes gave %d kills; the trace is too short", passesMax, report.Kills)
		}
		opts.Kills = kills - report.Kills
		opts.Seed = report.Seed + uint64(report.Passes)
		r, err := Replay(ctx, opts)
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("crash: pass %d: %w", report.Passes, err)
		}
		report.Kills += r.Restarts
		report.Requests += r.Requests
		report.Retries += r.Retries
		report.Hits += r.HitBlocks
		report.DiskHits += r.DiskHits
		if show != nil {
			show(report.Kills, kills)
		}
	}
	report.Seconds = time.Since(begin).Seconds()
	return report, nil
}
