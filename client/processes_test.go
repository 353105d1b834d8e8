package client_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// watcher asks the server how it does.
func watcher(t testing.TB, s *child) *client.Conn {
	t.Helper()
	c, err := client.Dial(within(t), s.addr(), client.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// stats are the server's numbers.
func stats(t testing.TB, c *client.Conn) map[string]uint64 {
	t.Helper()
	list, err := c.Stats(within(t))
	require.NoError(t, err)
	all := make(map[string]uint64, len(list))
	for _, n := range list {
		all[n.Name] = n.Value
	}
	return all
}

// baseline waits until nobody has anything, and requires that used memory is that of the
// objects.
func baseline(t testing.TB, c *client.Conn) {
	t.Helper()
	idle(t, c)
	var all map[string]uint64
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) { // spills hold what they write
		all = stats(t, c)
		if all["l1_held_bytes"]+all["l1_staged_bytes"]+all["l1_loading_bytes"]+all["l1_quarantined_bytes"]+all["l1_doomed_bytes"]+all["ops_in_flight"] == 0 {
			break
		}
	}
	for _, name := range []string{"l1_held_bytes", "l1_staged_bytes", "l1_loading_bytes", "l1_quarantined_bytes", "l1_doomed_bytes", "transfers", "waiting_requests"} {
		require.Zero(t, all[name], name)
	}
	require.Equal(t, all["l1_resident_bytes"], all["l1_used_bytes"])
}

// onDisk starts a server that has the values of keys [0, n) on disk and not in memory.
func onDisk(t *testing.T, n, size int, change func(*childConfig)) *child {
	t.Helper()
	dir, err := os.MkdirTemp("", "slot")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := startChild(t, func(c *childConfig) {
		c.L2Dir = dir
		if change != nil {
			change(c)
		}
	})
	w := worker(t, s.addr(), client.Registration{})
	for i := range n {
		_, err := w.Put(within(t), 0, key(i), content(i, size))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	s.stop()
	s.start()
	return s
}

// What is written to disk is never read back, and nobody notices: of what is not in memory as many bytes are read
// from disk as are retrieved, no more and no less, and none of what is in memory.
func TestAsManyBytesAreReadFromDiskAsAreRetrieved(t *testing.T) {
	const n, size = 8, 100_000
	s := onDisk(t, n, size, nil)
	watch, p := watcher(t, s), startPuppet(t, s.addr())
	before := stats(t, watch)
	for round := range 2 {
		require.Equal(t, n, p.ask(order{Do: "retrieve", N: n, Size: size, Load: true, Wait: patience}).Hits)
		p.ask(order{Do: "verify"})
		p.ask(order{Do: "release"})
		now := stats(t, watch)
		require.EqualValues(t, n*size, now["l2_read_bytes_total"]-before["l2_read_bytes_total"], "round %d", round)
		require.EqualValues(t, n, now["l2_reads_total"]-before["l2_reads_total"])
	}
	baseline(t, watch)
}

// openFiles are the names of the files that a server has open.
func openFiles(t *testing.T, s *child) map[string]bool {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)
	fds, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, fd := range fds {
		name, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err == nil && strings.HasPrefix(name, "/") { // it has not been closed meanwhile, and is no socket
			names[name] = true
		}
	}
	return names
}

// A path or a name that a peer sends is opened as it is: names that look like paths are refused or are names, and the
// server opens nothing for them.
func TestNamesAreNeverPaths(t *testing.T) {
	dir, err := os.MkdirTemp("", "slot")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := startChild(t, func(c *childConfig) { c.L2Dir = dir })
	watch := watcher(t, s)
	before := openFiles(t, s)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("/etc/passwd", link))
	for i, name := range []string{"../../etc/passwd", "/dev/null", "/etc/passwd", link, "../" + filepath.Base(dir), ".", "", "seg-00000000.slc", "a b", "%s"} {
		w, err := client.Open(within(t), s.addr(), client.Options{Name: name, Logger: slog.New(slog.DiscardHandler)}, client.Registration{
			Name: name, Namespace: name, Layouts: []client.Layout{{Name: name + "x", Size: 1 << 20}},
		})
		if err != nil { // refused by its length
			require.Greater(t, len(name), proto.MaxName-1, "%q: %v", name, err)
			continue
		}
		status, err := w.Put(within(t), 0, key(i), value(i))
		require.NoError(t, err)
		require.Equal(t, proto.StatusOK, status)
		require.NoError(t, w.Close())
	}
	for i, name := range []string{strings.Repeat("x", 4096), "a\x00b", "\xff"} {
		_, err := client.Open(within(t), s.addr(), client.Options{Logger: slog.New(slog.DiscardHandler)}, client.Registration{
			Namespace: name, Layouts: []client.Layout{chunk},
		})
		require.Error(t, err, "%d", i)
	}
	baseline(t, watch)
	for name := range openFiles(t, s) {
		require.True(t, before[name] || strings.HasPrefix(name, dir), "the server has %s open", name)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		require.NotContains(t, f.Name(), "passwd")
	}
}

