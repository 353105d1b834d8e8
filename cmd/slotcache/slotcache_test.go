package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(hoarderEnv); addr != "" {
		hoard(addr)
		return
	}
	cmdtest.Main(m, "slotcached", "slotcache")
}

// cli runs slotcache against the server of a directory.
func cli(t *testing.T, dir, stdin string, args ...string) cmdtest.Result {
	t.Helper()
	return cmdtest.Run(t, strings.NewReader(stdin), "slotcache", append([]string{"--addr", cmdtest.Addr(dir)}, args...)...)
}

func TestValuesGoInAndOut(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)

	r := cli(t, dir, "hello", "put", "greeting", "-")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "5 bytes")
	r = cli(t, dir, "", "get", "greeting", "-")
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, "hello", r.Stdout)

	r = cli(t, dir, "another", "put", "greeting", "-")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "already")
	require.Equal(t, "hello", cli(t, dir, "", "get", "greeting", "-").Stdout)

	r = cli(t, dir, "", "rm", "greeting")
	require.Zero(t, r.Code, r.Stderr)
	r = cli(t, dir, "", "get", "greeting", "-")
	require.Equal(t, 3, r.Code)
	require.Contains(t, r.Stderr, `"greeting": not cached`)
	require.Empty(t, r.Stdout)

	r = cli(t, dir, "", "rm", "greeting", "other")
	require.Equal(t, 3, r.Code)
	require.Contains(t, r.Stderr, "2 of 2")
}

func TestOneValueIsNotSeveral(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	require.Contains(t, cli(t, dir, "", "clear").Stdout, "removed 0 values from")
	require.Zero(t, cli(t, dir, "hello", "put", "a", "-").Code)
	require.Contains(t, cli(t, dir, "", "clear").Stdout, "removed 1 value from")
}

func TestValuesOfAllSizesComeBackByteForByte(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	rnd := rand.NewChaCha8([32]byte{seed})
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	for _, size := range []int{0, 1, 4095, 4096, 4097, 1 << 20, 5<<20 + 3} {
		value := make([]byte, size)
		_, _ = rnd.Read(value) // never fails
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		require.NoError(t, os.WriteFile(in, value, 0o600))
		name := filepath.Base(in) + string(rune('a'+size%26))
		r := cli(t, dir, "", "put", name, in)
		require.Zero(t, r.Code, "%d: %s", size, r.Stderr)
		r = cli(t, dir, "", "get", name, out)
		require.Zero(t, r.Code, "%d: %s", size, r.Stderr)
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		require.True(t, bytes.Equal(value, got), size)
		require.Zero(t, cli(t, dir, "", "rm", name).Code)
	}
}

func TestAMissLeavesTheFileAlone(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	path := filepath.Join(dir, "precious")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.Equal(t, 3, cli(t, dir, "", "get", "none", path).Code)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
}

func TestNamespacesAreApartAndClearedApart(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	for _, ns := range []string{"a", "b"} {
		require.Zero(t, cli(t, dir, "in "+ns, "--namespace", ns, "put", "k", "-").Code)
	}
	require.Equal(t, 3, cli(t, dir, "", "get", "k", "-").Code)
	require.Equal(t, "in a", cli(t, dir, "", "--namespace", "a", "get", "k", "-").Stdout)

	r := cli(t, dir, "", "--namespace", "a", "clear")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "removed 1 ")
	require.Equal(t, 3, cli(t, dir, "", "--namespace", "a", "get", "k", "-").Code)
	require.Equal(t, "in b", cli(t, dir, "", "--namespace", "b", "get", "k", "-").Stdout)
}

func TestValuesOutliveTheServer(t *testing.T) {
	dir := cmdtest.Dir(t)
	s := cmdtest.Start(t, cmdtest.Small(dir)...)
	require.Zero(t, cli(t, dir, "kept", "put", "k", "-").Code)
	require.Zero(t, cli(t, dir, "gone", "put", "deleted", "-").Code)
	require.Zero(t, cli(t, dir, "", "rm", "deleted").Code)
	s.Signal(15)
	require.Zero(t, s.Wait().Code)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	require.Equal(t, "kept", cli(t, dir, "", "get", "k", "-").Stdout)
	require.Equal(t, 3, cli(t, dir, "", "get", "deleted", "-").Code)
}

func TestTheServerTellsHowItDoes(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	require.Zero(t, cli(t, dir, "x", "put", "k", "-").Code)

	r := cli(t, dir, "", "ping")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "answers in")

	r = cli(t, dir, "", "stats", "--json")
	require.Zero(t, r.Code, r.Stderr)
	var stats map[string]uint64
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &stats))
	require.Equal(t, uint64(16<<20), stats["l1_capacity_bytes"])
	require.Equal(t, uint64(1), stats["l1_objects"])

	r = cli(t, dir, "", "stats")
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, "16777216", cmdtest.Fields(r.Stdout)["l1_capacity_bytes"])

	r = cli(t, dir, "", "instances")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "QUARANTINED")
	r = cli(t, dir, "", "transfers")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "HANDLE")

	r = cli(t, dir, "", "version")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "server at")
}

