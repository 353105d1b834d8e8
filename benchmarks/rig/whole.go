package rig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/load"
	"github.com/slotcache/slotcache/benchmarks/observe"
)

// The names of the cells that a server has under a load of its own.
const (
	allocated = "allocations"
	hitsIdle  = "L1 hits, disk idle"
	hitsBusy  = "L1 hits, disk busy"
	loadsIdle = "loads of 1MiB, disk idle"
	loadsBusy = "loads of 1MiB, disk busy"
	stalled   = "ping while 50,000 keys are looked up"
	active    = "ping, 100 conns"
	crowded   = "ping, 100 conns of %d"
	resident  = "memory at %d objects"
)

// crowdActive is how many connections of many are active.
const crowdActive = 100

// figureWhole are the other cells that the figures need.
func (r *Rig) figureWhole() []Cell {
	pings := load.Job{Kind: load.KindPing, Conns: crowdActive}
	return []Cell{
		{Name: two, Group: Data, Size: mib, Take: takeTwo},
		{Name: four, Group: Data, Size: mib, Take: storing(4)},
		{Name: copies, Group: Data, Size: mib, Take: takeCopies},
		{Name: oneFree, Group: Data, Size: mib, Take: storing(1)},
		{Name: hitsIdle, Group: Whole, Conns: 1, Take: takeHits(false)},
		{Name: hitsBusy, Group: Whole, Conns: 1, Take: takeHits(true)},
		{Name: loadsIdle, Group: Whole, Conns: 1, Take: takeLoads(false)},
		{Name: loadsBusy, Group: Whole, Conns: 1, Take: takeLoads(true)},
		{Name: allocated, Group: Whole, Take: takeAllocations},
		{Name: stalled, Group: Whole, Take: takeStall},
		{Name: active, Group: Whole, Conns: crowdActive, Take: at(ownPlace(), pings)},
		{Name: r.crowdedName(), Group: Whole, Conns: crowdActive, Take: takeCrowd},
		{Name: r.residentName(), Group: Whole, Once: true, Take: takeMemory},
	}
}

// takeTwo copies on two CPUs at once: what the memory has to give.
func takeTwo(ctx context.Context, r *Rig) (Sample, error) {
	if !r.Pinned() {
		return Sample{}, fmt.Errorf("%w: there is one CPU", ErrSkipped)
	}
	return r.atOnce(ctx, []seat{{0, atLoad}, {0, atServer}}, load.Job{Kind: load.KindCopy, Size: mib})
}

// takeCopies copies in four processes, none pinned: beside other work these get the share of the
// processors that four workers get, and not that of two.
func takeCopies(ctx context.Context, r *Rig) (Sample, error) {
	return r.atOnce(ctx, []seat{{0, atAny}, {1, atAny}, {2, atAny}, {3, atAny}}, load.Job{Kind: load.KindCopy, Size: mib})
}

// sharing has several workers, none pinned if the server is not, do the same at once.
func (r *Rig) sharing(ctx context.Context, p Place, workers int, j load.Job) (Sample, error) {
	s, err := r.server(ctx, p)
	if err != nil {
		return Sample{}, err
	}
	at := atLoad
	if p.Free {
		at = atAny
	}
	var seats []seat
	for i := range workers {
		seats = append(seats, seat{i, at})
	}
	j.Socket, j.PID = s.socket, s.pid()
	return r.atOnce(ctx, seats, j)
}

// storingCount is how many values of 1 MiB one transfer has, as when a worker stores what it has
// of a prompt (client's StoreEach).
const storingCount = 8

// storing has several workers, none pinned, store values.
// Each has a slot ready for its next value always.
func storing(workers int) func(context.Context, *Rig) (Sample, error) {
	return func(ctx context.Context, r *Rig) (Sample, error) {
		return r.sharing(ctx, Place{Name: Rotating, Free: true}, workers, load.Job{Kind: load.KindSetAhead, Size: mib, Count: storingCount})
	}
}

