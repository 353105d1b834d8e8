package rig

import (
	"fmt"

	"github.com/slotcache/slotcache/benchmarks/load"
	"github.com/slotcache/slotcache/benchmarks/report"
)

// A spec is how a figure is made of the samples of a round.
type spec struct {
	name, unit string
	reference  string // empty: none
	target     string
	cells      []string // that it needs
	// of gives the value and the reference of a round, of the samples of cells in their order.
	of func(s []Sample) (value, reference float64)
	// absolute says that the target is the value's, and the reference is only told.
	absolute bool
}

func p50(s []Sample) (float64, float64) { return s[0].P50, s[1].P50 }

func bytesRate(s []Sample) (float64, float64) { return s[0].Bytes / 1e9, s[1].Bytes / 1e9 }

func value(s []Sample) (float64, float64) { return s[0].Value, 0 }

func calls(s []Sample) (float64, float64) { return s[0].Calls, 0 }

const (
	pingpong = "epoll ping-pong"
	memcpy   = "warm memcpy"
)

// specs are the figures of the report, in their order.
func (r *Rig) specs() []spec {
	name := dataName
	rate := func(figure, reference, target string, ours, theirs string) spec {
		return spec{name: figure, unit: "GB/s", reference: reference, target: target, cells: []string{ours, theirs}, of: bytesRate}
	}
	latency := func(figure, reference, target string, ours, theirs string) spec {
		return spec{name: figure, unit: "us", reference: reference, target: target, cells: []string{ours, theirs}, of: p50}
	}
	const big = 32 * mib
	list := []spec{
		latency("ping_p50", pingpong, "<= 1.3", ping1, echo1),
		latency("ping_p50_spin", pingpong, "<= 0.8", ping1Spin, echo1),
		latency("prepare_commit_p50", pingpong, "<= 2.6", store1, echo1),
		{
			name: "rps_16", unit: "1/s", reference: "Go net echo", target: ">= 2", cells: []string{ping16, net16},
			of: func(s []Sample) (float64, float64) { return s[0].Rate, s[1].Rate },
		},
		{
			name: "cpu_per_request_16", unit: "us", reference: "Go net echo", target: "<= 0.5", cells: []string{ping16, net16},
			of: func(s []Sample) (float64, float64) { return s[0].CPU, s[1].CPU },
		},
	}
	for _, c := range []struct {
		conns  int
		target string
	}{{1, "<= 1.1"}, {16, "<= 0.3"}, {256, "<= 0.1"}} {
		list = append(list, spec{
			name: fmt.Sprintf("syscalls_%d", c.conns), unit: "1/request", target: c.target,
			cells: []string{fmt.Sprintf(sysCalls, c.conns)}, of: calls,
		})
	}
	list = append(list,
		spec{name: "allocs", unit: "1/request", target: "<= 0.001", cells: []string{allocated}, of: value},
		rate("store_32m", memcpy, ">= 0.85", name(load.KindSet, big), name(load.KindCopy, big)),
		rate("store_1m", memcpy, ">= 0.55", name(load.KindSetAhead, mib), name(load.KindCopy, mib)),
		rate("store_16x1m", memcpy, ">= 0.85", set16, copy16),
		latency("retrieve_zero_copy_32m", "PING", "<= 1.2", name(load.KindGetInPlace, big), ping1MB),
		rate("set_64k_redis", "redis SET", ">= 1.5", name(load.KindPut, 64*kib), name(load.KindRedisSet, 64*kib)),
		rate("get_64k_redis", "redis GET", ">= 3", name(load.KindGet, 64*kib), name(load.KindRedisGet, 64*kib)),
		rate("set_1m_redis", "redis SET", ">= 10", name(load.KindSetStream, mib), name(load.KindRedisSet, mib)),
		rate("get_1m_redis", "redis GET", ">= 1.8", name(load.KindGet, mib), name(load.KindRedisGet, mib)),
		rate("get_1m_zero_copy_redis", "redis GET", ">= 4", name(load.KindGetInPlace, mib), name(load.KindRedisGet, mib)),
		rate("set_32m_memcached", "memcached set", ">= 10", name(load.KindSetStream, big), name(load.KindMemcachedSet, big)),
		rate("get_32m_memcached", "memcached get", ">= 1.4", name(load.KindGet, big), name(load.KindMemcachedGet, big)),
		rate("set_32m_pickle", "pickle over a socket", ">= 80", name(load.KindSetStream, big), "pickle_set 32MiB"),
		rate("get_32m_pickle", "pickle over a socket", ">= 80", name(load.KindGet, big), "pickle_get 32MiB"),
		spec{
			name: "lookup_512", unit: "us more than PING", reference: "PING", target: "<= 60", cells: []string{look512, ping1}, absolute: true,
			of: func(s []Sample) (float64, float64) { return s[0].P50 - s[1].P50, s[1].P50 },
		},
		spec{
			name: "lookup_50k_stall", unit: "us more than PING", reference: "longest PING of as long without", target: "<= 1000",
			cells: []string{stalled, ping1}, absolute: true,
			of: func(s []Sample) (float64, float64) { return s[0].Value - s[1].P50, s[0].Before },
		},
	)
	busy := besideBusyDisk()
	return append(list, busy[0],
		spec{
			name: "store_4workers", unit: "GB/s", reference: "memcpy, two threads", target: ">= 0.95", cells: []string{four, two, copies}, of: bytesRate,
		},
		spec{
			name: "conns_10k_p99", unit: "us", reference: "p99 with 100 connections", target: "<= 1.5", cells: []string{r.crowdedName(), active},
			of: func(s []Sample) (float64, float64) { return s[0].P99, s[1].P99 },
		},
		spec{name: "rss_1m_objects", unit: "MiB", target: "<= 400", cells: []string{r.residentName()}, of: value},
		// Beside those that have names in the list of targets.
		latency("prepare_commit_chained_p50", pingpong, "<= 1.4", stream1, echo1),
		busy[1],
	)
}

