package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/cmd/flags"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(confinedEnv); spec != "" {
		fmt.Fprintln(os.Stderr, becomeConfined(spec)) // or another program by now
		os.Exit(1)
	}
	cmdtest.Main(m, "slotcached", "slotcache", "slotbench")
}

func TestAWrongCommandLineEndsWithTwo(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--no-such-flag"}, "no-such-flag"},
		{[]string{"word"}, "word"},
		{[]string{"--l1-size", "plenty"}, "is not a size"},
		{[]string{"--l1-size", "64KiB"}, "--l1-size: 64KiB is less than 1MiB"},
		{[]string{"--l1-size=0"}, "--l1-size: 0B is less than 1MiB"},
		{[]string{"--l2-size=0"}, "--l2-dir ''"},
		{[]string{"--l2-size", "1MiB"}, "--l2-size: 1MiB is less than 16MiB"},
		{[]string{"--spin=-1s"}, "--spin"},
		{[]string{"--spin", "1h"}, "--spin: 1h0m0s is not between 0, for none, and 1s"},
		{[]string{"--look=-1s"}, "--look"},
		{[]string{"--look", "1h"}, "--look: 1h0m0s is not between 0, for none, and 10ms"},
		{[]string{"--l2-records=-1"}, "--l2-records: -1 is not between 1 and"},
		{[]string{"--l2-records", "0"}, "--l2-records: 0 is not between 1 and"},
		{[]string{"--connections", "0"}, "--connections: 0 is not between 1 and"},
		{[]string{"--connections", "99999999"}, "--connections"},
		{[]string{"--reap-after=-1s"}, "--reap-after"},
		{[]string{"--shm-name", "a/b"}, "--shm-name"},
		{[]string{"--shm-name", "a b"}, "--shm-name"},
		{[]string{"--shm-mode", "0660"}, "give --shm-name"},
		{[]string{"--shm-mode", "0660", "--shm-name="}, "give --shm-name"},
		{[]string{"--shm-mode", "0", "--shm-name", "a"}, "--shm-mode"},
		{[]string{"--token", strings.Repeat("x", 80)}, "the token has 80 bytes, at most 64"},
		{[]string{"--listen", "unix:/x/y", "--listen", "unix:/x/y"}, "unix:/x/y is given twice"},
		{[]string{"--listen", "nowhere"}, "unix:PATH or tcp:HOST:PORT"},
		{[]string{"--listen", "tcp:80"}, "port is missing"},
		{[]string{"--l2-write", "sideways"}, "l2-write"},
		{[]string{"--l2-admit", "some"}, "l2-admit"},
		{[]string{"--l1-policy", "clairvoyant"}, "l1-policy"},
		{[]string{"--l1-size", "16MiB", "--pin-budget", "17MiB"}, "--pin-budget"},
		{[]string{"--pin-time", "0s"}, "--pin-time"},
		{[]string{"--pin-time", "1200h"}, "--pin-time"},
		{[]string{"--log-level", "loud"}, `"loud" is no level: give debug, info, warn or error`},
		{[]string{"--http", "nowhere"}, "HOST:PORT"},
		{[]string{"--shm-mode", "999"}, "octal"},
		{[]string{"--shm-group", "12345"}, "give --shm-name"},
		{[]string{"--shm-group", "no-such-group", "--shm-name", "a"}, "--shm-group"},
		{[]string{"--shm-dir", "/dev/shm"}, "give --shm-name"},
		{[]string{"--shm-dir", "/proc", "--shm-name", "a"}, "neither a tmpfs nor a hugetlbfs"},
		{[]string{"--hugepages", "maybe"}, "off"},
		{[]string{"--numa", "everywhere"}, "bind:N"},
		{[]string{"--numa", "bind:-1"}, "bind:N"},
		{[]string{"--l2-dir=", "--l2-size", "1GiB"}, "--l2-size"},
		{[]string{"--l2-dir=", "--l2-write-limit", "1MiB"}, "--l2-write-limit is given"},
		{[]string{"--l2-dir=", "--l2-records", "5000"}, "--l2-records is given"},
		{[]string{"--l2-stall-time=-1s"}, "--l2-stall-time"},
		{[]string{"--l2-stall-time", "1ns"}, "--l2-stall-time: 1ns is not between 100ms and 1h"},
		{[]string{"--l2-write-limit", "1"}, "--l2-write-limit: 1B a second is less than 1MiB"},
		{[]string{"--token="}, "--token: it is empty"},
		{[]string{"--token-file="}, "--token-file: its name is empty"},
		{[]string{"--l2-write-limit", "0"}, "leave it out"},
		{[]string{"--l2-write-limit", "fast"}, "is not a size"},
		{[]string{"--token", "a", "--token-file", "b"}, "--token and --token-file"},
		{[]string{"--socket-mode", "rw"}, "--socket-mode: \"rw\" is not an octal mode"},
		{[]string{"--socket-mode", "0"}, "--socket-mode"},
		{[]string{"--socket-mode", "0660"}, "give --listen unix:PATH"},
		{[]string{"--socket-group", "no-such-group"}, "--socket-group"},
		{[]string{"--allow-uid", "me"}, "--allow-uid"},
	} {
		r := cmdtest.Run(t, nil, "slotcached", c.args...)
		require.Equal(t, 2, r.Code, "%v: %s", c.args, r.Stderr)
		require.Contains(t, r.Stderr, c.says)
		require.Empty(t, r.Stdout)
	}
}

