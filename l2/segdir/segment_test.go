package segdir_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
)

func TestSegmentsComeBackInOrder(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	for _, id := range []seglog.SegmentID{7, 2, 123456789, 4} {
		require.NoError(t, d.Create(id, segmentSize))
	}
	require.NoError(t, d.Remove(4))
	require.NoError(t, d.Remove(4), "removing twice is no error")
	want := []seglog.SegmentID{2, 7, 123456789}
	require.Equal(t, want, segments(t, d))
	require.NoError(t, d.Close())
	d = open(t, path)
	require.Equal(t, want, segments(t, d))
	size, err := d.Size(7)
	require.NoError(t, err)
	require.EqualValues(t, segmentSize, size)
}

func TestCreateAllocatesTheWholeSegment(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	require.NoError(t, d.Create(0, segmentSize))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(path, "seg-00000000.slc"), &st))
	require.EqualValues(t, segmentSize, st.Size)
	require.GreaterOrEqual(t, st.Blocks*512, int64(segmentSize))
	require.Equal(t, uint32(0o600), st.Mode&0o777)
	require.NoFileExists(t, filepath.Join(path, "seg-00000000.tmp"))
}

func TestCreateReplacesAFormerSegment(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	require.NoError(t, d.Create(0, segmentSize))
	fill(t, filepath.Join(path, "seg-00000000.slc"), segmentSize)
	require.NoError(t, d.Create(0, 2*segmentSize))
	got := make([]byte, 2*segmentSize)
	_, err := d.ReadAt(0, got, 0)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 2*segmentSize), got)
}

func TestReadAtTakesAnyAlignment(t *testing.T) {
	for _, buffered := range []bool{false, true} {
		path := t.TempDir()
		d, err := segdir.Open(path, segdir.Options{Buffered: buffered})
		require.NoError(t, err)
		const size = 5 << 20 // longer than the bounce buffer
		require.NoError(t, d.Create(0, size))
		require.Equal(t, buffered, !d.Direct() || buffered)
		content := fill(t, filepath.Join(path, "seg-00000000.slc"), size)

		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		buf := make([]byte, size+4096)
		for range 300 {
			off := rng.IntN(size)
			n := rng.IntN(min(size-off, 1<<rng.IntN(23)) + 1)
			at := rng.IntN(4096)
			p := buf[at : at+n]
			clear(p)
			m, err := d.ReadAt(0, p, int64(off))
			require.NoError(t, err)
			require.Equal(t, n, m)
			require.True(t, bytes.Equal(content[off:off+n], p), "%d bytes at %d", n, off)
		}
		for _, c := range []struct{ off, n, want int }{
			{size - 100, 200, 100}, {size - 4096, 8192, 4096}, {size, 1, 0}, {size + 5, 7, 0}, {0, size + 1, size}, {0, 0, 0},
		} {
			m, err := d.ReadAt(0, buf[:c.n], int64(c.off))
			require.Equal(t, c.want, m, "%+v", c)
			if c.want < c.n {
				require.ErrorIs(t, err, io.EOF)
			} else {
				require.NoError(t, err)
			}
		}
		require.NoError(t, d.Close())
	}
}

// segmentDamages are what can become of a segment while the store runs.
var segmentDamages = map[string]func(t *testing.T, path string){
	"deleted":   func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
	"truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
	"cut":       func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 5000)) },
	"forbidden": func(t *testing.T, path string) { require.NoError(t, os.Chmod(path, 0)) },
	"a directory": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Mkdir(path, 0o700))
	},
	"a full directory": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.MkdirAll(filepath.Join(path, "x"), 0o700))
	},
	"a link": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Symlink("../victim", path))
	},
	"a FIFO": func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, unix.Mkfifo(path, 0o600))
	},
}

func TestADamagedSegmentIsSurvivedAndReplaced(t *testing.T) {
	for name, damage := range segmentDamages {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			victim := filepath.Join(base, "victim")
			require.NoError(t, os.WriteFile(victim, []byte("not ours"), 0o600))
			path := filepath.Join(base, "store")
			d := open(t, path)
			require.NoError(t, d.Create(0, segmentSize))
			require.NoError(t, d.Create(1, segmentSize))
			file := filepath.Join(path, "seg-00000000.slc")
			fill(t, file, segmentSize)
			damage(t, file)

			// While it runs: an error or the former bytes, nothing else.
			n, err := d.ReadAt(0, make([]byte, segmentSize), 0)
			require.True(t, err == nil && n == segmentSize || n < segmentSize && err != nil, "n=%d err=%v", n, err)
			require.NoError(t, d.Close())

			// At the start: there, or taken away.
			d = open(t, path)
			require.Contains(t, segments(t, d), seglog.SegmentID(1))
			require.NoError(t, d.Create(0, segmentSize))
			require.Equal(t, []seglog.SegmentID{0, 1}, segments(t, d))
			damage(t, file)
			require.NoError(t, d.Create(0, segmentSize), "created over the damaged one")
			damage(t, file)
			require.NoError(t, d.Remove(0))
			require.NoFileExists(t, file)
			require.NoError(t, d.Sync(1))
			require.ErrorIs(t, d.Sync(0), segdir.ErrNoSegment)
			got, err := os.ReadFile(victim)
			require.NoError(t, err)
			require.Equal(t, "not ours", string(got), "a link was followed")
		})
	}
}

func TestStrangeNamesAreNoSegments(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, open(t, path).Close())
	strange := []string{"seg-1.slc", "seg-000000001.slc", "seg-99999999999.slc", "seg-0000000x.slc", "seg-.slc", "seg-00000001.slc~", "other.tmp"}
	for _, name := range strange {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), nil, 0o600))
	}
	d := open(t, path)
	require.Empty(t, segments(t, d))
	for _, name := range strange {
		require.FileExists(t, filepath.Join(path, name))
	}
}

func TestUsableLeavesRoomForTheFileSystem(t *testing.T) {
	require.Zero(t, segdir.Usable(0))
	require.Zero(t, segdir.Usable(64<<10))
	require.Less(t, segdir.Usable(1<<30), int64(1<<30))
	require.Greater(t, segdir.Usable(1<<30), int64(1<<30)/100*99)
}
