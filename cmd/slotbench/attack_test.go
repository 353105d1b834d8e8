package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/benchmarks/attack"
	"github.com/slotcache/slotcache/cmd/cmdtest"
)

// A mixed attack beside one honest client: no error for it, no wrong byte, no memory and no descriptor that stays. How
// long it waits is measured by the command, not here.
func TestAnAttackIsNoErrorForAnHonestClient(t *testing.T) {
	tidy(t)
	r := cmdtest.Run(t, nil, "slotbench", "attack", "--time", "1500ms", "--l1-size", "64MiB", "--seed", "7", "--lenient", "--json")
	var report attack.Report
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &report), r.Stderr)
	require.Len(t, report.Phases, 3)
	for _, p := range report.Phases {
		require.Zero(t, p.Errors, p.Example)
		require.Positive(t, p.Checked)
	}
	require.Len(t, report.Attacks, len(attack.Kinds()))
	for _, a := range report.Attacks {
		require.Positive(t, a.Connections, a.Kind)
	}
	require.LessOrEqual(t, report.After.Files, report.Before.Files)
	if !cmdtest.Race { // which keeps memory of its own
		require.Zero(t, r.Code, r.Stderr)
	}
}