// syscalls counts the server's system calls for a PING.
func (r *Rig) syscalls(ctx context.Context, conns int) (Sample, error) {
	j := load.Job{Kind: load.KindPing, Conns: conns}
	if conns == 1 {
		j.Conns = 0
	}
	return r.counted(ctx, ownPlace(), j)
}

// counted does a job and counts the server's system calls meanwhile: in the kernel where this process may, else by the
// server's own count of those of its ring, if it is one of ours.
func (r *Rig) counted(ctx context.Context, p Place, j load.Job) (Sample, error) {
	j.Traced = true
	sample, err := r.job(ctx, p, j)
	if err == nil {
		return sample, nil
	}
	j.Traced = false
	s, serverErr := r.server(ctx, p)
	if serverErr != nil {
		return Sample{}, serverErr
	}
	if s.node == nil {
		return r.job(ctx, p, j)
	}
	before, scrapeErr := observe.Scrape(ctx, s.node.HTTPAddr())
	if scrapeErr != nil {
		return Sample{}, errors.Join(err, scrapeErr)
	}
	if sample, err = r.job(ctx, p, j); err != nil {
		return Sample{}, err
	}
	after, err := observe.Scrape(ctx, s.node.HTTPAddr())
	if err != nil {
		return Sample{}, err
	}
	// All frames of the time, those of warming up and of connecting too.
	sample.Calls = (after[observe.Enters] - before[observe.Enters]) / (after[observe.Frames] - before[observe.Frames])
	return sample, nil
}

// requests has a job done, and then for a shorter time again with the server's system calls and heap objects counted,
// which has its price.
func (r *Rig) requests(ctx context.Context, p Place, j load.Job) (Sample, error) {
	sample, err := r.job(ctx, p, j)
	if err != nil {
		return sample, err
	}
	s, err := r.server(ctx, p)
	if err != nil {
		return sample, err
	}
	j.Span = load.Span{Warm: r.opts.Span.Warm / 4, Measure: r.opts.Span.Measure / 4}
	if s.node != nil {
		j.Allocs = s.node.HTTPAddr()
	}
	counted, err := r.counted(ctx, p, j)
	sample.Calls, sample.Allocs, sample.Counted = counted.Calls, counted.Allocs, counted.Counted
	return sample, err
}

// Names of metrics.
const (
	dirtyMetric    = "slotcache_l1_dirty_bytes"
	objectsMetric  = "slotcache_l1_objects"
	readyMetric    = "slotcache_l1_ready_bytes"
	capacityMetric = "slotcache_l1_capacity_bytes"
	putBytesMetric = "slotcache_l2_put_bytes_total"
	loadedMetric   = "slotcache_loaded_bytes_total"
	droppedMetric  = "slotcache_spills_dropped_total"
	recordsMetric  = "slotcache_l2_records"
)

// takeAllocations counts the server's heap allocations for a request: PING, lookup, prepare
// and commit, retrieve and release, on 16 connections that are open already.
func takeAllocations(ctx context.Context, r *Rig) (Sample, error) {
	s, err := r.server(ctx, ownPlace())
	if err != nil {
		return Sample{}, err
	}
	w, err := r.worker(seat{0, atLoad})
	if err != nil {
		return Sample{}, err
	}
	var mallocs, frames float64
	for _, j := range []load.Job{
		{Kind: load.KindPing}, {Kind: load.KindLookup, Count: 64, Size: 64}, {Kind: load.KindStore, Size: 4096}, {Kind: load.KindRetrieve, Size: 4096},
	} {
		j.Socket, j.PID, j.Span, j.Conns, j.Allocs = s.socket, s.pid(), r.opts.Span, 16, s.node.HTTPAddr()
		result, err := w.do(ctx, &j)
		if err != nil {
			return Sample{}, err
		}
		mallocs, frames = mallocs+result.Mallocs, frames+result.Frames
	}
	return Sample{Ops: int64(frames), Value: mallocs / frames}, nil
}

// stallCount is how many keys a long lookup has.
const stallCount = 50_000

