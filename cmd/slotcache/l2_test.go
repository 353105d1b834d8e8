package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
)

// stored fills the store of a server with ten values and one that is deleted, and more of other sizes, and stops it.
// It returns the store's directory.
func stored(t *testing.T, more ...int) string {
	t.Helper()
	dir := cmdtest.Dir(t)
	s := cmdtest.Start(t, cmdtest.Small(dir)...)
	for i := range 11 {
		require.Zero(t, cli(t, dir, strings.Repeat(fmt.Sprint(i), 5000), "put", fmt.Sprintf("k%d", i), "-").Code)
	}
	for _, size := range more {
		require.Zero(t, cli(t, dir, strings.Repeat("x", size), "put", fmt.Sprint(size), "-").Code)
	}
	store := filepath.Join(dir, "l2")
	r := cmdtest.Run(t, nil, "slotcache", "l2", "verify", store)
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, fmt.Sprintf("in use by pid %d", s.PID()))
	require.Contains(t, r.Stderr, "stop the server")
	require.Zero(t, cli(t, dir, "", "rm", "k10").Code)
	s.Signal(syscall.SIGTERM)
	require.Zero(t, s.Wait().Code)
	return store
}

func verified(t *testing.T, store string) (verification, cmdtest.Result) {
	t.Helper()
	r := cmdtest.Run(t, nil, "slotcache", "l2", "verify", store, "--json")
	var v verification
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &v), "%s%s", r.Stdout, r.Stderr)
	return v, r
}

func TestVerifyAndLsSeeWhatIsOnDisk(t *testing.T) {
	store := stored(t)
	v, r := verified(t, store)
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, 10, v.Visible)
	require.GreaterOrEqual(t, v.Records, 10)
	require.Zero(t, v.Bad)
	require.Empty(t, v.Ignored)
	require.Positive(t, v.Sealed, "an orderly stop seals")

	r = cmdtest.Run(t, nil, "slotcache", "l2", "ls", store, "--json")
	require.Zero(t, r.Code, r.Stderr)
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	require.Len(t, lines, 10)
	var x listed
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &x))
	require.EqualValues(t, 5000, x.Size)
	require.Len(t, x.Key, 64)

	r = cmdtest.Run(t, nil, "slotcache", "l2", "ls", store, "--all")
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, v.Records+v.Tombstones+1, strings.Count(r.Stdout, "\n"), "a line each, and a heading")
	require.Contains(t, r.Stdout, "tombstone")
}

func TestVerifyFindsFlippedBitsAndATornFile(t *testing.T) {
	store := stored(t, 100_000)
	r := cmdtest.Run(t, nil, "slotcache", "l2", "ls", store, "--json")
	var small, large listed
	for lines := json.NewDecoder(strings.NewReader(r.Stdout)); small.Size == 0 || large.Size == 0; {
		var x listed
		require.NoError(t, lines.Decode(&x))
		if x.Size == 100_000 {
			large = x
		} else {
			small = x
		}
	}
	require.Equal(t, small.Segment, large.Segment)
	path := filepath.Join(store, fmt.Sprintf("seg-%08d.slc", small.Segment))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	for _, x := range []listed{small, large} {
		at := x.Offset + x.Size/2
		b := make([]byte, 1)
		_, err = f.ReadAt(b, at)
		require.NoError(t, err)
		b[0] ^= 4
		_, err = f.WriteAt(b, at)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())

	v, r := verified(t, store)
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "2 bad records")
	require.Equal(t, []int{2, 2, 0}, []int{v.Bad, v.BadVisible, v.Unfinished})
	for _, d := range v.Damaged {
		require.Contains(t, []string{small.Key, large.Key}, d.Key)
		require.Contains(t, []int64{small.Offset, large.Offset}, d.Offset)
	}

	// A segment that a killed process was writing has no trailer. What it was writing may not be whole, and that is no failure; what it
	// had written is.
	info, err := os.Stat(path)
	require.NoError(t, err)
	f, err = os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 4096), info.Size()-4096)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	v, r = verified(t, store)
	require.Equal(t, 1, r.Code)
	require.Equal(t, []int{1, 1, 1}, []int{v.Bad, v.BadVisible, v.Unfinished})
	for _, d := range v.Damaged {
		require.Equal(t, d.Unfinished, d.Key == large.Key)
	}
	r = cmdtest.Run(t, nil, "slotcache", "l2", "ls", store)
	for line := range strings.Lines(r.Stdout) {
		require.Equal(t, strings.Contains(line, large.Key), strings.Contains(line, "visible, early"), line)
	}

	require.NoError(t, os.Truncate(path, 10000))
	v, r = verified(t, store)
	require.Zero(t, r.Code, "what is ignored is no bad record: %s", r.Stderr)
	require.Len(t, v.Ignored, 1)
	require.Contains(t, v.Ignored[0], "10000 bytes")
}

func TestVerifyRefusesWhatIsNoStoreAndLeavesItAlone(t *testing.T) {
	dir := cmdtest.Dir(t)
	for _, args := range [][]string{{"l2", "verify"}, {"l2", "ls"}} {
		r := cmdtest.Run(t, nil, "slotcache", append(args, dir)...)
		require.Equal(t, 1, r.Code)
		require.Contains(t, r.Stderr, "--l2-dir")
		r = cmdtest.Run(t, nil, "slotcache", append(args, filepath.Join(dir, "none"))...)
		require.Equal(t, 2, r.Code)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
