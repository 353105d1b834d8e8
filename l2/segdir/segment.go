package segdir

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2/seglog"
)

// The parts of the names in a directory.
const (
	segmentPrefix = "seg-"
	segmentSuffix = ".slc"
	tempSuffix    = ".tmp"
	asidePrefix   = "ignored-"
)

// blockSize is the alignment, in bytes, that callers keep for memory, offset and
// length. A file system that wants more is used buffered.
const blockSize = 4096

// bounceSize is the size in bytes of the buffer for unaligned reads.
const bounceSize = 1 << 20

// A file is an open segment.
type file struct {
	id     seglog.SegmentID
	fd     int  // -1: it neither opens nor goes away
	direct bool // opened with O_DIRECT
}

// segmentName returns the name of a segment's file.
func segmentName(id seglog.SegmentID) string {
	return fmt.Sprintf("%s%08d%s", segmentPrefix, uint32(id), segmentSuffix)
}

// tempName returns the name of a segment's file while it is made.
func tempName(id seglog.SegmentID) string {
	return fmt.Sprintf("%s%08d%s", segmentPrefix, uint32(id), tempSuffix)
}

// parseName returns the segment whose file is called name.
func parseName(name string) (seglog.SegmentID, bool) {
	digits, ok := strings.CutPrefix(name, segmentPrefix)
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, segmentSuffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	id := seglog.SegmentID(n)
	return id, err == nil && segmentName(id) == name // one name for one segment
}

// isTemporary reports whether name is that of a half-made file of ours.
func isTemporary(name string) bool {
	if name == markerTemp {
		return true
	}
	stem, ok := strings.CutSuffix(name, tempSuffix)
	if !ok {
		return false
	}
	_, ok = parseName(stem + segmentSuffix)
	return ok
}

// Usable returns how many bytes of segments fit in a directory that must not take
// more than size bytes of disk with all that a file system adds: the directory,
// the marker, the lock and the maps of the segments' extents.
func Usable(size int64) int64 {
	const fixed = 64 << 10
	const perSegments = 256 // a map entry of 12 bytes for each 4 KiB, at worst
	return max(0, size-fixed-size/perSegments)
}

// Segments returns the numbers of the segments, ascending: those that are open, and those
// that neither open nor could be moved out of the way, of which nothing can be read.
func (d *Dir) Segments() ([]seglog.SegmentID, error) {
	return slices.Sorted(maps.Keys(*d.files.Load())), nil
}

// Fd returns the open descriptor of a segment, owned by the Dir and valid until
// the segment is removed or created anew. It takes no lock.
func (d *Dir) Fd(id seglog.SegmentID) (int, error) {
	f, err := d.file(id)
	if err != nil {
		return -1, err
	}
	return f.fd, nil
}

// file returns an open segment.
func (d *Dir) file(id seglog.SegmentID) (*file, error) {
	f, ok := (*d.files.Load())[id]
	if !ok || f.fd < 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoSegment, segmentName(id))
	}
	return f, nil
}

// Size returns the present size of a segment's file in bytes.
func (d *Dir) Size(id seglog.SegmentID) (int64, error) {
	fd, err := d.Fd(id)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("l2/segdir: stat %s: %w", segmentName(id), err)
	}
	return st.Size, nil
}

// ReadAt reads len(p) bytes of a segment at off, whatever their alignment and
// that of p. It returns io.EOF with fewer bytes at the end of the file.
func (d *Dir) ReadAt(id seglog.SegmentID, p []byte, off int64) (int, error) {
	f, err := d.file(id)
	if err != nil {
		return 0, err
	}
	var n int
	if f.direct && !aligned(p, off) {
		n, err = d.readBounced(f.fd, p, off)
	} else {
		n, err = readFull(f.fd, p, off)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("l2/segdir: read %d bytes of %s at %d: %w", len(p), segmentName(id), off, err)
	}
	return n, err
}

// readFull reads until p is full or the file ends.
func readFull(fd int, p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		m, err := unix.Pread(fd, p[n:], off+int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return n, err
		}
		n += m
		// Direct reads come up short of a block only at the end of the file, and
		// going on from there would be unaligned.
		if m == 0 || n < len(p) && n%blockSize != 0 {
			return n, io.EOF
		}
	}
	return n, nil
}