// A scheduler looks up, its workers retrieve by its lease in processes of their own, and
// one of the five is killed at some step: nothing is left of it, and the others go on.
func TestSchedulerAndWorkersLoseOneAtEachStep(t *testing.T) {
	const steps, perRound, workers = 7, 8, 4
	s := onDisk(t, 2*steps*perRound, 0, nil)
	watch := watcher(t, s)
	all := make([]*puppet, 1+workers) // the scheduler is the first
	for i := range all {
		all[i] = startPuppet(t, s.addr())
	}
	for round := range 2 * steps {
		victim, step := 0, round%steps
		if round >= steps {
			victim = 1 + round%workers
		}
		t.Run(fmt.Sprintf("process %d at step %d", victim, step), func(t *testing.T) {
			for i := range all {
				all[i].t = t
			}
			r := &relay{t: t, all: all, victim: victim, step: step, first: round * perRound, n: perRound}
			r.run()
			baseline(t, watch)
		})
		if t.Failed() {
			return
		}
		all[victim] = startPuppet(t, s.addr())
	}
}

// A relay is one round of lookup, retrieves and releases.
type relay struct {
	t            *testing.T
	all          []*puppet
	victim, step int
	first, n     int
	dead         bool
}

// at kills the victim if this is the step.
func (r *relay) at(step int) {
	if step == r.step {
		r.all[r.victim].kill()
		r.dead = true
	}
}

// alive says that a process is there.
func (r *relay) alive(i int) bool { return !r.dead || i != r.victim }

func (r *relay) run() {
	r.at(0)
	var lease uint64
	if r.alive(0) {
		r.all[0].send(order{Do: "lookup", First: r.first, N: r.n, Load: true, Wait: patience})
	}
	r.at(1)
	if r.alive(0) {
		found := r.all[0].hear()
		require.Empty(r.t, found.Err)
		require.Equal(r.t, r.n, found.Hits)
		require.Equal(r.t, r.n, found.FromDisk)
		lease = found.Lease
	}
	r.at(2)
	if lease == 0 {
		return
	}
	each := func(f func(p *puppet)) {
		for i := 1; i < len(r.all); i++ {
			if r.alive(i) {
				f(r.all[i])
			}
		}
	}
	each(func(p *puppet) { p.send(order{Do: "lease", Lease: lease, First: r.first, N: r.n}) })
	r.at(3)
	got := map[*puppet]bool{}
	each(func(p *puppet) {
		res := p.hear()
		if r.dead && r.victim == 0 && res.Stale {
			return // the lease has ended with its owner
		}
		require.Empty(r.t, res.Err)
		require.Equal(r.t, r.n, res.Hits)
		got[p] = true
	})
	r.at(4)
	each(func(p *puppet) {
		if got[p] {
			require.Equal(r.t, r.n, p.ask(order{Do: "verify"}).Hits)
		}
	})
	r.at(5)
	each(func(p *puppet) {
		if got[p] {
			p.ask(order{Do: "verify"})
			p.ask(order{Do: "release"})
		}
	})
	if r.alive(0) {
		r.all[0].ask(order{Do: "release"})
	}
	r.at(6)
}

// TestCrashLoopingClientLeavesNothing: a client dies between create and seal, and its bytes leak
// for ever, unseen. Ten times in a row with 40 % of the pool it costs nobody anything.
func TestCrashLoopingClientLeavesNothing(t *testing.T) {
	s := startChild(t, nil)
	watch := watcher(t, s)
	before := stats(t, watch)["l1_used_bytes"]
	for range 10 {
		p := startPuppet(t, s.addr())
		got := p.ask(order{Do: "prepare", N: 13, Size: 512 << 10})
		require.Equal(t, map[string]int{"reserved": 13}, got.Statuses)
		require.Equal(t, before+13*512<<10, stats(t, watch)["l1_used_bytes"])
		p.kill()
		begin := time.Now()
		baseline(t, watch)
		t.Logf("all back after %v", time.Since(begin).Round(time.Millisecond))
		require.Equal(t, before, stats(t, watch)["l1_used_bytes"])
	}
}

