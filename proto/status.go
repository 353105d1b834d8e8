package proto

import "strconv"

// A Status is the outcome of a request, or of one key of it. It is 0 in requests.
type Status uint16

// The statuses.
const (
	StatusOK            Status = iota // done
	StatusMiss                        // an object asked for is not there
	StatusExists                      // the object is there already
	StatusBusy                        // another writer has the key, or a limit is reached; try later
	StatusNoSpace                     // no memory can be had
	StatusTooLarge                    // the object fits neither its layout nor the pool
	StatusStale                       // the handle is not live: ended, fenced by a delete, timed out or never given
	StatusStaleEpoch                  // the request carries another boot id than the server's
	StatusBadRequest                  // the request is malformed or makes no sense here
	StatusBadVersion                  // no common version of the protocol
	StatusUnsupported                 // the server does not know or do this operation
	StatusNotRegistered               // the connection has no registered instance
	StatusDenied                      // a wrong token, a handle of another namespace, a write by a read-only instance
	StatusIO                          // reading or writing the disk failed
	StatusOKNotDurable                // done, but the disk could not be told: it may be undone by a restart
	StatusTimeout                     // the wait budget ran out
	StatusReserved                    // of one key of a prepare: a slot was granted
	StatusDraining                    // the instance or the server is ending and starts nothing new
	StatusMismatch                    // the instance is registered with other layouts
)

var statusNames = [...]string{
	StatusOK:            "ok",
	StatusMiss:          "miss",
	StatusExists:        "exists",
	StatusBusy:          "busy",
	StatusNoSpace:       "no_space",
	StatusTooLarge:      "too_large",
	StatusStale:         "stale",
	StatusStaleEpoch:    "stale_epoch",
	StatusBadRequest:    "bad_request",
	StatusBadVersion:    "bad_version",
	StatusUnsupported:   "unsupported",
	StatusNotRegistered: "not_registered",
	StatusDenied:        "denied",
	StatusIO:            "io",
	StatusOKNotDurable:  "ok_not_durable",
	StatusTimeout:       "timeout",
	StatusReserved:      "reserved",
	StatusDraining:      "draining",
	StatusMismatch:      "mismatch",
}

// Valid reports whether s is a status of this version of the protocol.
func (s Status) Valid() bool { return s <= StatusMismatch }

// Done reports whether s says that the whole request was carried out. Only such
// a reply has its operation's body; that of any other reply is empty.
func (s Status) Done() bool { return s == StatusOK || s == StatusOKNotDurable }

// String returns the status' name, in snake case.
func (s Status) String() string {
	if !s.Valid() {
		return "status_" + strconv.Itoa(int(s))
	}
	return statusNames[s]
}