func TestErrorsSayWhatToDo(t *testing.T) {
	dir := cmdtest.Dir(t)
	for _, args := range [][]string{{"ping"}, {"stats"}, {"instances"}, {"transfers"}, {"instances", "evict", "1"}, {"put", "k", "-"}, {"get", "k", "-"}, {"rm", "k"}, {"pin", "k"}, {"unpin", "k"}, {"clear"}} {
		r := cli(t, dir, "", args...)
		require.Equal(t, 1, r.Code, "%v", args)
		require.Contains(t, r.Stderr, "s.sock", "%v", args)
		require.Contains(t, r.Stderr, "start one with slotcached", "%v", args)
	}
	require.Zero(t, cli(t, dir, "", "version").Code, "the version needs no server")

	r := cli(t, dir, "", "put", "k", filepath.Join(dir, "none"))
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "no such file")

	cmdtest.Start(t, cmdtest.Small(dir)...)
	r = cli(t, dir, strings.Repeat("x", 17<<20), "put", "k", "-")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "--l1-size")
	r = cli(t, dir, "x", "get", "k", filepath.Join(dir, "none", "file"))
	require.Equal(t, 3, r.Code)
	require.Zero(t, cli(t, dir, "x", "put", "k", "-").Code)
	r = cli(t, dir, "", "get", "k", filepath.Join(dir, "none", "file"))
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "no such file")
}

func TestATokenIsAskedFor(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, append(cmdtest.Small(dir), "--token", "sesame")...)
	r := cli(t, dir, "", "ping")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "SLOTCACHE_TOKEN")
	require.Zero(t, cli(t, dir, "", "--token", "sesame", "ping").Code)
	file := filepath.Join(dir, "token")
	r = cli(t, dir, "", "--token-file", file, "ping")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "--token-file: stat "+file)
	require.NoError(t, os.WriteFile(file, []byte("sesame\n"), 0o600))
	require.Zero(t, cli(t, dir, "", "--token-file", file, "ping").Code)
	t.Setenv("SLOTCACHE_TOKEN", "sesame")
	require.Zero(t, cli(t, dir, "", "ping").Code)
}

func TestAWrongCommandLineEndsWithTwo(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"dance"},
		{"put", "k"},
		{"get"},
		{"rm"},
		{"--addr", "nowhere", "ping"},
		{"--timeout", "soon", "ping"},
		{"ping", "pong"},
		{"instances", "evict"},
		{"instances", "evict", "xyz"},
		{"instances", "drop"},
		{"--namespace", strings.Repeat("x", 65), "ping"},
	} {
		r := cmdtest.Run(t, nil, "slotcache", args...)
		require.Equal(t, 2, r.Code, "%v: %s", args, r.Stderr)
		require.NotEmpty(t, r.Stderr)
	}
	require.Zero(t, cmdtest.Run(t, nil, "slotcache", "--help").Code)
	require.Zero(t, cmdtest.Run(t, nil, "slotcache", "put", "--help").Code)
}

func TestTheAddressCanComeFromTheEnvironment(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	t.Setenv("SLOTCACHE_ADDR", cmdtest.Addr(dir))
	require.Zero(t, cmdtest.Run(t, nil, "slotcache", "ping").Code)
}

// A flag goes before the environment, and there a file before a word.
func TestATokenOfTheCommandLineGoesFirst(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, append(cmdtest.Small(dir), "--token", "sesame")...)
	right, wrong := filepath.Join(dir, "right"), filepath.Join(dir, "wrong")
	require.NoError(t, os.WriteFile(right, []byte("# a comment\nsesame\n"), 0o600))
	require.NoError(t, os.WriteFile(wrong, []byte("other\n"), 0o600))
	for _, c := range []struct {
		file, word string // of the environment
		args       []string
		code       int
	}{
		{"", "sesame", []string{"ping"}, 0},
		{right, "other", []string{"ping"}, 0},
		{wrong, "sesame", []string{"ping"}, 1},
		{"", "other", []string{"--token-file", right, "ping"}, 0},
		{wrong, "other", []string{"--token", "sesame", "ping"}, 0},
		{"", "sesame", []string{"--token-file", wrong, "ping"}, 1},
		{"", "", []string{"--token", "sesame", "--token-file", right, "ping"}, 2},
	} {
		t.Setenv("SLOTCACHE_TOKEN_FILE", c.file)
		t.Setenv("SLOTCACHE_TOKEN", c.word)
		require.Equal(t, c.code, cli(t, dir, "", c.args...).Code, "%+v", c)
	}
}

// A server is waited for from before it listens, and not for ever.
func TestPingWaitsForAServerThatStarts(t *testing.T) {
	dir := cmdtest.Dir(t)
	done := make(chan cmdtest.Result)
	go func() { done <- cli(t, dir, "", "ping", "--wait", "1m") }()
	cmdtest.Start(t, cmdtest.Small(dir)...)
	r := <-done
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "of memory ready")

	begin := time.Now()
	r = cli(t, cmdtest.Dir(t), "", "--timeout", "20ms", "ping", "--wait", "300ms") // the one is for a question, the other for all
	require.Greater(t, time.Since(begin), 250*time.Millisecond)
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "no server there")
}