// TestKilledReadersLetGoOfThePool: a reader dies while it reads, and what it read stays held for
// ever. Readers that die with most of the pool held, before their reply is out as well, keep
// nobody from storing.
func TestKilledReadersLetGoOfThePool(t *testing.T) {
	s := startChild(t, func(c *childConfig) { c.Limits = server.Limits{InstanceCap: 1 << 40} })
	watch := watcher(t, s)
	const n, size = 13, 1 << 20 // of 16 MiB
	w := startPuppet(t, s.addr())
	for round := range 6 {
		got := w.ask(order{Do: "prepare", First: round * n, N: n, Size: size})
		require.Equal(t, map[string]int{"reserved": n}, got.Statuses, "something is held for good")
		w.ask(order{Do: "fill"})
		w.ask(order{Do: "commit"})
		p := startPuppet(t, s.addr())
		o := order{Do: []string{"retrieve", "lookup"}[round%2], First: round * n, N: n, Size: size, Slots: true}
		if round < 2 {
			require.Equal(t, n, p.ask(o).Hits)
			p.ask(order{Do: "verify"})
		} else {
			p.send(o) // its reply may be nowhere yet
		}
		p.kill()
		baseline(t, watch)
	}
}

// TestAKilledWriterLeavesTheStoresOfOthersAlone: the end of one client aborts the unsealed
// objects of others.
func TestAKilledWriterLeavesTheStoresOfOthersAlone(t *testing.T) {
	s := startChild(t, nil)
	watch := watcher(t, s)
	a, b := startPuppet(t, s.addr()), startPuppet(t, s.addr())
	for i, p := range []*puppet{a, b} {
		require.Equal(t, map[string]int{"reserved": 4}, p.ask(order{Do: "prepare", First: 10 * i, N: 4, Size: 256 << 10}).Statuses)
		p.ask(order{Do: "fill"})
	}
	b.kill()
	c := startPuppet(t, s.addr())
	for c.ask(order{Do: "prepare", First: 10, N: 4, Size: 256 << 10}).Statuses["reserved"] == 0 {
		time.Sleep(time.Millisecond) // until the end of the other is known
	}
	c.ask(order{Do: "abort"})
	a.ask(order{Do: "fill"})
	a.ask(order{Do: "commit"})
	require.Equal(t, 4, c.ask(order{Do: "retrieve", N: 4, Size: 256 << 10}).Hits)
	c.ask(order{Do: "verify"})
	c.ask(order{Do: "release"})
	require.Zero(t, c.ask(order{Do: "lookup", First: 10, N: 4}).Hits)
	baseline(t, watch)
}

// TestStoringAgainAfterARestartOfTheWorker: a store of keys that exist already. Of none,
// half and all of a batch, by a process that stored them and by the next one; nothing is
// left open that has nothing to commit.
func TestStoringAgainAfterARestartOfTheWorker(t *testing.T) {
	s := startChild(t, nil)
	watch := watcher(t, s)
	p := startPuppet(t, s.addr())
	for round, want := range []map[string]int{{"reserved": 8}, {"exists": 8}, {"exists": 4, "reserved": 4}, {"exists": 4, "reserved": 4}, {"exists": 8}} {
		if round%2 == 1 {
			p.kill()
			p = startPuppet(t, s.addr())
		}
		first := []int{0, 0, 4, 8, 4}[round]
		require.Equal(t, want, p.ask(order{Do: "prepare", First: first, N: 8, Size: 64 << 10}).Statuses, "round %d", round)
		p.ask(order{Do: "fill"})
		p.ask(order{Do: "commit"})
		baseline(t, watch)
	}
	require.Equal(t, uint64(16), stats(t, watch)["l1_objects"])
	require.Equal(t, 16, p.ask(order{Do: "retrieve", N: 16, Size: 64 << 10}).Hits)
	p.ask(order{Do: "verify"})
}

// TestReadersSeeAMissOrOneWholeValue: a key that is put by several at once exists and has no
// value, or a mixture. Writers and readers in four processes, 16 of each, use eight keys: what
// is read is one whole value.
func TestReadersSeeAMissOrOneWholeValue(t *testing.T) {
	s := startChild(t, func(c *childConfig) { c.Size = 4 << 20 })
	watch := watcher(t, s)
	seed := rand.Uint64() >> 40
	t.Logf("seed %d", seed)
	var all []*puppet
	for i := range 4 {
		p := startPuppet(t, s.addr())
		p.send(order{Do: "stir", First: 8, N: 4, Wait: 2 * time.Second, Seed: seed + uint64(i)})
		all = append(all, p)
	}
	total := map[string]int{}
	for _, p := range all {
		res := p.hear()
		require.Empty(t, res.Err)
		for name, n := range res.Counts {
			total[name] += n
		}
	}
	t.Logf("%v", total)
	for _, name := range []string{"ok", "exists", "hit", "miss"} {
		require.NotZero(t, total[name], name)
	}
	baseline(t, watch)
}

