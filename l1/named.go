package l1

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/table"
)

const (
	// linkTriesMax bounds how often a name is cleaned and linked when others do
	// the same at that moment.
	linkTriesMax = 8
	// lockTriesMax and lockPause tell a living server's lock from that of
	// another one's cleaning, which takes some microseconds.
	lockTriesMax = 5
	lockPause    = 10 * time.Millisecond
)

// makeNamed makes a named pool. The file has its size and its lock before it
// has a name, so that no cleaner ever meets a living pool without a lock. It
// returns the size that the file has.
func (p *Pool) makeNamed(cfg Config, size int64, huge bool) (int64, error) {
	name, err := NormalizeName(cfg.Name)
	if err != nil {
		return size, err
	}
	path := cfg.Dir
	if path == "" {
		path = "/dev/shm"
	}
	p.dir, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return size, fmt.Errorf("l1: open %s: %w", path, err)
	}
	if err := p.clean(path, name); err != nil {
		return size, err
	}
	if size, err = p.choosePages(cfg, size, huge); err != nil {
		return size, err
	}
	if err := p.checkSpace(size); err != nil {
		return size, err
	}
	return size, p.linkNamed(cfg, size, path, name)
}

// choosePages finds out what pages the file will have, and its size.
func (p *Pool) choosePages(cfg Config, size int64, huge bool) (int64, error) {
	var why string
	var err error
	if p.pages, why, err = p.pagesOf(cfg.HugePages != HugeOff); err != nil {
		return size, err
	}
	if why != "" && huge {
		return size, &HugePagesError{Size: hugeSize, Why: why}
	}
	size = p.pages.roundUp(size)
	if p.pages.kind != pagesHugetlb {
		return size, nil
	}
	return size, checkGroups("/", size, p.pages.size)
}

// linkNamed makes the file and gives it its name.
func (p *Pool) linkNamed(cfg Config, size int64, path, name string) (err error) {
	p.fd, err = unix.Openat(p.dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("l1: make a file in %s: %w", path, err)
	}
	if err := p.prepareFile(cfg, size); err != nil {
		return err
	}
	for range linkTriesMax {
		err = unix.Linkat(unix.AT_FDCWD, procPath(p.fd), p.dir, name, unix.AT_SYMLINK_FOLLOW)
		if err == nil {
			p.name = name
			return nil
		}
		if !errors.Is(err, unix.EEXIST) {
			break
		}
		if err := p.cleanOne(path, name); err != nil {
			return err
		}
	}
	return fmt.Errorf("l1: link %s/%s: %w", path, name, err)
}

// prepareFile sizes, locks and permits the file that has no name yet.
func (p *Pool) prepareFile(cfg Config, size int64) error {
	if err := retry(func() error { return unix.Ftruncate(p.fd, size) }); err != nil {
		return fmt.Errorf("l1: file of %d bytes: %w", size, err)
	}
	// A file system that cannot reserve pages cannot carry a pool: the first
	// page shows it before anybody relies on it.
	// Those of huge pages can, and a small one would be in the place of one.
	if p.pages.kind == pagesPlain {
		if err := retry(func() error { return p.reserve(0, table.Unit) }); err != nil {
			return err
		}
	}
	mode := cfg.FileMode.Perm()
	if mode == 0 {
		mode = 0o600
	}
	if cfg.Group >= 0 {
		if err := unix.Fchown(p.fd, -1, cfg.Group); err != nil {
			return fmt.Errorf("l1: give the pool to group %d: %w", cfg.Group, err)
		}
	}
	if err := unix.Fchmod(p.fd, uint32(mode)); err != nil {
		return fmt.Errorf("l1: pool mode %o: %w", mode, err)
	}
	if err := unix.Flock(p.fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("l1: lock the pool: %w", err)
	}
	return nil
}

// checkSpace returns [ErrNoSpace] if the directory's file system has no room
// for size bytes.
func (p *Pool) checkSpace(size int64) error {
	have, err := freeSpace(p.dir)
	if err != nil {
		return err
	}
	if have >= 0 && size > have {
		return ErrNoSpace{Need: size, Have: have}
	}
	return nil
}

