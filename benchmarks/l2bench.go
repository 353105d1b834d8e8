package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/ring"
)

// L2Options describe a measurement of the disk store.
type L2Options struct {
	Sizes  []int64 // of the values, in bytes
	Dir    string  // where to make the store's directory; empty: in the temporary directory
	Depth  int     // values under way at once
	Engine ring.Engine
	Rounds int   // each writes and reads with the store and with fio, in turn
	Bytes  int64 // written and read in a round, of each size
	Show   func(done, total int)
}

// An L2Figure is a bandwidth of the store beside fio's of the same minutes. All are the
// medians of the rounds; the ratio is that of the rounds' ratios. CPU is the processor time
// of the whole process, but for comparing what was read, for 10^9 bytes.
type L2Figure struct {
	Figure    string   `json:"figure"`
	Value     float64  `json:"value"`
	Unit      string   `json:"unit"`
	Reference *string  `json:"reference"` // null: there is no fio
	RefValue  *float64 `json:"reference_value"`
	Ratio     *float64 `json:"ratio"`
	CPU       float64  `json:"cpu_s_per_gb"`
	CPUNoSum  float64  `json:"cpu_s_per_gb_without_checksum"` // less what the checksums of as many bytes take
	RefCPU    *float64 `json:"reference_cpu_s_per_gb"`
	Verified  int64    `json:"verified_bytes"` // of what was read, by the store and then byte by byte
}

// Sizes of the benchmark's store, in bytes.
const (
	l2SegmentSize = 256 << 20
	l2StoreSize   = 9 * l2SegmentSize
)

// An l2Sample is what one round of one figure gave.
type l2Sample struct{ rate, cpu, sum, refRate, refCPU float64 }

// l2Bench is a measurement under way.
type l2Bench struct {
	opts  L2Options
	dir   string
	fio   *fio // nil: there is none
	done  int
	steps int
}

// MeasureL2 measures the disk store and, round by round beside it, fio on a file in the
// same directory. A byte that is not read as it was written is an error.
func MeasureL2(ctx context.Context, opts L2Options) (figures []L2Figure, err error) {
	dir, err := os.MkdirTemp(opts.Dir, "slotbench-l2-")
	if err != nil {
		return nil, fmt.Errorf("l2: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &l2Bench{opts: opts, dir: dir, steps: len(opts.Sizes) * (opts.Rounds + 1)}
	if b.fio, err = newFio(filepath.Join(dir, "fio"), opts.Bytes); err != nil {
		return nil, err
	}
	for _, size := range opts.Sizes {
		of, err := b.measure(ctx, size)
		if err != nil {
			return nil, fmt.Errorf("l2: values of %s: %w", sizeName(size), err)
		}
		figures = append(figures, of...)
	}
	return figures, nil
}

// sizeName is a size as in the names of figures.
func sizeName(size int64) string {
	switch {
	case size >= 1<<20 && size%(1<<20) == 0:
		return fmt.Sprintf("%dm", size>>20)
	case size%(1<<10) == 0:
		return fmt.Sprintf("%dk", size>>10)
	}
	return fmt.Sprint(size)
}

// step counts progress.
func (b *l2Bench) step() {
	b.done++
	if b.opts.Show != nil {
		b.opts.Show(b.done, b.steps)
	}
}

// l2Ways are the ways in and out that are measured: with the store's buffers, and with a
// copy from and to the caller's memory.
var l2Ways = []string{"write", "read", "write_copy", "read_copy"}

// measure takes all rounds of one size.
func (b *l2Bench) measure(ctx context.Context, size int64) (figures []L2Figure, err error) {
	depth := int64(b.opts.Depth)
	s, err := l2.Open(filepath.Join(b.dir, "store"), l2.Options{
		Size: l2StoreSize + l2StoreSize/64, SegmentSize: l2SegmentSize, Memory: max((depth+1)*size, 64<<20), MaxEntries: 1 << 20,
		Engine: b.opts.Engine,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(), os.RemoveAll(filepath.Join(b.dir, "store"))) }()
	run, err := newL2Run(ctx, s, size, b.opts.Depth)
	if err != nil {
		return nil, err
	}
	// Every block of every file once, so that all writes measured go over old ones, as fio's.
	for wrote := int64(0); wrote < l2StoreSize+l2SegmentSize; wrote += b.opts.Bytes {
		if _, err := run.write(ctx, b.opts.Bytes, false); err != nil {
			return nil, err
		}
	}
	b.step()
	samples := make([][]l2Sample, len(l2Ways))
	verified := make([]int64, len(l2Ways))
	for round := range b.opts.Rounds {
		for i, way := range l2Ways {
			var one l2Sample
			// fio first in every other round, so that neither always profits from the other.
			for turn := range 2 {
				if (turn+round)%2 == 1 {
					err = b.fio.sample(ctx, &one, strings.HasPrefix(way, "write"), size, b.opts.Depth)
				} else {
					err = run.sample(ctx, &one, way, b.opts.Bytes, &verified[i])
				}
				if err != nil {
					return nil, err
				}
			}
			one.sum = sumCost(size)
			samples[i] = append(samples[i], one)
		}
		b.step()
	}
	for i, way := range l2Ways {
		f := b.figure(way+"_"+sizeName(size), samples[i])
		f.Verified = verified[i]
		figures = append(figures, f)
	}
	return figures, nil
}

// figure makes one of the samples of its rounds.
func (b *l2Bench) figure(name string, samples []l2Sample) L2Figure {
	of := func(f func(*l2Sample) float64) float64 {
		values := make([]float64, 0, len(samples))
		for i := range samples {
			values = append(values, f(&samples[i]))
		}
		return median(values)
	}
	f := L2Figure{
		Figure: name, Unit: "MB/s",
		Value: of(func(s *l2Sample) float64 { return s.rate }) / 1e6,
		CPU:   of(func(s *l2Sample) float64 { return s.cpu }),
		// What a checksum takes changes with what else the machine does, so each round
		// has its own.
		CPUNoSum: of(func(s *l2Sample) float64 { return s.cpu - s.sum }),
	}
	if b.fio != nil {
		f.Reference = &b.fio.name
		f.RefValue = new(of(func(s *l2Sample) float64 { return s.refRate }) / 1e6)
		f.Ratio = new(of(func(s *l2Sample) float64 { return s.rate / s.refRate }))
		f.RefCPU = new(of(func(s *l2Sample) float64 { return s.refCPU }))
	}
	return f
}

// median is the middle value, or the mean of the middle two. It sorts its argument.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

// perGB is processor time for 10^9 bytes, in seconds.
func perGB(used time.Duration, bytes int64) float64 { return used.Seconds() / (float64(bytes) / 1e9) }
