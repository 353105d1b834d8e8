package segdir

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// markerName is the file that says whose directory this is.
const markerName = "FORMAT"

// markerTemp is the marker while it is written.
const markerTemp = markerName + ".tmp"

// Format is the version of the directory's layout that this package reads and
// writes.
const Format = 2

// The marker is a few lines of text. Only one that has both its first and its
// last line was written in full.
const (
	markerFirst = "slotcache-l2"
	markerLast  = "end"
)

// markerText returns the marker of this version.
func markerText() string {
	return markerFirst + "\nformat " + strconv.Itoa(Format) + "\n" + markerLast + "\n"
}

// parseMarker returns the version that a marker names. It reports false if the
// text is not a whole marker.
func parseMarker(text string) (int, bool) {
	body, ok := strings.CutPrefix(text, markerFirst+"\nformat ")
	if !ok || !strings.HasSuffix(body, "\n"+markerLast+"\n") {
		return 0, false
	}
	number, _, _ := strings.Cut(body, "\n")
	version, err := strconv.Atoi(number)
	return version, err == nil && version > 0
}

// readMarker returns the version of the directory, or false if it has no whole
// marker.
func (d *Dir) readMarker() (version int, ok bool) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := unix.Openat(d.dirFd, markerName, flags, 0)
	if err != nil {
		return 0, false
	}
	defer closeFd(fd)
	var buf [4096]byte
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil {
		return 0, false
	}
	return parseMarker(string(buf[:n]))
}

// recognise refuses a directory that is not ours. It changes nothing.
func (d *Dir) recognise() error {
	version, ok := d.readMarker()
	if ok && version != Format {
		return fmt.Errorf("%w: %s has format %d, this program reads format %d; "+
			"use the program that wrote it, or remove the directory's contents", ErrForeign, d.path, version, Format)
	}
	if ok {
		return nil
	}
	names, err := d.list()
	if err != nil {
		return err
	}
	if d.readOnly && !slices.ContainsFunc(names, func(name string) bool { _, ok := parseName(name); return ok }) {
		return fmt.Errorf("%w: %s has neither a %s file nor segments", ErrForeign, d.path, markerName)
	}
	var stranger string
	for _, name := range names {
		if _, ok := parseName(name); ok {
			return nil // the marker is lost or damaged, the segments are ours
		}
		if !ours(name) && stranger == "" {
			stranger = name
		}
	}
	if stranger != "" {
		return fmt.Errorf("%w: %s has no %s file but holds other files (%q)", ErrForeign, d.path, markerName, stranger)
	}
	return nil
}

// ours reports whether a name may be found in an otherwise empty directory of
// ours.
func ours(name string) bool {
	return name == lockName || name == markerName || isTemporary(name) ||
		strings.HasPrefix(name, asidePrefix) ||
		name == "lost+found" // the root of a file system
}

// mark writes the marker where it is missing or damaged: to a temporary file that
// takes its name once it is on the disk.
func (d *Dir) mark() error {
	if err := d.recognise(); err != nil { // again, now that nobody else changes it
		return err
	}
	if _, ok := d.readMarker(); ok {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(d.dirFd, markerName, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		d.log.Warn("ignored a damaged marker; writing it anew", "file", markerName)
	}
	if err := d.writeMarker(); err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			// A start on a full disk works; the next one writes it.
			d.log.Warn("marker not written", "err", err)
			d.clear(markerTemp)
			return nil
		}
		return err
	}
	return d.syncDir()
}

// writeMarker puts a new marker in the place of whatever is there.
func (d *Dir) writeMarker() error {
	d.clear(markerTemp)
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC | unix.O_NOFOLLOW
	fd, err := unix.Openat(d.dirFd, markerTemp, flags, 0o600)
	if err != nil {
		return fmt.Errorf("l2/segdir: create %s: %w", markerTemp, err)
	}
	text := []byte(markerText())
	n, err := unix.Pwrite(fd, text, 0)
	if err == nil && n < len(text) {
		err = unix.ENOSPC
	}
	if err == nil {
		err = unix.Fsync(fd)
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("l2/segdir: write %s: %w", markerTemp, err)
	}
	err = unix.Renameat(d.dirFd, markerTemp, d.dirFd, markerName)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		d.clear(markerName)
		err = unix.Renameat(d.dirFd, markerTemp, d.dirFd, markerName)
	}
	if err != nil {
		return fmt.Errorf("l2/segdir: rename %s: %w", markerTemp, err)
	}
	return nil
}
