package ring_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

// refused skips the test, or fails it if the environment demands a ring, when err tells that the kernel refuses one.
func refused(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ring.ErrUnavailable) && os.Getenv("SLOTCACHE_REQUIRE_URING") != "1" {
		t.Skipf("%v (SLOTCACHE_REQUIRE_URING=1 makes this a failure)", err)
	}
	require.NoError(t, err)
}

// open returns a ring of the thread's, which ends with the test.
func open(t testing.TB, cfg ring.Config) *ring.Uring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	u, err := ring.New(cfg)
	refused(t, err)
	t.Cleanup(func() { require.NoError(t, u.Close()) })
	return u
}

// openEngine is open for either engine.
func openEngine(t testing.TB, engine ring.Engine, cfg ring.Config) ring.Interface {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	o, err := ring.Open(engine, cfg)
	refused(t, err)
	t.Cleanup(func() { require.NoError(t, o.Ring.Close()) })
	return o.Ring
}

// pair returns connected stream sockets that do not block.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = unix.Close(p[0]), unix.Close(p[1]) })
	return p[0], p[1]
}

// file returns the descriptor of a new file of size bytes.
func file(t testing.TB, size int) int {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	_, err = f.Write(make([]byte, size))
	require.NoError(t, err)
	return int(f.Fd())
}

// mapped returns n bytes of memory that is no heap's.
func mapped(t testing.TB, n int) []byte {
	t.Helper()
	p, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(p) })
	return p
}

// next returns the next completion. The caller expects no more than that one.
func next(t testing.TB, u ring.Interface) ring.Completion {
	t.Helper()
	got, err := u.Wait(make([]ring.Completion, 0, 1))
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0]
}

func TestUringPassesTheSuite(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    ring.Config
		submit uint32
	}{
		{"Defaults", ring.Config{}, 0},
		{"Small", ring.Config{Ops: 16, Control: 64, RecvBuffers: 4, RecvBufferSize: 4096}, 0},
		{"Spinning", ring.Config{Spin: 50 * time.Microsecond}, 0},
		{"Looking", ring.Config{Look: 50 * time.Microsecond}, 0},
		{"OneSubmissionAnEnter", ring.Config{Ops: 64, Control: 128}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ringtest.Run(t, func(t *testing.T) ring.Interface {
				u, err := ring.New(c.cfg)
				refused(t, err)
				u.LimitSubmissions(c.submit)
				return u
			})
		})
	}
}

// A crammed ring has far too little room for completions. That it runs out is no failure of the suite's.
type crammed struct{ *ring.Uring }

func (c crammed) Stats() ring.Stats {
	s := c.Uring.Stats()
	s.Overflows = 0
	return s
}

// The kernel's queue of completions overflows all the time: whatever was asked for ends once, and in its order.
func TestUringPassesTheSuiteThoughItsQueuesAreTooSmall(t *testing.T) {
	rings, overflows := 0, uint64(0)
	ringtest.Run(t, func(t *testing.T) ring.Interface {
		u, err := ring.NewSized(ring.Config{}, 4, 4)
		refused(t, err)
		t.Cleanup(func() { rings, overflows = rings+1, overflows+u.Stats().Overflows })
		return crammed{u}
	})
	if rings > 20 { // not only some cases, by -run
		require.Positive(t, overflows)
	}
}

// What did not fit the kernel's queue is handed out, a few at a time, before the loop sleeps: nothing else will come.
func TestWhatWasHeldBackComesBeforeTheLoopSleeps(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u, err := ring.NewSized(ring.Config{}, 128, 128)
	refused(t, err)
	defer func() { require.NoError(t, u.Close()) }()
	const guard, asked, late = 1000, 100, 20 * time.Second
	u.Timer(ring.NewTag(guard, 0), late)
	for round := range uint32(10) {
		for i := range uint32(asked) { // they fail at once, three times as many as there is room for
			for n := range uint32(3) {
				u.Read(ring.NewTag(i, 3*round+n), 1<<20, 0, make([]byte, 1))
			}
		}
		for n := 0; n < 3*asked; {
			done, err := u.Wait(make([]ring.Completion, 0, 7))
			require.NoError(t, err)
			require.LessOrEqual(t, len(done), 7)
			for _, c := range done {
				require.Equal(t, ring.NewTag(uint32(n/3), 3*round+uint32(n%3)), c.Tag, "in another order")
				require.Equal(t, -int32(unix.EBADF), c.Res)
				n++
			}
		}
	}
	require.Positive(t, u.Stats().Overflows, "nothing overflowed")
}

