package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A server that is killed leaves its socket file, and for some milliseconds more: its ring
// has an accept under way that keeps the listening socket open until the kernel has
// cancelled it, so that connecting still succeeds although the process is gone. So who
// listens is asked of the kernel, and a successor does not take a dead server for a live one.

// socketState says what a socket file is found to be.
type socketState uint8

const (
	socketStale socketState = iota // of a server that is gone
	socketLive                     // of one that lives
	socketFull                     // cannot be told: its backlog is full
)

// clearSocket removes the socket file of a server that is gone.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("server: listen on unix:%s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("server: listen on unix:%s: there is a file that is not a socket: remove it or give another path", path)
	}
	state, pid, err := probeSocket(path)
	for n := 0; n < lockTries && err == nil && state != socketStale; n++ { // it may be about to die of its SIGKILL
		time.Sleep(lockPause)
		state, pid, err = probeSocket(path)
	}
	switch {
	case err != nil:
		return fmt.Errorf("server: listen on unix:%s: cannot tell whether the socket there is in use: %w: remove it or give another path", path, err)
	case state != socketStale:
		return fmt.Errorf("server: listen on unix:%s: another server answers there (process %d): stop it or give another path", path, pid)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("server: listen on unix:%s: remove the socket of a server that is gone: %w", path, err)
	}
	return nil
}

// probeSocket connects and asks who listens. pid is 0 where that is not known.
func probeSocket(path string) (state socketState, pid int32, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return socketLive, 0, err
	}
	defer closeFd(fd)
	switch err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return socketStale, 0, nil
	case errors.Is(err, unix.EAGAIN):
		return socketFull, 0, nil
	case err != nil:
		return socketLive, 0, err
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return socketLive, 0, err
	}
	if processEnded(cred.Pid) {
		return socketStale, cred.Pid, nil
	}
	return socketLive, cred.Pid, nil
}

// processEnded says whether a process is known to have ended, its parent having waited for
// it or not.
func processEnded(pid int32) bool {
	if pid == 0 {
		return false // of another PID namespace
	}
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer closeFd(fd)
	return pidfdEnded(fd)
}
