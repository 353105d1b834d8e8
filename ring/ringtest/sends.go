package ringtest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

func sendNowIsSilentWhenItAllWent(l *loop) {
	ours, peer := l.pair(0)
	var want []byte
	for i := range 2000 {
		p := noise(uint64(i), i%50)
		want = append(want, p...)
		l.r.SendNow(tag(1), ours, p)
		l.submit()
		l.Empty(l.left)
		if i%100 == 99 {
			got := make([]byte, len(want))
			_, err := io.ReadFull(reader(peer), got)
			l.NoError(err)
			l.Equal(want, got)
			want = want[:0]
		}
	}
	l.Zero(l.r.Stats().InFlight)
}

func sendNowTellsWhatWent(l *loop) {
	ours, peer := l.pair(4096)
	p := noise(1, 300_000)
	l.r.SendNow(tag(1), ours, p)
	l.submit()
	l.Len(l.left, 1, "a short SendNow is told of at once")
	c := l.next()
	l.Equal(ring.KindSend, c.Kind)
	l.Equal(tag(1), c.Tag)
	l.Positive(c.Res)
	l.Less(int(c.Res), len(p))
	l.r.SendNow(tag(2), ours, p[c.Res:])
	l.expect(ring.KindSend, tag(2), -int(unix.EAGAIN))
	got := make([]byte, c.Res)
	_, err := io.ReadFull(reader(peer), got)
	l.NoError(err)
	l.True(bytes.Equal(p[:c.Res], got))
	l.Empty(l.sync())
}

// repliesToASlowReaderArriveWhole sends as a server's connection does: SendNow while nothing is unresolved, and the rest of a short one
// by Send.
func repliesToASlowReaderArriveWhole(l *loop) {
	const seed, replies = 11, 1000
	l.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ours, peer := l.pair(2048)
	var want []byte
	sizes := make([]int, replies)
	for i := range sizes {
		switch n := random.IntN(30); {
		case n == 0:
			sizes[i] = 1 + random.IntN(300_000)
		case n < 8:
			sizes[i] = 1 + random.IntN(8192)
		default:
			sizes[i] = 1 + random.IntN(64)
		}
		want = append(want, noise(uint64(i), sizes[i])...)
	}
	result := make(chan []byte, 1)
	go func() {
		random := rand.New(rand.NewPCG(seed, 1))
		got, buf := make([]byte, 0, len(want)), make([]byte, 64<<10)
		for len(got) < len(want) {
			n, err := readSome(peer, buf[:1+random.IntN(len(buf))])
			if err != nil {
				break
			}
			got = append(got, buf[:n]...)
		}
		result <- got
	}()
	var short, refused int
	for rest := want; len(sizes) > 0; sizes = sizes[1:] {
		p := rest[:sizes[0]:sizes[0]]
		rest = rest[sizes[0]:]
		l.r.SendNow(tag(1), ours, p)
		l.submit()
		if len(l.left) == 0 {
			continue
		}
		switch c := l.next(); {
		case c.Res > 0:
			short++
			p = p[c.Res:]
		default:
			refused++
			l.Equal(errnoOr(-int(unix.EAGAIN)), errnoOr(int(c.Res)))
		}
		l.r.Send(tag(2), ours, p)
		l.expect(ring.KindSend, tag(2), len(p))
	}
	l.True(bytes.Equal(want, <-result), "the bytes differ")
	l.Positive(short+refused, "the reader was never slow")
	l.Logf("%d short, %d refused", short, refused)
}

func sendWaitsForRoom(l *loop) {
	ours, peer := l.pair(4096)
	want := noise(5, 4<<20)
	result := make(chan []byte, 1)
	l.r.Send(tag(1), ours, want)
	l.Empty(l.sync(), "nobody reads yet")
	go func() {
		got := make([]byte, len(want))
		n, _ := io.ReadFull(reader(peer), got)
		result <- got[:n]
	}()
	l.expect(ring.KindSend, tag(1), len(want))
	l.True(bytes.Equal(want, <-result))
	l.r.Send(tag(2), ours, nil)
	l.expect(ring.KindSend, tag(2), 0)
}

