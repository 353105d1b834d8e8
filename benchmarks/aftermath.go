package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/l2/seglog"
)

// A diskRecord is where a visible record lies.
type diskRecord struct {
	seq        uint64
	generation uint64 // of its segment's life
}

// A snapshot is what the files of a store hold.
type snapshot struct {
	visible     map[client.Key]diskRecord // but for those whose value is damaged
	bad         int                       // those
	generations []uint64                  // of the segments in use, ascending
}

// takeSnapshot reads the files of a store, whose server is at rest or dead.
func takeSnapshot(ctx context.Context, dir string, running bool) (*snapshot, error) {
	look, err := l2.Inspect(dir, l2.InspectOptions{Unlocked: running})
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	s := &snapshot{visible: make(map[client.Key]diskRecord)}
	for i := range look.Segments {
		if err := s.add(ctx, look, &look.Segments[i]); err != nil {
			return nil, errors.Join(err, look.Close())
		}
	}
	slices.Sort(s.generations)
	return s, look.Close()
}

// add takes a segment in.
func (s *snapshot) add(ctx context.Context, look *l2.Inspection, seg *seglog.StoredSegment) error {
	if len(seg.Records) == 0 { // it goes before the oldest is evicted
		return nil
	}
	s.generations = append(s.generations, seg.Generation)
	for n := range seg.Records {
		r := &seg.Records[n]
		if !r.Visible {
			continue
		}
		switch err := look.Verify(ctx, r); {
		case err == nil:
			s.visible[r.Key.Hash] = diskRecord{seq: r.Seq, generation: seg.Generation}
		case errors.Is(err, l2.ErrBadRecord):
			s.bad++ // damaged before: a miss, as soon as somebody looks
		default:
			return err
		}
	}
	return nil
}

// counters reads the server's numbers.
func counters(ctx context.Context, c *client.Conn) (map[string]uint64, error) {
	list, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	values := make(map[string]uint64, len(list))
	for _, k := range list {
		values[k.Name] = k.Value
	}
	return values, nil
}

