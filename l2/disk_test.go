package l2_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/l2/l2test"
)

// blocks returns the bytes of disk behind a path.
func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return st.Blocks * 512
}

func TestTenTimesTheCapStaysWithinIt(t *testing.T) {
	dir := t.TempDir()
	opts := l2.Options{Size: 16 << 20, SegmentSize: 1 << 20, Memory: 4 << 20}
	s := open(t, dir, opts)
	const length = 300000 // three to a segment
	puts := int(10 * opts.Size / length)
	for i := range puts {
		require.NoError(t, s.Put(ctx, fmt.Appendf(nil, "key %d", i), value(uint64(i), length)))
		if i%16 == 0 {
			require.LessOrEqual(t, diskUse(t, dir), opts.Size)
		}
	}
	check := func() {
		require.LessOrEqual(t, diskUse(t, dir), opts.Size)
		held := 0
		buf := make([]byte, length)
		for i := range puts {
			n, err := s.Get(ctx, fmt.Appendf(nil, "key %d", i), buf)
			if errors.Is(err, l2.ErrNotFound) {
				continue
			}
			require.NoError(t, err)
			require.True(t, string(buf[:n]) == string(value(uint64(i), length)))
			held++
		}
		require.Greater(t, held, int(opts.Size/length/2), "the space is badly used")
		requireValue(t, s, fmt.Sprintf("key %d", puts-1), value(uint64(puts-1), length))
		requireNoValue(t, s, "key 0")
	}
	check()
	require.NoError(t, s.Close())
	s = open(t, dir, opts)
	check()
	require.Positive(t, s.Stats().Records)
}

func TestASmallerCapIsKeptAfterReopening(t *testing.T) {
	dir := t.TempDir()
	opts := l2.Options{Size: 64 << 20, SegmentSize: 2 << 20}
	s := open(t, dir, opts)
	for i := range 60 {
		require.NoError(t, s.Put(ctx, fmt.Appendf(nil, "key %d", i), value(uint64(i), 1<<20-5000)))
	}
	require.NoError(t, s.Close())
	opts.Size = 24 << 20
	s = open(t, dir, opts)
	for i := range 30 {
		require.NoError(t, s.Put(ctx, fmt.Appendf(nil, "new %d", i), value(uint64(i), 1<<20-5000)))
	}
	require.LessOrEqual(t, diskUse(t, dir), opts.Size)
	requireValue(t, s, "new 29", value(29, 1<<20-5000))
}

// segmentFiles returns the store's segment files.
func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "seg-*.slc"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func TestADamagedFileIsAMissAndNothingMore(t *testing.T) {
	damages := map[string]func(t *testing.T, file string){
		"deleted":     func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
		"truncated":   func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 0)) },
		"cut":         func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 1<<20+100)) },
		"forbidden":   func(t *testing.T, file string) { require.NoError(t, os.Chmod(file, 0)) },
		"zeroed":      func(t *testing.T, file string) { overwrite(t, file, make([]byte, 4096)) },
		"overwritten": func(t *testing.T, file string) { overwrite(t, file, value(1, 4096)) },
		"a directory": func(t *testing.T, file string) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.MkdirAll(filepath.Join(file, "x"), 0o700))
		},
	}
	opts := l2.Options{Size: 64 << 20, SegmentSize: 4 << 20, Memory: 4 << 20}
	const keys, length = 24, 300000
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, opts)
			for i := range keys {
				require.NoError(t, s.Put(ctx, fmt.Appendf(nil, "key %d", i), value(uint64(i), length)))
			}
			check := func() (found int) {
				buf := make([]byte, length)
				for i := range keys {
					key := fmt.Appendf(nil, "key %d", i)
					n, err := s.Get(ctx, key, buf)
					if errors.Is(err, l2.ErrNotFound) {
						requireNoValue(t, s, string(key)) // and it is gone for good
						continue
					}
					require.NoError(t, err)
					require.True(t, string(buf[:n]) == string(value(uint64(i), length)), "wrong bytes")
					found++
				}
				return found
			}
			require.Equal(t, keys, check())
			damage(t, segmentFiles(t, dir)[0])
			require.Positive(t, check())
			require.NoError(t, s.Close())

			s = open(t, dir, opts)
			require.Positive(t, check())
			for i := range keys {
				require.NoError(t, s.Put(ctx, fmt.Appendf(nil, "key %d", i), value(uint64(i), length)))
			}
			require.Equal(t, keys, check())
		})
	}
}

