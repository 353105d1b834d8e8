package segdir_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
)

const segmentSize = 256 << 10

// open opens a directory that must open, and closes it at the end of the test.
func open(t *testing.T, path string) *segdir.Dir {
	t.Helper()
	d, err := segdir.Open(path, segdir.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// fill writes random bytes over a whole segment from outside and returns them.
func fill(t *testing.T, path string, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	_, err := rand.Read(content)
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(content)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return content
}

func segments(t *testing.T, d *segdir.Dir) []seglog.SegmentID {
	t.Helper()
	ids, err := d.Segments()
	require.NoError(t, err)
	return ids
}

func TestOpenMakesAPrivateMarkedDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	d := open(t, path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.FileExists(t, filepath.Join(path, "FORMAT"))
	require.NoFileExists(t, filepath.Join(path, "FORMAT.tmp"))
	require.Positive(t, d.LockFd())
	require.Empty(t, segments(t, d))
	require.Equal(t, path, d.Path())
	free, err := d.FreeSpace()
	require.NoError(t, err)
	require.Positive(t, free)
}

func TestOpenRefusesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := segdir.Open(path, segdir.Options{})
	require.ErrorIs(t, err, unix.ENOTDIR)
}

func TestOpenFollowsALinkToTheDirectory(t *testing.T) {
	base := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(base, "real"), 0o700))
	require.NoError(t, os.Symlink("real", filepath.Join(base, "link")))
	open(t, filepath.Join(base, "link"))
	require.FileExists(t, filepath.Join(base, "real", "FORMAT"))
}

func TestDirectoryOfAnotherKindIsRefusedAndUntouched(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "letter.txt"), []byte("dear"), 0o600))
	_, err := segdir.Open(path, segdir.Options{})
	require.ErrorIs(t, err, segdir.ErrForeign)
	require.ErrorContains(t, err, "letter.txt")
	names, err := os.ReadDir(path)
	require.NoError(t, err)
	require.Len(t, names, 1)
}

func TestDirectoryOfAnotherVersionIsRefusedAndUntouched(t *testing.T) {
	for version, marker := range map[string]string{
		"format 1": "slotcache-l2\nformat 1\nend\n",
		"format 7": "slotcache-l2\nformat 7\nsomething new\nend\n",
	} {
		refused(t, version, []byte(marker))
	}
}

func refused(t *testing.T, version string, marker []byte) {
	t.Helper()
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "FORMAT"), marker, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(path, "seg-00000000.slc"), []byte("new"), 0o600))
	_, err := segdir.Open(path, segdir.Options{})
	require.ErrorIs(t, err, segdir.ErrForeign)
	require.ErrorContains(t, err, version)
	require.ErrorContains(t, err, "reads format 2")
	require.NoFileExists(t, filepath.Join(path, "lock"))
	got, err := os.ReadFile(filepath.Join(path, "FORMAT"))
	require.NoError(t, err)
	require.Equal(t, marker, got)
}

func TestRootOfAFileSystemIsAccepted(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(path, "lost+found"), 0o700))
	open(t, path)
}

func TestStrangersBesideAValidMarkerAreLeftAlone(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, open(t, path).Close())
	stranger := filepath.Join(path, "notes")
	require.NoError(t, os.WriteFile(stranger, []byte("x"), 0o600))
	open(t, path)
	require.FileExists(t, stranger)
}

// damages are what can become of a metadata file.
var damages = map[string]func(t *testing.T, path string){
	"missing": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
	"empty":   func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
	"half": func(t *testing.T, path string) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, info.Size()/2))
	},
	"garbage": func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte{0xa5, '\n'}, 4000), 0o600))
	},
	"a directory": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Mkdir(path, 0o700))
	},
	"a full directory": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.MkdirAll(filepath.Join(path, "x", "y"), 0o700))
	},
	"a dangling link": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Symlink("/nonexistent/target", path))
	},
	"a FIFO": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, unix.Mkfifo(path, 0o600))
	},
	"without permissions": func(t *testing.T, path string) { require.NoError(t, os.Chmod(path, 0)) },
}

func TestDamagedMetadataNeverNeedsAHuman(t *testing.T) {
	for _, file := range []string{"FORMAT", "lock", "FORMAT.tmp"} {
		for name, damage := range damages {
			t.Run(file+" "+name, func(t *testing.T) {
				path := t.TempDir()
				d := open(t, path)
				require.NoError(t, d.Create(3, segmentSize))
				require.NoError(t, d.Close())
				content := fill(t, filepath.Join(path, "seg-00000003.slc"), segmentSize)
				if file == "FORMAT.tmp" {
					require.NoError(t, os.WriteFile(filepath.Join(path, file), []byte("slotcache-l2\n"), 0o600))
				}
				damage(t, filepath.Join(path, file))

				var logged bytes.Buffer
				logger := slog.New(slog.NewTextHandler(&logged, nil))
				d, err := segdir.Open(path, segdir.Options{Logger: logger})
				require.NoError(t, err)
				require.Equal(t, []seglog.SegmentID{3}, segments(t, d))
				got := make([]byte, segmentSize)
				_, err = d.ReadAt(3, got, 0)
				require.NoError(t, err)
				require.Equal(t, content, got)
				require.NoError(t, d.Close())
				if file == "FORMAT" && name != "missing" && name != "without permissions" {
					require.Contains(t, logged.String(), "file=FORMAT")
				}

				// All is as it was: the next start finds nothing to say.
				logged.Reset()
				d, err = segdir.Open(path, segdir.Options{Logger: logger})
				require.NoError(t, err)
				require.NoError(t, d.Close())
				require.NotContains(t, logged.String(), "ignored")
			})
		}
	}
}

