package l1

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

func TestMemfdCannotBeResized(t *testing.T) {
	p := open(t, Config{Size: 1<<20 + 5})
	require.Equal(t, int64(1<<20), p.Size())
	require.Empty(t, p.Name())
	for _, size := range []int64{0, 1<<20 - 1, 1<<20 + 1, 1 << 30} {
		require.ErrorIs(t, unix.Ftruncate(p.Fd(), size), unix.EPERM)
	}
	require.ErrorIs(t, unix.Fallocate(p.Fd(), 0, 0, 2<<20), unix.EPERM)
	_, err := unix.FcntlInt(uintptr(p.Fd()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	require.ErrorIs(t, err, unix.EPERM, "nobody may add a seal")
	seals, err := unix.FcntlInt(uintptr(p.Fd()), unix.F_GET_SEALS, 0)
	require.NoError(t, err)
	const want = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	require.Equal(t, want, seals&want)
	flags, err := unix.FcntlInt(uintptr(p.Fd()), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.FD_CLOEXEC)
}

func TestSizesOutOfRangeAreRefused(t *testing.T) {
	for _, size := range []int64{-1, 0, 4095, 1 << 62} {
		_, err := Open(Config{Size: size})
		require.ErrorContains(t, err, "out of range")
	}
}

func TestPunchedHoleReadsAsZeros(t *testing.T) {
	p := open(t, Config{Size: 1 << 20})
	require.NoError(t, p.Populate(0, 1<<20))
	b := p.Bytes(0, 1<<20)
	require.NoError(t, CopyIn(b, bytes.Repeat([]byte{7}, 1<<20)))
	const flags = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	require.NoError(t, unix.Fallocate(p.Fd(), flags, 0, 1<<20))
	sum, err := Sum(b)
	require.NoError(t, err)
	require.Equal(t, xxh3.Hash(make([]byte, 1<<20)), sum)
}

func TestReadOnlyDescriptorCannotWrite(t *testing.T) {
	for _, cfg := range []Config{{Size: 1 << 20}, named(shmDir(t), "ro", 1<<20)} {
		p := open(t, cfg)
		require.NoError(t, CopyIn(p.Bytes(4096, 5), []byte("hello")))
		fd, err := p.ReadOnlyFd()
		require.NoError(t, err)
		_, err = unix.Mmap(fd, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.ErrorIs(t, err, unix.EACCES)
		_, err = unix.Pwrite(fd, []byte("x"), 0)
		require.ErrorIs(t, err, unix.EBADF)
		mem, err := unix.Mmap(fd, 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
		require.NoError(t, err)
		require.ErrorIs(t, unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE), unix.EACCES)
		require.Equal(t, "hello", string(mem[4096:4101]))
		require.NoError(t, unix.Munmap(mem))
		require.NoError(t, unix.Close(fd))
	}
}

func TestStatIsWhatAWorkerSees(t *testing.T) {
	dir := shmDir(t)
	p := open(t, named(dir, "/stat", 1<<20))
	require.Equal(t, "slotcache_l1_pool_stat", p.Name())
	var st unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(dir, p.Name()), &st))
	dev, ino := p.Stat()
	require.Equal(t, st.Dev, dev)
	require.Equal(t, st.Ino, ino)
	require.Equal(t, int64(1<<20), st.Size)
}

func TestFileModeAndGroupDoNotDependOnTheUmask(t *testing.T) {
	dir := shmDir(t)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, c := range []struct{ set, want os.FileMode }{{0, 0o600}, {0o660, 0o660}, {0o666, 0o666}} {
		cfg := named(dir, "mode", 4096)
		cfg.FileMode, cfg.Group = c.set, os.Getegid()
		p, err := Open(cfg)
		require.NoError(t, err)
		fi, err := os.Stat(filepath.Join(dir, p.Name()))
		require.NoError(t, err)
		require.Equal(t, c.want, fi.Mode().Perm())
		require.NoError(t, p.Close())
	}
	if os.Geteuid() == 0 {
		cfg := named(dir, "mode", 4096)
		cfg.Group = 12345
		p := open(t, cfg)
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(p.Fd(), &st))
		require.Equal(t, uint32(12345), st.Gid)
	}
}

func TestCloseLeavesNothingAndMayBeCalledTwice(t *testing.T) {
	dir := shmDir(t)
	p, err := Open(named(dir, "x", 1<<20))
	require.NoError(t, err)
	require.Len(t, files(t, dir), 1)
	require.NoError(t, p.Close())
	require.Empty(t, files(t, dir))
	require.NoError(t, p.Close())
	require.ErrorIs(t, func() error { _, err := p.ReadOnlyFd(); return err }(), ErrClosed)
	require.ErrorIs(t, p.Populate(0, 4096), ErrClosed)
}

