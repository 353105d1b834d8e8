package segdir_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/mounttest"
	"github.com/slotcache/slotcache/l2/segdir"
)

// holdVariable makes the test binary hold the directory that it names.
const holdVariable = "SEGDIR_TEST_HOLD"

func TestMain(m *testing.M) {
	mounttest.Private()
	if path := os.Getenv(holdVariable); path != "" {
		_, err := segdir.Open(path, segdir.Options{})
		fmt.Println("open:", err)
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // until the parent ends us or itself
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hold starts a process that has the directory open.
func hold(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdVariable+"="+path)
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "open: <nil>\n", line)
	return cmd
}

func TestASecondProcessIsToldWhoHasTheDirectory(t *testing.T) {
	path := t.TempDir()
	cmd := hold(t, path)
	_, err := segdir.Open(path, segdir.Options{})
	require.ErrorIs(t, err, segdir.ErrLocked)
	require.ErrorContains(t, err, "in use by pid "+strconv.Itoa(cmd.Process.Pid))
	require.ErrorContains(t, err, path)

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	open(t, path) // at once
}

func TestTheSameProcessCanNotOpenTwice(t *testing.T) {
	path := t.TempDir()
	open(t, path)
	_, err := segdir.Open(path, segdir.Options{})
	require.ErrorIs(t, err, segdir.ErrLocked)
	require.ErrorContains(t, err, "in use by pid "+strconv.Itoa(os.Getpid()))
}

func TestRemovingTheLockFileLetsNobodyIn(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	require.NoError(t, os.Remove(filepath.Join(path, "lock")))
	_, err := segdir.Open(path, segdir.Options{})
	require.ErrorIs(t, err, segdir.ErrLocked)
	require.NoError(t, d.Close())
	open(t, path)
}
