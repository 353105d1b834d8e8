// Package peers knows how the programs are started that a cache server is compared with, each
// on a Unix socket and in memory only.
package peers

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Kind is a peer.
type Kind string

// The peers.
const (
	Redis     Kind = "redis"
	Memcached Kind = "memcached"
	Pickle    Kind = "pickle" // values over a socket by Python's pickle
)

// ErrAbsent says that a peer's program is not on this machine.
var ErrAbsent = errors.New("absent")

//go:embed pickle.py
var pickle []byte

// programs are the executables, and the package that has them.
var programs = map[Kind]string{Redis: "redis-server", Memcached: "memcached", Pickle: "python3"}

// Find gives the program of a peer. The error wraps [ErrAbsent] if there is none.
func Find(kind Kind) (string, error) {
	path, err := exec.LookPath(programs[kind])
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s: %w (no %s on this machine)", kind, ErrAbsent, programs[kind])
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", kind, err)
	}
	return path, nil
}

// Version is what a peer calls itself.
func Version(kind Kind) string {
	path, err := Find(kind)
	if err != nil {
		return ""
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Command makes the command of a peer's server, which listens on socket when it is ready.
// What it needs lies in dir.
func Command(kind Kind, dir, socket string) (*exec.Cmd, error) {
	path, err := Find(kind)
	if err != nil {
		return nil, err
	}
	switch kind {
	case Redis:
		return exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
			"--dir", dir, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"), nil
	case Memcached:
		return exec.Command(path, "-s", socket, "-t", "1", "-m", "1024", "-I", "64m", "-u", "root"), nil // -u is looked at only when root starts it
	case Pickle:
		script, err := script(dir)
		if err != nil {
			return nil, err
		}
		return exec.Command(path, script, "serve", socket), nil
	}
	return nil, fmt.Errorf("peers: no kind %q", kind)
}

// PickleClient makes the command of a client that sets or gets values of a size for some
// seconds, and prints its times, in nanoseconds, as a JSON list.
func PickleClient(dir, what, socket string, size int64, seconds float64) (*exec.Cmd, error) {
	path, err := Find(Pickle)
	if err != nil {
		return nil, err
	}
	script, err := script(dir)
	if err != nil {
		return nil, err
	}
	return exec.Command(path, script, what, socket, fmt.Sprint(size), fmt.Sprint(seconds)), nil
}

// script writes the program of the pickle peer into dir.
func script(dir string) (string, error) {
	path := filepath.Join(dir, "pickle_peer.py")
	if err := os.WriteFile(path, pickle, 0o600); err != nil {
		return "", fmt.Errorf("peers: %w", err)
	}
	return path, nil
}
