package client

import "sync/atomic"

// A handle is what a Store, Retrieval and Lease have in common: a session that is kept
// until it is ended, once.
type handle struct {
	s     *session
	ended atomic.Bool
}

// finish ends the handle for the one caller that gets true; that one drops the handle's
// reference on the session when it is through.
func (h *handle) finish() bool { return h.ended.CompareAndSwap(false, true) }