// What is reserved beside a pool to have it begin where a huge page may is given back.
func TestPoolsTakeNoAddressesBesideTheirOwn(t *testing.T) {
	mapped := func() int64 {
		text, err := os.ReadFile("/proc/self/statm")
		require.NoError(t, err)
		var pages int64
		_, err = fmt.Sscan(string(text), &pages)
		require.NoError(t, err)
		return pages * int64(os.Getpagesize())
	}
	before := mapped()
	for range 1024 {
		p, err := Open(Config{Size: 4096})
		require.NoError(t, err)
		require.NoError(t, p.Close())
	}
	require.Less(t, mapped()-before, int64(256<<20), "2 MiB for each")
}

func TestCloseDoesNotUnlinkWhatIsNotItsOwn(t *testing.T) {
	dir := shmDir(t)
	p, err := Open(named(dir, "x", 1<<20))
	require.NoError(t, err)
	path := filepath.Join(dir, p.Name())
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte("other"), 0o600))
	require.NoError(t, p.Close())
	require.FileExists(t, path)
}

func TestOpenLeaksNoDescriptorWhenItFails(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	dir := shmDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, namePrefix+"d"), 0o700))
	before := count()
	for range 5 {
		_, err := Open(named(dir, "d", 4096))
		require.ErrorIs(t, err, ErrRefused)
		_, err = Open(named(dir, "huge", 1<<41))
		require.Error(t, err)
		_, err = Open(named(dir+"/missing", "x", 4096))
		require.ErrorIs(t, err, unix.ENOENT)
	}
	require.Equal(t, before, count())
	require.Equal(t, []string{namePrefix + "d"}, files(t, dir))
}

func TestBytesOutsideThePoolPanic(t *testing.T) {
	p := open(t, Config{Size: 1 << 20})
	for _, c := range [][2]int64{{-1, 1}, {0, -1}, {0, 1<<20 + 1}, {1 << 20, 1}, {1 << 62, 1 << 62}, {4096, 1<<63 - 1}} {
		require.PanicsWithValue(t, "l1: bytes outside the pool", func() { p.Bytes(c[0], c[1]) })
	}
	require.Len(t, p.Bytes(1<<20, 0), 0)
	require.Equal(t, 4096, cap(p.Bytes(4096, 4096)))
	require.Panics(t, func() { _ = p.Populate(0, 1<<20+1) })
	require.Panics(t, func() { _ = p.Populate(2, 1) })
}

func TestPopulateReservesPagesAndKeepsBytesInUse(t *testing.T) {
	const size = 48 << 20
	for _, cfg := range []Config{{Size: size}, named(shmDir(t), "populate", size)} {
		p := open(t, cfg)
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(p.Fd(), &st))
		require.LessOrEqual(t, st.Blocks*512, int64(4096))
		require.NoError(t, p.Populate(1, 4097)) // two units
		require.NoError(t, unix.Fstat(p.Fd(), &st))
		require.Equal(t, int64(8192), st.Blocks*512)

		// Another goroutine uses the first part, again and again, while the
		// whole is populated.
		seed := uint64(5)
		t.Logf("seed %d", seed)
		src := make([]byte, 1<<20)
		rng := rand.New(rand.NewPCG(seed, seed))
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := int64(0); ; i++ {
				b := p.Bytes(i%8<<20, 1<<20)
				if err := CopyIn(b, src); err != nil {
					t.Error(err)
				}
				if sum, err := Sum(b); err != nil || sum != xxh3.Hash(src) {
					t.Errorf("got %x, %v, want %x", sum, err, xxh3.Hash(src))
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		require.NoError(t, p.Populate(0, size))
		close(stop)
		wg.Wait()
		require.NoError(t, unix.Fstat(p.Fd(), &st))
		require.Equal(t, int64(size), st.Blocks*512)
	}
}

func TestTouchingMapsWhatMadviseCannot(t *testing.T) {
	p := open(t, Config{Size: 4 << 20})
	require.NoError(t, p.reserve(0, 4<<20))
	require.NoError(t, touch(p.Bytes(0, 4<<20)))
	resident := make([]byte, 1024)
	require.NoError(t, mincore(p.Bytes(0, 4<<20), resident))
	for i, r := range resident {
		require.Equal(t, byte(1), r&1, "page %d", i)
	}
}

func TestCloseWaitsForThePopulationsStep(t *testing.T) {
	for range 5 {
		p, err := Open(Config{Size: 256 << 20})
		require.NoError(t, err)
		done := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			close(started)
			done <- p.Populate(0, 256<<20)
		}()
		<-started
		require.NoError(t, p.Close())
		if err := <-done; err != nil {
			require.True(t, errors.Is(err, ErrClosed), "got %v", err)
		}
	}
}
