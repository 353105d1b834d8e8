package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/cmd/cmdtest"
)

func TestATorturedServerLosesAndInventsNothing(t *testing.T) {
	tidy(t)
	r := cmdtest.Run(t, nil, "slotbench", "torture", "--loops", "8", "--seed", "5", "--keys", "100", "--largest", "128KiB", "--json")
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	require.Contains(t, r.Stderr, "seed 5")
	var report benchmarks.TortureReport
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &report))
	require.Equal(t, 8, report.Loops)
	require.Positive(t, report.Acked)
	require.Positive(t, report.Served)
	require.Positive(t, report.ReadyMax)
	require.Equal(t, 8, report.KillsPaused+report.KillsLoaded)
	require.NotContains(t, r.Stderr, "panic")
}

func TestTheDiskStoreIsHeldAgainstFio(t *testing.T) {
	tidy(t)
	dir := cmdtest.Dir(t)
	r := cmdtest.Run(t, nil, "slotbench", "l2", "--dir", dir, "--size", "1MiB", "--rounds", "1", "--bytes", "64MiB", "--depth", "4", "--json")
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	var figures []benchmarks.L2Figure
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &figures))
	names := []string{"write_1m", "read_1m", "write_copy_1m", "read_copy_1m", "write_plain_1m", "read_plain_1m"}
	require.Len(t, figures, len(names))
	for i, name := range names {
		f := &figures[i]
		require.Equal(t, name, f.Figure)
		require.Positive(t, f.Value)
		if i%2 == 1 {
			require.EqualValues(t, 64<<20, f.Verified)
			require.EqualValues(t, 64<<20, f.Compared)
		}
		require.Equal(t, f.Reference == nil, f.Ratio == nil)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
