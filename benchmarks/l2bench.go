package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
// medians of the rounds; the ratio is that of the rounds' ratios, with its quartiles. CPU is
// the processor time of the whole process, for 10^9 bytes; without the checksum it is less
// what the calls of the checksum took in the same round.
type L2Figure struct {
	Figure    string   `json:"figure"`
	Value     float64  `json:"value"`
	Unit      string   `json:"unit"`
	Reference *string  `json:"reference"` // null: there is no fio
	RefValue  *float64 `json:"reference_value"`
	Ratio     *float64 `json:"ratio"`
	RatioLow  *float64 `json:"ratio_p25"`
	RatioHigh *float64 `json:"ratio_p75"`
	CPU       float64  `json:"cpu_s_per_gb"`
	CPUNoSum  *float64 `json:"cpu_s_per_gb_without_checksum"` // null: the checksum is made with the copy
	RefCPU    *float64 `json:"reference_cpu_s_per_gb"`
	Verified  int64    `json:"verified_bytes"` // of what was read while it was measured, by checksum
	Compared  int64    `json:"compared_bytes"` // of what was read again, byte by byte
}

// l2Segments is how many segments the benchmark's store has: more than twice what is written
// in a round.
const l2Segments = 9

// segmentSize is the length of one, in bytes.
func (b *l2Bench) segmentSize(size int64) int64 {
	return min(max(b.opts.Bytes/4, 2*size, 32<<20), 256<<20) &^ (pageSize - 1)
}

// l2Pause is the rest before each measurement. Disks in the cloud, and those with a cache,
// give more for a while after they have rested, and fio rests while it starts.
const l2Pause = 500 * time.Millisecond

// An l2Sample is what one round of one figure gave.
type l2Sample struct{ rate, cpu, sum, refRate, refCPU float64 }

// An l2Way is a way in or out that is measured.
type l2Way struct {
	name   string
	write  bool
	copied bool // from and to the caller's memory, else in the store's buffers
	plain  bool // through a store whose buffers the kernel does not know
}

var l2Ways = []l2Way{
	{name: "write", write: true},
	{name: "read"},
	{name: "write_copy", write: true, copied: true},
	{name: "read_copy", copied: true},
	{name: "write_plain", write: true, plain: true},
	{name: "read_plain", plain: true},
}

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

// open opens a store for values of this size, with every block of every file written once,
// so that all writes measured go over old ones, as fio's.
func (b *l2Bench) open(ctx context.Context, name string, size int64, unregistered bool) (*l2Run, error) {
	segment := b.segmentSize(size)
	all := l2Segments * segment
	run, err := newL2Run(filepath.Join(b.dir, name), l2.Options{
		Size: all + all/64, SegmentSize: segment, Memory: max(int64(b.opts.Depth+1)*size, 64<<20), MaxEntries: 1 << 20,
		Unregistered: unregistered, Engine: b.opts.Engine,
	}, size, b.opts.Depth)
	if err != nil {
		return nil, err
	}
	for wrote := int64(0); wrote < all+segment; wrote += b.opts.Bytes {
		if _, err := run.write(ctx, b.opts.Bytes, false); err != nil {
			return nil, errors.Join(err, run.close())
		}
	}
	return run, nil
}

// measure takes all rounds of one size.
func (b *l2Bench) measure(ctx context.Context, size int64) (figures []L2Figure, err error) {
	var runs [2]*l2Run
	for i, name := range []string{"fixed", "plain"} {
		if runs[i], err = b.open(ctx, name, size, i == 1); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, runs[i].close()) }()
	}
	b.step()
	samples := make([][]l2Sample, len(l2Ways))
	for i, way := range l2Ways {
		figures = append(figures, L2Figure{Figure: way.name + "_" + sizeName(size), Unit: "MB/s"})
		samples[i] = make([]l2Sample, b.opts.Rounds)
	}
	for round := range b.opts.Rounds {
		for i := range l2Ways {
			way := &l2Ways[i]
			run := runs[0]
			if way.plain {
				run = runs[1]
			}
			// fio first in every other round, so that neither always profits from the other.
			for turn := range 2 {
				time.Sleep(l2Pause)
				if (turn+round)%2 == 1 {
					err = b.fio.sample(ctx, &samples[i][round], way.write, size, b.opts.Depth)
				} else {
					err = run.sample(ctx, &samples[i][round], way, b.opts.Bytes, &figures[i])
				}
				if err != nil {
					return nil, err
				}
			}
		}
		b.step()
	}
	for i := range l2Ways {
		b.summarise(&figures[i], samples[i], !l2Ways[i].copied)
	}
	return figures, nil
}

// summarise makes a figure of its rounds.
func (b *l2Bench) summarise(f *L2Figure, samples []l2Sample, summed bool) {
	of := func(value func(*l2Sample) float64) []float64 {
		values := make([]float64, 0, len(samples))
		for i := range samples {
			values = append(values, value(&samples[i]))
		}
		slices.Sort(values)
		return values
	}
	f.Value = median(of(func(s *l2Sample) float64 { return s.rate })) / 1e6
	f.CPU = median(of(func(s *l2Sample) float64 { return s.cpu }))
	if summed {
		f.CPUNoSum = new(median(of(func(s *l2Sample) float64 { return s.cpu - s.sum })))
	}
	if b.fio != nil {
		ratios := of(func(s *l2Sample) float64 { return s.rate / s.refRate })
		f.Reference = &b.fio.name
		f.RefValue = new(median(of(func(s *l2Sample) float64 { return s.refRate })) / 1e6)
		f.Ratio = new(median(ratios))
		f.RatioLow, f.RatioHigh = new(ratios[len(ratios)/4]), new(ratios[len(ratios)-1-len(ratios)/4])
		f.RefCPU = new(median(of(func(s *l2Sample) float64 { return s.refCPU })))
	}
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
