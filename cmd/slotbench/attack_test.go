package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/benchmarks/attack"
	"github.com/slotcache/slotcache/cmd/cmdtest"
)

// A mixed attack beside one honest client: no error for it, no wrong byte, no memory and no descriptor that stays. How
// long it waits is measured by the command, not here.
func TestAnAttackIsNoErrorForAnHonestClient(t *testing.T) {
	tidy(t)
	kinds := attack.Kinds()
	if cmdtest.Race { // under which a server takes minutes for what floods of whole requests have sent it
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "requests" || kind == "stores" || kind == "deaf" })
	}
	args := []string{"attack", "--time", "1s", "--rounds", "1", "--l1-size", "64MiB", "--seed", "7", "--lenient", "--json"}
	for _, kind := range kinds {
		args = append(args, "--only", kind)
	}
	r := cmdtest.Run(t, nil, "slotbench", args...)
	var report attack.Report
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &report), r.Stderr)
	require.Len(t, report.Phases, 3)
	for _, p := range report.Phases {
		require.Zero(t, p.Errors, p.Example)
		require.Positive(t, p.Checked)
		require.GreaterOrEqual(t, p.StolenMost, p.Stolen)
		for _, s := range p.Steps {
			require.Positive(t, s.Calls, s.Step)
			require.Len(t, s.SlowerRounds, map[string]int{"idle": 0, "control": 1, "attack": 1}[p.Phase])
		}
	}
	require.Len(t, report.Attacks, len(kinds))
	for _, a := range report.Attacks {
		require.Positive(t, a.Connections, a.Kind)
	}
	require.LessOrEqual(t, report.After.Files, report.Before.Files)
	if !cmdtest.Race { // which keeps memory of its own
		require.Zero(t, r.Code, r.Stderr)
	}
}
