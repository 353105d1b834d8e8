// Package l2test has small disks for tests.
package l2test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/mounttest"
)

// Disk returns the root of a file system of its own, of size bytes: ext4 on a loop device if
// such can be had, else tmpfs. It is unmounted at the end of the test.
func Disk(t *testing.T, size int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	path := t.TempDir()
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, size))
	out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", image).CombinedOutput()
	if err == nil {
		out, err = exec.Command("mount", "-o", "loop", image, path).CombinedOutput()
	}
	if err != nil {
		t.Logf("no loop device (%v: %s): tmpfs", err, out)
		if err := unix.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
			t.Skipf("mount: %v", err)
		}
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(path, unix.MNT_DETACH)) })
	mounttest.Require(t)
	return path
}

// Fill writes a file until its file system is full, and returns its path.
func Fill(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	require.NoError(t, err)
	for size := 1 << 20; size >= 4096; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, f.Close())
	return f.Name()
}
