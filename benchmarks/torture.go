package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/docker/go-units"

	"github.com/slotcache/slotcache/client"
)

// TortureOptions describe a torture.
type TortureOptions struct {
	Exe     string // path of slotbench
	Node    NodeOptions
	Workers int
	Keys    int // of each worker
	Largest int // bytes of a value at most
	Loops   int // kills that are followed by a check
	Seed    uint64
	Show    func(done, total int)
}

// A TortureReport says what was seen.
type TortureReport struct {
	Seed  uint64 `json:"seed"`
	Loops int    `json:"loops"`
	Acked int64  `json:"acked"` // stores, deletes and clears acknowledged

	Corrupt    int64 `json:"corrupt"`     // values served with wrong bytes
	Phantom    int64 `json:"phantom"`     // values served that were never committed, or deleted and acknowledged
	LostSealed int64 `json:"lost_sealed"` // values known to be on disk, not evicted and not served after the kill
	Leaked     int64 `json:"leaked_bytes"`
	Differs    int   `json:"index_differs"` // times that the server at rest knew other records than its files hold

	ReadyP50        float64 `json:"ready_s_p50"`
	ReadyMax        float64 `json:"ready_s_max"`
	Reappeared      int64   `json:"reappeared"`        // values missing after one start and there after a later one
	Revived         int64   `json:"revived_by_damage"` // deleted values whose tombstone was destroyed
	Returned        int64   `json:"evicted_returned"`  // evicted values that were back after a kill, their key having been stored anew and not yet on disk
	Served          int64   `json:"served_after_start"`
	Sealed          int64   `json:"sealed_checked"` // values that had to be there and were looked for
	Late            int64   `json:"sealed_late"`    // of these, those for which there was memory only at the second look
	Settled         int     `json:"settled_loops"`
	KillsInRecovery int     `json:"kills_in_recovery"` // before the server was ready
	KillsPaused     int     `json:"kills_at_rest"`
	KillsLoaded     int     `json:"kills_under_load"`
	DamagedLoops    int     `json:"damaged_loops"`      // after the kill
	DamagedLive     int     `json:"damaged_live_loops"` // while the server ran
	Flips           int     `json:"flips"`
	Cuts            int     `json:"cuts"`
	WriteBack       int     `json:"write_back_loops"`
	EvictedSegments uint64  `json:"evicted_segments"`
	SpilledBytes    uint64  `json:"spilled_bytes"` // this and the one before as far as told before a kill
	Refused         int64   `json:"refused_steps"` // by the server
	LastFailure     string  `json:"last_failure,omitempty"`
	Example         string  `json:"example,omitempty"` // of what was wrong
	Seconds         float64 `json:"seconds"`
	Machine         Machine `json:"machine"`
}

// Err is what was found wrong, nil when nothing.
func (r *TortureReport) Err() error {
	if r.Corrupt+r.Phantom+r.LostSealed+r.Leaked+int64(r.Differs) == 0 {
		return nil
	}
	return fmt.Errorf("%d values corrupt, %d phantom, %d lost from disk, %d bytes leaked, %d times other records than in the files (seed %d): %s",
		r.Corrupt, r.Phantom, r.LostSealed, r.Leaked, r.Differs, r.Seed, r.Example)
}

// Write writes the report for people.
func (r *TortureReport) Write(w io.Writer) error {
	_, err := fmt.Fprintf(w, `%d kills in %.0f s (%d under load, %d at rest; and %d during recovery), seed %d
%d acknowledged steps; %d values served after a start, %d that had to be there were looked for
%d stores damaged after a kill and %d while in use (%d bits flipped, %d cuts), %d segments evicted, %s spilled
corrupt %d, phantom %d, lost %d, leaked %d bytes; ready in %.3f s (p50), %.3f s at most
`, r.Loops, r.Seconds, r.KillsLoaded, r.KillsPaused, r.KillsInRecovery, r.Seed,
		r.Acked, r.Served, r.Sealed,
		r.DamagedLoops, r.DamagedLive, r.Flips, r.Cuts, r.EvictedSegments, units.BytesSize(float64(r.SpilledBytes)),
		r.Corrupt, r.Phantom, r.LostSealed, r.Leaked, r.ReadyP50, r.ReadyMax)
	return err
}

// torture is one under way.
type torture struct {
	opts     TortureOptions
	r        *rand.Rand
	node     *Node
	journals []*journal
	ready    *hdrhistogram.Histogram // microseconds
	version  uint64
	damaged  bool // the files were harmed since the last look
	sealed   *snapshot
	report   TortureReport
}

// Torture starts a server, lets workers store, delete, clear and read, and kills it, again
// and again; after each start it looks at every key. The report is there even if the error
// says that something was wrong, but for errors of the environment.
func Torture(ctx context.Context, opts TortureOptions) (*TortureReport, error) {
	begin := time.Now()
	t := &torture{
		opts: opts, r: rand.New(rand.NewPCG(opts.Seed, 3)), ready: hdrhistogram.New(1, 120e6, 3), version: 1,
		report: TortureReport{Seed: opts.Seed, Machine: ThisMachine()},
	}
	for n := range opts.Workers {
		t.journals = append(t.journals, newJournal(n, opts.Keys))
	}
	node, err := StartNode(ctx, opts.Node)
	if err != nil {
		return nil, fmt.Errorf("torture: %w", err)
	}
	t.node = node
	for err == nil && t.report.Loops < opts.Loops {
		if err = t.loop(ctx); err == nil {
			t.report.Loops++
			if opts.Show != nil {
				opts.Show(t.report.Loops, opts.Loops)
			}
		}
	}
	if err == nil {
		err = node.Stop()
	}
	t.report.Seconds = time.Since(begin).Seconds()
	t.report.ReadyP50 = float64(t.ready.ValueAtQuantile(50)) / 1e6
	t.report.ReadyMax = float64(t.ready.Max()) / 1e6
	t.sum()
	log := node.Log()
	if err = errors.Join(err, node.Close()); err != nil {
		return nil, fmt.Errorf("torture (seed %d, loop %d): %w\n%s", opts.Seed, t.report.Loops, err, log)
	}
	return &t.report, nil
}

