package segdir

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2/seglog"
)

// openSegment opens a segment's file, past the page cache where that is possible.
func (d *Dir) openSegment(id seglog.SegmentID) (*file, error) {
	name := segmentName(id)
	var st unix.Stat_t
	if err := unix.Fstatat(d.dirFd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, fmt.Errorf("l2/segdir: stat %s: %w", name, err)
	}
	// Asked before open, which would block on a FIFO and act on a device.
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("l2/segdir: open %s: %w: not a regular file", name, unix.EINVAL)
	}
	flags := unix.O_RDWR | unix.O_CLOEXEC | unix.O_NOFOLLOW
	if d.readOnly {
		flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW
	}
	if !d.buffered.Load() {
		fd, err := unix.Openat(d.dirFd, name, flags|unix.O_DIRECT, 0)
		if err == nil {
			reason := refusesDirect(fd)
			if reason == "" {
				return &file{id: id, fd: fd, direct: true}, nil
			}
			closeFd(fd)
			d.useBuffered(reason)
		} else if errors.Is(err, unix.EINVAL) {
			d.useBuffered("the file system refuses O_DIRECT")
		} else {
			return nil, fmt.Errorf("l2/segdir: open %s: %w", name, err)
		}
	}
	fd, err := unix.Openat(d.dirFd, name, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("l2/segdir: open %s: %w", name, err)
	}
	return &file{id: id, fd: fd}, nil
}

// refusesDirect says why direct I/O with our alignment won't work on fd, or
// nothing.
func refusesDirect(fd int) string {
	var sx unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &sx)
	if err == nil && sx.Mask&unix.STATX_DIOALIGN != 0 {
		switch {
		case sx.Dio_offset_align == 0:
			return "the file system refuses O_DIRECT for this file"
		case sx.Dio_offset_align > blockSize || sx.Dio_mem_align > blockSize:
			return fmt.Sprintf("direct I/O needs an alignment of %d bytes in memory and %d on disk, more than %d",
				sx.Dio_mem_align, sx.Dio_offset_align, blockSize)
		}
		return ""
	}
	// The kernel doesn't tell: try. Some file systems refuse only then.
	page, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return "" // no memory for a trial says nothing about the file
	}
	defer func() { _ = unix.Munmap(page) }() // our own mapping
	if _, err := unix.Pread(fd, page, 0); errors.Is(err, unix.EINVAL) {
		return "the file system refuses direct reads"
	}
	return ""
}

// useBuffered goes on without O_DIRECT and says so, once.
func (d *Dir) useBuffered(reason string) {
	if d.buffered.CompareAndSwap(false, true) {
		d.log.Warn("disk I/O goes through the page cache", "reason", reason)
	}
}
