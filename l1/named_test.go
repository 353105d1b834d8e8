package l1

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFilledFileSystemNeverFaultsAReservedPool(t *testing.T) {
	const mib = 1 << 20
	dir := tmpfs(t, 64*mib)
	p := open(t, named(dir, "x", 48*mib))
	require.NoError(t, p.Populate(0, 32*mib))

	// Somebody else takes all that is left.
	f, err := os.Create(filepath.Join(dir, "fill"))
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, f.Close())

	src := bytes.Repeat([]byte{0xaa}, 32*mib)
	for range 2 {
		require.NoError(t, CopyIn(p.Bytes(0, 32*mib), src))
	}
	err = p.Populate(32*mib, 48*mib)
	var full ErrNoSpace
	require.ErrorAs(t, err, &full)
	require.Equal(t, int64(16*mib), full.Need)
	require.Less(t, full.Have, int64(16*mib))
	// Without a reservation the bytes fault, which is an error and not a crash.
	require.ErrorIs(t, CopyIn(p.Bytes(32*mib, 16*mib), src[:16*mib]), ErrFault)

	require.NoError(t, os.Remove(filepath.Join(dir, "fill")))
	require.NoError(t, p.Populate(32*mib, 48*mib), "and there is room again")
	require.NoError(t, CopyIn(p.Bytes(32*mib, 16*mib), src[:16*mib]))
}

func TestPoolLargerThanItsFileSystemIsRefused(t *testing.T) {
	const mib = 1 << 20
	dir := tmpfs(t, 64*mib)
	for _, size := range []int64{64 * mib, 64*mib - 4096} {
		p, err := Open(named(dir, "x", size))
		require.NoError(t, err)
		require.NoError(t, p.Populate(0, size), "an exact fit is a fit")
		require.NoError(t, p.Close())
	}
	for _, size := range []int64{64*mib + 4096, 65 * mib, 20 << 30} {
		_, err := Open(named(dir, "x", size))
		var full ErrNoSpace
		require.ErrorAs(t, err, &full)
		require.Equal(t, ErrNoSpace{Need: size, Have: 64 * mib}, full)
		require.ErrorContains(t, err, fmt.Sprintf("need %d bytes, have %d", size, 64*mib))
	}
	require.Empty(t, files(t, dir))
}

func TestFileSystemWithoutALimitHasRoom(t *testing.T) {
	dir := tmpfs(t, 0)
	p := open(t, named(dir, "x", 1<<20))
	require.NoError(t, p.Populate(0, 1<<20))
}

func TestKilledServersLeaveNoRoomlessStart(t *testing.T) {
	const mib = 1 << 20
	dir := tmpfs(t, 26*mib) // 1.3 pools
	live := open(t, named(dir, "live", 2*mib))
	require.NoError(t, live.Populate(0, 2*mib))
	for i := range 20 {
		name := "fixed"
		if i%3 == 2 {
			name = fmt.Sprint("other", i)
		}
		cmd, said := startServer(t, dir, name, 20*mib)
		require.Equal(t, "ready", said, "start %d", i)
		require.ElementsMatch(t, []string{live.Name(), namePrefix + name}, files(t, dir))
		kill(t, cmd)
	}
	require.Len(t, files(t, dir), 2, "the last one left its file")
	p := open(t, named(dir, "after", 20*mib))
	require.NoError(t, p.Populate(0, 20*mib))
	require.ElementsMatch(t, []string{live.Name(), p.Name()}, files(t, dir))
}

func TestStaleFileOfTheSameNameIsReplaced(t *testing.T) {
	const size = 1 << 20
	for _, stale := range []int{size, size / 2, 2 * size, 0} {
		dir := shmDir(t)
		path := filepath.Join(dir, namePrefix+"x")
		require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte{0xaa}, stale), 0o600))
		p := open(t, named(dir, "x", size))
		fi, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, int64(size), fi.Size())
		b := make([]byte, size)
		require.NoError(t, CopyOut(b, p.Bytes(0, size)))
		require.Equal(t, make([]byte, size), b, "no old bytes")
	}
}