// takeStall gives the median of the longest PINGs of each long lookup, and of as long without.
func takeStall(ctx context.Context, r *Rig) (Sample, error) {
	s, err := r.server(ctx, ownPlace())
	if err != nil {
		return Sample{}, err
	}
	w, err := r.worker(seat{0, atLoad})
	if err != nil {
		return Sample{}, err
	}
	j := load.Job{Kind: load.KindStall, Socket: s.socket, Count: stallCount, Size: 64, Span: r.opts.Span}
	result, err := w.do(ctx, &j)
	if err != nil {
		return Sample{}, err
	}
	sample, err := toSample(&j, &result)
	if err != nil {
		return Sample{}, err
	}
	idle, err := load.Histogram(result.Idle)
	if err != nil {
		return Sample{}, err
	}
	sample.Value, sample.Before = sample.P50, us(idle.ValueAtQuantile(50))
	return sample, nil
}

// takeCrowd pings on as many connections as ever, while as many more as there may be are open.
func takeCrowd(ctx context.Context, r *Rig) (Sample, error) {
	p := Place{Name: Crowded}
	s, err := r.server(ctx, p)
	if err != nil {
		return Sample{}, err
	}
	w, err := r.worker(seat{1, atLoad})
	if err != nil {
		return Sample{}, err
	}
	if _, err := w.do(ctx, &load.Job{Kind: load.KindHold, Socket: s.socket, Count: r.opts.Idle}); err != nil {
		return Sample{}, err
	}
	sample, err := r.job(ctx, p, load.Job{Kind: load.KindPing, Conns: crowdActive})
	sample.Value = float64(r.opts.Idle + crowdActive)
	return sample, err
}

// Sizes of the server whose memory is told.
const (
	residentSize = 4096 // of an object, in bytes: a slot of its own, and a record on disk
	residentSlot = 4096 // what it takes of the pool

	settleTime = 3 * time.Minute // a machine with other work populates 8 GiB in no less than one
	settleStep = 20 * time.Millisecond
)

// takeMemory fills a server until so many objects are both in memory and on disk, and tells
// what it has resident apart from the pool, in MiB.
func takeMemory(ctx context.Context, r *Rig) (sample Sample, err error) {
	// The table has a place for every 8 KiB of the pool.
	pool := int64(r.opts.Objects+4096) * 2 * residentSlot
	// The index of the disk store has one for every 64 KiB, and what is written takes far less.
	disk := int64(r.opts.Objects+r.opts.Objects/8) << 16
	if pool > machineFree()/2 {
		return sample, fmt.Errorf("%w: a pool of %s is more than half of the memory", ErrSkipped, SizeName(pool))
	}
	s, err := r.slotcached(ctx, false, benchmarks.NodeOptions{L1Size: pool, L2Size: disk})
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	defer r.leave(seat{2, atLoad}) // its mapping keeps the pool's memory
	w, err := r.worker(seat{2, atLoad})
	if err != nil {
		return sample, err
	}
	if err := r.await(ctx, s, func(m map[string]float64) bool { return m[readyMetric] == m[capacityMetric] }); err != nil {
		return sample, err
	}
	j := load.Job{Kind: load.KindFill, Socket: s.socket, Count: r.opts.Objects, Size: residentSize}
	if _, err := w.do(ctx, &j); err != nil {
		return sample, err
	}
	err = r.await(ctx, s, func(m map[string]float64) bool {
		return m[dirtyMetric] == 0 && m[objectsMetric] >= float64(r.opts.Objects) && m[recordsMetric] >= float64(r.opts.Objects)
	})
	if err != nil {
		return sample, err
	}
	used, err := observe.Memory(s.pid())
	sample.Value, sample.Ops = float64(used)/float64(mib), int64(r.opts.Objects)
	return sample, err
}

func (r *Rig) crowdedName() string { return fmt.Sprintf(crowded, r.opts.Idle+crowdActive) }

func (r *Rig) residentName() string { return fmt.Sprintf(resident, r.opts.Objects) }

