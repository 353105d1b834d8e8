package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/cmd/flags"
)

func TestMain(m *testing.M) { cmdtest.Main(m, "slotcached", "slotbench") }

// trace writes a small trace into a directory of the test's own.
func trace(t *testing.T, requests int) string {
	t.Helper()
	path := filepath.Join(cmdtest.Dir(t), "trace")
	require.NoError(t, benchmarks.WriteSynthetic(path, requests, 5))
	return path
}

// tidy gives the command a temporary directory and checks that nothing is left in it.
func tidy(t *testing.T) {
	t.Helper()
	dir := cmdtest.Dir(t)
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

func replay(t *testing.T, args ...string) benchmarks.Report {
	t.Helper()
	r := cmdtest.Run(t, nil, "slotbench", append([]string{"replay", "--json"}, args...)...)
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	var report benchmarks.Report
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &report))
	return report
}

func TestOneWorkerReachesTheRatioOfAnInfiniteCache(t *testing.T) {
	path := trace(t, 300)
	tidy(t)
	r := replay(t, "--trace", path, "--block-size", "16KiB", "--l1-size", "4MiB", "--l2-size", "1GiB")
	require.Equal(t, int64(300), r.Requests)
	require.InDelta(t, r.InfiniteHitRatio, r.HitRatio, 1e-9, "the disk holds everything")
	require.Equal(t, r.Blocks, r.HitBlocks+r.Missed)
	require.Equal(t, r.HitBlocks, r.MemoryHits+r.DiskHits)
	require.Equal(t, r.Missed, r.Stored)
	require.Positive(t, r.DiskHits)
	require.Zero(t, r.WrongBytes+r.Errors+r.FailedStores+r.Existed)
	require.Empty(t, r.Leak)
	require.Zero(t, r.Pending.Instances+r.Pending.Transfers+r.Pending.Staged+r.Pending.Held)
	require.Equal(t, r.Pending.Resident, r.Pending.Used)
	require.NotNil(t, r.ServerCPU)
}

func TestABrokenOffRunLeavesNothing(t *testing.T) {
	path := trace(t, 1000)
	for _, sig := range flags.EndSignals() {
		tidy(t)
		cmd := exec.Command(cmdtest.Path("slotbench"), "replay", "--trace", path, "--l1-size", "16MiB", "--l2-size", "64MiB")
		out, err := cmd.StderrPipe() // which ends with the last process that has it
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan(), "it tells how far it is")
		require.NoError(t, cmd.Process.Signal(sig))
		last := ""
		for lines.Scan() {
			last = lines.Text()
		}
		require.Error(t, cmd.Wait())
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%v", sig)
		require.Equal(t, "slotbench: interrupted", last)
	}
}

func TestBlocksOfAnyLengthAndWithoutDiskAreRight(t *testing.T) {
	path := trace(t, 100)
	tidy(t)
	r := replay(t, "--trace", path, "--block-size", "10001", "--workers", "2", "--l1-size", "16MiB", "--l2-size", "0")
	require.Equal(t, int64(100), r.Requests)
	require.Zero(t, r.DiskHits)
	require.Positive(t, r.MemoryHits)
	require.Zero(t, r.WrongBytes+r.Errors)
}

func TestRequestsLargerThanThePoolAreHandledInPieces(t *testing.T) {
	path := filepath.Join(cmdtest.Dir(t), "trace")
	ids := make([]string, 64)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	line := `{"hash_ids": [` + strings.Join(ids, ",") + "]}\n"
	require.NoError(t, os.WriteFile(path, []byte(line+line), 0o600))
	tidy(t)
	r := replay(t, "--trace", path, "--block-size", "256KiB", "--l1-size", "4MiB", "--l2-size", "256MiB")
	require.Equal(t, int64(64), r.HitBlocks, "the second request finds all of the first, 16 MiB of it in a pool of 4")
	require.Zero(t, r.WrongBytes+r.Errors+r.FailedStores)
}

func TestAServerThatRunsIsDriven(t *testing.T) {
	path := trace(t, 50)
	dir := cmdtest.Dir(t)
	s := cmdtest.Start(t, cmdtest.Small(dir)...)
	tidy(t)
	r := replay(t, "--trace", path, "--addr", cmdtest.Addr(dir), "--block-size", "16KiB", "--workers", "2")
	require.Equal(t, int64(50), r.Requests)
	require.NotNil(t, r.ServerCPU)
	require.Zero(t, r.WrongBytes+r.Errors)
	pid, err := benchmarks.PeerPID(cmdtest.Addr(dir))
	require.NoError(t, err)
	require.Equal(t, s.PID(), pid)
	s.Signal(syscall.SIGTERM)
	require.Zero(t, s.Wait().Code)
}

