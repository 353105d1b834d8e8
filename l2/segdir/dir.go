// Package segdir keeps the segment files of a disk store in one directory. It
// locks the directory against other processes, recognises whether the directory
// belongs to the store, creates, opens and removes the files, and reads them for
// recovery. It decides nothing about their contents: that is package seglog's.
//
// A directory holds:
//
//	lock              locked while a process uses the directory; names that process
//	FORMAT            the marker: whose directory this is and in which format
//	seg-00000000.slc  a segment, allocated at its full size
//	seg-00000000.tmp  a segment being made; removed at the next start
//	ignored-…         something that stood in the way of one of the above
//
// Nothing in a directory of ours needs a human: a damaged marker is written anew,
// whatever else stands under one of our names is moved out of the way. Symbolic
// links are never followed below the directory itself.
package segdir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2/seglog"
)

// Errors a directory is refused with. They are wrapped with the details.
var (
	// ErrLocked means that another process uses the directory.
	ErrLocked = errors.New("l2/segdir: directory in use")
	// ErrForeign means that the directory holds something else than a store of
	// this format. Nothing in it was touched.
	ErrForeign = errors.New("l2/segdir: not a directory of this store")
	// ErrNoSegment means that no segment of that number is open.
	ErrNoSegment = errors.New("l2/segdir: no such segment")
	// ErrClosed means that the directory was closed.
	ErrClosed = errors.New("l2/segdir: closed")
)

// Options are the settings of [Open]. The zero value is usable.
type Options struct {
	// Logger gets one line for each thing found in the way and one if direct I/O
	// is refused. Nil discards them.
	Logger *slog.Logger
	// Buffered forgoes O_DIRECT: I/O goes through the page cache.
	Buffered bool
	// ReadOnly changes nothing in the directory but the lock file: nothing is made,
	// removed or moved aside, a directory that is missing or empty is an error, and
	// the methods that change something must not be called.
	ReadOnly bool
	// Unlocked, with ReadOnly, does without the lock, for a look at a directory that
	// another process uses.
	Unlocked bool
}

// A Dir is a locked directory of segment files. All methods may be called from
// any goroutine. Those that touch the file system may block for as long as it
// does; [Dir.Fd], [Dir.LockFd] and [Dir.Direct] never block.
type Dir struct {
	path     string
	log      *slog.Logger
	readOnly bool
	unlocked bool

	// files are the open segments. The map is replaced, never changed, so that Fd
	// is a lookup without a lock.
	files    atomic.Pointer[map[seglog.SegmentID]*file]
	lockFd   atomic.Int32
	buffered atomic.Bool

	mu     sync.Mutex // guards what follows, and every change of the directory
	dirFd  int
	closed bool

	bounceMu sync.Mutex // one unaligned read at a time
	bounce   []byte     // page-aligned, made at the first unaligned read
}

// Open takes the directory at path, which is made (mode 0700) where it is
// missing, and opens the segments in it. It fails with [ErrLocked] while another
// process has it and with [ErrForeign] where it belongs to something else.
// Half-made files are removed.
func Open(path string, opts Options) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("l2/segdir: %w", err)
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Dir{path: path, log: log.With("dir", path), dirFd: -1, readOnly: opts.ReadOnly, unlocked: opts.ReadOnly && opts.Unlocked}
	d.files.Store(&map[seglog.SegmentID]*file{})
	d.lockFd.Store(-1)
	d.buffered.Store(opts.Buffered)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.take(); err != nil {
		_ = d.drop() // err says more
		return nil, err
	}
	if err := d.load(); err != nil {
		_ = d.drop() // err says more
		return nil, err
	}
	return d, nil
}

// take makes, locks and marks the directory.
func (d *Dir) take() error {
	if !d.readOnly {
		if err := os.MkdirAll(d.path, 0o700); err != nil {
			return fmt.Errorf("l2/segdir: %w", err)
		}
	}
	fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("l2/segdir: open %s: %w", d.path, err)
	}
	d.dirFd = fd
	// Looked at before the lock too, so that a foreign directory stays as it is.
	if err := d.recognise(); err != nil {
		return err
	}
	if !d.unlocked {
		if err := d.lock(); err != nil {
			return err
		}
	}
	if d.readOnly {
		return nil
	}
	return d.mark()
}

// load opens the segments and removes what is half made.
func (d *Dir) load() error {
	names, err := d.list()
	if err != nil {
		return err
	}
	files := map[seglog.SegmentID]*file{}
	d.files.Store(&files) // drop closes what is in it if this fails
	cleared := false
	for _, name := range names {
		if isTemporary(name) && !d.readOnly {
			d.log.Info("removed a half-made file", "file", name)
			d.clear(name)
			continue
		}
		id, ok := parseName(name)
		if !ok {
			continue
		}
		f, err := d.openSegment(id)
		switch {
		case err == nil:
			files[id] = f
		case exhausted(err):
			return err
		case d.readOnly:
			d.log.Warn("ignored a segment that does not open", "file", name, "err", err)
		default:
			// What can't be opened can't be read: its space serves better anew.
			d.log.Warn("ignored and removed a segment that does not open", "file", name, "err", err)
			if !d.clear(name) {
				files[id] = &file{id: id, fd: -1} // it may open the next time: that it is there must not be forgotten
			}
			cleared = true
		}
	}
	if cleared {
		return d.syncDir() // as Remove does
	}
	return nil
}