// freeSpace returns the free bytes of fd's file system, -1 if it has no limit.
func freeSpace(fd int) (int64, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return 0, fmt.Errorf("l1: free space: %w", err)
	}
	if st.Blocks == 0 { // a tmpfs mounted without a limit
		return -1, nil
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// clean removes what dead servers left in the directory, so that their pools do
// not take the room of this one. It refuses to go on if name is taken.
func (p *Pool) clean(path, name string) error {
	entries, err := os.ReadDir(procPath(p.dir))
	if err != nil {
		return fmt.Errorf("l1: list %s: %w", path, err)
	}
	for _, e := range entries {
		if e.Name() == name || !strings.HasPrefix(e.Name(), namePrefix) {
			continue
		}
		// Another's leftover that cannot be removed is in nobody's way but for
		// its bytes, which the check of the free space sees.
		if err := p.cleanOne(path, e.Name()); err != nil {
			p.log.Debug("pool is left alone", "name", e.Name(), "why", err)
		}
	}
	// A starting server may be looking at our leftover just now, under its lock.
	err = p.cleanOne(path, name)
	for n := 0; n < lockTriesMax && errors.Is(err, ErrInUse); n++ {
		time.Sleep(lockPause)
		err = p.cleanOne(path, name)
	}
	return err
}

// cleanOne unlinks a pool that no living server has. It returns nil if there is
// nothing of that name any more.
func (p *Pool) cleanOne(path, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("l1: look at %s/%s: %w", path, name, err)
	}
	if why := notOurs(&st); why != "" {
		return fmt.Errorf("%w: %s/%s %s", ErrRefused, path, name, why)
	}
	// What was a file a moment ago may be a FIFO or a link now: neither blocks
	// or leads elsewhere.
	fd, err := unix.Openat(p.dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("l1: open %s/%s: %w", path, name, err)
	}
	defer unix.Close(fd) //nolint:errcheck // read-only, and its only use is the lock
	return p.removeDead(path, name, fd)
}

// removeDead unlinks name, which was opened as fd, if no living server has it.
func (p *Pool) removeDead(path, name string, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("l1: look at %s/%s: %w", path, name, err)
	}
	if why := notOurs(&st); why != "" {
		return fmt.Errorf("%w: %s/%s %s", ErrRefused, path, name, why)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("%w: %s/%s: in use by %s", ErrInUse, path, name, lockHolder(&st))
		}
		return fmt.Errorf("l1: lock %s/%s: %w", path, name, err)
	}
	// Before the lock was had, another cleaner may have removed this file and
	// its server linked a new one.
	if !p.isLinked(name, st.Dev, st.Ino) {
		return nil
	}
	if err := unix.Unlinkat(p.dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("l1: remove %s/%s: %w", path, name, err)
	}
	p.log.Info("removed the pool of a dead server", "path", path+"/"+name, "bytes", st.Size)
	return nil
}

// isLinked says whether name is the file of that device and inode.
func (p *Pool) isLinked(name string, dev, ino uint64) bool {
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Dev == dev && st.Ino == ino
}

// unlink removes the pool's name, unless the name is not the pool's any more.
func (p *Pool) unlink() error {
	if !p.isLinked(p.name, p.dev, p.ino) {
		return nil
	}
	if err := unix.Unlinkat(p.dir, p.name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("l1: remove %s: %w", p.name, err)
	}
	return nil
}

// notOurs says why a file cannot be a leftover of ours, "" if it can.
func notOurs(st *unix.Stat_t) string {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return "is a directory"
	case unix.S_IFLNK:
		return "is a symbolic link"
	default:
		return "is not a regular file"
	}
	if uid := os.Geteuid(); st.Uid != uint32(uid) {
		return fmt.Sprintf("belongs to uid %d, not to %d", st.Uid, uid)
	}
	return ""
}

// lockHolder says who has the lock on a file, for a message.
func lockHolder(st *unix.Stat_t) string {
	locks, err := os.ReadFile("/proc/locks")
	if err == nil {
		file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
		for line := range strings.Lines(string(locks)) {
			// 1: FLOCK  ADVISORY  WRITE 1234 00:1a:567 0 EOF
			f := strings.Fields(line)
			if len(f) >= 6 && f[1] == "FLOCK" && f[5] == file && f[4] != "0" {
				return "pid " + f[4]
			}
		}
	}
	return "another process"
}