// await waits until the metrics of a server are as they should be.
func (r *Rig) await(ctx context.Context, s *server, good func(map[string]float64) bool) error {
	for end := time.Now().Add(settleTime); ; time.Sleep(settleStep) {
		m, err := observe.Scrape(ctx, s.node.HTTPAddr())
		if err != nil {
			return err
		}
		if good(m) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("rig: after %v %g of %g bytes are ready, %g objects in memory, %g on disk, %g bytes wait to be written, %g were dropped",
				settleTime, m[readyMetric], m[capacityMetric], m[objectsMetric], m[recordsMetric], m[dirtyMetric], m[droppedMetric])
		}
	}
}

// What keeps a disk busy: loads and stores of a size, so many at a time.
const (
	tieredPool = 256 * mib
	churnSize  = 4 * mib
	churnConns = 4
)

// takeHits retrieves objects that are in memory, of a server whose disk is busy or not.
func takeHits(busy bool) func(context.Context, *Rig) (Sample, error) {
	hits := load.Job{Kind: load.KindRetrieve, Size: 4096, Among: 2}
	if busy {
		return besideDisk(hits, 0)
	}
	return at(Place{Name: Tiered}, hits)
}

// takeLoads loads single objects from disk, which is busy with others or not. They are more than fit in memory.
func takeLoads(busy bool) func(context.Context, *Rig) (Sample, error) {
	loads := load.Job{Kind: load.KindFetch, Size: mib, Among: 2, Count: int(tieredPool * 3 / 2 / mib)}
	if busy {
		return besideDisk(loads, fetchAhead)
	}
	return at(Place{Name: Tiered}, loads)
}

// besideDisk has a worker do a job while others keep the disk busy, for so much longer than the job takes. They
// have only what processor time is left, so that the job waits for the server and the
// disk, and not for another client's turn on a processor. The value is what goes to and from the disk meanwhile, in 10^9 bytes a second.
func besideDisk(j load.Job, longer time.Duration) func(context.Context, *Rig) (Sample, error) {
	return func(ctx context.Context, r *Rig) (Sample, error) {
		p := Place{Name: Tiered}
		s, err := r.server(ctx, p)
		if err != nil {
			return Sample{}, err
		}
		w, err := r.worker(seat{1, atLoad})
		if err != nil {
			return Sample{}, err
		}
		for ; ; longer *= 2 {
			sample, enough, err := r.beside(ctx, p, s, w, &j, longer)
			if err != nil || enough || longer == 0 || longer > busyMost {
				return sample, err
			}
		}
	}
}

// beside does a job while w keeps the disk of s busy, for so much longer than the job should take. Enough tells that the disk was
// busy to the end.
func (r *Rig) beside(ctx context.Context, p Place, s *server, w *worker, j *load.Job, longer time.Duration) (sample Sample, enough bool, err error) {
	before, err := observe.Scrape(ctx, s.node.HTTPAddr())
	if err != nil {
		return sample, false, err
	}
	begun, ended := time.Now(), make(chan error, 1)
	go func() {
		_, err := w.do(ctx, &load.Job{
			Kind: load.KindChurn, Socket: s.socket, Conns: churnConns, Size: churnSize, Arena: tieredPool * 3 / 2, Among: 2, Last: true,
			Span: load.Span{Measure: 2*r.opts.Span.Measure + churnAhead + longer},
		})
		ended <- err
	}()
	time.Sleep(churnAhead / 2)
	sample, err = r.job(ctx, p, *j)
	after, scrapeErr := observe.Scrape(ctx, s.node.HTTPAddr())
	moved := after[putBytesMetric] + after[loadedMetric] - before[putBytesMetric] - before[loadedMetric]
	sample.Value = moved / 1e9 / time.Since(begun).Seconds()
	enough = len(ended) == 0
	return sample, enough, errors.Join(err, scrapeErr, <-ended)
}

const (
	// churnAhead is how much longer the disk is busy than hits are measured.
	churnAhead = 600 * time.Millisecond
	// fetchAhead is how much longer than that for loads, whose objects are stored meanwhile.
	fetchAhead = 2 * time.Second
	// busyMost is the most of that which is tried on a slow machine.
	busyMost = 10 * time.Second
)