// restful waits until the disk store does nothing, and gives the server's numbers then.
func restful(ctx context.Context, c *client.Conn) (map[string]uint64, error) {
	var last map[string]uint64
	for deadline := time.Now().Add(settleTime); time.Now().Before(deadline); {
		now, err := counters(ctx, c)
		if err != nil {
			return nil, err
		}
		if last != nil && now["l2_in_flight"] == 0 && now["l2_fences_owed"] == 0 && now["l2_records"] == last["l2_records"] &&
			now["l2_write_bytes_total"] == last["l2_write_bytes_total"] && now["ops_in_flight"] == 0 {
			return now, nil
		}
		last = now
		if !Pause(ctx, 2*pollTime) {
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("the disk store is not at rest after %v", settleTime)
}

// afterKill looks at the dead server's files, harms them now and then, kills servers that
// are starting, and starts one.
func (t *torture) afterKill(ctx context.Context) error {
	all, _, err := diskUse(t.node.l2)
	if err != nil {
		return err
	}
	t.leak(all-t.opts.Node.L2Size, "the directory takes %d bytes, the cap is %d", all, t.opts.Node.L2Size)
	if err := t.narrow(ctx); err != nil {
		return err
	}
	if t.r.IntN(5) == 0 {
		if err := t.harm(); err != nil {
			return err
		}
		t.damaged = true
		t.report.DamagedLoops++
	}
	if t.damaged {
		t.sealed = nil
	}
	t.node.opts.Args = slices.Clip(t.opts.Node.Args)
	if t.r.IntN(6) == 0 {
		t.node.opts.Args = append(t.node.opts.Args, "--l2-write=back")
		t.report.WriteBack++
	}
	for t.r.IntN(3) == 0 {
		limit := 30 * time.Millisecond
		if p50 := t.ready.ValueAtQuantile(50); p50 > 0 {
			limit = time.Duration(p50) * time.Microsecond * 6 / 5
		}
		early, err := t.node.startAndKill(ctx, time.Duration(t.r.Int64N(int64(limit))))
		if err != nil {
			return err
		}
		if early {
			t.report.KillsInRecovery++
		}
		// It may have evicted a segment before it was killed, which the next one knows nothing of.
		if err := t.narrow(ctx); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := t.node.Start(ctx); err != nil {
		return err
	}
	return t.ready.RecordValue(time.Since(begin).Microseconds())
}

// harm damages the store's files.
func (t *torture) harm() error {
	d, err := harm(t.r, t.node.l2)
	t.report.Flips += d.flips
	t.report.Cuts += d.cuts
	return err
}

// narrow takes out of what was on disk at the last rest what may be gone by right: what was
// evicted since, which took its segment's life with it.
func (t *torture) narrow(ctx context.Context) error {
	if t.sealed == nil {
		return nil
	}
	now, err := takeSnapshot(ctx, t.node.l2, false)
	if err != nil {
		return err
	}
	for key, r := range t.sealed.visible {
		if _, alive := slices.BinarySearch(now.generations, r.generation); !alive {
			delete(t.sealed.visible, key)
		}
	}
	t.sealed.generations = now.generations
	return nil
}

// check looks at every key of every worker, and at what the server holds.
func (t *torture) check(ctx context.Context) error {
	conn, err := client.Dial(ctx, t.node.Addr(), clientOptions(layoutName))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing was changed through it
	lost := make([][]uint32, len(t.journals))
	served := make([]int64, len(t.journals))
	failures := make([]error, len(t.journals))
	var all sync.WaitGroup
	for n, j := range t.journals {
		all.Go(func() { lost[n], served[n], failures[n] = t.look(ctx, j) })
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	for _, n := range served {
		t.report.Served += n
	}
	now, err := counters(ctx, conn)
	if err != nil {
		return err
	}
	for n, j := range t.journals {
		if err := t.missing(ctx, j, lost[n], now); err != nil {
			return err
		}
	}
	if t.sealed != nil {
		t.report.Sealed += int64(len(t.sealed.visible))
	}
	t.sealed = nil
	if _, err := settle(ctx, conn, &Pending{}); err != nil {
		t.leak(1, "after a start: %v", err)
	}
	_, segments, err := diskUse(t.node.l2)
	if err != nil {
		return err
	}
	beyond := segments - int64(now["l2_disk_bytes"])
	t.leak(max(beyond-tortureSegment(t.opts.Node.L2Size), 0), "segment files take %d bytes, the server knows %d", segments, now["l2_disk_bytes"])
	return nil
}

// tortureSegment is at least the size of a segment of a store of the size given, in bytes.
func tortureSegment(size int64) int64 { return max(size/32, 4<<20) }

// look reads all keys of a worker. It returns those that had to be there and were not.
func (t *torture) look(ctx context.Context, j *journal) (lost []uint32, served int64, err error) {
	w, err := openTorturer(ctx, t.node.Addr(), j.worker, t.opts.Largest)
	if err != nil {
		return nil, 0, err
	}
	defer w.Close() //nolint:errcheck // nothing was changed through it
	scratch := make([]byte, t.opts.Largest)
	var value []byte
	for n := range uint32(len(j.keys)) {
		key := tortureKey(j.worker, n)
		var ok bool
		if value, ok, err = w.Fetch(ctx, 0, key, value[:0]); err != nil {
			return nil, served, fmt.Errorf("look at key %d of worker %d: %w", n, j.worker, err)
		}
		version := uint64(0)
		if ok {
			served++
			version = readVersion(value, j.worker, n, t.opts.Largest, scratch)
		}
		if t.sealed != nil && !ok && !j.keys[n].touched {
			if _, wanted := t.sealed.visible[key]; wanted {
				lost = append(lost, n)
			}
		}
		j.settled(n, version, t.damaged)
	}
	return lost, served, nil
}

// missing counts the keys of a worker whose values were on disk and are not served, but for
// those in the oldest segments if the server that runs has evicted such since its start.
// Each is asked for once more, alone: beside others there may have been no memory for it.
func (t *torture) missing(ctx context.Context, j *journal, lost []uint32, now map[string]uint64) error {
	if len(lost) == 0 {
		return nil
	}
	w, err := openTorturer(ctx, t.node.Addr(), j.worker, t.opts.Largest)
	if err != nil {
		return err
	}
	defer w.Close() //nolint:errcheck // nothing was changed through it
	evicted := now["l2_evicted_segments_total"]
	gone := t.sealed.generations[:min(int(evicted), len(t.sealed.generations))]
	for _, n := range lost {
		key := tortureKey(j.worker, n)
		r := t.sealed.visible[key]
		if _, found := slices.BinarySearch(gone, r.generation); found {
			continue
		}
		value, ok, err := w.Fetch(ctx, 0, key, nil)
		switch {
		case err != nil:
			return fmt.Errorf("look again at key %d of worker %d: %w", n, j.worker, err)
		case ok:
			t.report.Late++
			j.keys[n].absent = false
			j.settled(n, readVersion(value, j.worker, n, t.opts.Largest, make([]byte, t.opts.Largest)), false)
		default:
			t.report.LostSealed++
			t.example("key %d of worker %d, sequence %d in generation %d of %d, is not served; %d segments were evicted, %d bad records found, %d I/Os failed, the disk hung %d times",
				n, j.worker, r.seq, r.generation, t.sealed.generations, evicted,
				now["l2_bad_records_total"], now["l2_io_errors_total"], now["l2_stalls_total"])
		}
	}
	return nil
}
