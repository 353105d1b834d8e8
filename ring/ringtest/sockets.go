package ringtest

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

// listen returns a listening socket and its path.
func (l *loop) listen() (int, string) {
	l.Helper()
	dir, err := os.MkdirTemp("", "ring") // the test's own is too long for a socket
	l.NoError(err)
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	l.NoError(err)
	l.Cleanup(func() { _ = unix.Close(fd) })
	l.NoError(unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	l.NoError(unix.Listen(fd, 512))
	return fd, path
}

// dial connects to path.
func (l *loop) dial(path string) int {
	l.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	l.NoError(err)
	l.Cleanup(func() { _ = unix.Close(fd) })
	l.NoError(unix.Connect(fd, &unix.SockaddrUnix{Name: path}))
	return fd
}

// writeAll writes p to the blocking socket fd, in any goroutine.
func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// readSome reads from the blocking descriptor fd, in any goroutine.
func readSome(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// A reader reads a blocking descriptor.
type reader int

// Read implements [io.Reader].
func (r reader) Read(p []byte) (int, error) { return readSome(int(r), p) }

// noise returns n bytes that depend on the seed.
func noise(seed uint64, n int) []byte {
	p := make([]byte, n)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	_, _ = rand.NewChaCha8(key).Read(p)
	return p
}

func acceptTakesEveryConnection(l *loop) {
	fd, path := l.listen()
	const n = 100
	l.r.Accept(tag(7), fd)
	for range n / 2 {
		l.dial(path) // before the ring looks
	}
	taken := map[int]bool{}
	for i := range n {
		if i == n/2 {
			for range n / 2 {
				l.dial(path)
			}
		}
		c := l.next()
		l.Equal(ring.KindAccept, c.Kind)
		l.Equal(tag(7), c.Tag)
		l.True(c.More)
		l.GreaterOrEqual(c.Res, int32(0))
		conn := int(c.Res)
		l.False(taken[conn])
		taken[conn] = true
		l.Cleanup(func() { _ = unix.Close(conn) })
		flags, err := unix.FcntlInt(uintptr(conn), unix.F_GETFL, 0)
		l.NoError(err)
		l.NotZero(flags&unix.O_NONBLOCK, "the connection blocks")
		flags, err = unix.FcntlInt(uintptr(conn), unix.F_GETFD, 0)
		l.NoError(err)
		l.NotZero(flags&unix.FD_CLOEXEC, "the connection is inherited")
	}
	l.Empty(l.sync())
}

// A flood of connections that wait to be accepted does not hold up what else is there.
func acceptTakesAFewAtATime(l *loop) {
	fd, path := l.listen()
	const n, few = 300, 16
	for range n {
		l.dial(path)
	}
	l.r.Accept(tag(7), fd)
	for taken := 0; taken < n; {
		done, err := l.r.Wait(make([]ring.Completion, 0, n))
		l.NoError(err)
		l.LessOrEqual(len(done), few)
		for _, c := range done {
			l.Equal(ring.KindAccept, c.Kind)
			l.True(c.More)
			l.NoError(unix.Close(int(c.Res)))
		}
		taken += len(done)
	}
	l.Empty(l.sync())
}

func acceptStartsAgainAfterAPause(l *loop) {
	fd, path := l.listen()
	l.r.Accept(tag(1), fd)
	l.dial(path)
	c := l.next()
	l.NoError(unix.Close(int(c.Res)))
	l.r.Pause(tag(1))
	l.expect(ring.KindAccept, tag(1), -int(unix.ECANCELED))
	l.dial(path)
	l.Empty(l.sync(), "a paused accept took a connection")
	l.r.Accept(tag(1), fd)
	c = l.next()
	l.True(c.More)
	l.NoError(unix.Close(int(c.Res)))
}

func recvDeliversInOrderUntilTheEnd(l *loop) {
	ours, peer := l.pair(0)
	want := noise(1, 3<<20)
	go func() {
		r := rand.New(rand.NewPCG(1, 2))
		for rest := want; len(rest) > 0; {
			n := min(1+r.IntN(100_000), len(rest))
			if writeAll(peer, rest[:n]) != nil {
				return
			}
			rest = rest[n:]
		}
		_ = unix.Shutdown(peer, unix.SHUT_WR)
	}()
	var got []byte
	l.r.Recv(tag(1), ours)
	for {
		c := l.next()
		l.Equal(ring.KindRecv, c.Kind)
		l.Equal(tag(1), c.Tag)
		got = append(got, c.Data...)
		if c.Res >= 0 {
			l.Len(c.Data, int(c.Res))
		}
		switch {
		case c.Res == 0:
			l.False(c.More)
			l.True(bytes.Equal(want, got), "got %d bytes, want %d", len(got), len(want))
			return
		case c.Res == -int32(unix.ENOBUFS) && !c.More, c.Res > 0 && !c.More:
			l.r.Recv(tag(1), ours)
		default:
			l.Positive(c.Res, errnoOr(int(c.Res)))
		}
	}
}

func recvOfManyLosesNothing(l *loop) {
	const conns, size = 32, 256 << 10
	fds := make([]int, conns)
	got := make([][]byte, conns)
	for i := range conns {
		var peer int
		fds[i], peer = l.pair(0)
		l.r.Recv(tag(uint32(i)), fds[i])
		go func() {
			if writeAll(peer, noise(uint64(i), size)) == nil {
				_ = unix.Shutdown(peer, unix.SHUT_WR)
			}
		}()
	}
	for open := conns; open > 0; {
		c := l.next()
		i := c.Tag.Index()
		got[i] = append(got[i], c.Data...)
		switch {
		case c.More:
		case c.Res == 0:
			open--
		case c.Res > 0, c.Res == -int32(unix.ENOBUFS):
			l.r.Recv(c.Tag, fds[i])
		default:
			l.Fail("receive failed", errnoOr(int(c.Res)))
		}
	}
	for i := range got {
		l.True(bytes.Equal(noise(uint64(i), size), got[i]), "connection %d: got %d bytes", i, len(got[i]))
	}
}

func recvAfterAPauseContinuesTheStream(l *loop) {
	ours, peer := l.pair(0)
	l.r.Recv(tag(1), ours)
	l.NoError(writeAll(peer, []byte("before")))
	c := l.next()
	l.Equal("before", string(c.Data))
	l.True(c.More)
	l.r.Pause(tag(1))
	l.r.Pause(tag(1)) // once is enough
	l.expect(ring.KindRecv, tag(1), -int(unix.ECANCELED))
	l.NoError(writeAll(peer, []byte("meanwhile")))
	l.Empty(l.sync(), "a paused receive took data")
	l.r.Recv(tag(1), ours)
	c = l.next()
	l.Equal("meanwhile", string(c.Data))
	l.NoError(unix.Shutdown(peer, unix.SHUT_RDWR))
	l.expect(ring.KindRecv, tag(1), 0)
}

func dataIsUntouchedUntilTheNextWait(l *loop) {
	ours, peer := l.pair(0)
	l.r.Recv(tag(1), ours)
	l.NoError(writeAll(peer, []byte("first")))
	dst, err := l.r.Wait(l.dst[:0])
	l.NoError(err)
	l.Len(dst, 1)
	data := dst[0].Data
	l.NoError(unix.SetNonblock(peer, true))
	for range 2 * ring.DefaultRecvBuffers { // more than there are buffers
		_ = writeAll(peer, []byte("other")) // whether the ring receives now is its own business
		l.NoError(l.r.Submit())
		_ = l.r.Collect(make([]ring.Completion, 0, 8))
		l.Equal("first", string(data))
	}
}

func pauseOfNothingDoesNothing(l *loop) {
	l.r.Pause(tag(1))
	l.Empty(l.sync())
	ours, peer := l.pair(0)
	l.r.Recv(tag(1), ours)
	l.NoError(unix.Shutdown(peer, unix.SHUT_WR))
	l.expect(ring.KindRecv, tag(1), 0)
	l.r.Pause(tag(1)) // it ended by itself
	l.Empty(l.sync())
	l.r.Recv(tag(1), ours)
	l.expect(ring.KindRecv, tag(1), 0)
}

// A pause comes when the kernel has done its part already, and nobody has looked: the operation ends all the same, with what it
// brought.
func pauseEndsWhatWasDoneBefore(l *loop) {
	fd, path := l.listen()
	ours, peer := l.pair(0)
	for range 3 {
		l.dial(path)
	}
	l.NoError(writeAll(peer, []byte("data")))
	l.r.Accept(tag(1), fd)
	l.r.Recv(tag(2), ours)
	l.r.Poll(tag(3), ours)
	l.r.Timer(tag(4), 0)
	l.NoError(l.r.Submit())
	for i := range uint32(4) {
		l.r.Pause(tag(i + 1))
	}
	l.r.Timer(tag(9), 10*time.Second) // if one of them lives on
	ended, data := map[ring.Tag]int{}, ""
	for len(ended) < 4 {
		c := l.next()
		l.NotEqual(tag(9), c.Tag, "only %v ended", ended)
		if data += string(c.Data); c.Kind == ring.KindAccept && c.Res >= 0 {
			l.NoError(unix.Close(int(c.Res)))
		}
		if !c.More {
			ended[c.Tag]++
		}
	}
	l.Equal(map[ring.Tag]int{tag(1): 1, tag(2): 1, tag(3): 1, tag(4): 1}, ended)
	l.r.Pause(tag(9))
	l.expect(ring.KindTimer, tag(9), -int(unix.ECANCELED))
	l.dial(path)
	l.NoError(writeAll(peer, []byte("more")))
	l.Empty(l.sync(), "of operations that are over")
	l.r.Recv(tag(2), ours)
	for len(data) < len("datamore") {
		data += string(l.next().Data)
	}
	l.Equal("datamore", data)
}

func aTagIsArmedOnce(l *loop) {
	ours, _ := l.pair(0)
	l.r.Recv(tag(1), ours)
	l.Panics(func() { l.r.Timer(tag(1), 0) })
}

func aFormerOperationIsNotTakenForANewOne(l *loop) {
	const seed, rounds, chunk = 3, 300, 100
	l.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ours, peer := l.pair(0)
	want := noise(seed, rounds*chunk)
	var got []byte
	receive := func(current ring.Tag, enough int) { // until the operation ended, or what it is to bring is there
		for more := true; more && len(got) < enough; {
			c := l.next()
			l.Equal(current, c.Tag)
			got = append(got, c.Data...)
			if more = c.More; !more && c.Res <= 0 {
				l.Equal(errnoOr(-int(unix.ECANCELED)), errnoOr(int(c.Res)))
			}
		}
		l.True(bytes.HasPrefix(want, got), "%#x", current)
	}
	for i := range uint32(rounds) {
		// Data comes before the pause, between it and the kernel's look at it, or after: in any case the old life's last word
		// comes before anything of the new one, and no byte is lost between the two.
		part := want[int(i)*chunk : int(i+1)*chunk]
		when := random.IntN(3)
		l.r.Recv(ring.NewTag(9, 2*i), ours)
		if when == 0 {
			l.submit()
		}
		if when < 2 {
			l.NoError(writeAll(peer, part))
		}
		l.r.Pause(ring.NewTag(9, 2*i))
		if when == 2 {
			l.submit()
			l.NoError(writeAll(peer, part))
		}
		receive(ring.NewTag(9, 2*i), math.MaxInt)
		l.r.Recv(ring.NewTag(9, 2*i+1), ours)
		receive(ring.NewTag(9, 2*i+1), int(i+1)*chunk)
		l.r.Pause(ring.NewTag(9, 2*i+1))
		receive(ring.NewTag(9, 2*i+1), math.MaxInt)
	}
	l.True(bytes.Equal(want, got))
}
