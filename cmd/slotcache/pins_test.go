package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
)

// The pins here outlive the processes that ask for them: each command is one.
func TestValuesArePinnedAndLetGo(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, append(cmdtest.Small(dir), "--pin-budget", "2MiB", "--pin-time", "10m")...)
	require.Zero(t, cli(t, dir, "small", "put", "a", "-").Code)
	require.Zero(t, cli(t, dir, string(make([]byte, 2<<20)), "put", "b", "-").Code)
	require.Zero(t, cli(t, dir, string(make([]byte, 3<<20)), "put", "c", "-").Code)
	pinned := func() string {
		f := cmdtest.Fields(cli(t, dir, "", "stats").Stdout)
		return f["l1_pinned_soft_bytes"] + " " + f["l1_pinned_hard_bytes"]
	}

	r := cli(t, dir, "", "pin", "--ttl", "1h", "a")
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, "1 of 1 pinned for 10m0s\n", r.Stdout)
	require.Equal(t, "4096 0", pinned())
	r = cli(t, dir, "", "pin", "--hard", "a", "none")
	require.Equal(t, 3, r.Code)
	require.Contains(t, r.Stderr, `"none": not cached`)
	require.Equal(t, "0 4096", pinned())
	r = cli(t, dir, "", "pin", "b")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "the budget for pins is spent")
	r = cli(t, dir, "", "pin", "c")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "whole budget")
	require.Equal(t, 2, cli(t, dir, "", "pin", "--ttl", "-1s", "a").Code)

	require.Zero(t, cli(t, dir, "", "--namespace", "other", "unpin", "a").Code)
	require.Equal(t, "0 4096", pinned(), "another namespace's")
	r = cli(t, dir, "", "unpin", "a", "b")
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, "1 of 2 were pinned\n", r.Stdout)
	require.Equal(t, "0 0", pinned())
	require.Zero(t, cli(t, dir, "", "pin", "--hard", "b").Code)
	require.Zero(t, cli(t, dir, "", "rm", "b").Code)
	require.Equal(t, "0 0", pinned(), "removed")

	dir = cmdtest.Dir(t)
	cmdtest.Start(t, append(cmdtest.Small(dir), "--pin-budget", "0")...)
	require.Zero(t, cli(t, dir, "x", "put", "a", "-").Code)
	r = cli(t, dir, "", "pin", "a")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "--pin-budget")
}
