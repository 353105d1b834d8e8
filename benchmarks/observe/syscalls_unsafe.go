package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Syscalls counts the system calls of all threads of a process, in the kernel: every entry,
// whichever call it is. While it counts, each costs a little more.
type Syscalls struct{ fds []int }

// tracePoints are where the number of the kernel's trace point may be.
var tracePoints = []string{
	"/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
	"/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
}

// CountSyscalls begins to count. An error says that the kernel does not let this process.
func CountSyscalls(pid int) (*Syscalls, error) {
	id, err := tracePoint()
	if err != nil {
		return nil, err
	}
	s := new(Syscalls)
	err = eachThread(pid, func(_ string, tid int) error {
		fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
			Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Bits: unix.PerfBitInherit,
		}, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err == unix.ESRCH {
			return nil // it has ended
		}
		if err == nil {
			s.fds = append(s.fds, fd)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func tracePoint() (uint64, error) {
	for _, path := range tracePoints {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	return 0, fmt.Errorf("observe: the kernel's trace point of system calls: %w", os.ErrNotExist)
}

// Total is the number so far.
func (s *Syscalls) Total() (uint64, error) {
	var sum uint64
	var value [8]byte
	for _, fd := range s.fds {
		if n, err := unix.Read(fd, value[:]); err != nil || n != len(value) {
			return 0, fmt.Errorf("observe: count of system calls: %d bytes, %w", n, err)
		}
		sum += binary.NativeEndian.Uint64(value[:])
	}
	return sum, nil
}

// Close ends the counting.
func (s *Syscalls) Close() error {
	var failures []error
	for _, fd := range s.fds {
		failures = append(failures, unix.Close(fd))
	}
	s.fds = nil
	return errors.Join(failures...)
}
