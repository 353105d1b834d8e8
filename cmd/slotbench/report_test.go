package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/benchmarks/peers"
	"github.com/slotcache/slotcache/benchmarks/report"
	"github.com/slotcache/slotcache/cmd/cmdtest"
)

// quickest is as little as can be measured.
var quickest = []string{"--rounds", "1", "--time", "2ms", "--objects", "3000", "--idle", "40", "--pool", "160MiB"}

// figures are those of the report, in their order.
var figures = strings.Fields(`ping_p50 ping_p50_spin prepare_commit_p50 rps_16 cpu_per_request_16 syscalls_1 syscalls_16
	syscalls_256 allocs store_32m store_1m store_16x1m retrieve_zero_copy_32m set_64k_redis get_64k_redis set_1m_redis
	get_1m_redis get_1m_zero_copy_redis set_32m_memcached get_32m_memcached set_32m_pickle get_32m_pickle lookup_512
	lookup_50k_stall l1_p99_under_l2 store_4workers conns_10k_p99 rss_1m_objects prepare_commit_chained_p50 l2_load_p99_under_l2`)

// absent tells whether a figure is held against a peer that is not on this machine.
func absent(figure string) bool {
	for _, kind := range []peers.Kind{peers.Redis, peers.Memcached, peers.Pickle} {
		if _, err := peers.Find(kind); err != nil && strings.HasSuffix(figure, string(kind)) {
			return true
		}
	}
	return false
}

func TestReportHasEveryFigure(t *testing.T) {
	dir := cmdtest.Dir(t)
	tidy(t)
	path, page := filepath.Join(dir, "figures.json"), filepath.Join(dir, "report.html")
	r := cmdtest.Run(t, nil, "slotbench", append([]string{"report", "--json", path, "--html", page}, quickest...)...)
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, len(figures))
	for i, line := range lines {
		var f report.Figure
		require.NoError(t, json.Unmarshal([]byte(line), &f))
		require.Equal(t, figures[i], f.Figure)
		require.NotEmpty(t, f.Target)
		if absent(f.Figure) {
			require.Nil(t, f.Value)
			require.NotEmpty(t, f.Why)
			continue
		}
		require.NotNil(t, f.Value, "%s: %s", f.Figure, f.Why)
		require.Equal(t, 1, f.Runs)
		if f.Ratio != nil {
			require.InEpsilon(t, *f.Value / *f.ReferenceValue, *f.Ratio, 1e-9, f.Figure)
		}
		require.Contains(t, r.Stdout, f.Figure)
	}
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.GreaterOrEqual(t, strings.Count(string(html), "<svg"), 3)
}

func TestMatricesOfRequestsValuesAndPeersAreMeasured(t *testing.T) {
	for _, args := range [][]string{
		{"rpc", "--free", "--conns", "1,16"},
		{"data", "--size", "64KiB"},
		{"peers", "--size", "64KiB"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			tidy(t)
			r := cmdtest.Run(t, nil, "slotbench", append(append(args, "--json"), quickest...)...)
			require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
			var run report.Run
			require.NoError(t, json.Unmarshal([]byte(r.Stdout), &run))
			require.Greater(t, len(run.Measurements), 5)
			if i := slices.IndexFunc(run.Measurements, func(m report.Measurement) bool { return m.Name == "ping, 1 conns, unpinned" }); i >= 0 {
				require.Positive(t, run.Measurements[i].Calls)
				require.NotNil(t, run.Measurements[i].Allocs)
			} else {
				require.NotEqual(t, "rpc", args[0])
			}
			for _, m := range run.Measurements {
				if m.Why == "" {
					require.Positive(t, m.Rate, m.Name)
				} else {
					require.Contains(t, m.Why, "skipped", m.Name)
				}
			}
		})
	}
}

// What was measured is printed, though the file that was to have it cannot be written.
func TestAReportIsSeenThoughItsFileCannotBeWritten(t *testing.T) {
	r := cmdtest.Run(t, nil, "slotbench", "report", "--quick", "--rounds", "1", "--time", "10ms", "--only", "ping_p50",
		"--json", "/dev/full")
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "ping_p50")
	require.Contains(t, r.Stderr, "/dev/full")
}

func TestReportRefusesWhatCannotBeMeant(t *testing.T) {
	for _, args := range [][]string{
		{"report", "--only", "speed"},
		{"report", "--rounds=-1"},
		{"report", "--objects=0"},
		{"rpc", "--time", "1h"},
		{"rpc", "--conns", "0"},
		{"data", "--size", "1GiB"},
		{"peers", "--size", "0"},
	} {
		r := cmdtest.Run(t, nil, "slotbench", args...)
		require.Equal(t, 2, r.Code, "%v: %s%s", args, r.Stdout, r.Stderr)
	}
}
