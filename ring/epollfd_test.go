package ring

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Many operations wait for one descriptor, and end in any order: it is watched for what the rest waits for, and not at all once
// there is none.
func TestOperationsOfADescriptorEndInAnyOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e, err := NewEpoll(Config{Ops: 1, Control: 64, RecvBuffers: 1, RecvBufferSize: 4096})
	require.NoError(t, err)
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(e.Close(), unix.Close(p[0]), unix.Close(p[1]))) }()
	fd := p[0]
	for err == nil { // so that a send has to wait
		_, err = unix.Write(fd, make([]byte, 64<<10))
	}
	require.ErrorIs(t, err, unix.EAGAIN)

	const sender = 1000 // the tag of the only one
	left := map[uint32]bool{}
	check := func() {
		t.Helper()
		var readers, writers, before uint32
		for at := e.fds[fd].first; at != 0; at = e.table.ops[at-1].peer {
			o := &e.table.ops[at-1]
			require.Equal(t, before, o.before)
			require.True(t, left[o.tag.Index()], "%d is over", o.tag.Index())
			if before = at; o.code == codeSend {
				writers++
			} else {
				readers++
			}
		}
		require.Len(t, left, int(readers+writers))
		require.Equal(t, fdEntry{first: e.fds[fd].first, readers: readers, writers: writers}, e.fds[fd])
		ev := unix.EpollEvent{Events: e.fds[fd].events(), Fd: int32(fd)}
		if err := unix.EpollCtl(e.fd, unix.EPOLL_CTL_MOD, fd, &ev); len(left) > 0 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, unix.ENOENT, "nobody waits for it")
		}
	}
	for range 20 {
		for n := range uint32(40) {
			e.Poll(NewTag(n, 1), fd)
			left[n] = true
		}
		e.Send(NewTag(sender, 1), fd, []byte("waits"))
		left[sender] = true
		check()
		order := random.Perm(41)
		for _, n := range order {
			tag := NewTag(uint32(n), 1)
			if n == 40 { // a send is not paused: it goes as the peer reads, or fails
				tag = NewTag(sender, 1)
				i := e.fds[fd].first - 1
				for e.table.ops[i].code != codeSend {
					i = e.table.ops[i].peer - 1
				}
				e.detach(i)
				e.settle(i, -int32(unix.EPIPE))
			} else {
				e.Pause(tag)
			}
			delete(left, tag.Index())
			check()
		}
		done := e.Collect(make([]Completion, 0, 64))
		require.Len(t, done, 41)
		require.Zero(t, e.Stats().InFlight)
	}
}

// A wake-up that comes while the loop is on its way to sleep, or has no room left for it, is not lost. Nothing else ends the sleep:
// the scheduler knows of it, and sends no signals.
func TestAWakeBeforeTheSleepIsNotLost(t *testing.T) {
	e, err := NewEpoll(Config{Ops: 1, Control: 4, RecvBuffers: 1, RecvBufferSize: 4096})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	e.started = true // and its sleep is not raw
	wait := func() Completion {
		t.Helper()
		done, err := e.Wait(make([]Completion, 0, 1))
		require.NoError(t, err)
		require.Len(t, done, 1)
		return done[0]
	}
	e.Timer(NewTag(9, 1), 10*time.Second) // a guard
	e.Wake()
	require.Equal(t, Completion{Kind: KindWake}, wait())
	e.Timer(NewTag(1, 1), 0)
	e.Wake()
	require.Equal(t, Completion{Kind: KindTimer, Tag: NewTag(1, 1)}, wait(), "it takes all the room")
	require.Equal(t, Completion{Kind: KindWake}, wait())
}

// Timers that end before their time, wherever they are in the heap, leave the others in the order of theirs.
func TestTimersEndInTheirOrderWhicheverArePaused(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const timers = 200
	h := newTimerHeap(timers)
	for range 50 {
		left := map[uint32]time.Duration{}
		for i := range uint32(timers) {
			left[i] = time.Duration(random.IntN(timers))
			h.push(i, 0, left[i])
		}
		for _, i := range random.Perm(timers)[:timers/2] {
			h.remove(uint32(i))
			delete(left, uint32(i))
		}
		for last := time.Duration(0); len(left) > 0; {
			i := h.heap[0]
			require.GreaterOrEqual(t, left[i], last)
			last = left[i]
			delete(left, i)
			h.remove(i)
		}
		require.Empty(t, h.heap)
	}
}