// A variable of a unit that is not set must not let everybody in.
func TestAnEmptyTokenOfTheEnvironmentIsRefused(t *testing.T) {
	t.Setenv("SLOTCACHE_TOKEN", "")
	r := cmdtest.Run(t, nil, "slotcached", "--l1-size", "16MiB", "--l2-dir=")
	require.Equal(t, 2, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "SLOTCACHE_TOKEN: it is empty")
}

func TestHelpAndVersionEndWithZero(t *testing.T) {
	r := cmdtest.Run(t, nil, "slotcached", "--help")
	require.Zero(t, r.Code)
	require.Contains(t, r.Stdout, "--l1-size")
	require.Contains(t, r.Stdout, "Exit codes")
	r = cmdtest.Run(t, nil, "slotcached", "--version")
	require.Zero(t, r.Code)
	require.Contains(t, r.Stdout, "slotcached ")
}

func TestDefaultsLetItRunAsItIs(t *testing.T) {
	dir := cmdtest.Dir(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	s := cmdtest.Start(t, "--l1-size", "16MiB", "--http=") // a full-size pool takes its time, the metrics' port may be taken
	sock := filepath.Join(dir, "slotcache", "slotcached.sock")
	require.Contains(t, s.Line, "slotcache --addr unix:"+sock+" stats")
	info, err := os.Stat(filepath.Dir(sock))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	r := cmdtest.Run(t, nil, "slotcache", "ping")
	require.Zero(t, r.Code, r.Stderr)

	s.Signal(syscall.SIGTERM)
	require.Zero(t, s.Wait().Code)
	require.NoFileExists(t, sock)
}

func TestSignalsStopItCleanly(t *testing.T) {
	for _, sig := range flags.EndSignals() {
		s := cmdtest.Start(t, cmdtest.Small(cmdtest.Dir(t))...)
		s.Signal(sig.(syscall.Signal))
		r := s.Wait()
		require.Zero(t, r.Code, "%v: %s", sig, r.Stderr)
		require.Contains(t, r.Stderr, "stopping")
	}
}

func TestASecondSignalEndsIt(t *testing.T) {
	s := cmdtest.Start(t, cmdtest.Small(cmdtest.Dir(t))...)
	s.Signal(syscall.SIGTERM)
	s.Signal(syscall.SIGTERM)
	require.Contains(t, []int{0, 1}, s.Wait().Code, "by itself, not by the signal")
}

func TestASecondSignalEndsAServerThatIsReservingItsPool(t *testing.T) {
	dir := cmdtest.Dir(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	cmd := exec.Command(cmdtest.Path("slotcached"), "--listen", cmdtest.Addr(dir), "--l1-size", "1GiB", "--l2-dir=", "--http=")
	cmd.Stderr = w
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	lines := bufio.NewScanner(r)
	var said strings.Builder
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "listening") {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	require.NoError(t, cmd.Wait(), said.String())
	require.Contains(t, said.String(), "stop")
	require.NotContains(t, said.String(), "lost")
}

func TestADiskStoreLargerThanItsDiskIsWarnedOf(t *testing.T) {
	dir := cmdtest.Dir(t)
	args := []string{"--listen", cmdtest.Addr(dir), "--l1-size", "16MiB", "--l2-dir", filepath.Join(dir, "l2"), "--http="}
	r := cmdtest.Run(t, nil, "slotcached", append(args, "--l2-size", "8000TiB")...)
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "than the disk store's file system has")
	require.Contains(t, r.Stderr, "size=7.812PiB")
	require.Contains(t, r.Stderr, "has=")
	require.Contains(t, r.Stderr, "--l2-size): every 256 MiB take a file")
}

func TestTheTokenIsToldWrongFromMissing(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, append(cmdtest.Small(dir), "--token", "right")...)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 1, "asks for a token"},
		{[]string{"--token", "wrong"}, 1, "the token is not the server's"},
		{[]string{"--token", strings.Repeat("x", 65)}, 2, "the token has 65 bytes"},
		{[]string{"--timeout", "0"}, 2, "--timeout"},
		{[]string{"--timeout", "0s"}, 2, "--timeout"},
		{[]string{"--token", "right"}, 0, ""},
	} {
		r := cmdtest.Run(t, nil, "slotcache", append([]string{"--addr", cmdtest.Addr(dir), "ping"}, c.args...)...)
		require.Equal(t, c.code, r.Code, "%v: %s", c.args, r.Stderr)
		require.Contains(t, r.Stderr, c.says)
	}
}

