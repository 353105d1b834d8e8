package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/docker/go-units"

	"github.com/slotcache/slotcache/client"
)

// A Report is the result of a replay. Rates are in 10^9 bytes a second: the bytes moved by
// the time spent moving them, both summed over the workers, times the workers. Retrieving
// includes looking up, loading from disk and comparing every byte; storing includes making
// every byte.
type Report struct {
	Trace            string   `json:"trace"`
	Workers          int      `json:"workers"`
	BlockSize        int      `json:"block_size"`
	L1Size           int64    `json:"l1_size,omitempty"` // of a server of our own
	L2Size           int64    `json:"l2_size,omitempty"`
	Requests         int64    `json:"requests"`
	Blocks           int64    `json:"blocks"`
	HitRatio         float64  `json:"prefix_hit_ratio"`
	InfiniteHitRatio float64  `json:"infinite_hit_ratio"` // of a cache of infinite size, one worker
	HitBlocks        int64    `json:"prefix_hit_blocks"`
	MemoryHits       int64    `json:"l1_hit_blocks"`
	DiskHits         int64    `json:"l2_hit_blocks"`
	DiskWritten      uint64   `json:"l2_write_bytes"` // all bytes, those of records written anew included
	DiskRecords      uint64   `json:"l2_put_records"`
	AdmitRefused     uint64   `json:"l2_admit_refused"` // times that admission kept an object from the disk
	AdmitLate        uint64   `json:"l2_admit_late"`
	Missed           int64    `json:"miss_blocks"`
	Stored           int64    `json:"stored_blocks"`
	Existed          int64    `json:"existing_blocks"` // misses that were cached all the same
	FailedStores     int64    `json:"failed_stores"`
	WrongBytes       int64    `json:"wrong_bytes"`
	Errors           int64    `json:"errors"`
	Retries          int64    `json:"retries"`
	Restarts         int      `json:"restarts"` // of the server meanwhile
	Seconds          float64  `json:"seconds"`
	StoreRate        float64  `json:"store_gb_s"`
	RetrieveRate     float64  `json:"retrieve_gb_s"`
	LookupP50        int64    `json:"lookup_p50_us"`
	LookupP99        int64    `json:"lookup_p99_us"`
	LookupMax        int64    `json:"lookup_max_us"`
	ServerCPU        *float64 `json:"server_cpu_s"` // null where it cannot be known
	Pending          Pending  `json:"pending"`      // in the server after the workers have gone
	Leak             string   `json:"leak"`         // what should not be pending; empty: nothing
	LastError        string   `json:"last_error,omitempty"`
	Server           string   `json:"server"`
	Machine          Machine  `json:"machine"`

	total int // requests to be done
}

