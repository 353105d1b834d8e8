package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxSocketPath is what fits into a sockaddr_un beside its closing zero, in bytes.
const maxSocketPath = 107

// DefaultSocket is where the server listens and the clients look when nothing else is
// said: in the user's runtime directory, or below /tmp in a directory of the user's own.
func DefaultSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "slotcache", "slotcached.sock")
	}
	return filepath.Join("/tmp", "slotcache-"+strconv.Itoa(os.Getuid()), "slotcached.sock")
}

// DefaultAddr is the address clients use when none is given. Somebody else may have made
// the directory in /tmp to catch what is meant for the server, so its owner is checked.
func DefaultAddr() (string, error) {
	path := DefaultSocket()
	err := CheckPrivate(filepath.Dir(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return "unix:" + path, nil
}

// MakePrivate makes a directory that only its owner can enter, or checks that the one
// which is there is such a directory.
func MakePrivate(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the directory of the default socket: %w; give another one with --listen unix:PATH", err)
	}
	return CheckPrivate(dir)
}

// CheckPrivate refuses a directory that is a symbolic link, belongs to another user, or
// lets others in. The error matches fs.ErrNotExist where there is none.
func CheckPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("directory of the default socket: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("directory of the default socket: %s is not a directory but %s; remove it or give an address", dir, info.Mode().Type())
	case ok && int(stat.Uid) != os.Getuid():
		return fmt.Errorf("directory of the default socket: %s belongs to uid %d, not to uid %d; give an address", dir, stat.Uid, os.Getuid())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("directory of the default socket: %s has mode %#o and lets others in; run chmod 700 %s", dir, info.Mode().Perm(), dir)
	}
	return nil
}

// CheckAddr says what is wrong with an address: unix:PATH or tcp:HOST:PORT.
func CheckAddr(addr string) error {
	scheme, rest, ok := strings.Cut(addr, ":")
	switch {
	case !ok || rest == "" || (scheme != "unix" && scheme != "tcp"):
		return fmt.Errorf("%q is not an address: give unix:PATH or tcp:HOST:PORT", addr)
	case scheme == "unix" && len(rest) > maxSocketPath:
		return fmt.Errorf("the socket path %q has %d bytes, the system takes %d: give a shorter one", rest, len(rest), maxSocketPath)
	case scheme == "tcp" && !strings.Contains(rest, ":"):
		return fmt.Errorf("%q is not an address: the port is missing", addr)
	}
	return nil
}
