package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// system writes the files of a small /proc and /sys.
func system(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

const meminfo = "MemTotal:       16384000 kB\nMemFree:         1024 kB\nMemAvailable:    8388608 kB\n"

func TestFreeMemoryIsWhatTheKernelAndTheGroupsLeave(t *testing.T) {
	const cgroup = "sys/fs/cgroup/"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no groups": {nil, 8 << 30},
		"no limit": {map[string]string{
			"proc/self/cgroup":              "0::/a/b\n",
			cgroup + "a/b/memory.max":       "max\n",
			cgroup + "a/b/memory.current":   "4096\n",
			cgroup + "memory.max":           "max\n",
			cgroup + "a/memory.current":     "4096\n",
			cgroup + "a/memory.max":         "max\n",
			cgroup + "elsewhere/memory.max": "1\n",
		}, 8 << 30},
		"a limit above": {map[string]string{
			"proc/self/cgroup":            "0::/a/b\n",
			cgroup + "a/b/memory.max":     "max\n",
			cgroup + "a/b/memory.current": "4096\n",
			cgroup + "a/memory.max":       "2147483648\n",
			cgroup + "a/memory.current":   "1073741824\n",
			cgroup + "a/memory.stat":      "anon 5\ninactive_file 536870912\n",
		}, 3 << 29},
		"a container's own root": {map[string]string{
			"proc/self/cgroup":        "0::/\n",
			cgroup + "memory.max":     "1073741824\n",
			cgroup + "memory.current": "0\n",
		}, 1 << 30},
		"more used than allowed": {map[string]string{
			"proc/self/cgroup":        "0::/\n",
			cgroup + "memory.max":     "1000\n",
			cgroup + "memory.current": "2000\n",
		}, 0},
		"version one": {map[string]string{
			"proc/self/cgroup":                        "5:cpu,cpuacct:/x\n4:memory:/x\n",
			cgroup + "memory/x/memory.limit_in_bytes": "1073741824\n",
			cgroup + "memory/x/memory.usage_in_bytes": "536870912\n",
			cgroup + "memory/memory.limit_in_bytes":   "9223372036854771712\n",
			cgroup + "memory/memory.usage_in_bytes":   "536870912\n",
		}, 1 << 29},
	} {
		files := map[string]string{"proc/meminfo": meminfo}
		for k, v := range c.files {
			files[k] = v
		}
		got, err := freeMemory(system(t, files))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	_, err := freeMemory(system(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n"}))
	require.ErrorContains(t, err, "MemAvailable")
	_, err = freeMemory(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestTotalMemoryIsTheLeastLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no groups": {map[string]string{"proc/meminfo": meminfo}, 16384000 << 10},
		"a limit above": {map[string]string{
			"proc/meminfo":               meminfo,
			"proc/self/cgroup":           "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "2147483648\n",
		}, 2 << 30},
		"version one's word for no limit": {map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 16384000 << 10},
		"only a limit": {map[string]string{
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "4096\n",
		}, 4096},
	} {
		got, ok := totalMemory(system(t, c.files))
		require.True(t, ok, name)
		require.Equal(t, c.want, got, name)
	}
	_, ok := totalMemory(t.TempDir())
	require.False(t, ok)
}

func TestFreeMemoryOfThisMachineIsPlausible(t *testing.T) {
	got, err := freeMemory("/")
	require.NoError(t, err)
	require.Positive(t, got)
}

func TestTheDiskStoreGoesToTheUsersCache(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/x/cache")
	t.Setenv("HOME", "/home/u")
	dir, err := defaultL2Dir()
	require.NoError(t, err)
	require.Equal(t, "/x/cache/slotcache", dir)
	t.Setenv("XDG_CACHE_HOME", "")
	dir, err = defaultL2Dir()
	require.NoError(t, err)
	require.Equal(t, "/home/u/.cache/slotcache", dir)
	t.Setenv("HOME", "")
	_, err = defaultL2Dir()
	require.Error(t, err)
}

func TestTheStoreThatIsThereCountsAsFree(t *testing.T) {
	dir := t.TempDir()
	require.Zero(t, usage(filepath.Join(dir, "none")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "segment"), make([]byte, 1<<20), 0o600))
	require.GreaterOrEqual(t, usage(dir), int64(1<<20))
	require.Equal(t, dir, existing(filepath.Join(dir, "a", "b")))
}

// Segments follow the size that was asked for: few of them fit where it is far too large.
func TestAStoreLargerThanItsFileSystemIsToldOf(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	warnL2Size(t.TempDir(), 1<<20, log)
	require.Empty(t, text.String())
	warnL2Size(t.TempDir(), 1<<60, log)
	require.Contains(t, text.String(), "has=")
	require.Contains(t, text.String(), "give it less")
}
