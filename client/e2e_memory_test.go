package client_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l1/l1test"
	"github.com/slotcache/slotcache/proto"
)

// workerEnv makes a copy of the test binary a worker of the server at that address, or, if
// it is touchAddr, somebody who touches as much memory of its own.
const (
	workerEnv = "SLOTCACHE_CLIENT_TEST_WORKER"
	touchAddr = "none"
)

const (
	mib = 1 << 20
	// groupPool and groupLimit are a pool and the memory of a worker that uses it.
	groupPool  = 192 * mib
	groupLimit = 80 * mib
)

// fill stores values of 1 MiB over a whole pool, from key begin on, and reads each soon
// after.
func fill(ctx context.Context, w *client.Worker, begin int) error {
	n := int(w.PoolSize() / mib)
	batch := n / 4 // one instance may hold half
	sizes := make([]uint64, batch)
	for i := range sizes {
		sizes[i] = mib
	}
	for first := begin; first < begin+n+batch; first += batch { // beyond its end: the first are evicted
		st, err := w.PrepareStore(ctx, 0, keys(first, batch), sizes, 10*time.Second)
		if err != nil {
			return err
		}
		for i := range batch {
			if st.Slot(i) == nil {
				return fmt.Errorf("key %d is %s", first+i, st.Status(i))
			}
			copy(st.Slot(i), bytes.Repeat([]byte{byte(first + i)}, mib))
		}
		if err := st.Commit(ctx); err != nil {
			return err
		}
		if err := read(ctx, w, first, batch); err != nil {
			return err
		}
	}
	return nil
}

// read reads n values that fill has stored, from memory or disk.
func read(ctx context.Context, w *client.Worker, first, n int) error {
	r, err := w.Retrieve(ctx, 0, keys(first, n), client.RetrieveOptions{Load: true})
	if err != nil {
		return err
	}
	for i, v := range r.Values() {
		if !bytes.Equal(v, bytes.Repeat([]byte{byte(first + i)}, mib)) {
			return fmt.Errorf("value %d is not what was stored", first+i)
		}
	}
	return r.Release(ctx)
}

