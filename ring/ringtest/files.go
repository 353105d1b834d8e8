package ringtest

import (
	"bytes"
	"errors"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

// file returns a file of the given content, open for reading and writing.
func (l *loop) file(content []byte) *os.File {
	l.Helper()
	f, err := os.OpenFile(filepath.Join(l.TempDir(), "file"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	l.NoError(err)
	l.Cleanup(func() { _ = f.Close() })
	_, err = f.Write(content)
	l.NoError(err)
	return f
}

// pages returns n bytes of mapped memory.
func (l *loop) pages(n int) []byte {
	l.Helper()
	p, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	l.NoError(err)
	l.Cleanup(func() { _ = unix.Munmap(p) })
	return p
}

func writesAreReadBack(l *loop) {
	fd := int(l.file(nil).Fd())
	const size = 10_000
	n := uint32(min(l.r.Room(), 64))
	for i := range n {
		l.r.Write(tag(i), fd, int64(i)*size, noise(uint64(i), size))
	}
	for range n {
		c := l.next()
		l.Equal(ring.KindWrite, c.Kind)
		l.Equal(int32(size), c.Res)
	}
	l.r.Sync(tag(1), fd)
	l.expect(ring.KindSync, tag(1), 0)
	bufs := make([][]byte, n)
	for i := range n {
		bufs[i] = make([]byte, size)
		l.r.Read(tag(i), fd, int64(i)*size, bufs[i])
	}
	seen := map[ring.Tag]bool{}
	for range n {
		c := l.next()
		l.Equal(ring.KindRead, c.Kind)
		l.Equal(int32(size), c.Res)
		l.False(seen[c.Tag])
		seen[c.Tag] = true
		l.True(bytes.Equal(noise(uint64(c.Tag.Index()), size), bufs[c.Tag.Index()]))
	}
}

func readEndsWithTheFile(l *loop) {
	content := noise(1, 10_000)
	fd := int(l.file(content).Fd())
	for _, c := range []struct {
		off       int64
		len, want int
	}{
		{0, 10_000, 10_000},
		{0, 20_000, 10_000},
		{9_999, 1, 1},
		{9_999, 4096, 1},
		{10_000, 4096, 0},
		{1 << 40, 4096, 0},
		{0, 0, 0},
	} {
		p := make([]byte, c.len)
		l.r.Read(tag(1), fd, c.off, p)
		l.expect(ring.KindRead, tag(1), c.want)
		if c.want > 0 {
			l.True(bytes.Equal(content[c.off:int(c.off)+c.want], p[:c.want]))
		}
		l.Equal(make([]byte, c.len-c.want), p[c.want:], "bytes behind the end")
	}
	l.r.Write(tag(2), fd, 0, nil)
	l.expect(ring.KindWrite, tag(2), 0)
}

// shortReadsAreContinued reads a file that the kernel never gives more than a page or so of.
func shortReadsAreContinued(l *loop) {
	const path = "/proc/kallsyms"
	want, err := os.ReadFile(path)
	if err != nil || len(want) < 100_000 {
		l.Skipf("%s has %d bytes (%v)", path, len(want), err)
	}
	f, err := os.Open(path)
	l.NoError(err)
	l.Cleanup(func() { _ = f.Close() })
	want = want[:100_000]
	got := make([]byte, len(want))
	l.r.Read(tag(1), int(f.Fd()), 0, got)
	l.expect(ring.KindRead, tag(1), len(got))
	l.True(bytes.Equal(want, got))
	l.Positive(l.r.Stats().ShortIO)
}

// shortWritesAreContinued writes beyond what the process may: to the limit in the first try, and nothing in the second.
func shortWritesAreContinued(l *loop) {
	const limit = 100_000
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	f := l.file(nil)
	var old unix.Rlimit
	l.NoError(unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	l.NoError(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: old.Max}))
	p := noise(1, limit+50_000)
	l.r.Write(tag(1), int(f.Fd()), 0, p)
	c := l.next()
	l.NoError(unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
	l.Equal(errnoOr(-int(unix.EFBIG)), errnoOr(int(c.Res)))
	l.Equal(uint64(1), l.r.Stats().ShortIO)
	got, err := os.ReadFile(f.Name())
	l.NoError(err)
	l.True(bytes.Equal(p[:limit], got))
}

func directReadsEndWithTheFile(l *loop) {
	content := noise(1, 10_000)
	name := l.file(content).Name()
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		l.Skipf("the file system has no direct I/O: %v", err)
	}
	l.Cleanup(func() { _ = unix.Close(fd) })
	p := l.pages(64 << 10)
	l.r.Read(tag(1), fd, 0, p)
	l.expect(ring.KindRead, tag(1), len(content))
	l.True(bytes.Equal(content, p[:len(content)]))
	l.r.Read(tag(2), fd, 1, p[:1000])
	c := l.next()
	if c.Res != 1000 { // some file systems read it through the cache
		l.Equal(errnoOr(-int(unix.EINVAL)), errnoOr(int(c.Res)), "a misaligned read is a mistake, not an end")
	}
}

func errorsComeAsResults(l *loop) {
	const bad = 1 << 20 // no descriptor
	p := make([]byte, 512)
	l.r.Read(tag(1), bad, 0, p)
	l.expect(ring.KindRead, tag(1), -int(unix.EBADF))
	l.r.Write(tag(1), bad, 0, p)
	l.expect(ring.KindWrite, tag(1), -int(unix.EBADF))
	l.r.Sync(tag(1), bad)
	l.expect(ring.KindSync, tag(1), -int(unix.EBADF))
	l.r.Accept(tag(1), bad)
	l.expect(ring.KindAccept, tag(1), -int(unix.EBADF))
	l.r.Recv(tag(1), bad)
	l.expect(ring.KindRecv, tag(1), -int(unix.EBADF))
	l.r.Send(tag(1), bad, p)
	l.expect(ring.KindSend, tag(1), -int(unix.EBADF))
	l.r.SendNow(tag(1), bad, p)
	l.submit()
	l.Len(l.left, 1, "a failed SendNow is told of at once")
	l.expect(ring.KindSend, tag(1), -int(unix.EBADF))
	l.r.SendFD(tag(1), bad, p, 0)
	l.expect(ring.KindSend, tag(1), -int(unix.EBADF))
	l.r.Poll(tag(1), bad)
	l.expect(ring.KindPoll, tag(1), -int(unix.EBADF))

	f := l.file(p)
	l.r.Recv(tag(1), int(f.Fd()))
	l.expect(ring.KindRecv, tag(1), -int(unix.ENOTSOCK))
	dir, err := os.Open(l.TempDir())
	l.NoError(err)
	defer func() { _ = dir.Close() }()
	l.r.Read(tag(1), int(dir.Fd()), 0, p)
	l.expect(ring.KindRead, tag(1), -int(unix.EISDIR))
	readOnly, err := os.Open(f.Name())
	l.NoError(err)
	defer func() { _ = readOnly.Close() }()
	l.r.Write(tag(1), int(readOnly.Fd()), 0, p)
	l.expect(ring.KindWrite, tag(1), -int(unix.EBADF))
	l.r.Write(tag(1), int(f.Fd()), math.MaxInt64-100, p)
	c := l.next()
	l.Negative(c.Res, "a write beyond what an offset can hold")
	l.Panics(func() { l.r.Read(tag(1), int(f.Fd()), -1, p) })
}

func registeredMemoryIsCut(l *loop) {
	const size = 1 << 20
	mem := l.pages(size + 8192)
	// Two ranges with a common border, a gap, and a third.
	for _, r := range [][2]int{{0, 256 << 10}, {256 << 10, 512 << 10}, {768 << 10, size}} {
		if err := l.r.RegisterMemory(mem[r[0]:r[1]]); err != nil {
			l.Logf("plain I/O: %v", err)
		}
	}
	_ = l.r.RegisterMemory(mem[size+100 : size+200]) // less than a page is nothing
	fd := int(l.file(nil).Fd())
	for i, c := range [][2]int{
		{0, 4096},                     // inside
		{4096 + 7, 10_001},            // inside, unaligned
		{200 << 10, 300 << 10},        // over the common border
		{400 << 10, 500 << 10},        // out into the gap and in again
		{600 << 10, 700 << 10},        // in the gap
		{600 << 10, size},             // in from the gap
		{0, size},                     // everything
		{1 << 10, size + 4096},        // everything and more
		{size - 1000, size + 8192},    // out
		{size + 4096, size + 8192},    // outside
		{256<<10 - 1, 256<<10 + 1},    // a byte on either side
		{256<<10 - 4096, 256<<10 + 1}, // a page and a byte
	} {
		p := mem[c[0]:c[1]]
		want := noise(uint64(i), len(p))
		copy(p, want)
		l.r.Write(tag(1), fd, int64(i)<<21, p)
		l.expect(ring.KindWrite, tag(1), len(p))
		clear(p)
		l.r.Read(tag(2), fd, int64(i)<<21, p)
		l.expect(ring.KindRead, tag(2), len(p))
		l.True(bytes.Equal(want, p), "bytes %d to %d", c[0], c[1])
	}
	s := l.r.Stats()
	l.Equal(s.Registered > 0, s.FixedIO > 0, "%+v", s)
	l.Positive(s.PlainIO)
	l.Zero(s.ShortIO, "a cut is no short I/O")
}

func heldFilesOutliveTheirDescriptor(l *loop) {
	f := l.file(nil)
	l.NoError(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	l.NoError(l.r.HoldFile(int(f.Fd())))
	l.NoError(f.Close())
	other, err := os.Open(f.Name())
	l.NoError(err)
	defer func() { _ = other.Close() }()
	err = unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	l.True(errors.Is(err, unix.EWOULDBLOCK), "got %v", err)
	l.Error(l.r.HoldFile(1 << 20))
	l.NoError(l.r.Close())
	l.NoError(unix.Flock(int(other.Fd()), unix.LOCK_EX)) // the kernel may let go a little later
}

func roomIsNeverExceeded(l *loop) {
	const reads = 10_000
	content := noise(1, 1<<20)
	fd := int(l.file(content).Fd())
	room := l.r.Room()
	l.Positive(room)
	buf := make([]byte, reads)
	var queued, done uint32
	seen := make([]bool, reads)
	for done < reads {
		for queued < reads && l.r.Room() > 0 {
			l.r.Read(tag(queued), fd, int64(queued), buf[queued:queued+1])
			queued++
		}
		if queued < reads {
			l.Panics(func() { l.r.Read(tag(0), fd, 0, buf) }, "there is no room")
		}
		dst, err := l.r.Wait(l.dst[:0])
		l.NoError(err)
		for _, c := range dst {
			l.Equal(ring.KindRead, c.Kind)
			l.Equal(int32(1), c.Res)
			l.False(seen[c.Tag.Index()], "completed twice")
			seen[c.Tag.Index()] = true
			done++
		}
		l.LessOrEqual(l.r.Room(), room)
	}
	l.Equal(room, l.r.Room())
	l.True(bytes.Equal(content[:reads], buf))
	l.Zero(l.r.Stats().Overflows)
}
