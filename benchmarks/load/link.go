package load

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// patience is how long a reply may take before a benchmark gives up.
const patience = 30 * time.Second

// A Link is a blocking connection that cuts what it receives into frames. It belongs to one
// goroutine.
type Link struct {
	fd   int
	in   []byte // received: in[r:w] is not taken yet
	r, w int
	rest int  // payload of the last frame that was not taken
	long bool // what was sent last took several pieces, and nothing was received since
}

// connect opens a connection to a Unix socket.
func connect(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("load: socket: %w", err)
	}
	limit := unix.NsecToTimeval(int64(patience))
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	}
	for err == nil {
		// A listener with a full backlog makes a blocking connect wait.
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err == nil {
			return fd, nil
		}
		if err == unix.EINTR {
			err = nil
		}
	}
	_ = unix.Close(fd) // the error at hand says more
	return -1, fmt.Errorf("load: connect to %s: %w", path, err)
}

// Dial connects to a Unix socket.
func Dial(path string) (*Link, error) {
	fd, err := connect(path)
	if err != nil {
		return nil, err
	}
	return &Link{fd: fd, in: make([]byte, 2*proto.MaxFrame)}, nil
}

// Close closes the connection.
func (l *Link) Close() error { return unix.Close(l.fd) }

// Send sends all of p.
func (l *Link) Send(p []byte) error {
	l.long = len(p) > proto.SendSize(len(p))
	return send(l.fd, p)
}

// Frame returns the next frame's header and body. It is valid until the next call. A
// payload that comes with it is for [Link.Payload] to take first.
func (l *Link) Frame() ([]byte, error) {
	if l.rest > 0 {
		panic("load: the payload before was not taken")
	}
	if err := l.fill(proto.HeaderSize); err != nil {
		return nil, err
	}
	h, err := proto.ParseHeader(l.in[l.r:l.w])
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	size := proto.HeaderSize + int(h.Body)
	if err := l.fill(size); err != nil {
		return nil, err
	}
	frame := l.in[l.r : l.r+size]
	l.r += size
	l.rest = int(h.Payload())
	return frame, nil
}

// Payload receives the payload of the last frame into dst, which must have its length.
func (l *Link) Payload(dst []byte) error {
	if len(dst) != l.rest {
		return fmt.Errorf("load: a payload of %d bytes, want %d", l.rest, len(dst))
	}
	l.rest = 0
	n := copy(dst, l.in[l.r:l.w])
	l.r += n
	for n < len(dst) {
		k, err := recv(l.fd, dst[n:], 0)
		if err != nil {
			return err
		}
		n += k
	}
	return nil
}

// fill receives until there are n bytes.
func (l *Link) fill(n int) error {
	if l.r == l.w {
		l.r, l.w = 0, 0
	}
	if l.r+n > len(l.in) {
		l.w = copy(l.in, l.in[l.r:l.w])
		l.r = 0
	}
	for l.w-l.r < n {
		if l.long {
			if err := readable(l.fd); err != nil {
				return err
			}
			l.long = false
		}
		k, err := recv(l.fd, l.in[l.w:], 0)
		if err != nil {
			return err
		}
		l.w += k
	}
	return nil
}

// frameSize is the whole size of the frame that begins with p, of which there are four bytes
// at least.
func frameSize(p []byte) int { return int(binary.LittleEndian.Uint32(p)) }

// frameID is its request id.
func frameID(p []byte) uint64 { return binary.LittleEndian.Uint64(p[16:]) }
