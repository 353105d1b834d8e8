package ring

import (
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestResultsOfFileOperationsAreContinuedOrFinal(t *testing.T) {
	const eintr, einval, eio = -int32(unix.EINTR), -int32(unix.EINVAL), -int32(unix.EIO)
	for _, c := range []struct {
		name       string
		code       opCode
		done, size int
		res        int32
		want       int32
		over       bool
		short      uint64
	}{
		{"whole", codeRead, 0, 4096, 4096, 4096, true, 0},
		{"the last piece", codeWrite, 1000, 4096, 3096, 4096, true, 0},
		{"short read", codeRead, 0, 4096, 1000, 0, false, 1},
		{"short write", codeWrite, 512, 4096, 1, 0, false, 1},
		{"end of the file", codeRead, 0, 4096, 0, 0, true, 0},
		{"end of the file after a part", codeRead, 1000, 4096, 0, 1000, true, 0},
		{"direct I/O behind the end", codeRead, 1000, 4096, einval, 1000, true, 0},
		{"direct I/O that is not aligned", codeRead, 0, 4096, einval, einval, true, 0},
		{"direct I/O refused within the file", codeRead, 1024, 4096, einval, einval, true, 0},
		{"direct write that is not aligned", codeWrite, 1000, 4096, einval, einval, true, 0},
		{"a write that does nothing", codeWrite, 0, 4096, 0, eio, true, 0},
		{"a write of nothing", codeWrite, 0, 0, 0, 0, true, 0},
		{"a read of nothing", codeRead, 0, 0, 0, 0, true, 0},
		{"interrupted", codeRead, 0, 4096, eintr, eintr, false, 0},
		{"failed after a part", codeRead, 1024, 4096, eio, eio, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var u Uring
			o := op{code: c.code, state: opLive, buf: make([]byte, c.size), done: c.done, chunk: c.size - c.done}
			res, over := u.continueFile(&o, c.res)
			require.Equal(t, c.over, over)
			if over {
				require.Equal(t, c.want, res)
			}
			require.Equal(t, c.short, u.stats.ShortIO)
			if c.res > 0 {
				require.Equal(t, c.done+int(c.res), o.done)
			}
		})
	}
}

func TestResultsOfSendsAreContinuedOrFinal(t *testing.T) {
	const eintr, epipe, eio = -int32(unix.EINTR), -int32(unix.EPIPE), -int32(unix.EIO)
	for _, c := range []struct {
		name       string
		done, size int
		res        int32
		want       int32
		over       bool
	}{
		{"whole", 0, 100, 100, 100, true},
		{"the rest", 60, 100, 40, 100, true},
		{"short", 0, 100, 60, 0, false},
		{"nothing to send", 0, 0, 0, 0, true},
		{"nothing sent", 0, 100, 0, eio, true},
		{"failed after a part", 60, 100, epipe, epipe, true},
		{"interrupted", 60, 100, eintr, eintr, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var u Uring
			o := op{code: codeSend, state: opLive, buf: make([]byte, c.size), done: c.done, chunk: c.size - c.done}
			res, over := u.continueSend(&o, c.res)
			require.Equal(t, c.over, over)
			if over {
				require.Equal(t, c.want, res)
			}
		})
	}
}

// A ring that is closed gives up what is moved in part.
func TestAClosingRingContinuesNothing(t *testing.T) {
	u := Uring{account: account{closing: true}}
	for _, code := range []opCode{codeSend, codeSendFD} {
		res, over := u.continueSend(&op{code: code, state: opLive, buf: make([]byte, 100), chunk: 100}, 60)
		require.True(t, over)
		require.EqualValues(t, 60, res)
	}
	for _, code := range []opCode{codeRead, codeWrite} {
		res, over := u.continueFile(&op{code: code, state: opLive, buf: make([]byte, 100), chunk: 100}, 60)
		require.True(t, over)
		require.EqualValues(t, 60, res)
	}
}

func TestAnInterruptedOperationIsNotTriedForEver(t *testing.T) {
	var u Uring
	o := op{code: codeSync, state: opLive}
	tries := 0
	for u.again(&o, -int32(unix.EAGAIN)) {
		tries++
	}
	require.Equal(t, retriesMax, tries)
	require.Equal(t, uint64(retriesMax), u.stats.Retries)
	paused := op{code: codeRecv, state: opPausing}
	require.False(t, u.again(&paused, -int32(unix.EINTR)), "a paused receive starts again")
	u.closing = true
	live := op{code: codeRecv, state: opLive}
	require.False(t, u.again(&live, -int32(unix.EINTR)), "a receive starts again while the ring closes")
}

