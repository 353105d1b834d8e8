// Package l1test changes the machine for tests of the pool's memory and puts it
// back: huge pages set aside, mounts and control groups. Where it may not, the
// test is skipped and says why.
package l1test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/mounttest"
)

const (
	hugeDir = "/sys/kernel/mm/hugepages"
	// HugeSize is the size of the huge pages of [HugePages], in bytes.
	HugeSize = 2 << 20
	// settleTries bounds how often the machine is looked at until it is at rest.
	settleTries = 1000
)

// HugePages has n huge pages of 2 MiB free until the end of the test. Tests of
// other processes that want the same wait meanwhile.
func HugePages(t testing.TB, n int) {
	t.Helper()
	dir := filepath.Join(hugeDir, "hugepages-2048kB")
	alone(t, hugeDir)
	// Pages of a process that ended go away a little later.
	for range settleTries {
		if number(t, dir, "surplus_hugepages") == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if number(t, dir, "surplus_hugepages") > 0 || number(t, dir, "nr_overcommit_hugepages") > 0 {
		t.Skip("the kernel makes huge pages on demand, so that their number does not stay")
	}
	old, free, reserved := number(t, dir, "nr_hugepages"), number(t, dir, "free_hugepages"), number(t, dir, "resv_hugepages")
	t.Cleanup(func() {
		// Or those in use would be free for the next test, beside its own, once they have gone away.
		for range settleTries {
			if number(t, dir, "nr_hugepages")-number(t, dir, "free_hugepages") <= old-free {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		write(t, filepath.Join(dir, "nr_hugepages"), strconv.Itoa(old))
	})
	write(t, filepath.Join(dir, "nr_hugepages"), strconv.Itoa(old-free+reserved+n))
	if got := number(t, dir, "free_hugepages") - number(t, dir, "resv_hugepages"); got != n {
		t.Skipf("%d huge pages were asked for and %d came: too little memory, or too fragmented", n, got)
	}
}

// HugePagesFree is how many huge pages of 2 MiB are free and nobody's.
func HugePagesFree(t testing.TB) int {
	t.Helper()
	dir := filepath.Join(hugeDir, "hugepages-2048kB")
	return number(t, dir, "free_hugepages") - number(t, dir, "resv_hugepages")
}

// ShmemEnabled sets what memfds get of transparent huge pages until the end of
// the test.
func ShmemEnabled(t testing.TB, word string) {
	t.Helper()
	path := "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
	alone(t, filepath.Dir(path))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("no transparent huge pages: %v", err)
	}
	_, rest, _ := strings.Cut(string(text), "[")
	old, _, _ := strings.Cut(rest, "]")
	t.Cleanup(func() { write(t, path, old) })
	write(t, path, word)
}

// Mount mounts a file system with options until the end of the test and returns
// where.
func Mount(t testing.TB, kind, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("mounting a %s needs root", kind)
	}
	dir := t.TempDir()
	if err := unix.Mount(kind, dir, kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Skipf("mounting a %s with %q: %v", kind, options, err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	mounttest.Require(t)
	return dir
}

// alone keeps other processes' tests from the same until the end of the test.
func alone(t testing.TB, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Skipf("the kernel has no huge pages: %v", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR { //nolint:errorlint // a system call's error is a number
			break
		}
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Skipf("this machine does not let us: %v", err)
	}
}

func number(t testing.TB, dir, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Skipf("the kernel does not tell of huge pages: %v", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return n
}

// Smaps sums a field of /proc/PID/smaps, in bytes, over the mappings whose line
// has the word in it.
func Smaps(t testing.TB, pid int, word, field string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	require.NoError(t, err)
	mine, sum := false, int64(0)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if !strings.HasSuffix(f[0], ":") {
			mine = strings.Contains(line, word)
			continue
		}
		if mine && f[0] == field+":" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			require.NoError(t, err)
			sum += kib << 10
		}
	}
	return sum
}
