package l1

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/mounttest"
)

// With these set the test binary is a server: it opens a named pool, populates
// it, says how it went, and waits to be killed or for the end of its input.
const (
	childDir  = "SLOTCACHE_L1_CHILD_DIR"
	childSize = "SLOTCACHE_L1_CHILD_SIZE"
	childName = "SLOTCACHE_L1_CHILD_NAME"
	// childHold for a directory makes it wait for a line, the choice of huge
	// pages, and open a pool without a name.
	childHold = "hold"
)

func TestMain(m *testing.M) {
	mounttest.Private()
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	os.Exit(m.Run())
}

func child(dir string) {
	size, err := strconv.ParseInt(os.Getenv(childSize), 10, 64)
	if err != nil {
		panic(err)
	}
	cfg := Config{Size: size, Mode: ModeNamed, Name: os.Getenv(childName), Dir: dir, Group: -1}
	in := bufio.NewReader(os.Stdin)
	if dir == childHold {
		fmt.Println("hold")
		line, err := in.ReadString('\n')
		if err != nil {
			panic(err)
		}
		cfg = Config{Size: size}
		if cfg.HugePages, err = ParseHugePages(strings.TrimSpace(line)); err != nil {
			panic(err)
		}
	}
	p, err := Open(cfg)
	if err == nil {
		err = p.Populate(0, size)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	if dir == childHold {
		if err := CopyIn(p.Bytes(0, p.Size()), make([]byte, p.Size())); err != nil {
			panic(err)
		}
		fmt.Println("ready, pages", p.Pages())
	} else {
		fmt.Println("ready")
	}
	_, _ = io.Copy(io.Discard, in)
	if err := p.Close(); err != nil {
		panic(err)
	}
}

// startServer starts another process with a pool and returns it and what it
// said.
func startServer(t *testing.T, dir, name string, size int64) (*exec.Cmd, string) {
	t.Helper()
	cmd, _, _, said := startChild(t, dir, name, size)
	return cmd, said
}

// startChild is startServer and returns the ends of its pipes, too.
func startChild(t *testing.T, dir, name string, size int64) (*exec.Cmd, io.Writer, *bufio.Reader, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childName+"="+name, fmt.Sprintf("%s=%d", childSize, size))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	return cmd, in, lines, strings.TrimSpace(line)
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// tmpfs mounts a file system of so many bytes, or skips.
func tmpfs(t *testing.T, size int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d", size))
	if err != nil {
		t.Skipf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	mounttest.Require(t)
	return dir
}

// shmDir returns a directory for named pools that needs no root.
func shmDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "l1test")
	if err != nil {
		t.Skipf("no /dev/shm: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func open(t *testing.T, cfg Config) *Pool {
	t.Helper()
	p, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func named(dir, name string, size int64) Config {
	return Config{Size: size, Mode: ModeNamed, Name: name, Dir: dir, Group: -1}
}

// files returns the names of pools in a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), namePrefix) {
			names = append(names, e.Name())
		}
	}
	return names
}
