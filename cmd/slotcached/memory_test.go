package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/l1/l1test"
)

func TestHugePagesAreUsedRefusedOrDoneWithout(t *testing.T) {
	for name, c := range map[string]struct {
		have int
		flag string
		code int
		says string
	}{
		"on, enough": {8, "on", 0, `pages="2 MiB"`},
		"on, half":   {4, "on", 1, "need 8 pages of 2 MiB, have 4: set more aside (sysctl vm.nr_hugepages)"},
		"on, none":   {0, "on", 1, "need 8 pages of 2 MiB, have 0"},
		"try, half":  {4, "try", 0, "need 8 pages of 2 MiB, have 4"},
		"off":        {8, "off", 0, `pages="4 KiB"`},
	} {
		t.Run(name, func(t *testing.T) {
			l1test.HugePages(t, c.have)
			dir := cmdtest.Dir(t)
			args := append(cmdtest.Small(dir), "--hugepages", c.flag)
			if c.code != 0 {
				r := cmdtest.Run(t, nil, "slotcached", args...)
				require.Equal(t, c.code, r.Code, r.Stderr)
				require.Contains(t, r.Stderr, c.says)
				return
			}
			s := cmdtest.Start(t, args...)
			r := cmdtest.Run(t, nil, "slotcache", "--addr", cmdtest.Addr(dir), "ping")
			require.Zero(t, r.Code, r.Stderr)
			s.Kill()
			require.Contains(t, s.Wait().Stderr, c.says)
		})
	}
}

func TestAPoolOfHugePagesIsRefusedByTheirNumber(t *testing.T) {
	l1test.HugePages(t, 4)
	dir := cmdtest.Dir(t)
	r := cmdtest.Run(t, nil, "slotcached", "--listen", cmdtest.Addr(dir), "--l1-size", "900GiB", "--l2-dir=", "--http=", "--hugepages=on")
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "need 460800 pages of 2 MiB, have 4")
}

func TestANodeThatIsNotThereIsRefused(t *testing.T) {
	dir := cmdtest.Dir(t)
	r := cmdtest.Run(t, nil, "slotcached", append(cmdtest.Small(dir), "--numa", "bind:1023")...)
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "node 1023")
	cmdtest.Start(t, append(cmdtest.Small(dir), "--numa", "interleave")...)
}

// A limit on the size of files is one on the pool, too, which nobody expects: it is refused at once, by name.
func TestALimitOnTheSizeOfFilesIsNamed(t *testing.T) {
	for _, flag := range []string{"--shm-name=" + filepath.Base(t.TempDir()) + strconv.Itoa(os.Getpid()), "--hugepages=off"} {
		dir := cmdtest.Dir(t)
		const script = `ulimit -f 100 && exec "$@"`
		args := append([]string{"-c", script, "sh", cmdtest.Path("slotcached")}, append(cmdtest.Small(dir), flag)...)
		r := cmdtest.RunCmd(t, nil, exec.Command("sh", args...))
		require.Equal(t, 1, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "file too large: give it less, or raise the limit on the size of files (ulimit -f)")
	}
}

// TestTheDefaultPoolFitsTheContainer: a pool made for the machine's memory is killed for the limit of
// its container. Without --l1-size it is a quarter of what the control groups leave, of both versions.
func TestTheDefaultPoolFitsTheContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can have control groups of its own")
	}
	const script = `mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory || exit 1
		for f in memory.max memory/memory.limit_in_bytes; do echo $0 > /sys/fs/cgroup/$f; done
		for f in memory.current memory/memory.usage_in_bytes; do echo 0 > /sys/fs/cgroup/$f; done
		exec "$@"`
	for _, limit := range []int{256 << 20, 128 << 20} {
		dir := cmdtest.Dir(t)
		s := cmdtest.StartAs(t, func(c *exec.Cmd) {
			c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // its mounts are its own
			c.Args = append([]string{"sh", "-c", script, strconv.Itoa(limit), c.Path}, c.Args[1:]...)
			c.Path = "/bin/sh"
		}, "--listen", cmdtest.Addr(dir), "--l2-dir=", "--http=")
		r := cmdtest.Run(t, nil, "slotcache", "--addr", cmdtest.Addr(dir), "stats")
		require.Zero(t, r.Code, r.Stderr)
		require.Equal(t, strconv.Itoa(limit/4), cmdtest.Fields(r.Stdout)["l1_capacity_bytes"])
		s.Kill()
	}
}