func newReport(opts *ReplayOptions, requests []Request) *Report {
	r := &Report{
		Trace: opts.Trace, Workers: opts.Workers, BlockSize: opts.BlockSize,
		Machine: ThisMachine(), total: len(requests),
	}
	if opts.Addr == "" {
		r.L1Size, r.L2Size = opts.Node.L1Size, opts.Node.L2Size
	}
	blocks, hits := InfiniteHits(requests)
	r.InfiniteHitRatio = ratio(int64(hits), int64(blocks))
	return r
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// take fills in what the workers have counted.
func (r *Report) take(f *fleet) error {
	t, lookups, boots, lastError, err := f.sum()
	if err != nil {
		return err
	}
	r.Requests, r.Blocks = t.Requests, t.Blocks
	r.HitBlocks, r.MemoryHits, r.DiskHits = t.hits(), t.MemoryHits, t.DiskHits
	r.HitRatio = ratio(t.hits(), t.Blocks)
	r.Missed, r.Stored, r.Existed, r.FailedStores = t.Missed, t.Stored, t.Existed, t.FailedStores
	r.WrongBytes, r.Errors, r.Retries = t.WrongBytes, t.Errors, t.Retries
	r.Restarts, r.LastError = max(boots-1, 0), lastError
	block, workers := float64(r.BlockSize), float64(r.Workers)
	if t.StoreTime > 0 {
		r.StoreRate = float64(t.Stored) * block * workers / float64(t.StoreTime)
	}
	if t.RetrieveTime > 0 {
		r.RetrieveRate = float64(t.hits()) * block * workers / float64(t.RetrieveTime)
	}
	r.LookupP50 = lookups.ValueAtQuantile(50)
	r.LookupP99 = lookups.ValueAtQuantile(99)
	r.LookupMax = lookups.Max()
	return nil
}

// takeDisk fills in what the server's disk was given since the server began.
func (r *Report) takeDisk(ctx context.Context, conn *client.Conn) error {
	counters, err := conn.Stats(ctx)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	for _, k := range counters {
		switch k.Name { // without a disk store there are none
		case "l2_write_bytes_total":
			r.DiskWritten = k.Value
		case "l2_puts_total":
			r.DiskRecords = k.Value
		case "l2_admit_refused_total":
			r.AdmitRefused = k.Value
		case "l2_admit_late_total":
			r.AdmitLate = k.Value
		}
	}
	return nil
}

// Err is what the replay found wrong, nil when nothing.
func (r *Report) Err() error {
	var found []error
	if r.WrongBytes > 0 {
		found = append(found, fmt.Errorf("%d bytes were wrong", r.WrongBytes))
	}
	if r.Errors > 0 {
		found = append(found, fmt.Errorf("%d requests failed, the last one: %s", r.Errors, r.LastError))
	}
	if r.Leak != "" {
		found = append(found, errors.New(r.Leak))
	}
	return errors.Join(found...)
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(t, name+"\t"+format+"\n", args...) // Flush gives the error
	}
	row("trace", "%s: %d requests, %d blocks of %s, %d workers", r.Trace, r.Requests, r.Blocks, units.BytesSize(float64(r.BlockSize)), r.Workers)
	row("server", "%s", r.Server)
	if r.L1Size > 0 {
		row("pool, disk", "%s, %s", units.BytesSize(float64(r.L1Size)), units.BytesSize(float64(r.L2Size)))
	}
	row("prefix hits", "%d of %d blocks: %.4f (infinite cache: %.4f)", r.HitBlocks, r.Blocks, r.HitRatio, r.InfiniteHitRatio)
	row("  from memory, disk", "%d, %d", r.MemoryHits, r.DiskHits)
	if r.DiskRecords > 0 {
		row("written to disk", "%d blocks, %s in all; %d refused by admission, %d admitted for want of an opinion",
			r.DiskRecords, units.BytesSize(float64(r.DiskWritten)), r.AdmitRefused, r.AdmitLate)
	}
	row("stored", "%d blocks; %d of the misses were cached all the same, %d found no room", r.Stored, r.Existed, r.FailedStores)
	row("wrong bytes", "%d", r.WrongBytes)
	row("failed requests", "%d (%d begun again, %d restarts of the server)", r.Errors, r.Retries, r.Restarts)
	row("time", "%.2f s", r.Seconds)
	row("store, retrieve", "%.2f, %.2f GB/s", r.StoreRate, r.RetrieveRate)
	row("lookup", "p50 %d us, p99 %d us, most %d us", r.LookupP50, r.LookupP99, r.LookupMax)
	if r.ServerCPU != nil {
		row("server's CPU", "%.2f s", *r.ServerCPU)
	}
	if r.Leak == "" {
		row("left in the server", "nothing: no transfer, hold or instance is pending")
	} else {
		row("left in the server", "%s", r.Leak)
	}
	m := &r.Machine
	row("machine", "%d CPUs (%s), %s of memory, Linux %s, %s", m.CPUs, m.Model, units.BytesSize(float64(m.Memory)), m.Kernel, m.Go)
	return t.Flush()
}