// readBounced reads whole blocks into the aligned buffer and copies from there.
func (d *Dir) readBounced(fd int, p []byte, off int64) (int, error) {
	d.bounceMu.Lock()
	defer d.bounceMu.Unlock()
	if d.bounce == nil {
		buf, err := unix.Mmap(-1, 0, bounceSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return 0, err
		}
		d.bounce = buf
	}
	n := 0
	for n < len(p) {
		at := off + int64(n)
		lead := int(at % blockSize)
		want := min(lead+len(p)-n, bounceSize)
		want = (want + blockSize - 1) / blockSize * blockSize
		m, err := readFull(fd, d.bounce[:want], at-int64(lead))
		if m > lead {
			n += copy(p[n:], d.bounce[lead:m])
		}
		if err != nil && n < len(p) {
			return n, err
		}
	}
	return n, nil
}

// Sync makes a segment's data durable (fdatasync).
func (d *Dir) Sync(id seglog.SegmentID) error {
	fd, err := d.Fd(id)
	if err != nil {
		return err
	}
	if err := unix.Fdatasync(fd); err != nil {
		return fmt.Errorf("l2/segdir: fdatasync %s: %w", segmentName(id), err)
	}
	return nil
}

// Create makes and opens a segment of size bytes, all of them allocated, in the
// place of any that was there. It appears under its name only when it is whole. No
// I/O may be under way on a former segment of that number.
func (d *Dir) Create(id seglog.SegmentID, size int64) error {
	if size <= 0 || size%blockSize != 0 {
		panic(fmt.Sprintf("l2/segdir: segment size %d is not a multiple of %d", size, blockSize))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	err := d.create(id, size)
	if errors.Is(err, unix.ENOENT) {
		if err = d.restore(); err == nil {
			err = d.create(id, size)
		}
	}
	return err
}

// create does Create's work in a directory that is there.
func (d *Dir) create(id seglog.SegmentID, size int64) error {
	temp, name := tempName(id), segmentName(id)
	if err := d.allocate(temp, size); err != nil {
		d.clear(temp)
		return err
	}
	err := unix.Renameat(d.dirFd, temp, d.dirFd, name)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		d.log.Warn("ignored a directory in the place of a segment", "file", name)
		d.clear(name)
		err = unix.Renameat(d.dirFd, temp, d.dirFd, name)
	}
	if err != nil {
		d.clear(temp)
		return fmt.Errorf("l2/segdir: rename %s: %w", temp, err)
	}
	if err := d.syncDir(); err != nil {
		return err
	}
	f, err := d.openSegment(id)
	if err != nil {
		return err
	}
	d.replace(id, f)
	return nil
}

// allocate makes the file name with size bytes of disk behind it, and waits until
// that is durable.
func (d *Dir) allocate(name string, size int64) error {
	d.clear(name)
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC | unix.O_NOFOLLOW
	fd, err := unix.Openat(d.dirFd, name, flags, 0o600)
	if err != nil {
		return fmt.Errorf("l2/segdir: create %s: %w", name, err)
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Fallocate(fd, 0, 0, size)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = fillZero(fd, size)
	}
	if err == nil {
		err = unix.Fsync(fd)
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("l2/segdir: allocate %d bytes for %s: %w", size, name, err)
	}
	return nil
}

// fillZero allocates by writing, where the file system has no other way.
func fillZero(fd int, size int64) error {
	zero := make([]byte, bounceSize)
	for off := int64(0); off < size; {
		n, err := unix.Pwrite(fd, zero[:min(size-off, int64(len(zero)))], off)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		off += int64(max(n, 0))
	}
	return nil
}

// Remove removes a segment and gives its disk space free. It is no error if there
// is none. No I/O may be under way on it.
func (d *Dir) Remove(id seglog.SegmentID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.replace(id, nil)
	name := segmentName(id)
	err := unix.Unlinkat(d.dirFd, name, 0)
	if errors.Is(err, unix.EISDIR) {
		d.log.Warn("ignored a directory in the place of a segment", "file", name)
		d.clear(name)
		err = nil
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("l2/segdir: remove %s: %w", name, err)
	}
	// A removed segment must not come back after a power loss: what was deleted
	// since might come back with it.
	return d.syncDir()
}

// replace puts f in the place of a segment's open file, which is closed; nil takes
// it out.
func (d *Dir) replace(id seglog.SegmentID, f *file) {
	old := *d.files.Load()
	files := maps.Clone(old)
	if f != nil {
		files[id] = f
	} else {
		delete(files, id)
	}
	d.files.Store(&files)
	if o, ok := old[id]; ok {
		closeFd(o.fd)
	}
}
