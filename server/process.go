package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/server/engine"
)

// statTick is the unit of times in /proc/PID/stat: a hundredth of a second, whatever the
// kernel's own tick is.
const statTick = 10 * time.Millisecond

// A process is a pidfd and who uses it: the watches of the instances that the process
// registered, and for the rest of a turn the connection that asked. So a connection costs no
// descriptor beside its own before it registers for shared memory, and a process costs one,
// however many connections and instances it has.
type process struct {
	fd   int
	refs int
	pid  int32 // 0: not known
}

// identify asks the kernel who is at the other end of c.
func (r *reactor) identify(c *conn) engine.Peer {
	peer := engine.Peer{Local: c.local}
	if !c.local {
		return peer
	}
	c.met = sinceBoot()
	if cred, err := unix.GetsockoptUcred(c.fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		peer.PID, peer.UID = cred.Pid, cred.Uid
		if r.access.WantsGroups() {
			peer.Groups = groupsOf(c.fd, cred.Gid)
		}
	} else {
		peer.UID = nobody
	}
	c.pid = peer.PID
	return peer
}

// ended numbers a process that the kernel has forgotten, so that it tells none: no other has this number, one that lives or
// another that has ended. Inodes do not come that far.
func (r *reactor) ended() uint64 {
	r.watches.ended++
	return -r.watches.ended
}

// processOf is [engine.Host.Process]: the number of the inode that a pidfd has of the process that connected. From Linux 6.9 on
// pidfds have a file system of their own, where each process has an inode for itself, and no other gets its number. Before that
// there is none, and a process is known by its PID alone as long as it lives.
func (r *reactor) processOf(c *conn) (uint64, bool) {
	pidfd, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case err == nil:
		defer closeFd(pidfd)
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return r.ended(), true
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		r.complain("a client's process can't be told from others now; its registration is refused", "pid", c.pid, "err", err)
		return 0, false
	default: // a kernel, or a sandbox, without it
		return 0, true
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(pidfd, &fs) == nil && fs.Type == unix.PID_FS_MAGIC && unix.Fstat(pidfd, &st) == nil {
		return st.Ino, true
	}
	if pidfdEnded(pidfd) {
		return r.ended(), true
	}
	return 0, true
}

// sinceBoot is the time since the machine started, that of its sleep included, as
// /proc/PID/stat counts it.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("server: the kernel has no CLOCK_BOOTTIME: %v", err)) // it is from Linux 2.6.39
	}
	return time.Duration(t.Nano())
}

// watchable is [engine.Host.Watchable]: it takes the pidfd of the process that connected, as
// the kernel keeps it with the socket, not of who holds the connection by now.
//
// SO_PEERPIDFD gives it without a race, however late it is asked for: the socket refers to the
// process and not to its number. Before Linux 6.5 there is only the number, of SO_PEERCRED. It
// is another process's if the one that connected has ended since, while a child of it, say, kept
// the connection. So what pidfd_open finds must have started before the connection was accepted:
// a number is given out again only after all others, which takes longer than from connect to
// accept and than the hundredth of a second by which start times are known. A process that has ended
// already is refused either way: nobody would tell of its end, and who holds the connection is not it.
func (r *reactor) watchable(c *conn) bool {
	if !c.local {
		return false
	}
	r.forgetAsked()
	fd, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) && c.pid != 0 {
		fd, err = openByNumber(c.pid, c.met)
	}
	if err == nil && pidfdEnded(fd) {
		closeFd(fd)
		err = unix.ESRCH
	}
	if err != nil {
		r.complain("a client's process can't be watched; it gets no shared memory", "pid", c.pid, "err", err)
		return false
	}
	r.watches.asked, r.watches.asker = r.watches.addProcess(fd, c.pid), c.id
	return true
}

// openByNumber opens the process with a number, if it has it since before a connection of it
// was accepted.
func openByNumber(pid int32, accepted time.Duration) (int, error) {
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		return -1, err //nolint:wrapcheck // the caller knows what it asked
	}
	// What the file tells is of this process, as long as that is found alive afterwards.
	started, err := startOf(pid)
	if err == nil && started > accepted {
		err = unix.ESRCH
	}
	if err != nil {
		closeFd(fd)
		return -1, err
	}
	return fd, nil
}

// startOf is when a process started, since the machine did, cut to a whole [statTick].
func startOf(pid int32) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err //nolint:wrapcheck // names the file
	}
	// The name, in parentheses, is the second field and may have any byte in it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64) // the 22nd of all
	return time.Duration(ticks) * statTick, err                //nolint:wrapcheck // names the number
}

// addProcess takes a pidfd of a process that lives, with one user. If the process is here
// already, that pidfd is used: two that live at the same time do not have the same number.
func (w *watches) addProcess(fd int, pid int32) uint32 {
	if pid != 0 {
		for x := range w.processes {
			if p := &w.processes[x]; p.refs > 0 && p.pid == pid && !pidfdEnded(p.fd) {
				closeFd(fd)
				p.refs++
				return uint32(x)
			}
		}
	}
	p := process{fd: fd, refs: 1, pid: pid}
	if n := len(w.processesFree); n > 0 {
		x := w.processesFree[n-1]
		w.processesFree = w.processesFree[:n-1]
		w.processes[x] = p
		return x
	}
	w.processes = append(w.processes, p)
	return uint32(len(w.processes) - 1)
}

// releaseProcess ends one use of a pidfd.
func (r *reactor) releaseProcess(x uint32) {
	p := &r.watches.processes[x]
	p.refs--
	if p.refs > 0 {
		return
	}
	closeFd(p.fd)
	r.watches.processesFree = append(r.watches.processesFree, x)
}

// forgetAsked gives back the process that was asked about and is not watched.
func (r *reactor) forgetAsked() {
	if r.watches.asked != 0 {
		r.releaseProcess(r.watches.asked)
		r.watches.asked = 0
	}
}

// pidfdEnded says whether the process of a pidfd is known to have ended, its parent having
// waited for it or not.
func pidfdEnded(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1
}