// TestWorkForTheThreadIsSeenWithoutASystemCall is what a look stands on: the kernel's mark that it has some.
func TestWorkForTheThreadIsSeenWithoutASystemCall(t *testing.T) {
	u := openEngine(t, ring.EngineUring, ring.Config{}).(*ring.Uring)
	require.NoError(t, u.Submit())
	require.False(t, u.Watch(time.Millisecond), "nothing happens")
	before := u.Stats().Enters
	u.Wake()
	require.True(t, u.Watch(10*time.Second))
	require.Equal(t, before, u.Stats().Enters)
	done, err := u.Wait(make([]ring.Completion, 0, 4))
	require.NoError(t, err)
	require.Len(t, done, 1)
	require.Equal(t, ring.KindWake, done[0].Kind)
	require.NoError(t, u.Submit())
	require.False(t, u.Watch(0), "the mark is taken back")
}

func TestCyclesDoNotAllocate(t *testing.T) {
	for _, engine := range both {
		t.Run(engine.String(), func(t *testing.T) { cyclesDoNotAllocate(t, openEngine(t, engine, ring.Config{})) })
	}
}

// cyclesDoNotAllocate does one of everything, again and again.
func cyclesDoNotAllocate(t *testing.T, u ring.Interface) {
	a, b := pair(t)
	fd := file(t, 1<<20)
	mem := mapped(t, 1<<20)
	if err := u.RegisterMemory(mem[:1<<19]); err != nil {
		t.Logf("plain I/O: %v", err)
	}
	dst := make([]ring.Completion, 0, 64)
	out := make([]byte, 1000)
	u.Recv(ring.NewTag(1, 0), b)
	cycle := func() {
		u.SendNow(ring.NewTag(2, 0), a, out)
		u.Send(ring.NewTag(3, 0), b, out[:10])
		u.Read(ring.NewTag(4, 0), fd, 0, mem[:4096])              // fixed
		u.Write(ring.NewTag(5, 0), fd, 8192, mem[1<<19-4096:][:]) // over the border
		u.Sync(ring.NewTag(6, 0), fd)
		u.Timer(ring.NewTag(7, 0), 0)
		u.Poll(ring.NewTag(8, 0), a)
		u.Wake()
		for done := 0; done < 8; {
			got, err := u.Wait(dst[:0])
			if err != nil {
				panic(err)
			}
			for i := range got {
				if got[i].Res < 0 {
					panic(unix.Errno(-got[i].Res))
				}
			}
			done += len(got)
		}
		if n, err := unix.Read(a, out[:10]); n != 10 {
			panic(err)
		}
		u.Pause(ring.NewTag(1, 0))
		for more := true; more; {
			got, err := u.Wait(dst[:0])
			if err != nil {
				panic(err)
			}
			more = len(got) != 1 || got[0].More
		}
		u.Recv(ring.NewTag(1, 0), b)
	}
	require.Zero(t, testing.AllocsPerRun(200, cycle))
	s := u.Stats()
	require.Zero(t, s.Overflows)
	require.Zero(t, s.Stale)
	t.Logf("%+v", s)
}

// TestAFailedSendIsToldOfThoughTheQueueOverflows makes completions overflow as no ring of New's size can: a send whose failure is
// among those that the kernel holds back must not be taken for a success.
func TestAFailedSendIsToldOfThoughTheQueueOverflows(t *testing.T) {
	const sends = 500
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u, err := ring.NewSized(ring.Config{Control: sends, RecvBuffers: 1}, 16, 32)
	refused(t, err)
	defer func() { require.NoError(t, u.Close()) }()
	a, b := pair(t)
	failed := map[uint32]int{}
	var got []ring.Completion
	for range 3 {
		for i := range uint32(sends) {
			if i%7 == 0 {
				u.SendNow(ring.NewTag(i, 0), a, []byte{byte(i)})
			} else {
				u.SendNow(ring.NewTag(i, 0), 1<<20, []byte("x"))
			}
		}
		require.NoError(t, u.Submit())
		for got = u.Collect(make([]ring.Completion, 0, 3)); len(got) > 0; got = u.Collect(got[:0]) {
			for _, c := range got {
				require.Equal(t, -int32(unix.EBADF), c.Res)
				failed[c.Tag.Index()]++
			}
		}
		require.Zero(t, u.Stats().InFlight)
	}
	require.Positive(t, u.Stats().Overflows, "nothing overflowed")
	buf := make([]byte, sends)
	n, err := unix.Read(b, buf)
	require.NoError(t, err)
	at := 0
	for range 3 {
		for i := range uint32(sends) {
			if i%7 == 0 {
				require.Zero(t, failed[i], "send %d went out and failed", i)
				require.Equal(t, byte(i), buf[at], "send %d", i)
				at++
			} else {
				require.Equal(t, 3, failed[i], "send %d", i)
			}
		}
	}
	require.Equal(t, at, n)
}