// exhausted reports whether err speaks of this process or machine and not of the
// file.
func exhausted(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// list returns the names in the directory.
func (d *Dir) list() ([]string, error) {
	fd, err := unix.Openat(d.dirFd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("l2/segdir: list %s: %w", d.path, err)
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer func() { _ = f.Close() }() // only read from
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("l2/segdir: list: %w", err)
	}
	return names, nil
}

// clear takes what stands under name out of the way: files, links and empty
// directories are removed, a directory with something in it is only renamed. It says
// whether nothing stands there any more.
func (d *Dir) clear(name string) bool {
	err := unix.Unlinkat(d.dirFd, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(d.dirFd, name, unix.AT_REMOVEDIR)
	}
	if err == nil || errors.Is(err, unix.ENOENT) {
		return true
	}
	for i := range 100 {
		aside := fmt.Sprintf("ignored-%d-%s", i, name)
		err = unix.Renameat2(d.dirFd, name, d.dirFd, aside, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	if err != nil {
		d.log.Warn("could not be moved out of the way", "file", name, "err", err)
	}
	return err == nil
}

// FreeSpace returns the bytes that the file system still has for this process.
func (d *Dir) FreeSpace() (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, ErrClosed
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(d.dirFd, &st); err != nil {
		return 0, fmt.Errorf("l2/segdir: statfs %s: %w", d.path, err)
	}
	return int64(st.Bavail) * st.Frsize, nil
}

// Path returns the absolute path of the directory.
func (d *Dir) Path() string { return d.path }

// LockFd returns the descriptor whose lock keeps other processes out. A ring that
// holds it too keeps them out until the I/O of a killed process is done. It is
// owned by the Dir.
func (d *Dir) LockFd() int { return int(d.lockFd.Load()) }

// Direct reports whether I/O to the segments bypasses the page cache, so that
// memory, offset and length must be 4 KiB aligned.
func (d *Dir) Direct() bool { return !d.buffered.Load() }

// restore takes the directory anew if it was removed under us. The segments that
// are open stay readable; new ones go to the new directory.
func (d *Dir) restore() error {
	var st unix.Stat_t
	if err := unix.Fstat(d.dirFd, &st); err == nil && st.Nlink > 0 {
		return nil
	}
	d.log.Warn("the directory was removed while in use; making it anew")
	oldDir, oldLock := d.dirFd, int(d.lockFd.Load())
	d.dirFd = -1
	d.lockFd.Store(-1)
	if err := d.take(); err != nil {
		closeFd(d.dirFd)
		closeFd(int(d.lockFd.Load()))
		d.dirFd = oldDir
		d.lockFd.Store(int32(oldLock))
		return err
	}
	closeFd(oldDir)
	closeFd(oldLock)
	return nil
}

// syncDir makes the names in the directory durable.
func (d *Dir) syncDir() error {
	if err := unix.Fsync(d.dirFd); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: can't, here
		return fmt.Errorf("l2/segdir: fsync %s: %w", d.path, err)
	}
	return nil
}

// Close closes the segments and gives the directory free. No I/O may be under way
// on a descriptor of the Dir. The second call does nothing.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.bounceMu.Lock()
	defer d.bounceMu.Unlock()
	return d.drop()
}

// drop closes all that is open, the lock last.
func (d *Dir) drop() error {
	var first error
	for _, f := range *d.files.Load() {
		if f.fd < 0 {
			continue
		}
		if err := unix.Close(f.fd); err != nil && first == nil {
			first = fmt.Errorf("l2/segdir: close %s: %w", segmentName(f.id), err)
		}
	}
	d.files.Store(&map[seglog.SegmentID]*file{})
	if d.bounce != nil {
		if err := unix.Munmap(d.bounce); err != nil && first == nil {
			first = fmt.Errorf("l2/segdir: munmap: %w", err)
		}
		d.bounce = nil
	}
	closeFd(d.dirFd)
	closeFd(int(d.lockFd.Load()))
	d.dirFd = -1
	d.lockFd.Store(-1)
	return first
}

// closeFd closes a descriptor nothing was written through.
func closeFd(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd) // nothing to lose, and the descriptor is gone in any case
	}
}

// Errno returns the kernel's error number within err as a positive number: EIO
// where it has none, 0 for nil.
func Errno(err error) int64 {
	if err == nil {
		return 0
	}
	var errno unix.Errno
	if errors.As(err, &errno) && errno > 0 {
		return int64(errno)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNoSegment) {
		return int64(unix.ENOENT)
	}
	return int64(unix.EIO)
}
