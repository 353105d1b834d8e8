package client

import (
	"errors"
	"fmt"

	"github.com/slotcache/slotcache/proto"
)

// Errors of the package. Those returned are wrapped with what happened; compare with
// [errors.Is].
var (
	// ErrClosed says that the connection or worker was closed by this program.
	ErrClosed = errors.New("client: closed")
	// ErrStale says that a handle is not live any more: its connection was lost, the
	// server was restarted, the transfer timed out or was fenced by a delete, or the
	// handle was ended before. What was written through it is not published. What was read
	// through it is right all the same: the server gives memory that a living process may
	// still be using to nobody else.
	ErrStale = errors.New("client: stale handle")
	// ErrDisconnected says that the connection was lost while the call was under way, or
	// could not be made again in time. Whether the server carried out the request is not
	// known.
	ErrDisconnected = errors.New("client: connection lost")
	// ErrReply says that the server's reply breaks the protocol. The connection is closed.
	ErrReply = errors.New("client: malformed reply")
)

// ErrMiss matches, by [errors.Is], every [StatusError] that says that an object is not
// there.
var ErrMiss error = &StatusError{Status: proto.StatusMiss}

// A StatusError is a refusal by the server.
type StatusError struct {
	Op     proto.Op // the request that was refused
	Status proto.Status
}

// Error names the request and the status.
func (e *StatusError) Error() string {
	if e.Op == 0 {
		return "client: " + e.Status.String()
	}
	return fmt.Sprintf("client: %s: %s", e.Op, e.Status)
}

// Is reports whether target is a StatusError of the same status that names no request or
// the same one. Stale statuses are [ErrStale] too.
func (e *StatusError) Is(target error) bool {
	if target == ErrStale {
		return e.Status == proto.StatusStale || e.Status == proto.StatusStaleEpoch
	}
	t, ok := target.(*StatusError)
	return ok && t.Status == e.Status && (t.Op == 0 || t.Op == e.Op)
}

// statusOf returns the status of a StatusError within err, or StatusOK.
func statusOf(err error) proto.Status {
	var s *StatusError
	if errors.As(err, &s) {
		return s.Status
	}
	return proto.StatusOK
}

// malformed wraps what is wrong with a reply.
func malformed(op proto.Op, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrReply, op, fmt.Sprintf(format, args...))
}
