package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/proto"
)

// spoil stores a block that differs in one byte from what it must be.
func spoil(t *testing.T, addr string, id uint64, size int) {
	t.Helper()
	ctx := context.Background()
	w, err := client.Open(ctx, addr, client.Options{}, client.Registration{
		Namespace: "slotbench", Layouts: []client.Layout{{Name: "slotbench", Size: uint64(size)}},
	})
	require.NoError(t, err)
	key := benchmarks.BlockKey(id)
	value := make([]byte, size)
	benchmarks.Fill(&key, value)
	value[size/2] ^= 1
	status, err := w.Put(ctx, 0, key, value)
	require.NoError(t, err)
	require.Equal(t, proto.StatusOK, status)
	require.NoError(t, w.Close())
}

func TestOneWrongByteIsFound(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	path := filepath.Join(dir, "trace")
	require.NoError(t, os.WriteFile(path, []byte(`{"hash_ids": [1, 2, 3]}`+"\n"), 0o600))
	spoil(t, cmdtest.Addr(dir), 1, 8192)
	r := cmdtest.Run(t, nil, "slotbench", "replay", "--json", "--trace", path, "--addr", cmdtest.Addr(dir), "--block-size", "8KiB")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "1 bytes were wrong")
	var report benchmarks.Report
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &report))
	require.Equal(t, int64(1), report.WrongBytes)
	require.Equal(t, int64(1), report.HitBlocks)
}

func TestStageGivesTheServersToken(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, append(cmdtest.Small(dir), "--token", "right")...)
	stage := []string{"stage", "--addr", cmdtest.Addr(dir), "--slots", "32"}
	r := cmdtest.Run(t, nil, "slotbench", stage...)
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "denied")
	r = cmdtest.Run(t, nil, "slotbench", append(stage, "--token", strings.Repeat("x", 65))...)
	require.Equal(t, 2, r.Code)
	require.Contains(t, r.Stderr, "the token has 65 bytes")

	// With the right one it runs until it is killed.
	t.Setenv("SLOTCACHE_TOKEN", "right")
	cmd := exec.Command(cmdtest.Path("slotbench"), stage...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	require.NoError(t, err)
	require.Contains(t, line, "does not commit")
}