// overwrite writes p over many places of a file.
func overwrite(t *testing.T, file string, p []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	for off := int64(0); off < 4<<20; off += 64 << 10 {
		_, err := f.WriteAt(p, off)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
}

// A syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestAFullDiskMakesTheOldGiveWay(t *testing.T) {
	dir := l2test.Disk(t, 100<<20)
	// More than there is: the disk is full before the cap is reached.
	opts := l2.Options{Size: 256 << 20, SegmentSize: 8 << 20, Memory: 8 << 20}
	s := open(t, dir, opts)
	check := func(count int) {
		for i := range count { // there, or gone to make room; never wrong
			key := fmt.Sprintf("key %d", i)
			if _, err := s.Size(ctx, []byte(key)); err == nil {
				requireValue(t, s, key, value(uint64(i), 1<<20))
			}
		}
	}
	put := func(i int) error { return s.Put(ctx, fmt.Appendf(nil, "key %d", i), value(uint64(i), 1<<20)) }
	for i := range 20 {
		require.NoError(t, put(i))
	}
	l2test.Fill(t, dir)
	for i := range 80 {
		if err := put(20 + i); err != nil {
			require.True(t, errors.Is(err, l2.ErrDegraded) || errors.Is(err, l2.ErrFull), "%v", err)
		}
	}
	check(100)
	require.NoError(t, s.Close())

	s = open(t, dir, opts) // a start on a full disk
	check(100)
	require.Zero(t, s.Stats().BadRecords)
	require.Positive(t, s.Stats().Records)
}

func TestADiskWithoutRoomForASegmentRefusesWithOneLine(t *testing.T) {
	disk := l2test.Disk(t, 20<<20)
	dir := filepath.Join(disk, "store")
	require.NoError(t, os.Mkdir(dir, 0o700))
	ballast := l2test.Fill(t, disk)
	var logged syncBuffer
	opts := l2.Options{
		Size: 64 << 20, SegmentSize: 2 << 20, Memory: 8 << 20,
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}
	s := open(t, dir, opts)
	for i := range 50 {
		err := s.Put(ctx, fmt.Appendf(nil, "key %d", i), value(uint64(i), 100000))
		require.ErrorIs(t, err, l2.ErrDegraded)
		require.ErrorIs(t, err, unix.ENOSPC)
		requireNoValue(t, s, fmt.Sprintf("key %d", i))
	}
	require.Equal(t, "degraded", s.Stats().State)
	require.Equal(t, 1, strings.Count(logged.String(), "refuses writes"), "%s", logged.String())
	require.NoError(t, s.Close())

	require.NoError(t, os.Remove(ballast))
	s = open(t, dir, opts)
	require.NoError(t, s.Put(ctx, []byte("after"), value(99, 1<<20)))
	requireValue(t, s, "after", value(99, 1<<20))
}

func TestTheDirectoryMayVanishUnderTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	opts := l2.Options{Size: 64 << 20, SegmentSize: 2 << 20}
	s := open(t, dir, opts)
	require.NoError(t, s.Put(ctx, []byte("before"), value(1, 1<<20)))
	var err error
	for range 100 { // the store may be making a segment in it
		if err = os.RemoveAll(dir); err == nil {
			break
		}
	}
	require.NoError(t, err)
	for i := range 60 {
		err := s.Put(ctx, fmt.Appendf(nil, "key %d", i), value(uint64(i), 1<<20))
		require.True(t, err == nil || errors.Is(err, l2.ErrDegraded), "%v", err)
	}
	requireValue(t, s, "key 59", value(59, 1<<20))
	require.NoError(t, s.Close())
	s = open(t, dir, opts)
	require.NoError(t, s.Put(ctx, []byte("after"), []byte("v")))
	requireValue(t, s, "after", []byte("v"))
}
