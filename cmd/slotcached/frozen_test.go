package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/cmd/cmdtest"
)

// The ioctls that freeze and thaw a file system.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// A frozenServer is a slotcached whose disk store is on a file system of its own that can be frozen. The mount is in
// a namespace of its own, too, and goes with the server.
type frozenServer struct {
	t      *testing.T
	cmd    *exec.Cmd
	addr   string
	root   *os.File // of the file system
	frozen bool
	logged string // the file of its standard error
	done   chan struct{}
}

func startFrozen(t *testing.T, args ...string) *frozenServer {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting and freezing a file system takes root")
	}
	dir := cmdtest.Dir(t)
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "m")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 160<<20))
	require.NoError(t, os.Mkdir(mount, 0o700))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Skipf("no ext4 can be made: %v %s", err, out)
	}
	s := &frozenServer{t: t, addr: cmdtest.Addr(dir), logged: filepath.Join(dir, "log"), done: make(chan struct{})}
	script := `mount -o loop "$0" "$1" || exit 77; shift; exec "$@"`
	s.cmd = exec.Command("sh", append([]string{
		"-c", script, image, mount, cmdtest.Path("slotcached"), "--listen", s.addr, "--l1-size", "16MiB",
		"--l2-dir", filepath.Join(mount, "l2"), "--l2-size", "64MiB", "--http=",
	}, args...)...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	stderr, err := os.Create(s.logged)
	require.NoError(t, err)
	defer func() { require.NoError(t, stderr.Close()) }()
	s.cmd.Stderr = stderr
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	if err := s.cmd.Start(); err != nil {
		t.Skipf("no mount namespace can be had: %v", err)
	}
	t.Cleanup(s.end)
	ready := make([]byte, 4096)
	n, _ := out.Read(ready)
	go func() {
		_ = s.cmd.Wait() // the state is in s.cmd
		close(s.done)
	}()
	if n == 0 {
		<-s.done
		if s.cmd.ProcessState.ExitCode() == 77 {
			t.Skipf("no loop device can be mounted: %s", s.log())
		}
		t.Fatalf("slotcached did not become ready: %s", s.log())
	}
	s.root, err = os.Open(fmt.Sprintf("/proc/%d/root%s", s.cmd.Process.Pid, mount))
	require.NoError(t, err)
	return s
}

// end thaws and kills: a process whose writes are frozen cannot end.
func (s *frozenServer) end() {
	if s.root != nil {
		s.freeze(false)
		_ = s.root.Close() // only looked at
	}
	_ = s.cmd.Process.Kill() // or it has ended
	<-s.done
}

func (s *frozenServer) freeze(on bool) {
	if s.frozen == on {
		return
	}
	req := uintptr(fiThaw)
	if on {
		req = fiFreeze
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, s.root.Fd(), req, 0)
	if on && errno == unix.EOPNOTSUPP {
		s.t.Skip("the file system cannot be frozen")
	}
	require.Zero(s.t, errno, "%v", errno)
	s.frozen = on
}

// run runs the operator's command.
func (s *frozenServer) run(args ...string) cmdtest.Result {
	s.t.Helper()
	r := cmdtest.Run(s.t, strings.NewReader(strings.Repeat("value", 50_000)), "slotcache", append([]string{"--addr", s.addr}, args...)...)
	require.Zero(s.t, r.Code, "%v: %s", args, r.Stderr)
	return r
}

// await waits until a number is as wanted.
func (s *frozenServer) await(name, want string) {
	s.t.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		got := cmdtest.Fields(s.run("stats").Stdout)[name]
		if got == want {
			return
		}
		require.Less(s.t, time.Since(begin), time.Minute, "%s is %s", name, got)
	}
}

// log is what the server has said.
func (s *frozenServer) log() string {
	text, err := os.ReadFile(s.logged)
	require.NoError(s.t, err)
	return string(text)
}

// awaitLog waits until the server has said something.
func (s *frozenServer) awaitLog(words string) {
	s.t.Helper()
	for begin := time.Now(); !strings.Contains(s.log(), words); time.Sleep(time.Millisecond) {
		require.Less(s.t, time.Since(begin), time.Minute, s.log())
	}
}