// Reserving its pages would have the kernel end this server, or another process.
func TestAPoolLargerThanTheMachineIsRefused(t *testing.T) {
	dir := cmdtest.Dir(t)
	r := cmdtest.Run(t, nil, "slotcached", "--listen", cmdtest.Addr(dir), "--l1-size", "900TiB", "--l2-dir=", "--http=")
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "more than the")
	require.Contains(t, r.Stderr, "give less")
}

func TestASecondServerOnTheSocketIsRefused(t *testing.T) {
	dir := cmdtest.Dir(t)
	first := cmdtest.Start(t, cmdtest.Small(dir)...)
	r := cmdtest.Run(t, nil, "slotcached", "--listen", cmdtest.Addr(dir), "--l1-size", "16MiB", "--l2-dir=", "--http=")
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "s.sock")
	require.Zero(t, cmdtest.Run(t, nil, "slotcache", "--addr", cmdtest.Addr(dir), "ping").Code, "the first one serves on")

	first.Kill()
	second := cmdtest.Start(t, cmdtest.Small(dir)...)
	second.Signal(syscall.SIGTERM)
	require.Zero(t, second.Wait().Code, "what a killed server leaves is no hindrance")
}

func TestASecondServerOnTheDiskStoreIsRefused(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	r := cmdtest.Run(t, nil, "slotcached", "--listen", "unix:"+filepath.Join(dir, "other.sock"), "--l1-size", "16MiB",
		"--l2-dir", filepath.Join(dir, "l2"), "--l2-size", "64MiB", "--http=")
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "in use")
	require.Contains(t, r.Stderr, filepath.Join(dir, "l2"))
}

func TestAForeignDirectoryIsNotEaten(t *testing.T) {
	dir := cmdtest.Dir(t)
	photo := filepath.Join(dir, "l2", "photo.jpg")
	require.NoError(t, os.Mkdir(filepath.Dir(photo), 0o700))
	require.NoError(t, os.WriteFile(photo, []byte("dear to somebody"), 0o600))
	r := cmdtest.Run(t, nil, "slotcached", cmdtest.Small(dir)...)
	require.Equal(t, 1, r.Code, r.Stderr)
	require.FileExists(t, photo)
}

// listening lists where this machine listens on a TCP port, as the kernel writes it: in hexadecimal,
// the bytes of each word the last first.
func listening(t *testing.T, port string) []string {
	t.Helper()
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	var at []string
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if host, p, ok := strings.Cut(f[1], ":"); ok && p == fmt.Sprintf("%04X", n) && f[3] == "0A" {
				at = append(at, host)
			}
		}
	}
	return at
}

// TestMetricsAreOnLoopbackUnlessAnotherAddressIsNamed: numbers of the server for whoever asks on the
// network. Without a host they are on 127.0.0.1; all addresses have to be named.
func TestMetricsAreOnLoopbackUnlessAnotherAddressIsNamed(t *testing.T) {
	require.True(t, strings.HasPrefix(defaultHTTP, "127.0.0.1:"))
	_, port, err := net.SplitHostPort(freeAddr(t))
	require.NoError(t, err)
	for host, want := range map[string]string{"": "0100007F", "127.0.0.1": "0100007F", "0.0.0.0": "00000000"} {
		t.Run(host+":"+port, func(t *testing.T) {
			dir := cmdtest.Dir(t)
			s := cmdtest.Start(t, "--listen", cmdtest.Addr(dir), "--l1-size", "16MiB", "--l2-dir=", "--http", host+":"+port)
			at := listening(t, port)
			require.NotEmpty(t, scrape(t, "127.0.0.1:"+port))
			s.Kill()
			require.Equal(t, []string{want}, at)
		})
	}
}

func TestOnlyTheDefaultMetricsAddressMayBeTaken(t *testing.T) {
	l, err := net.Listen("tcp", defaultHTTP)
	if err == nil {
		defer l.Close() //nolint:errcheck // nothing is sent
	} // else somebody else has it, which is as good
	dir := cmdtest.Dir(t)
	small := []string{"--listen", cmdtest.Addr(dir), "--l1-size", "16MiB", "--l2-dir="}
	s := cmdtest.Start(t, small...)
	s.Signal(syscall.SIGTERM)
	r := s.Wait()
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "no metrics")

	r = cmdtest.Run(t, nil, "slotcached", append(small, "--http", defaultHTTP)...)
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, defaultHTTP)
}