// buffersLiveAsLongAsTheKernelNeedsThem leaves the only references to buffers to the ring.
func buffersLiveAsLongAsTheKernelNeedsThem(l *loop) {
	const conns, size = 8, 256 << 10
	peers := make([]int, conns)
	for i := range peers {
		var ours int
		ours, peers[i] = l.pair(4096)
		l.r.Send(tag(uint32(i)), ours, noise(uint64(i), size))
	}
	l.submit()
	for range 5 { // what was freed is written over
		runtime.GC()
		for i := range conns {
			runtime.KeepAlive(noise(uint64(1000+i), size))
		}
	}
	whole := make(chan int)
	go func() {
		n := 0
		for i, peer := range peers {
			got := make([]byte, size)
			if _, err := io.ReadFull(reader(peer), got); err == nil && bytes.Equal(noise(uint64(i), size), got) {
				n++
			}
		}
		whole <- n
	}()
	for range conns {
		l.Equal(int32(size), l.next().Res)
	}
	l.Equal(conns, <-whole, "buffers that arrived as they were")
}

func sendToNobodyFails(l *loop) {
	ours, peer := l.pair(0)
	l.NoError(unix.Shutdown(peer, unix.SHUT_RDWR))
	l.r.Send(tag(1), ours, []byte("hello"))
	l.expect(ring.KindSend, tag(1), -int(unix.EPIPE))
	l.r.SendNow(tag(2), ours, []byte("hello"))
	l.expect(ring.KindSend, tag(2), -int(unix.EPIPE))

	ours, peer = l.pair(4096)
	l.r.Send(tag(3), ours, make([]byte, 1<<20))
	l.Empty(l.sync())
	l.NoError(unix.Shutdown(peer, unix.SHUT_RDWR))
	c := l.next()
	l.Equal(tag(3), c.Tag, "a send that waits ends when the peer goes")
	l.Equal(errnoOr(-int(unix.EPIPE)), errnoOr(int(c.Res)))
}

func sendFDPassesADescriptor(l *loop) {
	path := filepath.Join(l.TempDir(), "passed")
	l.NoError(os.WriteFile(path, []byte("content"), 0o600))
	for _, size := range []int{1, 100, 1 << 20} { // the last does not fit the socket
		ours, peer := l.pair(8192)
		file, err := os.Open(path)
		l.NoError(err)
		want := noise(uint64(size), size)
		type message struct {
			data   []byte
			rights int
			fd     int
		}
		result := make(chan message, 1)
		go func() {
			m := message{fd: -1}
			buf, oob := make([]byte, 64<<10), make([]byte, 256)
			for len(m.data) < size {
				n, oobn, _, _, err := unix.Recvmsg(peer, buf, oob, unix.MSG_CMSG_CLOEXEC)
				if errors.Is(err, unix.EINTR) {
					continue
				}
				if err != nil || n == 0 {
					break
				}
				m.data = append(m.data, buf[:n]...)
				cs, _ := unix.ParseSocketControlMessage(oob[:oobn])
				for i := range cs {
					if fds, err := unix.ParseUnixRights(&cs[i]); err == nil {
						m.rights += len(fds)
						m.fd = fds[0]
					}
				}
			}
			result <- m
		}()
		l.r.SendFD(tag(1), ours, want, int(file.Fd()))
		l.expect(ring.KindSend, tag(1), size)
		l.NoError(file.Close())
		m := <-result
		l.True(bytes.Equal(want, m.data))
		l.Equal(1, m.rights, "the descriptor comes once")
		got := os.NewFile(uintptr(m.fd), "passed")
		content, err := io.ReadAll(got)
		l.NoError(err)
		l.NoError(got.Close())
		l.Equal("content", string(content))
	}
	ours, _ := l.pair(0)
	l.Panics(func() { l.r.SendFD(tag(1), ours, nil, 0) }, "no byte, no descriptor")
}
