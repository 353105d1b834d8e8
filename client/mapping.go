package client

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// shmDir is where named segments are unless the options say otherwise.
const shmDir = "/dev/shm"

// A mapping is the server's memory in this process. It is never copied to a forked child,
// which could otherwise write there after its parent's slots were given to others.
type mapping struct {
	data     []byte
	readOnly bool
}

// mapReply maps the memory that a reply to REGISTER names. fd is the descriptor passed
// with it, or -1; mapReply closes it in every case, and no descriptor stays open. Named
// memory is in dir.
func mapReply(x *proto.RegisterReply, dir string, fd int, readOnly bool) (*mapping, error) {
	switch x.ShmKind {
	case proto.ShmFd:
		if fd < 0 {
			return nil, errors.New("client: no descriptor came with the registration")
		}
	case proto.ShmNamed:
		if fd >= 0 {
			_ = unix.Close(fd) // not asked for
		}
		var err error
		if fd, err = openSegment(dir, x.ShmName, readOnly); err != nil {
			return nil, err
		}
	case proto.ShmNone:
		if fd >= 0 {
			_ = unix.Close(fd) // not asked for
		}
		return nil, errors.New("client: the server offers no shared memory")
	default:
		return nil, fmt.Errorf("client: shared memory of kind %s", x.ShmKind)
	}
	m, err := mapFD(x, fd, readOnly)
	if closed := unix.Close(fd); err == nil && closed != nil {
		_ = m.close() // the error at hand says more
		return nil, fmt.Errorf("client: close the pool's descriptor: %w", closed)
	}
	return m, err
}

// openSegment opens a named segment in dir. Links are not followed.
func openSegment(dir, name string, readOnly bool) (int, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return -1, fmt.Errorf("client: %q is no name of a segment", name)
	}
	mode := unix.O_RDWR
	if readOnly {
		mode = unix.O_RDONLY
	}
	path := filepath.Join(dir, name)
	fd, err := unix.Open(path, mode|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("client: open %s: %w", path, err)
	}
	return fd, nil
}

// mapFD verifies that fd is the announced memory and maps it.
func mapFD(x *proto.RegisterReply, fd int, readOnly bool) (*mapping, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("client: stat of the pool: %w", err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("client: the pool is no file (mode %#o)", st.Mode)
	case st.Dev != x.Dev || st.Ino != x.Inode:
		return nil, fmt.Errorf("client: the pool is file %d:%d, the server said %d:%d", st.Dev, st.Ino, x.Dev, x.Inode)
	case x.PoolSize == 0 || x.PoolSize > math.MaxInt64 || uint64(st.Size) != x.PoolSize:
		return nil, fmt.Errorf("client: the pool has %d bytes, the server said %d", st.Size, x.PoolSize)
	}
	if x.ShmKind == proto.ShmFd {
		// Without the seal anybody could truncate it under our hands.
		seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
			return nil, fmt.Errorf("client: the pool may shrink (seals %#x, %w)", seals, err)
		}
	}
	access := unix.PROT_READ | unix.PROT_WRITE
	if readOnly {
		access = unix.PROT_READ
	}
	data, err := unix.Mmap(fd, 0, int(x.PoolSize), access, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("client: map %d bytes: %w", x.PoolSize, err)
	}
	m := &mapping{data: data, readOnly: readOnly}
	if err := unix.Madvise(data, unix.MADV_DONTFORK); err != nil {
		_ = m.close() // the error at hand says more
		return nil, fmt.Errorf("client: keep the pool out of children: %w", err)
	}
	return m, nil
}

// slice returns a slot's bytes, or false if the slot is not inside the pool.
func (m *mapping) slice(s proto.Slot) ([]byte, bool) {
	size := uint64(len(m.data))
	if s.Off > size || s.Len > size-s.Off {
		return nil, false
	}
	return m.data[s.Off : s.Off+s.Len : s.Off+s.Len], true
}

// populate makes the pages of [from, to) present, so that the first use of a slot does
// not have to. It changes no bytes.
func (m *mapping) populate(from, to int64) error {
	advice := unix.MADV_POPULATE_WRITE
	if m.readOnly {
		advice = unix.MADV_POPULATE_READ
	}
	for {
		err := unix.Madvise(m.data[from:to], advice)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return err
	}
}

// close unmaps the memory. Every slice into it becomes invalid.
func (m *mapping) close() error { return unix.Munmap(m.data) }
