package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/benchmarks/collect"
	"github.com/slotcache/slotcache/cmd/cmdtest"
)

// Raw system calls block the scheduler or the collector: a server that collects without end, while it sleeps and while
// it works, goes on collecting and answers every call. How long that takes is measured by the command, not here.
func TestAServerThatCollectsWithoutEndAnswers(t *testing.T) {
	tidy(t)
	r := cmdtest.Run(t, nil, "slotbench", "gc", "--rounds", "1", "--time", "200ms", "--l1-size", "16MiB", "--lenient", "--json")
	require.Zero(t, r.Code, r.Stderr)
	var report collect.Report
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &report), r.Stdout)
	require.Len(t, report.Cells, 6)
	for _, c := range report.Cells {
		require.Positive(t, c.Calls, "%+v", c)
		if c.Always {
			require.Positive(t, c.Count, "collections while the server does: %s", c.Work)
		}
	}
}
