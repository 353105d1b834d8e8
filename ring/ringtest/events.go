package ringtest

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

func pollSeesAPipeAndAProcess(l *loop) {
	r, w, err := os.Pipe()
	l.NoError(err)
	defer func() { _ = r.Close() }()
	l.r.Poll(tag(1), int(r.Fd()))
	l.Empty(l.sync())
	_, err = w.Write([]byte("x"))
	l.NoError(err)
	l.expect(ring.KindPoll, tag(1), 0)
	l.Empty(l.sync(), "a poll completes once")
	_, err = r.Read(make([]byte, 1))
	l.NoError(err)
	l.r.Poll(tag(1), int(r.Fd()))
	l.Empty(l.sync())
	l.NoError(w.Close())
	l.expect(ring.KindPoll, tag(1), 0) // hung up

	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	l.NoError(err)
	l.NoError(cmd.Start())
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	l.NoError(err)
	defer func() { _ = unix.Close(fd) }()
	l.r.Poll(tag(2), fd)
	l.Empty(l.sync())
	l.NoError(in.Close())
	l.expect(ring.KindPoll, tag(2), 0)
	l.NoError(cmd.Wait())

	ours, _ := l.pair(0)
	l.r.Poll(tag(3), ours)
	l.submit()
	l.r.Pause(tag(3))
	l.expect(ring.KindPoll, tag(3), -int(unix.ECANCELED))
}

func timersFireInOrder(l *loop) {
	start := time.Now()
	l.r.Timer(tag(3), 60*time.Millisecond)
	l.r.Timer(tag(1), 20*time.Millisecond)
	l.r.Timer(tag(4), math.MaxInt64)
	l.r.Timer(tag(2), 40*time.Millisecond)
	for i := range uint32(3) {
		l.expect(ring.KindTimer, tag(i+1), 0)
		l.GreaterOrEqual(time.Since(start), time.Duration(i+1)*20*time.Millisecond)
	}
	l.r.Timer(tag(5), 0)
	l.expect(ring.KindTimer, tag(5), 0)
	l.r.Timer(tag(6), -time.Second)
	l.expect(ring.KindTimer, tag(6), 0)
	l.r.Pause(tag(4))
	l.expect(ring.KindTimer, tag(4), -int(unix.ECANCELED))
	l.r.Timer(tag(4), 0)
	l.expect(ring.KindTimer, tag(4), 0)
}

func passDoesNotBlock(l *loop) {
	pass := func() {
		dst, err := l.r.Pass(l.dst[:0])
		l.NoError(err)
		l.keep(dst)
	}
	until := func() { // hangs if a pass never sees it
		for len(l.left) == 0 {
			pass()
		}
	}
	pass()
	l.Empty(l.left, "nothing is there")
	ours, peer := l.pair(0)
	l.r.Recv(tag(1), ours)
	pass() // it submits
	l.Empty(l.left)
	_, err := unix.Write(peer, []byte("x"))
	l.NoError(err)
	until()
	c := l.next()
	l.Equal(ring.KindRecv, c.Kind)
	l.Equal("x", string(c.Data))
	l.r.SendNow(tag(1), ours, []byte("yz"))
	pass()
	var p [3]byte
	n, err := unix.Read(peer, p[:])
	l.NoError(err)
	l.Equal("yz", string(p[:n]))
	l.Empty(l.left, "it went whole")
	l.r.Wake()
	until()
	l.expect(ring.KindWake, 0, 0)
	l.r.Timer(tag(2), time.Millisecond)
	until()
	l.expect(ring.KindTimer, tag(2), 0)
}

func wakesMergeAndNoneIsLost(l *loop) {
	const wakes = 1000
	var count atomic.Int64
	l.r.Wake()
	l.expect(ring.KindWake, 0, 0)
	for range 2 {
		go func() {
			for range wakes / 2 {
				count.Add(1)
				l.r.Wake()
			}
		}()
	}
	for seen, completions := int64(0), 1; seen < wakes; completions++ { // hangs if the last one is lost
		l.expect(ring.KindWake, 0, 0)
		seen = count.Load()
		l.LessOrEqual(completions, wakes)
	}
}

