package client

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// fdsMax is how many passed descriptors are kept until a reply takes them. The protocol
// passes one, with the reply to REGISTER.
const fdsMax = 4

// A fdReader reads a connection's bytes and keeps the descriptors that come with them.
// It belongs to the link's reader.
type fdReader struct {
	conn net.Conn
	fds  []int // in the order of their coming
	oob  [128]byte
}

// Read reads the next bytes of the stream.
func (r *fdReader) Read(p []byte) (int, error) {
	conn, ok := r.conn.(*net.UnixConn)
	if !ok {
		return r.conn.Read(p)
	}
	n, oob, _, _, err := conn.ReadMsgUnix(p, r.oob[:])
	if err != nil {
		return 0, err // n is negative after some errors
	}
	if oob > 0 {
		err = r.keep(r.oob[:oob])
	}
	return n, err
}

// keep takes the descriptors out of a control message. What nobody will ask for is closed.
func (r *fdReader) keep(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("client: control message: %w", err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials and the like
		}
		r.fds = append(r.fds, fds...)
	}
	for len(r.fds) > fdsMax {
		last := len(r.fds) - 1
		_ = unix.Close(r.fds[last]) // never used
		r.fds = r.fds[:last]
	}
	return nil
}

// take returns the oldest descriptor, which is the caller's from then on, or -1.
func (r *fdReader) take() int {
	if len(r.fds) == 0 {
		return -1
	}
	fd := r.fds[0]
	r.fds = append(r.fds[:0], r.fds[1:]...)
	return fd
}

// close closes the descriptors that nobody took.
func (r *fdReader) close() {
	for _, fd := range r.fds {
		_ = unix.Close(fd) // never used
	}
	r.fds = nil
}