// work waits for a line, uses all of a pool, says so and waits for the end of its input.
func work(addr string) error {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if addr == touchAddr {
		b, err := unix.Mmap(-1, 0, groupPool, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += os.Getpagesize() {
			b[i] = 1
		}
		fmt.Println("done")
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w, err := client.Open(ctx, addr, client.Options{Logger: slog.New(slog.DiscardHandler)}, client.Registration{Layouts: []client.Layout{chunk}})
	if err != nil {
		return err
	}
	if err := fill(ctx, w, 0); err != nil {
		return err
	}
	fmt.Println("done")
	_, _ = io.Copy(io.Discard, in)
	return w.Close()
}

// A confined is a process in a control group of little memory.
type confined struct {
	cmd    *exec.Cmd
	group  *l1test.Group
	said   string
	stderr bytes.Buffer
}

// confine runs a worker, or who touches memory of its own, in a small group until it says
// something or ends.
func confine(t *testing.T, addr string) *confined {
	t.Helper()
	c := &confined{group: l1test.NewGroup(t, "memory"), cmd: exec.Command(os.Args[0])}
	c.group.Limit("memory", groupLimit)
	c.cmd.Env = append(os.Environ(), workerEnv+"="+addr)
	c.cmd.Stderr = &c.stderr
	in, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = in.Close()
			_ = c.cmd.Wait() // the test looks at its state
		}
	}
	t.Cleanup(end)
	c.group.Add(c.cmd.Process.Pid)
	_, err = io.WriteString(in, "go\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(out).ReadString('\n')
	c.said = strings.TrimSpace(line)
	if err != nil {
		end()
	}
	return c
}

// Shared memory is charged to the group of who touches it first. That is the server, so
// that a worker may have a pool that is larger than all the memory it is allowed.
func TestTheServerPaysForThePool(t *testing.T) {
	s := startChild(t, func(c *childConfig) { c.Size = groupPool })
	w := confine(t, s.addr())
	require.Equal(t, "done", w.said, "%v %s", w.cmd.ProcessState, &w.stderr)
	pid := w.cmd.Process.Pid
	// All of it is mapped there, not only what was used.
	require.Eventually(t, func() bool {
		return l1test.Smaps(t, pid, "slotcache_l1_pool", "Rss") == groupPool
	}, patience, 10*time.Millisecond)
	used := w.group.Usage("memory")
	t.Logf("the worker uses %d MiB of %d allowed, and has a pool of %d MiB mapped", used/mib, groupLimit/mib, groupPool/mib)
	require.Less(t, used, int64(groupLimit))
	require.Zero(t, w.group.Kills())
}

// The limit of the test before bites: who touches as much memory first is killed.
func TestWhoTouchesMemoryFirstPaysForIt(t *testing.T) {
	c := confine(t, touchAddr)
	require.Empty(t, c.said)
	require.Equal(t, syscall.SIGKILL, c.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.Equal(t, 1, c.group.Kills())
}

func TestAllOfAWorkersMappingIsPopulated(t *testing.T) {
	s := startChild(t, func(c *childConfig) { c.Size = 96 * mib })
	w := worker(t, s.addr(), client.Registration{})
	require.Eventually(t, func() bool { // a mapping of an earlier test may still be there
		return l1test.Smaps(t, os.Getpid(), "slotcache_l1_pool", "Rss") >= w.PoolSize()
	}, patience, 10*time.Millisecond, "not touched, but mapped")
}

func TestAPoolOfHugePagesServesWorkers(t *testing.T) {
	l1test.HugePages(t, 12)
	s := startChild(t, func(c *childConfig) { c.Size, c.HugePages, c.L2Dir = 23*mib, l1.HugeOn, t.TempDir() })
	w := worker(t, s.addr(), client.Registration{})
	require.Equal(t, proto.TransportShared, w.Transport())
	require.EqualValues(t, 24*mib, w.PoolSize(), "whole pages")
	require.NoError(t, fill(within(t), w, 0))
	// The first are on disk only, and are read back into huge pages.
	require.NoError(t, read(within(t), w, 0, 4))
	reader := worker(t, s.addr(), client.Registration{ReadOnly: true})
	require.NoError(t, read(within(t), reader, 0, 1))
	require.Eventually(t, func() bool {
		return mappedHuge(t) == 2*24*mib
	}, patience, 10*time.Millisecond, "the worker's and the reader's")

	// A server that dies gives the pages back when its workers do; the next has them.
	s.kill()
	require.NoError(t, reader.Close())
	require.NoError(t, w.Close())
	require.Eventually(t, func() bool { return l1test.HugePagesFree(t) == 12 }, patience, 10*time.Millisecond)
	s.start()
	again := worker(t, s.addr(), client.Registration{})
	require.NoError(t, fill(within(t), again, 1000))
}

// mappedHuge is how many bytes of pools are mapped here by huge pages that were set aside.
func mappedHuge(t *testing.T) int64 {
	return l1test.Smaps(t, os.Getpid(), "slotcache_l1_pool", "Shared_Hugetlb") +
		l1test.Smaps(t, os.Getpid(), "slotcache_l1_pool", "Private_Hugetlb")
}

func TestTooFewHugePagesServeNobodyOrByOthers(t *testing.T) {
	l1test.HugePages(t, 4)
	s := startChild(t, func(c *childConfig) { c.HugePages = l1.HugeTry })
	w := worker(t, s.addr(), client.Registration{})
	require.NoError(t, fill(within(t), w, 0))
	require.Equal(t, 4, l1test.HugePagesFree(t))
}

func TestANamedPoolMayBeElsewhere(t *testing.T) {
	for kind, options := range map[string]string{"tmpfs": "size=64m,huge=always", "hugetlbfs": "pagesize=2M"} {
		t.Run(kind, func(t *testing.T) {
			l1test.HugePages(t, 8)
			dir := l1test.Mount(t, kind, options)
			name := "elsewhere"
			s := startChild(t, func(c *childConfig) { c.ShmName, c.ShmDir, c.HugePages = &name, dir, l1.HugeOn })
			reg := client.Registration{Layouts: []client.Layout{chunk}}
			w, err := client.Open(within(t), s.addr(), client.Options{Logger: slog.New(slog.DiscardHandler), ShmDir: dir}, reg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, w.Close()) })
			require.Equal(t, proto.TransportShared, w.Transport())
			require.NoError(t, fill(within(t), w, 0))
			// Who is not told where goes on without it.
			w = worker(t, s.addr(), client.Registration{})
			require.Equal(t, proto.TransportInline, w.Transport())
		})
	}
}

func TestAPlacedPoolServesWorkers(t *testing.T) {
	for _, place := range []l1.Placement{{Policy: l1.PlaceInterleave}, {Policy: l1.PlaceBind}} {
		s := startChild(t, func(c *childConfig) { c.Placement = place })
		w := worker(t, s.addr(), client.Registration{})
		require.NoError(t, fill(within(t), w, 0))
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/numa_maps", s.cmd.Process.Pid))
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("the kernel knows no NUMA nodes")
		}
		require.NoError(t, err)
		found := false
		for line := range strings.Lines(string(maps)) {
			word, _, _ := strings.Cut(place.String(), ":")
			found = found || strings.Contains(line, "slotcache_l1_pool") && strings.Contains(line, " "+word) && strings.Contains(line, "N0=")
		}
		require.True(t, found, "%s", maps)
		s.stop()
	}
}