func TestWhatIsNoPoolIsRefusedAndLeftAlone(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, []byte("precious"), 0o600))
	for _, c := range []struct {
		why  string
		make func(path string) error
		root bool
	}{
		{"is a directory", func(p string) error { return os.Mkdir(p, 0o700) }, false},
		{"is a symbolic link", func(p string) error { return os.Symlink(target, p) }, false},
		{"is a symbolic link", func(p string) error { return os.Symlink("dangling", p) }, false},
		{"is not a regular file", func(p string) error { return unix.Mkfifo(p, 0o600) }, false},
		{"belongs to uid 4711", func(p string) error {
			if err := os.WriteFile(p, nil, 0o600); err != nil {
				return err
			}
			return os.Chown(p, 4711, -1)
		}, true},
	} {
		if c.root && os.Geteuid() != 0 {
			t.Logf("skipped: %s: needs root", c.why)
			continue
		}
		dir := shmDir(t)
		path := filepath.Join(dir, namePrefix+"x")
		require.NoError(t, c.make(path))
		before, err := os.Lstat(path)
		require.NoError(t, err)
		_, err = Open(named(dir, "x", 4096))
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, err, path+" "+c.why)

		// Under another name it does not stand in the way, and is left alone too.
		p := open(t, named(dir, "y", 4096))
		require.Equal(t, namePrefix+"y", p.Name())
		after, err := os.Lstat(path)
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after))
		require.Equal(t, before.Mode(), after.Mode())
	}
	got, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "precious", string(got))
}

func TestFilesWithoutThePrefixAreNotTouched(t *testing.T) {
	dir := shmDir(t)
	for _, name := range []string{"other", "slotcache_l1_poo", "x" + namePrefix} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, namePrefix+"dead"), nil, 0o600))
	open(t, named(dir, "x", 4096))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 4)
	require.NoFileExists(t, filepath.Join(dir, namePrefix+"dead"))
}

func TestTwoServersCannotShareAName(t *testing.T) {
	dir := shmDir(t)
	cmd, said := startServer(t, dir, "x", 1<<20)
	require.Equal(t, "ready", said)
	path := filepath.Join(dir, namePrefix+"x")
	before, err := os.Stat(path)
	require.NoError(t, err)

	_, err = Open(named(dir, "x", 1<<20))
	require.ErrorIs(t, err, ErrInUse)
	if _, err := fs.Stat(os.DirFS("/proc"), "locks"); err == nil {
		require.ErrorContains(t, err2(Open(named(dir, "x", 1<<20))), fmt.Sprintf("in use by pid %d", cmd.Process.Pid))
	}
	_, said = startServer(t, dir, "x", 1<<20)
	require.True(t, strings.Contains(said, "in use"), "got %q", said)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the first one's pool is untouched")

	// A worker keeps the dead server's memory mapped; the next one starts anyway.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	mem, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	kill(t, cmd)
	p := open(t, named(dir, "x", 1<<20))
	mem[0] = 9
	b := make([]byte, 1)
	require.NoError(t, CopyOut(b, p.Bytes(0, 1)))
	require.Zero(t, b[0], "the old mapping does not reach the new pool")
	require.NoError(t, unix.Munmap(mem))
}

func isOneOf(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func err2(_ *Pool, err error) error { return err }

func TestNameThatChangedHandsBeforeTheLockIsLeftAlone(t *testing.T) {
	dir := shmDir(t)
	cleaner := open(t, named(dir, "cleaner", 4096))
	path := filepath.Join(dir, namePrefix+"x")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // read-only
	// Another cleaner was faster, and its server has the name by now.
	p := open(t, named(dir, "x", 4096))
	require.NoError(t, cleaner.removeDead(dir, p.Name(), int(f.Fd())))
	require.True(t, p.isLinked(p.Name(), p.dev, p.ino))
}

func TestServersThatStartTogetherEndUpWithOne(t *testing.T) {
	for range 20 {
		dir := shmDir(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, namePrefix+"x"), []byte("stale"), 0o600))
		var wg sync.WaitGroup
		pools := make([]*Pool, 8)
		for i := range pools {
			wg.Go(func() {
				p, err := Open(named(dir, "x", 4096))
				if err == nil {
					pools[i] = p
				} else if !isOneOf(err, ErrInUse, syscall.EEXIST) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var winner *Pool
		for _, p := range pools {
			if p != nil {
				require.Nil(t, winner, "two have the name")
				winner = p
			}
		}
		require.NotNil(t, winner, "nobody has the name")
		require.True(t, winner.isLinked(winner.Name(), winner.dev, winner.ino))
		require.NoError(t, winner.Close())
		require.Empty(t, files(t, dir))
	}
}

func TestServersOfDifferentNamesDoNotCleanEachOther(t *testing.T) {
	dir := shmDir(t)
	var wg sync.WaitGroup
	pools := make([]*Pool, 24)
	for i := range pools {
		wg.Go(func() {
			p, err := Open(named(dir, fmt.Sprint(i), 4096))
			if err != nil {
				t.Error(err)
			}
			pools[i] = p
		})
	}
	wg.Wait()
	require.Len(t, files(t, dir), len(pools))
	for _, p := range pools {
		require.True(t, p.isLinked(p.Name(), p.dev, p.ino))
		require.NoError(t, p.Close())
	}
}