// asleep waits until the server is nothing but threads that the kernel does not let go of, or is gone.
func (s *frozenServer) asleep() {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		if err != nil || dying(string(stat)) {
			return
		}
		require.Less(s.t, time.Since(begin), time.Minute, "%s %s", stat, s.log())
	}
}

// dying says, of a process's stat, that its first thread has ended, is in the kernel to end (PF_EXITING, or
// PF_SIGNALED: another thread ends them all), or will end once the kernel lets go of it (SIGKILL is pending, as it is
// for all threads after exit_group by another).
func dying(stat string) bool {
	_, rest, _ := strings.Cut(stat, ") ")
	words := strings.Fields(rest)
	if len(words) < 29 {
		return false
	}
	flags, errFlags := strconv.ParseUint(words[6], 10, 64)
	pending, errPending := strconv.ParseUint(words[28], 10, 64)
	if errFlags != nil || errPending != nil {
		return false
	}
	return words[0] == "Z" || flags&(0x4|0x400) != 0 || pending&(1<<(unix.SIGKILL-1)) != 0
}

// What a thread looks like that sleeps in a frozen file system while another thread ends the process.
func TestAThreadThatIsHeldByTheKernelIsDying(t *testing.T) {
	const held = "5579 (slotcached) D 5059 921 0 0 -1 4194560 40022 400 0 0 3 13 0 0 20 0 3 0 1088525 2278883328 31331 " +
		"18446744073709551615 4194304 12684112 140733203580288 0 0 %d 0 4096 2143416063 0 0 0 17 1 0 0 0 0 0"
	require.True(t, dying(fmt.Sprintf(held, 256)))
	require.False(t, dying(fmt.Sprintf(held, 0)))
	require.False(t, dying(fmt.Sprintf(held, 1<<14)), "SIGTERM is not the end")
}

// A file system that is frozen hangs every write without an error. Memory goes on, deletes are answered, and with the
// thaw all that is still in memory goes to disk.
func TestAFrozenFileSystemStopsNobody(t *testing.T) {
	s := startFrozen(t, "--l2-stall-time", "500ms")
	s.run("put", "before", "-")
	s.await("spills_total", "1")
	s.freeze(true)
	s.run("put", "during", "-")
	s.run("rm", "before")
	s.await("l2_state", "4")
	s.run("put", "after", "-")
	for _, key := range []string{"during", "after"} {
		require.Equal(t, strings.Repeat("value", 50_000), s.run("get", key, "-").Stdout)
	}
	s.freeze(false)
	s.await("l2_state", "0")
	s.await("spills_total", "3")
	s.await("l2_records", "2")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.done
	require.Zero(t, s.cmd.ProcessState.ExitCode(), s.log())
	// A machine that is busy may be late on its own account.
	require.Contains(t, s.log(), "disk stalled")
	require.Equal(t, strings.Count(s.log(), "disk stalled"), strings.Count(s.log(), "disk well again"))
}

// A stop does not wait for a disk that hangs: sockets are gone, nobody can attach, and all that is left are threads
// that the kernel ends with the thaw.
func TestAStopWithAFrozenFileSystemIsNoWait(t *testing.T) {
	for _, c := range []struct {
		stall   string
		signals int
	}{{"200ms", 1}, {"1h", 2}} {
		s := startFrozen(t, "--l2-stall-time", c.stall)
		s.freeze(true)
		s.run("put", "k", "-")
		begin := time.Now()
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
		if c.signals == 2 {
			s.awaitLog("stopping;") // two that come together are one
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
		}
		s.asleep()
		t.Logf("ended after %v", time.Since(begin))
		require.NoFileExists(t, strings.TrimPrefix(s.addr, "unix:"))
		s.freeze(false)
		<-s.done
		require.Equal(t, 2-c.signals, s.cmd.ProcessState.ExitCode(), s.log())
		require.Contains(t, s.log(), "lost")
	}
}
