package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
)

// A stop that is cut short: SIGTERM, and SIGKILL some milliseconds later. Whatever was being
// written then, the next server starts by itself, and what it has is whole.
func TestAStopCutShortNeverNeedsAHuman(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := cmdtest.Dir(t)
	args := append(cmdtest.Small(dir), "--l2-write", "back") // it has everything still to write
	value := func(round, i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%d/%d ", round, i), 30_000) }
	const values = 4
	for round, ms := range []int{0, 1, 2, 5, 10, 20, 50, 100, 3, 30} {
		s := cmdtest.Start(t, args...)
		require.NotContains(t, s.Line, "without")
		for old := range round {
			for i := range values {
				key, file := fmt.Sprintf("%d/%d", old, i), filepath.Join(dir, "out")
				if random.IntN(3) > 0 {
					continue
				}
				r := cmdtest.Run(t, nil, "slotcache", "--addr", cmdtest.Addr(dir), "get", key, file)
				require.Contains(t, []int{0, 3}, r.Code, r.Stderr) // there, or a miss
				if r.Code == 0 {
					got, err := os.ReadFile(file)
					require.NoError(t, err)
					require.True(t, bytes.Equal(value(old, i), got), "%s has wrong bytes", key)
				}
			}
		}
		for i := range values {
			r := cmdtest.Run(t, bytes.NewReader(value(round, i)), "slotcache", "--addr", cmdtest.Addr(dir), "put", fmt.Sprintf("%d/%d", round, i), "-")
			require.Zero(t, r.Code, r.Stderr)
		}
		s.Signal(syscall.SIGTERM)
		time.Sleep(time.Duration(ms) * time.Millisecond) // the moment of the kill, not an order of events
		s.Kill()
	}
}

// Whatever becomes of the files that a start reads, the next server starts, and says which it
// did not take.
func TestDamagedFilesOfTheStoreNeverNeedAHuman(t *testing.T) {
	harms := map[string]func(file string) error{
		"empty": func(file string) error { return os.Truncate(file, 0) },
		"half": func(file string) error {
			info, err := os.Stat(file)
			return errors.Join(err, os.Truncate(file, info.Size()/2))
		},
		"random":          func(file string) error { return os.WriteFile(file, bytes.Repeat([]byte{0xA5, 7}, 4096), 0o600) },
		"a directory":     func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
		"a dangling link": func(file string) error { return errors.Join(os.Remove(file), os.Symlink(file+".none", file)) },
	}
	base := cmdtest.Dir(t)
	s := cmdtest.Start(t, cmdtest.Small(base)...)
	r := cmdtest.Run(t, strings.NewReader("value"), "slotcache", "--addr", cmdtest.Addr(base), "put", "key", "-")
	require.Zero(t, r.Code, r.Stderr)
	s.Signal(syscall.SIGTERM)
	require.Zero(t, s.Wait().Code)
	entries, err := os.ReadDir(filepath.Join(base, "l2"))
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, entry := range entries {
		kind := strings.Split(entry.Name(), "-")[0] // one segment stands for all
		if seen[kind] {
			continue
		}
		seen[kind] = true
		for name, harm := range harms {
			t.Run(entry.Name()+" "+name, func(t *testing.T) {
				dir := cmdtest.Dir(t)
				require.NoError(t, os.CopyFS(filepath.Join(dir, "l2"), os.DirFS(filepath.Join(base, "l2"))))
				require.NoError(t, os.Chmod(filepath.Join(dir, "l2"), 0o700))
				require.NoError(t, harm(filepath.Join(dir, "l2", entry.Name())))
				s := cmdtest.Start(t, cmdtest.Small(dir)...)
				r := cmdtest.Run(t, nil, "slotcache", "--addr", cmdtest.Addr(dir), "get", "key", filepath.Join(dir, "out"))
				require.Contains(t, []int{0, 3}, r.Code, r.Stderr)
				r = cmdtest.Run(t, strings.NewReader("other"), "slotcache", "--addr", cmdtest.Addr(dir), "put", "other", "-")
				require.Zero(t, r.Code, r.Stderr)
				s.Signal(syscall.SIGTERM)
				end := s.Wait()
				require.Zero(t, end.Code, end.Stderr)
			})
		}
	}
	require.GreaterOrEqual(t, len(seen), 3, "the marker, the lock and a segment: %v", seen)
}