func TestTheTableIsForPeople(t *testing.T) {
	path := trace(t, 20)
	tidy(t)
	r := cmdtest.Run(t, nil, "slotbench", "replay", "--trace", path, "--block-size", "4KiB", "--l1-size", "8MiB", "--l2-size", "64MiB")
	require.Zero(t, r.Code, r.Stderr)
	for _, word := range []string{"prefix hits", "wrong bytes", "GB/s", "nothing: no transfer"} {
		require.Contains(t, r.Stdout, word)
	}
}

func TestAKilledServerIsSurvived(t *testing.T) {
	tidy(t)
	r := cmdtest.Run(t, nil, "slotbench", "crash", "server", "--rounds", "2", "--requests", "1500", "--seed", "11")
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	require.Contains(t, r.Stdout, "killed the server 2 times")
}

func TestKilledWorkersLeaveNothing(t *testing.T) {
	tidy(t)
	r := cmdtest.Run(t, nil, "slotbench", "torture", "--clients", "--loops", "3", "--seed", "12", "--json")
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	var report benchmarks.ClientsReport
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &report))
	require.Equal(t, []int{12, 3, 3, 3, 3}, []int{report.Killed, report.Storing, report.Reading, report.Loading, report.Sending})
	require.Positive(t, report.Files)
	require.Positive(t, report.Checked)
}

func TestTheDemonstrationHolds(t *testing.T) {
	tidy(t)
	r := cmdtest.Run(t, nil, "slotbench", "demo")
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	require.Contains(t, r.Stdout, "all of it held")
}

func TestAnInterruptedDemonstrationCleansUp(t *testing.T) {
	tidy(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(cmdtest.Path("slotbench"), "demo")
	cmd.Stdout = w
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	require.NoError(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	first := make([]byte, 1)
	_, err = r.Read(first) // the server runs now
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.NoError(t, r.Close())
}

func TestAServerThatCannotBeStartedAgainEndsTheReplay(t *testing.T) {
	path := trace(t, 2000)
	tidy(t)
	flag := filepath.Join(cmdtest.Dir(t), "server") // a server that starts only once
	script := "#!/bin/sh\nif [ -e " + flag + ".ran ]; then echo worn out >&2; exit 1; fi\ntouch " + flag + ".ran\nexec " + cmdtest.Path("slotcached") + " \"$@\"\n"
	require.NoError(t, os.WriteFile(flag, []byte(script), 0o700))
	r := cmdtest.Run(t, nil, "slotbench", "crash", "server", "--server", flag, "--trace", path, "--rounds", "1")
	require.Equal(t, 1, r.Code, "%s%s", r.Stdout, r.Stderr)
	require.Contains(t, r.Stderr, "worn out", "the server's own words")
}

func TestAServerThatCannotStartIsAnError(t *testing.T) {
	path := trace(t, 5)
	tidy(t)
	r := cmdtest.Run(t, nil, "slotbench", "replay", "--trace", path, "--server-arg=--no-such-flag")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "no-such-flag", "the server's own words")
}

func TestAWrongCommandLineEndsWithTwo(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"replay"},
		{"replay", "--trace", "x", "--workers", "0"},
		{"replay", "--trace", "x", "--block-size", "0"},
		{"replay", "--trace", "x", "--addr", "nowhere"},
		{"replay", "--trace", "x", "--server", "/none"},
		{"replay", "--trace", "x", "--l2-dir", "/none"},
		{"crash"},
		{"crash", "server", "--rounds", "0"},
		{"torture", "--clients", "--block-size", "0"},
		{"attack", "--time", "1ms"},
		{"attack", "--only", "connect,nosuch"},
		{"gc", "--rounds", "0"},
		{"demo", "now"},
		{"hitratio", "--trace", "x", "--plot", "/none/x.svg"},
		{"report", "--json", "/none/x"},
		{"report", "--html", "/"},
	} {
		r := cmdtest.Run(t, nil, "slotbench", args...)
		require.Equal(t, 2, r.Code, "%v: %s", args, r.Stderr)
	}
	r := cmdtest.Run(t, nil, "slotbench", "replay", "--trace", "/none")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "/none")
}