func TestDamagedMarkerWithoutSegmentsIsWrittenAnew(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "FORMAT"), []byte("slotcache-l2\nform"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(path, "lock"), nil, 0o600))
	open(t, path)
	text, err := os.ReadFile(filepath.Join(path, "FORMAT"))
	require.NoError(t, err)
	require.Equal(t, "slotcache-l2\nformat 2\nend\n", string(text))
}

func TestHalfMadeFilesAreRemovedAtTheStart(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, open(t, path).Close())
	half := filepath.Join(path, "seg-00000005.tmp")
	require.NoError(t, os.WriteFile(half, make([]byte, 1<<20), 0o600))
	d := open(t, path)
	require.NoFileExists(t, half)
	require.Empty(t, segments(t, d))
}

func TestDirectoryRemovedInUseIsMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	d := open(t, path)
	require.NoError(t, d.Create(0, segmentSize))
	content := fill(t, filepath.Join(path, "seg-00000000.slc"), segmentSize)
	require.NoError(t, os.RemoveAll(path))

	got := make([]byte, segmentSize)
	_, err := d.ReadAt(0, got, 0)
	require.NoError(t, err)
	require.Equal(t, content, got)

	require.NoError(t, d.Create(1, segmentSize))
	require.FileExists(t, filepath.Join(path, "seg-00000001.slc"))
	require.FileExists(t, filepath.Join(path, "FORMAT"))
	require.NoError(t, d.Remove(0))
	_, err = segdir.Open(path, segdir.Options{})
	require.ErrorIs(t, err, segdir.ErrLocked)
}

func TestClosedDirRefusesChanges(t *testing.T) {
	d, err := segdir.Open(t.TempDir(), segdir.Options{})
	require.NoError(t, err)
	require.NoError(t, d.Create(0, segmentSize))
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.Create(1, segmentSize), segdir.ErrClosed)
	require.ErrorIs(t, d.Remove(0), segdir.ErrClosed)
	_, err = d.FreeSpace()
	require.ErrorIs(t, err, segdir.ErrClosed)
	_, err = d.Fd(0)
	require.ErrorIs(t, err, segdir.ErrNoSegment)
	_, err = d.ReadAt(0, make([]byte, 10), 0)
	require.ErrorIs(t, err, segdir.ErrNoSegment)
	require.Negative(t, d.LockFd())
}

func TestErrnoFindsTheKernelsNumber(t *testing.T) {
	require.Equal(t, int64(0), segdir.Errno(nil))
	require.Equal(t, int64(unix.EIO), segdir.Errno(io.ErrUnexpectedEOF))
	require.Equal(t, int64(unix.ENOENT), segdir.Errno(segdir.ErrNoSegment))
	_, err := os.Open(strings.Repeat("x", 5000))
	require.Equal(t, int64(unix.ENAMETOOLONG), segdir.Errno(err))
}

// A file that neither opens nor goes away holds what may count again the next time: whoever keeps the log must know of it.
func TestAFileThatStaysIsListedAndCannotBeRead(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	require.NoError(t, d.Create(3, segmentSize))
	require.NoError(t, d.Create(4, segmentSize))
	require.NoError(t, d.Close())
	name := filepath.Join(path, "seg-00000003.slc")
	f, err := os.Open(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		t.Skipf("lsattr: %v", err)
	}
	setFlags := func(flags int) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	if err := setFlags(flags | unix.STATX_ATTR_IMMUTABLE); err != nil { // the same bit
		t.Skipf("chattr +i: %v", err)
	}
	defer func() { require.NoError(t, setFlags(flags)) }()

	d = open(t, path)
	require.Equal(t, []seglog.SegmentID{3, 4}, segments(t, d))
	_, err = d.Size(3)
	require.ErrorIs(t, err, segdir.ErrNoSegment)
	_, err = d.ReadAt(3, make([]byte, 4096), 0)
	require.ErrorIs(t, err, segdir.ErrNoSegment)
	_, err = d.Fd(3)
	require.ErrorIs(t, err, segdir.ErrNoSegment)
	require.ErrorIs(t, d.Remove(3), unix.EPERM)
	_, err = d.Size(4)
	require.NoError(t, err)
	require.NoError(t, d.Close())

	require.NoError(t, setFlags(flags))
	d = open(t, path)
	require.Equal(t, []seglog.SegmentID{3, 4}, segments(t, d))
	size, err := d.Size(3)
	require.NoError(t, err)
	require.EqualValues(t, segmentSize, size)
}
