package ring_test

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

// both are the engines.
var both = []ring.Engine{ring.EngineUring, ring.EngineEpoll}

func TestEnginesAreParsedByTheirNames(t *testing.T) {
	for _, e := range []ring.Engine{ring.EngineAuto, ring.EngineUring, ring.EngineEpoll} {
		got, err := ring.ParseEngine(e.String())
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
	got, err := ring.ParseEngine("")
	require.NoError(t, err)
	require.Equal(t, ring.EngineAuto, got)
	for _, name := range []string{"invalid", "URING", "kqueue"} {
		_, err := ring.ParseEngine(name)
		require.ErrorContains(t, err, "auto, uring or epoll")
	}
	require.Equal(t, "invalid", ring.Engine(99).String())
}

func TestAConfigThatDoesNotFitIsNoReasonToFallBack(t *testing.T) {
	for _, e := range []ring.Engine{ring.EngineAuto, ring.EngineUring, ring.EngineEpoll} {
		_, err := ring.Open(e, ring.Config{Ops: -1})
		require.Error(t, err)
		require.NotErrorIs(t, err, ring.ErrUnavailable)
	}
}

// io_uring_setup gives EPERM in containers, or ENOSYS, or a later call does: the engine that was asked for is refused with the
// reason, and the one that may be any goes on with epoll and keeps the reason.
func TestARefusedIoUringIsEpollUnlessItWasAskedFor(t *testing.T) {
	for _, c := range []struct {
		name    string
		syscall uint32
		errno   unix.Errno
	}{
		{"setup EPERM", unix.SYS_IO_URING_SETUP, unix.EPERM},
		{"setup ENOSYS", unix.SYS_IO_URING_SETUP, unix.ENOSYS},
		{"register EPERM", unix.SYS_IO_URING_REGISTER, unix.EPERM},
		{"enter ENOSYS", unix.SYS_IO_URING_ENTER, unix.ENOSYS},
	} {
		t.Run(c.name, func(t *testing.T) {
			var filterErr, strict, used error
			var o ring.Opened
			onDoomedThread(func() {
				if filterErr = ringtest.Forbid(c.errno, c.syscall); filterErr != nil {
					return
				}
				_, strict = ring.Open(ring.EngineUring, ring.Config{})
				if o, used = ring.Open(ring.EngineAuto, ring.Config{}); used != nil {
					return
				}
				o.Ring.Timer(ring.NewTag(1, 0), 0)
				_, used = o.Ring.Wait(make([]ring.Completion, 0, 1))
				used = errors.Join(used, o.Ring.Close())
			})
			if filterErr != nil {
				t.Skipf("no seccomp filter here: %v", filterErr)
			}
			require.NoError(t, used)
			require.Equal(t, ring.EngineEpoll, o.Engine)
			for _, err := range []error{strict, o.Refusal} {
				require.ErrorIs(t, err, ring.ErrUnavailable)
				require.ErrorIs(t, err, c.errno)
				require.ErrorContains(t, err, unix.ErrnoName(c.errno)+", kernel.io_uring_disabled is ")
			}
		})
	}
}

// collections runs the collector in a loop beside run, and reports the longest time that one took and that the world stood still. That
// all of them end is the test; how long they take depends on the machine.
func collections(t *testing.T, n int64, run func(done func() bool)) {
	t.Helper()
	var longest, count atomic.Int64
	go func() {
		for range n {
			begin := time.Now()
			runtime.GC()
			longest.Store(max(longest.Load(), int64(time.Since(begin))))
			count.Add(1)
		}
	}()
	run(func() bool { return count.Load() == n })
	var stats debug.GCStats
	debug.ReadGCStats(&stats)
	t.Logf("%d collections, the longest took %v, the longest pause %v", n, time.Duration(longest.Load()), slices.Max(stats.Pause[:n]))
}

// Raw system calls block the Go scheduler or the collector: it runs in a loop while the ring sleeps, is woken at random, and works
// without a pause, and every collection ends.
func TestCollectionsEndWhileTheLoopIdlesAndWorks(t *testing.T) {
	for _, engine := range both {
		t.Run(engine.String()+"/idle", func(t *testing.T) {
			u := openEngine(t, engine, ring.Config{})
			collections(t, 30, func(done func() bool) {
				for !done() {
					u.Timer(ring.NewTag(1, 0), 20*time.Millisecond)
					require.Equal(t, ring.KindTimer, next(t, u).Kind)
				}
			})
		})
		t.Run(engine.String()+"/busy", func(t *testing.T) {
			u := openEngine(t, engine, ring.Config{})
			a, b := pair(t)
			fd := file(t, 4096)
			buf := mapped(t, 4096)
			u.Recv(ring.NewTag(1, 0), b)
			u.Read(ring.NewTag(3, 0), fd, 0, buf)
			u.SendNow(ring.NewTag(2, 0), a, buf[:64])
			dst := make([]ring.Completion, 0, 64)
			collections(t, 30, func(done func() bool) {
				for !done() {
					got, err := u.Wait(dst)
					require.NoError(t, err)
					for i := range got {
						if got[i].Kind == ring.KindRecv {
							u.SendNow(ring.NewTag(2, 0), a, buf[:64])
							continue
						}
						require.Equal(t, ring.KindRead, got[i].Kind)
						u.Read(ring.NewTag(3, 0), fd, 0, buf)
					}
				}
			})
		})
	}
}

// BenchmarkIdle is what a loop costs that waits for nothing, the whole process counted: in ms of processor time a second. An operation
// is a second.
func BenchmarkIdle(b *testing.B) {
	for _, engine := range both {
		b.Run(fmt.Sprintf("engine=%v", engine), func(b *testing.B) {
			u := openEngine(b, engine, ring.Config{})
			var spent time.Duration
			go func() {
				time.Sleep(200 * time.Millisecond) // until it sleeps as one does that has nothing to do
				before := cpuTime()
				time.Sleep(time.Duration(b.N) * time.Second)
				spent = cpuTime() - before
				u.Wake()
			}()
			require.Equal(b, ring.KindWake, next(b, u).Kind)
			b.ReportMetric(spent.Seconds()*1000/float64(b.N), "cpu-ms/s")
		})
	}
}

// cpuTime is the processor time of this process.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Others ask whether the loop's thread should go before them: while it is at work, and when something has come that it has not taken.
func TestTheLoopIsDueWhileItWorksAndWhenSomethingHasCome(t *testing.T) {
	for _, engine := range []ring.Engine{ring.EngineUring, ring.EngineEpoll} {
		t.Run(engine.String(), func(t *testing.T) {
			u := openEngine(t, engine, ring.Config{Ops: 8, Control: 8})
			a, b := pair(t)
			u.Recv(ring.NewTag(1, 1), a)
			require.NoError(t, u.Submit())
			saw := make(chan bool, 1)
			watch := func(want bool) {
				got := u.Due()
				for end := time.Now().Add(20 * time.Second); got != want && time.Now().Before(end); got = u.Due() {
				}
				saw <- got == want
			}
			_, err := unix.Write(b, []byte("x"))
			require.NoError(t, err)
			go watch(true)
			require.True(t, <-saw, "something has come")
			for i := range 4 {
				got, err := u.Wait(make([]ring.Completion, 0, 8))
				require.NoError(t, err)
				require.Len(t, got, 1)
				if i > 0 {
					require.True(t, <-saw, "it slept")
				}
				require.True(t, u.Due(), "it is at work")
				if i == 3 {
					break
				}
				go func() {
					watch(false)
					_, _ = unix.Write(b, []byte("x")) // what the next Wait waits for
				}()
			}
		})
	}
}
