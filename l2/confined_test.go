package l2_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

// The test binary confines itself when the first of these names an errno, and is started again as
// a program that opens the store in a directory that the second one names.
const (
	forbidVariable   = "L2_TEST_FORBID"
	confinedVariable = "L2_TEST_CONFINED"
)

// becomeConfined has the calls of io_uring fail, and starts this program again under that.
func becomeConfined(number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := ringtest.Forbid(unix.Errno(n), unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_ENTER); err != nil {
		return err
	}
	if err := os.Unsetenv(forbidVariable); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args[:1], os.Environ())
}

// runConfined keeps values in a store that it opens again, and says with what.
func runConfined(dir string) error {
	opts := l2.Options{Size: 64 << 20, Memory: 8 << 20, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	strict := opts
	strict.Engine = ring.EngineUring
	if _, err := l2.Open(dir, strict); !errors.Is(err, ring.ErrUnavailable) {
		return fmt.Errorf("io_uring that was asked for: %w", err)
	}
	ctx := context.Background()
	for round := range 2 {
		s, err := l2.Open(dir, opts)
		if err != nil {
			return err
		}
		fmt.Println("engine", s.Stats().Engine)
		for i := range 8 {
			key, want := fmt.Append(nil, "key-", i), value(uint64(i), 1000+i*500_000)
			if round == 0 {
				err = s.Put(ctx, key, want)
			}
			if err != nil {
				return fmt.Errorf("put value %d: %w", i, err)
			}
			got := make([]byte, len(want))
			if n, err := s.Get(ctx, key, got); err != nil || !bytes.Equal(want, got) {
				return fmt.Errorf("round %d, value %d: %d bytes of %d: %w", round, i, n, len(want), err)
			}
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

// TestASandboxWithoutIoUringKeepsTheStore: io_uring_setup gives EPERM in containers, and ENOSYS in
// others. A store goes on with system calls and says why in one line for each start, unless io_uring
// was asked for: then it is refused.
func TestASandboxWithoutIoUringKeepsTheStore(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), forbidVariable+"="+strconv.Itoa(int(errno)), confinedVariable+"="+t.TempDir())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, 2, strings.Count(string(out), "engine epoll\n"), "%s", out)
			require.Equal(t, 2, strings.Count(string(out), "no io_uring"), "%s", out)
			require.Regexp(t, "no io_uring.*"+unix.ErrnoName(errno)+", kernel.io_uring_disabled is ", string(out))
		})
	}
}
