package segdir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// lockName is the file whose lock is the directory's.
const lockName = "lock"

// lockWait is how long the lock may stay taken after its owner is gone: a killed
// process's I/O can hold it until the kernel is done with it.
const lockWait = 5 * time.Second

// nameWait is how long an owner may take to write its name into the lock file.
const nameWait = 500 * time.Millisecond

// lockPoll is how often a lock left by a dead process is tried.
const lockPoll = 2 * time.Millisecond

// lock takes the directory's lock and writes into the lock file who has it.
func (d *Dir) lock() error {
	start := time.Now()
	for {
		holder, err := d.tryLock()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		patience := lockWait
		switch {
		case holder.alive():
			patience = 0
		case holder.pid == 0:
			patience = nameWait
		}
		if time.Since(start) >= patience {
			return fmt.Errorf("%w: %s in use by %s", ErrLocked, d.path, holder)
		}
		time.Sleep(lockPoll)
	}
}

// tryLock makes one try. If another has the lock it returns that one and
// EWOULDBLOCK.
func (d *Dir) tryLock() (owner, error) {
	fd, err := d.openLock()
	if err != nil {
		return owner{}, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer closeFd(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return readOwner(fd), unix.EWOULDBLOCK
		}
		return owner{}, fmt.Errorf("l2/segdir: flock: %w", err)
	}
	// Between open and flock the file may have been replaced: then the lock is on
	// a file that nobody else will ever look at.
	if !d.sameFile(fd, lockName) {
		closeFd(fd)
		return owner{}, unix.EWOULDBLOCK
	}
	// The directory is locked as well, so that removing the lock file does not let
	// a second process in. Where that can't be done (NFS) the file has to do.
	if err := unix.Flock(d.dirFd, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		defer closeFd(fd)
		return readOwner(fd), unix.EWOULDBLOCK
	}
	self := thisProcess()
	// The text only explains a refusal; a full disk must not prevent a start.
	if err := unix.Ftruncate(fd, 0); err == nil {
		if _, err := unix.Pwrite(fd, self.text(), 0); err != nil {
			d.log.Debug("lock file not written", "err", err)
		}
	}
	d.lockFd.Store(int32(fd))
	return self, nil
}

// openLock opens the lock file and clears away whatever else has its name.
func (d *Dir) openLock() (int, error) {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	for try := 0; ; try++ {
		fd, err := unix.Openat(d.dirFd, lockName, flags, 0o600)
		if err == nil {
			var st unix.Stat_t
			if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
				return fd, nil
			}
			closeFd(fd)
			if err == nil {
				err = unix.EINVAL
			}
		}
		inTheWay := errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ELOOP) ||
			errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) ||
			errors.Is(err, unix.EACCES)
		if try > 0 || !inTheWay {
			return -1, fmt.Errorf("l2/segdir: lock %s: %w", d.path, err)
		}
		if errors.Is(err, unix.EACCES) {
			// Ours, but for its mode. Replacing it would leave its lock behind.
			if unix.Fchmodat(d.dirFd, lockName, 0o600, 0) == nil {
				continue
			}
		}
		d.log.Warn("ignored what is not a lock file", "file", lockName, "err", err)
		d.clear(lockName)
	}
}

// sameFile reports whether name still is the file open as fd.
func (d *Dir) sameFile(fd int, name string) bool {
	var open, named unix.Stat_t
	if unix.Fstat(fd, &open) != nil ||
		unix.Fstatat(d.dirFd, name, &named, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	return open.Dev == named.Dev && open.Ino == named.Ino
}

// An owner is who has a lock. The start time, in clock ticks since boot, tells a
// process from a later one with its number; 0 if unknown.
type owner struct {
	pid   int
	start uint64
}

// String names the owner for people.
func (o owner) String() string {
	if o.pid == 0 {
		return "another process"
	}
	return "pid " + strconv.Itoa(o.pid)
}

// alive reports whether the process of that number is the owner, and not a later
// one.
func (o owner) alive() bool {
	return o.pid > 0 && o.start == startTime(o.pid) && o.start != 0
}

// text is the content of the lock file.
func (o owner) text() []byte {
	return fmt.Appendf(nil, "pid %d start %d\n", o.pid, o.start)
}

// readOwner parses the lock file open as fd. It is the zero owner if it says
// nothing sensible.
func readOwner(fd int) owner {
	var buf [64]byte
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil {
		return owner{}
	}
	var o owner
	if _, err := fmt.Sscanf(string(buf[:n]), "pid %d start %d\n", &o.pid, &o.start); err != nil || o.pid < 0 {
		return owner{}
	}
	return o
}

// thisProcess is us as an owner.
func thisProcess() owner {
	pid := os.Getpid()
	return owner{pid: pid, start: startTime(pid)}
}

// startTime returns field 22 of /proc/PID/stat, or 0 if there is no such process.
func startTime(pid int) uint64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The second field is the name in parentheses, which may contain anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const startField = 22 - 3 // the first field after the name is the third
	if len(fields) <= startField || fields[0][0] == 'Z' {
		return 0 // a zombie runs no more
	}
	start, err := strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return 0
	}
	return start
}