// sum adds up what the journals found.
func (t *torture) sum() {
	r := &t.report
	for _, j := range t.journals {
		r.Acked += j.acked
		r.Refused += j.denied
		r.Corrupt += j.corrupt
		r.Phantom += j.phantom
		r.Reappeared += j.reappeared
		r.Revived += j.revived
		r.Returned += j.returned
		if r.Example == "" {
			r.Example = j.example
		}
	}
}

// loop lets the workers work, kills the server, and looks at what it serves when it runs
// again. The server runs before and after.
func (t *torture) loop(ctx context.Context) error {
	workers, err := t.begin(ctx)
	defer func() {
		for _, w := range workers {
			w.kill()
		}
	}()
	if err != nil {
		return err
	}
	if err := t.work(ctx, workers); err != nil {
		return err
	}
	t.node.Kill()
	for _, w := range workers {
		w.kill()
		if w.failure != "" {
			t.report.LastFailure = w.failure
		}
	}
	workers = nil
	if err := t.afterKill(ctx); err != nil {
		return err
	}
	return t.check(ctx)
}

// begin starts the workers.
func (t *torture) begin(ctx context.Context) ([]*tortured, error) {
	var workers []*tortured
	for n, j := range t.journals {
		w, err := startTortured(ctx, t.opts.Exe, j, &TorturerOptions{
			Addr: t.node.Addr(), Worker: n, Keys: t.opts.Keys, Largest: t.opts.Largest, Seed: t.r.Uint64(), Version: t.version,
		})
		if w != nil {
			workers = append(workers, w)
		}
		if err != nil {
			return workers, err
		}
	}
	t.version += 1 << 24 // more than a worker stores in its life
	return workers, nil
}

// work returns when the server is to be killed.
func (t *torture) work(ctx context.Context, workers []*tortured) error {
	if !Pause(ctx, time.Duration(t.r.Int64N(int64(700*time.Millisecond)))) {
		return ctx.Err()
	}
	kind := t.r.IntN(10)
	if t.damaged = kind == 0; t.damaged { // while the server runs
		if err := t.harm(); err != nil {
			return err
		}
		t.report.DamagedLive++
		if !Pause(ctx, time.Duration(t.r.Int64N(int64(300*time.Millisecond)))) {
			return ctx.Err()
		}
	}
	if t.writeBack() || kind < 3 {
		t.report.KillsLoaded++
		return nil
	}
	for _, w := range workers {
		w.tell(TellPause)
	}
	for _, w := range workers {
		if err := w.await(ctx, SayPaused); err != nil {
			return err
		}
		if w.ended() {
			return fmt.Errorf("worker %d ended while the server ran: %s\n%s", w.j.worker, w.failure, t.node.Log())
		}
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if kind < 7 {
		t.report.KillsPaused++
		return nil
	}
	for _, w := range workers {
		w.tell(TellGo)
	}
	t.report.KillsLoaded++
	if !Pause(ctx, time.Duration(t.r.Int64N(int64(150*time.Millisecond)))) {
		return ctx.Err()
	}
	return nil
}

// settle waits until all is on disk and at rest, and notes what is there.
func (t *torture) settle(ctx context.Context) error {
	conn, err := client.Dial(ctx, t.node.Addr(), clientOptions(layoutName))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing was changed through it
	workers := Pending{Instances: uint64(t.opts.Workers)}
	if _, err := await(ctx, conn, func(p *Pending) string {
		if what := spilled(p); what != "" {
			return what
		}
		return p.left(&workers)
	}); err != nil {
		t.leak(1, "at rest: %v", err)
	}
	now, err := restful(ctx, conn)
	if err != nil {
		return err
	}
	records := now["l2_records"]
	t.report.EvictedSegments += now["l2_evicted_segments_total"]
	t.report.SpilledBytes += now["spilled_bytes_total"]
	if t.sealed, err = takeSnapshot(ctx, t.node.l2, true); err != nil {
		return err
	}
	good, bad := uint64(len(t.sealed.visible)), uint64(t.sealed.bad)
	if records < good || records > good+bad {
		t.report.Differs++
		t.example("the server knows %d records on disk, the files have %d and %d damaged ones", records, good, bad)
	}
	for _, j := range t.journals {
		j.mark()
	}
	t.report.Settled++
	return nil
}

// writeBack reports whether the server that runs does not write through, so that what is
// dirty may stay so.
func (t *torture) writeBack() bool {
	return slices.ContainsFunc(t.node.opts.Args, func(arg string) bool {
		return strings.HasPrefix(arg, "--l2-write") && arg != "--l2-write=through"
	})
}

// leak notes bytes that are somewhere they should not be.
func (t *torture) leak(bytes int64, format string, args ...any) {
	if bytes <= 0 {
		return
	}
	t.report.Leaked += bytes
	t.example(format, args...)
}

// example keeps the first thing that was wrong.
func (t *torture) example(format string, args ...any) {
	if t.report.Example == "" {
		t.report.Example = fmt.Sprintf("loop %d: ", t.report.Loops) + fmt.Sprintf(format, args...)
	}
}
