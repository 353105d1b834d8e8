package segdir_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/mounttest"
	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
)

// smallDisk returns a directory on a file system of its own of 4 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	path := t.TempDir()
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(path, unix.MNT_DETACH)) })
	mounttest.Require(t)
	return path
}

func TestAFullDiskIsAnErrorThatLeavesNothingBehind(t *testing.T) {
	path := smallDisk(t)
	d := open(t, path)
	require.NoError(t, d.Create(0, 1<<20))
	for range 3 {
		err := d.Create(1, 8<<20)
		require.ErrorIs(t, err, unix.ENOSPC)
		require.EqualValues(t, unix.ENOSPC, segdir.Errno(err))
	}
	require.NoFileExists(t, filepath.Join(path, "seg-00000001.tmp"))
	free, err := d.FreeSpace()
	require.NoError(t, err)
	require.InDelta(t, 3<<20, free, 64<<10)

	// Room comes back, and so do segments.
	ballast := filepath.Join(path, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, free-8192), 0o600))
	require.ErrorIs(t, d.Create(1, 2<<20), unix.ENOSPC)
	require.NoError(t, os.Remove(ballast))
	require.NoError(t, d.Create(1, 2<<20))
	require.Equal(t, []seglog.SegmentID{0, 1}, segments(t, d))
}

func TestAStartOnAFullDiskWorks(t *testing.T) {
	path := smallDisk(t)
	d := open(t, path)
	require.NoError(t, d.Create(0, 1<<20))
	require.NoError(t, d.Close())
	require.NoError(t, os.Remove(filepath.Join(path, "FORMAT")))
	ballast, err := os.Create(filepath.Join(path, "ballast"))
	require.NoError(t, err)
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, ballast.Close())

	d = open(t, path)
	require.Equal(t, []seglog.SegmentID{0}, segments(t, d))
	require.NoError(t, d.Close())
	require.NoError(t, os.Remove(ballast.Name()))
	open(t, path)
	require.FileExists(t, filepath.Join(path, "FORMAT"))
}

func TestAFileSystemWithoutDirectIOIsUsedBufferedAndSaysSoOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	path := t.TempDir()
	if err := unix.Mount("ramfs", path, "ramfs", 0, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(path, unix.MNT_DETACH)) })
	mounttest.Require(t)
	var logged bytes.Buffer
	d, err := segdir.Open(path, segdir.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	require.NoError(t, err)
	for id := range seglog.SegmentID(3) {
		require.NoError(t, d.Create(id, segmentSize)) // it has no fallocate either
		size, err := d.Size(id)
		require.NoError(t, err)
		require.EqualValues(t, segmentSize, size)
	}
	require.False(t, d.Direct())
	require.Equal(t, 1, strings.Count(logged.String(), "page cache"), "%s", logged.String())
	content := fill(t, filepath.Join(path, "seg-00000001.slc"), segmentSize)
	got := make([]byte, 777)
	_, err = d.ReadAt(1, got, 333)
	require.NoError(t, err)
	require.Equal(t, content[333:333+777], got)
	require.NoError(t, d.Sync(1))
	require.NoError(t, d.Close())
}
