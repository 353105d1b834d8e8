package ring_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

// onDoomedThread runs f on a thread that ends with it, so that f may take rights from it.
func onDoomedThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		f()
	}()
	<-done
}

func TestARefusalNamesTheErrnoAndTheSysctl(t *testing.T) {
	for _, c := range []struct {
		name    string
		syscall uint32
		errno   unix.Errno
	}{
		{"setup is forbidden", unix.SYS_IO_URING_SETUP, unix.EPERM},
		{"setup is unknown", unix.SYS_IO_URING_SETUP, unix.ENOSYS},
		{"enter is forbidden", unix.SYS_IO_URING_ENTER, unix.EPERM},
		{"register is forbidden", unix.SYS_IO_URING_REGISTER, unix.EACCES},
	} {
		t.Run(c.name, func(t *testing.T) {
			var filterErr, err error
			onDoomedThread(func() {
				if filterErr = ringtest.Forbid(c.errno, c.syscall); filterErr == nil {
					_, err = ring.New(ring.Config{})
				}
			})
			if filterErr != nil {
				t.Skipf("no seccomp filter here: %v", filterErr)
			}
			require.ErrorIs(t, err, ring.ErrUnavailable)
			require.ErrorIs(t, err, c.errno)
			require.ErrorContains(t, err, "kernel.io_uring_disabled is ")
		})
	}
}

func TestMemoryBeyondTheAllowanceIsUsedPlainly(t *testing.T) {
	const size = 32 << 20
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit))
	if limit.Cur > size/2 {
		t.Skipf("the process may lock %d bytes", limit.Cur)
	}
	mem := mapped(t, size)
	fd := file(t, 0)
	// The requires of this goroutine would leave the test waiting: collect and check afterwards.
	var newErr, capErr, registerErr, closeErr error
	var got []ring.Completion
	var s ring.Stats
	onDoomedThread(func() {
		if capErr = unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &make([]unix.CapUserData, 2)[0]); capErr != nil {
			return
		}
		var u *ring.Uring
		if u, newErr = ring.New(ring.Config{RecvBuffers: 4, RecvBufferSize: 4096}); newErr != nil {
			return
		}
		registerErr = u.RegisterMemory(mem)
		copy(mem, "hello")
		u.Write(ring.NewTag(1, 0), fd, 0, mem[:1<<20])
		got, _ = u.Wait(make([]ring.Completion, 0, 1))
		s = u.Stats()
		closeErr = u.Close()
	})
	require.NoError(t, capErr)
	refused(t, newErr)
	require.ErrorIs(t, registerErr, unix.ENOMEM)
	require.Len(t, got, 1)
	require.Equal(t, int32(1<<20), got[0].Res)
	require.Equal(t, uint64(1), s.PlainIO)
	require.Zero(t, s.FixedIO)
	require.Zero(t, s.Registered)
	require.NoError(t, closeErr)
}

func TestIOAcrossPiecesOfAPoolIsWhole(t *testing.T) {
	const piece, size = 64 << 20, 64<<20 + 1<<20
	u := open(t, ring.Config{})
	mem := mapped(t, size)
	require.NoError(t, unix.Madvise(mem, unix.MADV_HUGEPAGE))
	if err := u.RegisterMemory(mem); err != nil {
		t.Skipf("memory cannot be registered: %v", err)
	}
	require.Equal(t, int64(size), u.Stats().Registered)
	require.ErrorIs(t, u.RegisterMemory(mem[4096:8192]), unix.EEXIST)
	fd := file(t, 0)
	p := mem[piece-5000 : piece+100_000]
	for i := range p {
		p[i] = byte(i * 7)
	}
	want := bytes.Clone(p)
	u.Write(ring.NewTag(1, 0), fd, 12345, p)
	require.Equal(t, int32(len(p)), next(t, u).Res)
	clear(p)
	u.Read(ring.NewTag(1, 0), fd, 12345, p)
	require.Equal(t, int32(len(p)), next(t, u).Res)
	require.True(t, bytes.Equal(want, p))
	s := u.Stats()
	require.Equal(t, uint64(4), s.FixedIO)
	require.Zero(t, s.PlainIO)
}

func TestNoDescriptorIsLeftBehind(t *testing.T) {
	fd := file(t, 4096)
	for _, engine := range both {
		before := descriptors(t)
		for range 20 { // more than a thread may have registered rings
			var err error
			onDoomedThread(func() {
				var o ring.Opened
				if o, err = ring.Open(engine, ring.Config{RecvBuffers: 4, RecvBufferSize: 4096}); err != nil {
					return
				}
				u := o.Ring
				err = u.HoldFile(fd)
				u.Read(ring.NewTag(1, 0), fd, 0, make([]byte, 4096))
				u.Wake()
				for done := 0; err == nil && done < 2; {
					var got []ring.Completion
					got, err = u.Wait(make([]ring.Completion, 0, 2))
					done += len(got)
				}
				err = errors.Join(err, u.Close())
			})
			refused(t, err)
		}
		require.Equal(t, before, descriptors(t), engine)
	}
}

// descriptors counts the open descriptors of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(d)
}
