package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/proto"
)

// counter reads one of a server's numbers.
func counter(t *testing.T, c *client.Conn, name string) uint64 {
	t.Helper()
	all, err := c.Stats(context.Background())
	require.NoError(t, err)
	for _, n := range all {
		if n.Name == name {
			return n.Value
		}
	}
	t.Fatalf("no number %s", name)
	return 0
}

// attach registers a worker for one value.
func attach(t *testing.T, addr string) *client.Worker {
	t.Helper()
	w, err := client.Open(context.Background(), addr, client.Options{}, client.Registration{
		Name: "test", Layouts: []client.Layout{{Name: "bytes", Size: 1 << 20}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// It was the server that did nothing for longer than the time after which silent workers end.
func TestAServerThatWasStoppedReapsNobody(t *testing.T) {
	dir := cmdtest.Dir(t)
	s := cmdtest.Start(t, append(cmdtest.Small(dir), "--reap-after", "2s")...)
	w := attach(t, cmdtest.Addr(dir))
	before := w.Incarnation()
	s.Signal(syscall.SIGSTOP)
	for !stopped(t, s.PID()) {
		time.Sleep(time.Millisecond)
	}
	asked := make(chan error)
	go func() {
		_, err := w.Ping(context.Background())
		asked <- err
	}()
	time.Sleep(4 * time.Second)
	s.Signal(syscall.SIGCONT)
	require.NoError(t, <-asked)
	require.Equal(t, before, w.Incarnation())
	require.Zero(t, counter(t, w.Conn(), "reaped_instances_total"))
}

// stopped says whether all threads of a process are.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

func TestASilentWorkerIsReapedAndComesBack(t *testing.T) {
	dir := cmdtest.Dir(t)
	s := cmdtest.Start(t, append(cmdtest.Small(dir), "--reap-after", "100ms")...)
	w := attach(t, cmdtest.Addr(dir))
	eye, err := client.Dial(context.Background(), cmdtest.Addr(dir), client.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, eye.Close()) }()
	for end := time.Now().Add(time.Minute); counter(t, eye, "reaped_instances_total") == 0; time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "it is not reaped")
	}
	store, err := w.PrepareStore(context.Background(), 0, []client.Key{{1}}, []uint64{100}, 0)
	require.NoError(t, err, "it registers again by itself")
	require.NoError(t, store.Abort(context.Background()))
	s.Signal(syscall.SIGTERM)
	require.Contains(t, s.Wait().Stderr, "a worker was silent for too long")
}

// A server in a PID namespace of its own does not know the numbers of processes outside.
func TestAWorkerOfAnotherPIDNamespaceIsWatched(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a PID namespace here")
	}
	apart := func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} }
	asItIs := func(*exec.Cmd) {}
	for name, c := range map[string]struct{ server, worker func(*exec.Cmd) }{
		"the server in one": {apart, asItIs},
		"the worker in one": {asItIs, apart},
		"each in one":       {apart, apart},
	} {
		t.Run(name, func(t *testing.T) {
			dir := cmdtest.Dir(t)
			cmdtest.StartAs(t, c.server, cmdtest.Small(dir)...)
			eye, err := client.Dial(context.Background(), cmdtest.Addr(dir), client.Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, eye.Close()) }()
			cmd := exec.Command(cmdtest.Path("slotbench"), "stage", "--addr", cmdtest.Addr(dir), "--slots", "4")
			c.worker(cmd)
			require.NoError(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill() }()
			for end := time.Now().Add(time.Minute); counter(t, eye, "l1_staged_bytes") == 0; time.Sleep(time.Millisecond) {
				require.True(t, time.Now().Before(end), "it does not store")
			}
			list, err := eye.Instances(context.Background())
			require.NoError(t, err)
			require.Equal(t, proto.TransportShared, list[0].Transport, "it is watched, so it may have memory")
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			for end := time.Now().Add(time.Minute); counter(t, eye, "instances") > 0; time.Sleep(time.Millisecond) {
				require.True(t, time.Now().Before(end), "its end is not noticed")
			}
			require.Zero(t, counter(t, eye, "l1_used_bytes"))
		})
	}
}

// pidfdsAreFiles says whether the kernel's pidfds have a file system of their own, by which a process can be told from others.
func pidfdsAreFiles(t *testing.T) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	var fs unix.Statfs_t
	require.NoError(t, unix.Fstatfs(fd, &fs))
	return fs.Type == unix.PID_FS_MAGIC
}

// TestAWorkerOfAnotherPIDNamespaceIsKnownAgain: a worker of another PID namespace loses its connection, and with it all that it
// had. The server does not see its number, but knows it for the same process.
func TestAWorkerOfAnotherPIDNamespaceIsKnownAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a PID namespace here")
	}
	dir := cmdtest.Dir(t)
	cmdtest.StartAs(t, func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} }, cmdtest.Small(dir)...)
	open := func() *client.Worker {
		w, err := client.Open(context.Background(), cmdtest.Addr(dir), client.Options{}, client.Registration{
			Instance: 5, Layouts: []client.Layout{{Name: "l", Size: 1 << 20}},
		})
		require.NoError(t, err)
		require.Equal(t, proto.TransportShared, w.Transport())
		t.Cleanup(func() { _ = w.Close() })
		return w
	}
	w := open()
	list, err := w.Conn().Instances(context.Background())
	require.NoError(t, err)
	require.Zero(t, list[0].PID, "the server sees its number")
	st, err := w.PrepareStore(context.Background(), 0, []client.Key{{1}}, []uint64{5}, 0)
	require.NoError(t, err)
	again := open()
	list, err = w.Conn().Instances(context.Background())
	require.NoError(t, err)
	if !pidfdsAreFiles(t) {
		t.Skip("pidfds have no file system of their own, which is from Linux 6.9 on")
	}
	require.Equal(t, w.Incarnation(), again.Incarnation(), "it is not known for the same process")
	require.Len(t, list, 1)
	require.NoError(t, st.Commit(context.Background()))
}

// The loop waits in the kernel without telling Go's scheduler, and all else needs a processor.
func TestOneProcessorIsEnough(t *testing.T) {
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		t.Skip("no taskset")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	web := l.Addr().String()
	require.NoError(t, l.Close())
	for name, change := range map[string]func(*exec.Cmd){
		"GOMAXPROCS=1": func(c *exec.Cmd) { c.Env = append(os.Environ(), "GOMAXPROCS=1") },
		"taskset": func(c *exec.Cmd) {
			c.Args = append([]string{taskset, "-c", "0", c.Path}, c.Args[1:]...)
			c.Path = taskset
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := cmdtest.Dir(t)
			s := cmdtest.StartAs(t, change, "--listen", cmdtest.Addr(dir), "--l1-size", "16MiB", "--http", web,
				"--l2-dir", filepath.Join(dir, "l2"), "--l2-size", "64MiB")
			value := strings.Repeat("x", 1<<20)
			for i := range 20 {
				key := string(rune('a' + i))
				r := cmdtest.Run(t, strings.NewReader(value), "slotcache", "--addr", cmdtest.Addr(dir), "put", key, "-")
				require.Zero(t, r.Code, r.Stderr)
				answer, err := http.Get("http://" + web + "/metrics")
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, answer.StatusCode)
				require.NoError(t, answer.Body.Close())
			}
			require.Equal(t, value, cmdtest.Run(t, nil, "slotcache", "--addr", cmdtest.Addr(dir), "get", "a", "-").Stdout)
			s.Signal(syscall.SIGTERM)
			require.Zero(t, s.Wait().Code)
		})
	}
}
