// Package cmdtest builds the commands and runs them in tests, as a user would.
package cmdtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limit is how long anything here may take before the test fails. It is no measure of how
// long it should take.
const limit = 2 * time.Minute

// bin is where Main has put the commands.
var bin string

// Main builds the commands named, runs the tests and ends the process. With the race
// detector on, the commands have it too.
func Main(m *testing.M, names ...string) {
	code, err := build(names, m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cmdtest:", err)
		code = 1
	}
	os.Exit(code)
}

func build(names []string, run func() int) (int, error) {
	dir, err := os.MkdirTemp("", "cmdtest-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)                      //nolint:errcheck // binaries in the temporary directory
	if err := os.Chmod(dir, 0o755); err != nil { // other users may run them
		return 0, err
	}
	args := []string{"build", "-buildvcs=false", "-o", dir + "/"}
	if Race {
		args = append(args, "-race")
	}
	for _, name := range names {
		args = append(args, "github.com/slotcache/slotcache/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %w\n%s", err, out)
	}
	bin = dir
	return run(), nil
}

// Path is where a built command is.
func Path(name string) string { return filepath.Join(bin, name) }

// Result is how a command ended.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command to its end with the given standard input.
func Run(t testing.TB, stdin io.Reader, name string, args ...string) Result {
	t.Helper()
	return RunCmd(t, stdin, exec.Command(Path(name), args...))
}

// RunCmd is Run for a command that was made elsewhere.
func RunCmd(t testing.TB, stdin io.Reader, cmd *exec.Cmd) Result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	require.NoError(t, cmd.Start())
	timer := time.AfterFunc(limit, func() {
		_ = cmd.Process.Kill() // its end is seen below
	})
	defer timer.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return Result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// A Server is a slotcached that runs.
type Server struct {
	t      testing.TB
	cmd    *exec.Cmd
	Line   string // what it said when it was ready
	stderr *bytes.Buffer
	done   chan struct{}
}

// Start starts slotcached and waits until it is ready. It is killed when the test ends.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartAs(t, func(*exec.Cmd) {}, args...)
}

// StartAs is Start of a command that was changed: its environment, its namespaces.
func StartAs(t testing.TB, change func(*exec.Cmd), args ...string) *Server {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	s := &Server{t: t, cmd: exec.Command(Path("slotcached"), args...), stderr: new(bytes.Buffer), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = w, s.stderr
	change(s.cmd)
	require.NoError(t, s.cmd.Start())
	require.NoError(t, w.Close())
	go func() {
		_ = s.cmd.Wait() // the state is in s.cmd
		close(s.done)
	}()
	t.Cleanup(func() {
		s.Kill()
		_ = r.Close() // only read
	})
	require.NoError(t, r.SetReadDeadline(time.Now().Add(limit)))
	s.Line, err = bufio.NewReader(r).ReadString('\n')
	if err != nil {
		s.Kill()
		t.Fatalf("%v did not become ready: %v\n%s", s.cmd.Args, err, s.stderr)
	}
	return s
}

// Small are the flags of a server for a test: a small pool, a disk store in dir, no metrics.
func Small(dir string) []string {
	return []string{
		"--listen", Addr(dir), "--l1-size", "16MiB", "--l2-dir", filepath.Join(dir, "l2"), "--l2-size", "64MiB", "--http=",
	}
}

// Addr is where a Small server listens.
func Addr(dir string) string { return "unix:" + filepath.Join(dir, "s.sock") }

// PID is the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Signal sends a signal; a server that has ended ignores it.
func (s *Server) Signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(s.t, err)
	}
}

// Kill kills the server and waits for its end.
func (s *Server) Kill() {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("kill slotcached: %v", err)
	}
	<-s.done
}

// Wait waits for the server to end and gives its exit code and log.
func (s *Server) Wait() Result {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(limit):
		s.Kill()
		s.t.Fatalf("slotcached did not end\n%s", s.stderr)
	}
	return Result{Code: s.cmd.ProcessState.ExitCode(), Stderr: s.stderr.String()}
}

// Dir makes a directory whose name is short enough for sockets in it.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sc-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// Fields parses a table of "value name" lines.
func Fields(table string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(table) {
		if words := strings.Fields(line); len(words) == 2 {
			fields[words[1]] = words[0]
		}
	}
	return fields
}