// What the kernel turns away for now, of any kind, is asked for anew, and its caller is not told.
func TestWhatTheKernelTurnsAwayIsTriedAgain(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u, err := New(Config{Ops: 8, Control: 8, RecvBuffers: 1, RecvBufferSize: 4096})
	if err != nil {
		t.Skip(err) // TestUringPassesTheSuite says whether that is allowed
	}
	u.q.tail-- // of the wake-up
	queue := map[opCode]func(){
		codeAccept: func() { u.Accept(1, 0) },
		codeRecv:   func() { u.Recv(1, 0) },
		codeSend:   func() { u.Send(1, 0, make([]byte, 9)) },
		codeSendFD: func() { u.SendFD(1, 0, make([]byte, 9), 0) },
		codeRead:   func() { u.Read(1, 0, 0, make([]byte, 9)) },
		codeWrite:  func() { u.Write(1, 0, 0, make([]byte, 9)) },
		codeSync:   func() { u.Sync(1, 0) },
	}
	for code, ask := range queue {
		free := u.table.free
		for _, errno := range []unix.Errno{unix.EINTR, unix.EAGAIN} {
			ask()
			asked := u.q.sqes[0]
			for range 3 {
				u.q.tail-- // the kernel is not to see it
				require.Empty(t, u.complete(nil, cqe{user: u.table.userOf(free), res: -int32(errno)}), "%d", code)
				require.EqualValues(t, 1, u.q.queued(), "%d is not asked for again", code)
				require.Equal(t, asked, u.q.sqes[0], "%d is asked for in another way", code)
			}
			for range 5 * retriesMax / 4 { // more than in a row, but for what goes well
				if code == codeSync {
					break
				}
				for _, res := range []int32{-int32(errno), 1, -int32(errno)} {
					if u.table.ops[free].done == 8 {
						u.table.ops[free].done = 0
					}
					u.q.tail--
					for _, c := range u.complete(nil, cqe{user: u.table.userOf(free), res: res}) {
						require.Equal(t, Completion{Tag: 1, Kind: codeKinds[code], Res: 1, More: true}, c)
					}
					require.EqualValues(t, 1, u.q.queued(), "%d is not asked for again", code)
				}
			}
			u.q.tail--
			require.Len(t, u.complete(nil, cqe{user: u.table.userOf(free), res: -int32(unix.EBADF)}), 1, "%d", code)
			require.Zero(t, u.table.live())
		}
	}
	u.wakeArmed = false
	require.NoError(t, u.Close())
}

// A connection that comes while the ring closes is the last that it takes, however many are behind it.
func TestAClosingRingAcceptsNoFurther(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u, err := New(Config{Ops: 4, Control: 4, RecvBuffers: 1, RecvBufferSize: 4096})
	if err != nil {
		t.Skip(err) // TestUringPassesTheSuite says whether that is allowed
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // of the test
	file, err := l.File()
	require.NoError(t, err)
	defer file.Close() //nolint:errcheck // of the test
	u.Accept(NewTag(1, 0), int(file.Fd()))
	require.NoError(t, u.Submit())
	for range 3 {
		c, err := net.Dial("unix", path)
		require.NoError(t, err)
		defer c.Close() //nolint:errcheck // of the test
	}
	u.closing = true
	for done := make([]Completion, 0, 4); len(done) == 0; {
		require.Zero(t, u.enter(0, enterGetEvents, false))
		if done = u.reap(done); len(done) > 0 {
			require.Len(t, done, 1)
			require.False(t, done[0].More)
			require.NoError(t, unix.Close(int(done[0].Res)))
		}
	}
	require.Zero(t, u.table.live())
	u.closing = false
	require.NoError(t, u.Close())
}

// TestAThreadMayHaveManyRingsInTurn registers more rings than a thread may have at a time.
func TestAThreadMayHaveManyRingsInTurn(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range 40 {
		u, err := New(Config{Ops: 4, Control: 4, RecvBuffers: 1, RecvBufferSize: 4096})
		if err != nil {
			t.Skip(err) // TestUringPassesTheSuite says whether that is allowed
		}
		require.NoError(t, u.Submit())
		require.NotZero(t, u.q.enterFlags, "ring %d: a former one was not given back", i)
		require.NoError(t, u.Close())
	}
}

// Before Linux 6.17 the kernel refuses a receive with a bound: it is made without, and nobody is told.
func TestAReceiveIsMadeWithoutABoundWhereThereIsNone(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u, err := New(Config{Ops: 4, Control: 4, RecvBuffers: 16, RecvBufferSize: 4096})
	if err != nil {
		t.Skip(err) // TestUringPassesTheSuite says whether that is allowed
	}
	defer func() { require.NoError(t, u.Close()) }()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(unix.Close(p[0]), unix.Close(p[1]))) }()
	refuse := func(i uint32) []Completion {
		return u.complete(nil, cqe{user: u.table.userOf(i), res: -int32(unix.EINVAL)})
	}
	var ops [3]uint32
	for i := range ops { // all are asked for before the first is refused
		u.Recv(NewTag(uint32(i), 1), p[0])
		ops[i], _ = u.tags.find(NewTag(uint32(i), 1))
		u.q.tail-- // the kernel is not to see it
	}
	u.table.ops[ops[1]].moveTo(opPausing)
	require.Equal(t, []Completion{{Tag: NewTag(1, 1), Res: -int32(unix.ECANCELED), Kind: KindRecv}}, refuse(ops[1]))
	require.Empty(t, refuse(ops[0]))
	require.Empty(t, refuse(ops[2]))
	require.Zero(t, u.recvMax)
	require.NoError(t, unix.Shutdown(p[1], unix.SHUT_WR))
	got := make([]Completion, 0, 4)
	for len(got) < 2 {
		got, err = u.Wait(got)
		require.NoError(t, err)
	}
	for _, c := range got { // the end of the stream, which the second try finds
		require.Equal(t, Completion{Tag: c.Tag, Kind: KindRecv}, c)
	}
	u.Recv(NewTag(5, 1), p[0])
	i, _ := u.tags.find(NewTag(5, 1))
	u.q.tail--
	require.Equal(t, []Completion{{Tag: NewTag(5, 1), Res: -int32(unix.EINVAL), Kind: KindRecv}}, refuse(i), "of another reason")
}
