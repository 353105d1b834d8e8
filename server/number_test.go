package server_test

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// childConnects, in the environment, makes the test binary one that connects to the server on that socket, hands the connection to
// its parent over descriptor 3, and lives until its input ends.
const childConnects = "SLOTCACHE_TEST_CONNECTS"

func connects(path string) {
	c, err := net.Dial("unix", path)
	if err != nil {
		panic(err)
	}
	f, err := c.(*net.UnixConn).File()
	if err != nil {
		panic(err)
	}
	if err := unix.Sendmsg(3, []byte{1}, unix.UnixRights(int(f.Fd())), nil, 0); err != nil {
		panic(err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// connector starts a process that connects, and returns it and its connection.
func connector(t *testing.T, r *running) (*exec.Cmd, *peer) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	mine, its := os.NewFile(uintptr(pair[0]), "mine"), os.NewFile(uintptr(pair[1]), "its")
	defer func() { _, _ = mine.Close(), its.Close() }()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childConnects+"="+r.path)
	cmd.ExtraFiles = []*os.File{its}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	control := make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	require.NoError(t, err)
	messages, err := unix.ParseSocketControlMessage(control[:n])
	require.NoError(t, err)
	require.Len(t, messages, 1, "it did not connect")
	fds, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	f := os.NewFile(uintptr(fds[0]), "connection")
	defer func() { _ = f.Close() }()
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return cmd, &peer{t: t, conn: conn}
}

// successor is a connector with the PID of one that has ended.
func successor(t *testing.T, r *running, pid int) *peer {
	t.Helper()
	for range 1000 {
		require.NoError(t, os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0o600))
		cmd, p := connector(t, r)
		if cmd.Process.Pid == pid {
			return p
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	t.Fatalf("no process has the number %d", pid)
	return nil
}

// registerAs makes p that instance, inline.
func (p *peer) registerAs(id uint64) proto.Status {
	h, _, _ := p.call(proto.OpRegister, proto.AppendRegister(nil, &proto.Register{
		Instance: id, Want: proto.TransportInline, Name: "peer", Namespace: "test",
		Layouts: []proto.Layout{{Name: "bytes", Dims: []uint32{1}, Size: zombieSize}},
	}), nil)
	return h.Status
}

// TestAConnectionOfADeadProcessIsNotOfTheNextWithItsNumber: a dead worker's number is another process's by now, and a child of the
// dead one keeps its connection. What it has is not the new worker's, nor does the new worker's memory come free by anything it says.
func TestAConnectionOfADeadProcessIsNotOfTheNextWithItsNumber(t *testing.T) {
	if os.Getpid() != 1 {
		inPIDNamespace(t)
		return
	}
	r := start(t, nil)
	watcher := greet(t, r)
	first, orphan := connector(t, r)
	orphan.hello()
	require.Equal(t, proto.StatusOK, orphan.registerAs(7))
	require.Equal(t, proto.StatusReserved, orphan.reserve(keyOf(1)).Results[0].Status)
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()

	worker := successor(t, r, first.Process.Pid)
	worker.hello()
	memory, _ := worker.share(7, false)
	require.Equal(t, proto.TransportShared, memory.Transport)
	require.Zero(t, watcher.stats()["l1_used_bytes"], "what the dead worker had is nobody's")
	require.Equal(t, proto.StatusReserved, worker.reserve(keyOf(2)).Results[0].Status)

	h, _, _ := orphan.call(proto.OpUnregister, nil, nil)
	require.Equal(t, proto.StatusNotRegistered, h.Status)
	require.Equal(t, proto.StatusOK, orphan.registerAs(7))
	h, _, _ = orphan.call(proto.OpUnregister, nil, nil)
	require.Equal(t, proto.StatusOK, h.Status)
	require.EqualValues(t, zombieSize, watcher.stats()["l1_quarantined_bytes"], "the worker lives, and writes there still")
}

// inPIDNamespace runs the test that calls it in a PID namespace of its own, where numbers are given out as it likes.
func inPIDNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a PID namespace here")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}
