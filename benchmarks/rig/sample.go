package rig

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/slotcache/slotcache/benchmarks/load"
)

// A Sample is what one measurement gave. What it does not tell is zero.
type Sample struct {
	Ops    int64
	Rate   float64 // operations a second
	Bytes  float64 // bytes a second
	P50    float64 // microseconds an operation, as are the next ones
	P99    float64
	P999   float64
	Max    float64
	CPU    float64 // of the server, microseconds an operation
	Calls  float64 // system calls of the server an operation
	Allocs float64 // heap objects of the server an operation, if Counted
	Value  float64 // what else a measurement is about
	Before float64 // the same without what it is about
	Times  *hdrhistogram.Histogram

	Counted bool
}

// sampleOf makes a sample of operations that move so many bytes each.
func sampleOf(ops int64, took time.Duration, bytes int64, times *hdrhistogram.Histogram) Sample {
	s := Sample{Ops: ops, Times: times}
	if took > 0 {
		s.Rate = float64(ops) / took.Seconds()
		s.Bytes = s.Rate * float64(bytes)
	}
	if times != nil {
		s.P50, s.P99 = us(times.ValueAtQuantile(50)), us(times.ValueAtQuantile(99))
		s.P999, s.Max = us(times.ValueAtQuantile(99.9)), us(times.Max())
	}
	return s
}

func us(ns int64) float64 { return float64(ns) / 1e3 }

// job has one worker do a job at a server, for the span of all samples if it has none of its own.
func (r *Rig) job(ctx context.Context, p Place, j load.Job) (Sample, error) {
	s, err := r.server(ctx, p)
	if err != nil {
		return Sample{}, err
	}
	if j.Span == (load.Span{}) {
		j.Span = r.opts.Span
	}
	j.Socket, j.PID, j.Arena = s.socket, s.pid(), r.opts.Pool
	at := atLoad
	if p.Free {
		at = atAny
	}
	w, err := r.worker(seat{0, at})
	if err != nil {
		return Sample{}, err
	}
	result, err := w.do(ctx, &j)
	if err != nil {
		return Sample{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	return toSample(&j, &result)
}

// toSample turns a worker's result into a sample.
func toSample(j *load.Job, result *load.Result) (Sample, error) {
	times, err := load.Histogram(result.Times)
	if err != nil {
		return Sample{}, err
	}
	s := sampleOf(result.Ops, result.Took, j.Size*int64(max(j.Count, 1)), times)
	if result.Ops > 0 {
		s.CPU = us(int64(result.CPU)) / float64(result.Ops)
		s.Calls = float64(result.Syscalls) / float64(result.Ops)
		s.Allocs, s.Counted = result.Mallocs/float64(result.Ops), j.Allocs != ""
	}
	return s, nil
}

// atOnce has several workers do the same job at once, and adds up what they moved in a
// second.
func (r *Rig) atOnce(ctx context.Context, seats []seat, j load.Job) (Sample, error) {
	j.Span, j.Arena = r.opts.Span, r.opts.Pool
	j.Among = len(seats)
	// They begin at the same time, when all of them had time to get ready.
	j.Start = time.Now().Add(50*time.Millisecond + 2*j.Span.Warm).UnixNano()
	samples, failures := make([]Sample, len(seats)), make(chan error, len(seats))
	for i, s := range seats {
		w, err := r.worker(s)
		if err != nil {
			return Sample{}, err
		}
		go func() {
			result, err := w.do(ctx, &j)
			if err == nil {
				samples[i], err = toSample(&j, &result)
			}
			failures <- err
		}()
	}
	var err error
	for range seats {
		if failed := <-failures; err == nil {
			err = failed
		}
	}
	var sum Sample
	for i := range samples {
		sum.Ops += samples[i].Ops
		sum.Rate += samples[i].Rate
		sum.Bytes += samples[i].Bytes
		sum.P50, sum.P99 = max(sum.P50, samples[i].P50), max(sum.P99, samples[i].P99)
	}
	return sum, err
}