// Two clients that want more than half of the pool at once both get an answer: a part.
func TestTwoThatWantMoreThanHalfBothGetAnAnswer(t *testing.T) {
	const n, size = 40, 256 << 10 // 10 of 16 MiB
	s := onDisk(t, 2*n, size, func(c *childConfig) { c.Limits = server.Limits{InstanceCap: 1 << 40} })
	watch := watcher(t, s)
	a, b := startPuppet(t, s.addr()), startPuppet(t, s.addr())
	for range 3 {
		for i, p := range []*puppet{a, b} {
			p.send(order{Do: "lookup", First: i * n, N: n, Size: size, Load: true, Slots: true, Wait: patience})
		}
		hits := 0
		for _, p := range []*puppet{a, b} {
			res := p.hear()
			require.Empty(t, res.Err)
			require.NotZero(t, res.Hits)
			hits += res.Hits
			require.Equal(t, res.Hits, p.ask(order{Do: "verify"}).Hits)
		}
		require.LessOrEqual(t, hits, 64)
		a.ask(order{Do: "release"})
		b.ask(order{Do: "release"})
		baseline(t, watch)

		for i, p := range []*puppet{a, b} {
			p.send(order{Do: "prepare", First: 1000 + i*n, N: n, Size: size, Wait: 300 * time.Millisecond})
		}
		reserved := 0
		for _, p := range []*puppet{a, b} {
			res := p.hear()
			require.Empty(t, res.Err)
			require.Equal(t, n, res.Statuses["reserved"]+res.Statuses["no_space"], "%v", res.Statuses)
			reserved += res.Statuses["reserved"]
		}
		require.GreaterOrEqual(t, reserved, n)
		a.ask(order{Do: "abort"})
		b.ask(order{Do: "abort"})
		baseline(t, watch)
	}
}

// TestRestartKnowsNobody: a restart brings clients back that are dead. Nothing of dead processes
// is there after it: no instance, no transfer, no hold.
func TestRestartKnowsNobody(t *testing.T) {
	for _, serverFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("server killed first is %v", serverFirst), func(t *testing.T) {
			s := onDisk(t, 4, 0, nil)
			var all []*puppet
			for i := range 3 {
				p := startPuppet(t, s.addr())
				p.ask(order{Do: "prepare", First: 100 + i, N: 1, Size: 1 << 20})
				require.Equal(t, 4, p.ask(order{Do: "lookup", N: 4, Load: true, Slots: true, Wait: patience}).Hits)
				all = append(all, p)
			}
			if serverFirst {
				s.kill()
			}
			for _, p := range all {
				p.kill()
			}
			if !serverFirst {
				s.kill()
			}
			s.start()
			watch := watcher(t, s)
			instances, err := watch.Instances(within(t))
			require.NoError(t, err)
			require.Empty(t, instances)
			baseline(t, watch)
			p := startPuppet(t, s.addr())
			require.Equal(t, 4, p.ask(order{Do: "lookup", N: 4, Load: true, Slots: true, Wait: patience}).Hits)
			p.ask(order{Do: "verify"})
			require.Zero(t, p.ask(order{Do: "lookup", First: 100, N: 3, Load: true, Wait: patience}).Hits, "what was not committed is there")
		})
	}
}

// A worker that is evicted while it works comes back by itself.
func TestEvictedWorkerGoesOn(t *testing.T) {
	s := startChild(t, nil)
	watch := watcher(t, s)
	w := worker(t, s.addr(), client.Registration{})
	ctx := within(t)
	store(t, w, 3)
	for range 5 {
		st, err := w.PrepareStore(ctx, 0, keys(10, 1), []uint64{100}, 0)
		require.NoError(t, err)
		r, err := w.Retrieve(ctx, 0, keys(0, 3), client.RetrieveOptions{})
		require.NoError(t, err)
		l, err := w.Lookup(ctx, client.LookupRequest{Keys: keys(0, 3), Slots: true})
		require.NoError(t, err)
		_, err = w.Lookup(ctx, client.LookupRequest{Keys: keys(0, 3), Hold: true}) // it forgets to release
		require.NoError(t, err)
		out, err := watch.EvictInstance(ctx, w.Instance(), false)
		require.NoError(t, err)
		require.Positive(t, out.Draining)
		require.Positive(t, out.Freed)
		got, ok, err := w.Fetch(ctx, 0, key(1), nil)
		require.NoError(t, err)
		require.True(t, ok)
		requireValues(t, 1, [][]byte{got})
		requireValues(t, 0, r.Values())
		requireValues(t, 0, l.Lease.Values())
		require.ErrorIs(t, st.Commit(ctx), client.ErrStale)
		_ = r.Release(ctx) // stale, or not if it was not noticed yet
		_ = l.Lease.Release(ctx)
		idle(t, watch)
	}
}
