package server

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestANumberThatAnotherProcessHasByNowIsRefused: the number of a worker that died is given to
// another process, which is then watched in its stead. Where the kernel tells only the number a
// process that started after the connection was accepted is not taken for the one that connected.
func TestANumberThatAnotherProcessHasByNowIsRefused(t *testing.T) {
	pid := int32(os.Getpid())
	fd, err := openByNumber(pid, sinceBoot())
	require.NoError(t, err)
	require.False(t, pidfdEnded(fd))
	closeFd(fd)

	accepted := sinceBoot() - statTick // start times are cut to whole ticks
	later := exec.Command("sleep", "60")
	require.NoError(t, later.Start())
	_, err = openByNumber(int32(later.Process.Pid), accepted)
	require.ErrorIs(t, err, unix.ESRCH)
	fd, err = openByNumber(int32(later.Process.Pid), sinceBoot())
	require.NoError(t, err)
	defer closeFd(fd)
	require.NoError(t, later.Process.Kill())
	_ = later.Wait()
	require.True(t, pidfdEnded(fd))
	_, err = openByNumber(int32(later.Process.Pid), sinceBoot())
	require.ErrorIs(t, err, unix.ESRCH)
}

func TestAProcessHasOnePidfd(t *testing.T) {
	pid := os.Getpid()
	open := func() int {
		fd, err := unix.PidfdOpen(pid, 0)
		require.NoError(t, err)
		return fd
	}
	r := &reactor{}
	r.watches.processes = make([]process, 1)
	first := r.watches.addProcess(open(), int32(pid))
	require.Equal(t, first, r.watches.addProcess(open(), int32(pid)))
	unknown := r.watches.addProcess(open(), 0)
	require.NotEqual(t, unknown, r.watches.addProcess(open(), 0), "two whose numbers are not known may be two")
	fd := r.watches.processes[first].fd
	r.releaseProcess(first)
	require.False(t, pidfdEnded(fd))
	r.releaseProcess(first)
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	require.ErrorIs(t, err, unix.EBADF)
	for x := range r.watches.processes {
		if p := &r.watches.processes[x]; p.refs > 0 {
			r.releaseProcess(uint32(x))
		}
	}
}
