package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/benchmarks"
	"github.com/slotcache/slotcache/benchmarks/report"
	"github.com/slotcache/slotcache/cmd/cmdtest"
)

func TestHitRatiosOfAllPoliciesAreToldForEachCapacity(t *testing.T) {
	path := trace(t, 300)
	plot := filepath.Join(t.TempDir(), "plot.svg")
	r := cmdtest.Run(t, nil, "slotbench", "hitratio", "--json", "--trace", path, "--capacity", "100%,5%", "--plot", plot)
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	var got []benchmarks.HitRatio
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &got))
	require.Len(t, got, 10)
	requests, err := benchmarks.ReadTrace(path, 0)
	require.NoError(t, err)
	blocks, hits := benchmarks.InfiniteHits(requests)
	for i, x := range got {
		require.Equal(t, path, x.Trace)
		if i%2 == 1 {
			require.InDelta(t, float64(hits)/float64(blocks), x.Ratio, 1e-9, "%s has room for everything", x.Policy)
		}
	}
	require.FileExists(t, plot)

	r = cmdtest.Run(t, nil, "slotbench", "hitratio", "--trace", path, "--policy", "lru")
	require.Zero(t, r.Code)
	require.Contains(t, r.Stdout, "policy")
	require.Contains(t, r.Stdout, "30%")

	full := filepath.Join(t.TempDir(), "plot.svg")
	require.NoError(t, os.Symlink("/dev/full", full))
	r = cmdtest.Run(t, nil, "slotbench", "hitratio", "--trace", path, "--policy", "lru,fifo,lru", "--capacity", "1%,0.01", "--plot", full)
	require.Equal(t, 1, r.Code, "the plot has nowhere to go")
	require.Regexp(t, `\Apolicy +1%\nlru +0\.\d+\nfifo +0\.\d+\n\z`, r.Stdout, "but what was measured is told, each once")
}

func TestHitRatioRefusesWhatCannotBeMeant(t *testing.T) {
	path := trace(t, 3)
	for _, args := range [][]string{
		{"--capacity", "0%"},
		{"--capacity", "101%"},
		{"--capacity", "much"},
		{"--capacity", "NaN"},
		{"--capacity", ""},
		{"--policy", "magic"},
		{"--policy", ""},
		{"--plot", "x.png"},
		{"--block-size", "1GiB"},
		{"--requests=-1"},
	} {
		r := cmdtest.Run(t, nil, "slotbench", append([]string{"hitratio", "--trace", path}, args...)...)
		require.Equal(t, 2, r.Code, "%v: %s%s", args, r.Stdout, r.Stderr)
	}
	_, err := os.Stat("x.png")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAllocTellsTheUtilisationOfEachMixture(t *testing.T) {
	r := cmdtest.Run(t, nil, "slotbench", "alloc", "--json")
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	var got []benchmarks.Allocation
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &got))
	require.NotEmpty(t, got)
	for _, x := range got {
		require.GreaterOrEqual(t, x.Utilisation, 0.85, x.Mix)
	}
}

func TestLatenciesBesideABusyDisk(t *testing.T) {
	r := cmdtest.Run(t, nil, "slotbench", append([]string{"mixed", "--dir", cmdtest.Dir(t), "--json"}, quickest...)...)
	require.Zero(t, r.Code, r.Stderr)
	var run report.Run
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &run))
	require.Len(t, run.Figures, 2)
	for i, name := range []string{"l1_p99_under_l2", "l2_load_p99_under_l2"} {
		f := run.Figures[i]
		require.Equal(t, name, f.Figure)
		require.NotNil(t, f.Ratio, f.Why)
		require.Positive(t, *f.Ratio)
	}
	for _, m := range run.Measurements {
		require.Positive(t, m.P99, m.Name)
		if strings.Contains(m.Name, "disk busy") {
			require.Positive(t, m.Value, "the disk was idle")
		}
	}
}
