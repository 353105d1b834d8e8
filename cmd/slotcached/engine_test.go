package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/ring/ringtest"
)

// confinedEnv, in the environment, makes the test binary confine itself and become the command in its arguments.
const confinedEnv = "SLOTCACHED_TEST_CONFINED"

// nobody is a user without rights.
const nobody = 65534

// becomeConfined does what the environment says: "errno N" has the calls of io_uring fail with N, "memlock N" lets a user without
// rights lock N bytes.
func becomeConfined(spec string) error {
	runtime.LockOSThread()
	word, number, _ := strings.Cut(spec, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return err
	}
	switch word {
	case "errno":
		err = ringtest.Forbid(unix.Errno(n), unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_ENTER)
	case "memlock":
		if err = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: n, Max: n}); err == nil && os.Getuid() == 0 {
			if err = syscall.Setgroups(nil); err == nil {
				err = syscall.Setgid(nobody)
			}
			if err == nil {
				err = syscall.Setuid(nobody)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", spec, err)
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// confine has a command run confined.
func confine(spec string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Args = append([]string{os.Args[0], cmd.Path}, cmd.Args[1:]...)
		cmd.Path, cmd.Env = os.Args[0], append(os.Environ(), confinedEnv+"="+spec)
	}
}

// runConfined runs a command confined, to its end.
func runConfined(t *testing.T, spec string, stdin io.Reader, name string, args ...string) cmdtest.Result {
	t.Helper()
	cmd := exec.Command(cmdtest.Path(name), args...)
	confine(spec)(cmd)
	return cmdtest.RunCmd(t, stdin, cmd)
}

// servesConfined checks that a confined server keeps values, also on disk, and gives its stats.
func servesConfined(t *testing.T, spec, dir string) map[string]string {
	t.Helper()
	run := func(stdin io.Reader, args ...string) string {
		r := runConfined(t, spec, stdin, "slotcache", append([]string{"--addr", cmdtest.Addr(dir)}, args...)...)
		require.Zero(t, r.Code, "%v: %s", args, r.Stderr)
		return r.Stdout
	}
	value := strings.Repeat("some bytes ", 300_000)
	for i := range 8 { // more than the pool
		run(strings.NewReader(value), "put", fmt.Sprint("key-", i), "-")
	}
	for i := range 8 {
		require.True(t, value == run(nil, "get", fmt.Sprint("key-", i), "-"), "key %d", i)
	}
	return cmdtest.Fields(run(nil, "stats"))
}

// io_uring_setup gives EPERM in containers, and ENOSYS in others: the server goes on with epoll and says why in one line, unless
// io_uring was asked for.
func TestASandboxWithoutIoUringIsServedByEpoll(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			spec := fmt.Sprint("errno ", int(errno))
			dir := cmdtest.Dir(t)
			s := cmdtest.StartAs(t, confine(spec), append(cmdtest.Small(dir), "--io-engine", "auto")...)
			require.Equal(t, "1", servesConfined(t, spec, dir)[`io_engine{engine="epoll"}`])
			s.Signal(syscall.SIGTERM)
			r := s.Wait()
			require.Zero(t, r.Code, r.Stderr)
			require.Equal(t, 1, strings.Count(r.Stderr, "no io_uring"), r.Stderr)
			require.Regexp(t, "no io_uring.*"+unix.ErrnoName(errno)+", kernel.io_uring_disabled is ", r.Stderr)

			r = runConfined(t, spec, nil, "slotcached", append(cmdtest.Small(dir), "--io-engine", "uring")...)
			require.Equal(t, 1, r.Code, r.Stderr)
			require.Regexp(t, "io_uring is missing.*"+unix.ErrnoName(errno)+", kernel.io_uring_disabled is .*kernel.io_uring_disabled to 0", r.Stderr)
		})
	}
}

// freeAddr is an address that nobody listened at a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// scrape reads the metrics at addr.
func scrape(t *testing.T, addr string) map[string]string {
	t.Helper()
	r, err := http.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			values[name] = value
		}
	}
	return values
}

// Registered buffers exceed RLIMIT_MEMLOCK, and a small limit not even lets a ring be made: the server of a user without rights starts,
// uses no registered memory for the pool and says so in a line and a metric.
func TestASmallAllowanceOfLockedMemoryIsNoHindrance(t *testing.T) {
	for _, limit := range []int{64 << 10, 8 << 20} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			spec := fmt.Sprint("memlock ", limit)
			dir, http := cmdtest.Dir(t), freeAddr(t)
			require.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // the server is another user's
			s := cmdtest.StartAs(t, confine(spec), "--listen", cmdtest.Addr(dir), "--l1-size", "16MiB",
				"--l2-dir", filepath.Join(dir, "l2"), "--l2-size", "64MiB", "--http", http, "--io-engine", "auto")
			stats, metrics := servesConfined(t, spec, dir), scrape(t, http)
			engine := "uring"
			if stats[`io_engine{engine="epoll"}`] == "1" {
				engine = "epoll"
			}
			t.Logf("%d bytes: %s", limit, engine)
			require.Equal(t, "1", metrics[`slotcache_io_engine{engine="`+engine+`"}`])
			require.Equal(t, "0", metrics["slotcache_pool_registered_bytes"])
			require.NotEqual(t, "0", metrics["slotcache_ring_plain_io_total"])
			s.Signal(syscall.SIGTERM)
			r := s.Wait()
			require.Zero(t, r.Code, r.Stderr)
			require.Equal(t, 1, strings.Count(r.Stderr, "disk I/O without registered memory"), r.Stderr)
			require.Equal(t, engine == "epoll", strings.Contains(r.Stderr, "no io_uring"), r.Stderr)
			if need := regexp.MustCompile(`\(ulimit -l\) to (\d+) KiB`).FindStringSubmatch(r.Stderr); engine == "uring" {
				require.Len(t, need, 2, r.Stderr)
				kib, err := strconv.Atoi(need[1])
				require.NoError(t, err)
				t.Run("with enough", func(t *testing.T) { startsWithEnough(t, uint64(kib)<<10) })
			}
		})
	}
}

// startsWithEnough is a server of the same size that may lock what the line said: it has nothing to say.
func startsWithEnough(t *testing.T, limit uint64) {
	var own unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &own))
	if limit > own.Max { // which this user may raise, or not: only trying tells
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: own.Cur, Max: limit}); err != nil {
			t.Skipf("%d bytes are more than this user may give: %v", limit, err)
		}
		defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &own)) }()
	}
	spec := fmt.Sprint("memlock ", limit)
	dir, http := cmdtest.Dir(t), freeAddr(t)
	require.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // the server is another user's
	s := cmdtest.StartAs(t, confine(spec), "--listen", cmdtest.Addr(dir), "--l1-size", "16MiB",
		"--l2-dir", filepath.Join(dir, "l2"), "--l2-size", "64MiB", "--http", http, "--io-engine", "auto")
	servesConfined(t, spec, dir)
	require.Equal(t, "16777216", scrape(t, http)["slotcache_pool_registered_bytes"])
	s.Signal(syscall.SIGTERM)
	r := s.Wait()
	require.Zero(t, r.Code, r.Stderr)
	require.NotContains(t, r.Stderr, "without registered memory")
}
