package benchmarks

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// userHZ is the unit of times in /proc; Linux fixed it for all its user interfaces.
const userHZ = 100

// CPUTime is the processor time, user and system, that a living process has used.
func CPUTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	// The second field is the program's name in parentheses and may hold anything.
	end := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[end+1:]))
	const utime, stime = 11, 12 // counted from the third field
	if end < 0 || len(fields) <= stime {
		return 0, fmt.Errorf("processor time of %d: short line", pid)
	}
	var ticks int64
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / userHZ), nil
}

// PeerPID asks the kernel which process listens on a Unix socket.
func PeerPID(addr string) (int, error) {
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok {
		return 0, fmt.Errorf("process behind %s: only known for unix sockets", addr)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		return 0, fmt.Errorf("process behind %s: %w", addr, err)
	}
	defer c.Close() //nolint:errcheck // nothing was written
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("process behind %s: %w", addr, err)
	}
	var cred *unix.Ucred
	var got error
	err = raw.Control(func(fd uintptr) {
		cred, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = got
	}
	if err != nil {
		return 0, fmt.Errorf("process behind %s: %w", addr, err)
	}
	return int(cred.Pid), nil
}

// kib reads a number of kibibytes as /proc writes it, "123 kB", as bytes.
func kib(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