func TestSendsAreSettledOnlyWhenTheKernelHasConsumedThem(t *testing.T) {
	u := open(t, ring.Config{})
	a, b := pair(t)
	require.NoError(t, u.Submit()) // of its own
	u.LimitSubmissions(1)
	for i := range uint32(10) {
		u.SendNow(ring.NewTag(i, 0), a, []byte{byte(i)})
	}
	// A zero timer would complete with what is submitted last.
	u.Timer(ring.NewTag(99, 0), 0)
	require.Equal(t, 11, u.Stats().InFlight)
	require.Empty(t, u.Collect(make([]ring.Completion, 0, 16)))
	require.Equal(t, 11, u.Stats().InFlight, "nothing was submitted")
	before := u.Stats().Enters
	require.Equal(t, ring.KindTimer, next(t, u).Kind)
	require.GreaterOrEqual(t, u.Stats().Enters, before+11)
	require.Zero(t, u.Stats().InFlight)
	buf := make([]byte, 100)
	n, err := unix.Read(b, buf)
	require.NoError(t, err)
	require.Equal(t, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, buf[:n])

	// Those that fail say so, each after the enter that consumed it.
	for i := range uint32(10) {
		u.SendNow(ring.NewTag(i, 0), 1<<20, []byte{byte(i)})
	}
	u.Timer(ring.NewTag(99, 0), 0)
	for i := range uint32(10) {
		c := next(t, u)
		require.Equal(t, ring.KindSend, c.Kind)
		require.Equal(t, ring.NewTag(i, 0), c.Tag)
		require.Equal(t, -int32(unix.EBADF), c.Res)
	}
	require.Equal(t, ring.KindTimer, next(t, u).Kind)
}

func TestWaitSubmitsAndWaitsInOneCall(t *testing.T) {
	u := open(t, ring.Config{})
	a, b := pair(t)
	u.Recv(ring.NewTag(1, 0), b)
	u.SendNow(ring.NewTag(2, 0), a, []byte("x"))
	next(t, u)
	before := u.Stats()
	const turns = 100
	for range turns {
		u.SendNow(ring.NewTag(2, 0), a, []byte("x"))
		next(t, u)
	}
	s := u.Stats()
	require.LessOrEqual(t, s.Enters-before.Enters-(s.Retries-before.Retries), uint64(turns))
}

func TestTheFirstWaitTakesTheThread(t *testing.T) {
	u, err := ring.New(ring.Config{})
	refused(t, err)
	mem := mapped(t, 1<<16)
	done, stop := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := u.RegisterMemory(mem); err != nil {
			t.Logf("plain I/O: %v", err)
		}
		u.Wake()
		if _, err := u.Wait(make([]ring.Completion, 0, 1)); err != nil {
			done <- err
			return
		}
		done <- nil
		<-stop
		done <- u.Close()
	}()
	require.NoError(t, <-done)
	runtime.LockOSThread()
	u.Timer(ring.NewTag(1, 0), 0)
	err = u.Submit() // on a thread that is not the ring's
	runtime.UnlockOSThread()
	require.Error(t, err)
	close(stop)
	require.NoError(t, <-done)
}

func TestSendsThatWentDoNotFillTheTable(t *testing.T) {
	u := open(t, ring.Config{Control: 4})
	a, b := pair(t)
	buf := make([]byte, 16)
	for range 100 {
		for range 4 {
			u.SendNow(ring.NewTag(1, 0), a, []byte("x"))
		}
		require.NoError(t, u.Submit()) // and no Collect
		n, err := unix.Read(b, buf)
		require.NoError(t, err)
		require.Equal(t, 4, n)
	}
	for range 4 {
		u.SendNow(ring.NewTag(1, 0), a, []byte("x"))
	}
	require.Panics(t, func() { u.SendNow(ring.NewTag(1, 0), a, []byte("x")) }, "four are queued")
}