// besideBusyDisk are the figures of BesideDisk.
func besideBusyDisk() []spec {
	p99 := func(s []Sample) (float64, float64) { return s[0].P99, s[1].P99 }
	return []spec{
		{name: BesideDisk[0], unit: "us", reference: hitsIdle, target: "<= 2", cells: []string{hitsBusy, hitsIdle}, of: p99},
		{name: BesideDisk[1], unit: "us", reference: loadsIdle, target: "<= 5", cells: []string{loadsBusy, loadsIdle}, of: p99},
	}
}

// BesideDisk are the names of the figures of what waits for a busy disk, or is not to.
var BesideDisk = []string{"l1_p99_under_l2", "l2_load_p99_under_l2"}

// FigureNames are the names of all figures, in their order.
func FigureNames() []string {
	var names []string
	r := new(Rig) // names do not depend on it
	for _, s := range r.specs() {
		names = append(names, s.name)
	}
	return names
}

// figure makes a figure of the samples of all cells.
func (s *spec) figure(results map[string]*outcome) report.Figure {
	f := report.Figure{Figure: s.name, Unit: s.unit, Target: s.target}
	if s.reference != "" {
		f.Reference = &s.reference
	}
	rounds := -1
	for _, name := range s.cells {
		o := results[name]
		if o == nil || len(o.samples) == 0 {
			f.Why = "was not asked for"
			if o != nil {
				f.Why = o.why
			}
			return f
		}
		if rounds < 0 || len(o.samples) < rounds {
			rounds = len(o.samples)
		}
	}
	var values, references, ratios []float64
	for round := range rounds {
		var samples []Sample
		for _, name := range s.cells {
			samples = append(samples, results[name].samples[round])
		}
		v, ref := s.of(samples)
		values, references = append(values, v), append(references, ref)
		if s.reference != "" && !s.absolute {
			ratios = append(ratios, v/ref)
		}
	}
	f.Runs = rounds
	f.Value = new(median(values))
	spread := values
	if s.reference != "" {
		f.ReferenceValue = new(median(references))
	}
	if len(ratios) > 0 {
		f.Ratio = new(median(ratios))
		spread = ratios
	}
	f.Min, f.Max = new(spread[0]), new(spread[len(spread)-1]) // median has sorted them
	return f
}
