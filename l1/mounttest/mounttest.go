// Package mounttest gives tests mounts of their own.
package mounttest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// variable is set for a process whose mounts are its own.
const variable = "SLOTCACHE_TEST_MOUNTS"

// Private has what a test binary mounts seen by nobody else, and gone with it however it ends: it begins the process
// anew in a mount namespace of its own. It is for the beginning of TestMain. Who may not have one goes on without; so
// do those who may not mount either.
func Private() {
	if os.Geteuid() != 0 || os.Getenv(variable) != "" {
		return
	}
	if err := private(); err != nil {
		fmt.Fprintln(os.Stderr, "mounttest: mounts are seen by others:", err)
	}
}

// private returns only if that fails. The namespace is this thread's, whose process the new program will be.
func private() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // for good: if the rest fails the thread ends with this goroutine
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return unix.Exec(self, os.Args, append(os.Environ(), variable+"=private")) //nolint:wrapcheck // whole as it is
}

// Require fails a test of root's whose mounts everybody would see.
func Require(t testing.TB) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	parent, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if err == nil && own == parent && os.Geteuid() == 0 {
		t.Fatal("a test mounts where everybody sees it: let TestMain begin with mounttest.Private")
	}
}