// Whether a ring can tell what is due is its own affair, but others may ask it at any time.
func anyoneAsksWhatIsDue(l *loop) {
	stop, asked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(asked)
		for {
			select {
			case <-stop:
				return
			default:
				l.r.Due()
			}
		}
	}()
	ours, peer := l.pair(0)
	l.r.Recv(tag(1), ours)
	for range 100 {
		_, err := unix.Write(peer, []byte("x"))
		l.NoError(err)
		c := l.next()
		l.Equal("x", string(c.Data))
		l.Empty(l.sync())
	}
	close(stop)
	<-asked
}

func wakeAfterCloseDoesNothing(l *loop) {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				l.r.Wake()
				runtime.Gosched()
			}
		}
	}()
	l.expect(ring.KindWake, 0, 0)
	l.NoError(l.r.Close())
	// What the descriptor's number names now must not be written to.
	ours, peer := l.pair(0)
	for range 1000 {
		l.r.Wake()
	}
	close(stop)
	<-done
	l.NoError(unix.SetNonblock(peer, true))
	for _, fd := range []int{ours, peer} {
		_, err := unix.Read(fd, make([]byte, 8))
		l.ErrorIs(err, unix.EAGAIN)
	}
}

func theCollectorRunsWhileWaitIdles(l *loop) {
	var collected atomic.Int64
	go func() {
		for range 20 {
			runtime.GC()
			collected.Add(1)
		}
		l.r.Wake()
	}()
	l.expect(ring.KindWake, 0, 0) // hangs if a collection does
	l.Equal(int64(20), collected.Load())
}

// signalsLoseNothing is a storm of EINTR: no operation is lost or done twice, and none fails for it.
func signalsLoseNothing(l *loop) {
	const rounds, storm = 1000, 2000
	pid, tid := os.Getpid(), unix.Gettid()
	var signals atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Tgkill(pid, tid, unix.SIGURG) // the runtime takes it for a preemption
				signals.Add(1)
				runtime.Gosched()
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	ours, peer := l.pair(0)
	go func() { // an echo
		buf := make([]byte, 100)
		for {
			n, err := readSome(peer, buf)
			if err != nil || writeAll(peer, buf[:n]) != nil {
				return
			}
		}
	}()
	content := noise(1, rounds)
	fd := int(l.file(content).Fd())
	l.r.Recv(tag(0), ours)
	var want, got []byte
	for i := 0; i < rounds || signals.Load() < storm; i++ {
		at := i % rounds
		read := make([]byte, 1)
		want = append(want, content[at])
		l.r.SendNow(tag(1), ours, content[at:at+1])
		l.r.Read(tag(uint32(i)), fd, int64(at), read)
		for k := 0; k < 2; k++ { // in any order
			switch c := l.next(); {
			case c.Kind == ring.KindRecv && c.More:
				got = append(got, c.Data...)
			case c.Kind == ring.KindRead && c.Tag == tag(uint32(i)):
				l.Equal(content[at], read[0])
			default:
				l.Fail("unexpected", "%+v", c)
			}
		}
	}
	l.True(bytes.Equal(want, got))
	l.NoError(unix.Shutdown(ours, unix.SHUT_RDWR))
	l.expect(ring.KindRecv, tag(0), 0)
	l.Zero(l.r.Stats().InFlight)
	l.Logf("%d signals, %d retries", signals.Load(), l.r.Stats().Retries)
}

func closeEndsEverything(l *loop) {
	listener, path := l.listen()
	l.r.Accept(tag(1), listener)
	ours, _ := l.pair(4096)
	l.r.Recv(tag(2), ours)
	l.r.Send(tag(3), ours, make([]byte, 1<<20)) // nobody reads
	l.r.Timer(tag(4), time.Hour)
	other, peer := l.pair(0)
	l.r.Poll(tag(5), other)
	l.submit()
	fd := int(l.file(noise(1, 1<<20)).Fd())
	bufs := l.pages(8 << 20)
	for i := range uint32(7) {
		l.r.Read(tag(i), fd, 0, bufs[i<<20:(i+1)<<20])
		l.r.Write(tag(i), fd, int64(i)<<20, bufs[i<<20:(i+1)<<20])
	}
	l.submit()
	client := l.dial(path) // accepted, perhaps, and nobody takes it
	l.NoError(writeAll(peer, []byte("x")))
	l.r.Read(tag(99), fd, 0, bufs) // never submitted
	l.r.SendNow(tag(98), other, []byte("y"))
	l.NoError(l.r.Close())
	l.NoError(unix.Close(listener))
	_, err := readSome(client, make([]byte, 1))
	l.Error(err, "the connection outlives the ring")
}
