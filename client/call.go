package client

import (
	"fmt"
	"sync"

	"github.com/slotcache/slotcache/proto"
)

// callState is where a call is in its life. It changes under its link's mutex.
//
//	        send            header            read, or lost
//	idle ---------> waiting -------> reading --------------> done
//	 ^                 |  |             |                      |
//	 |                 |  +-------------|----------------------+ lost
//	 |                 |  caller left   | caller left          |
//	 |                 +--> abandoned <-+                      |
//	 |     disposed            |                               | taken
//	 +-------------------------+-------------------------------+
//
// The caller owns a call that is idle or done, the link one that is waiting, and the
// link's reader one that is reading or abandoned.
type callState uint8

const (
	callIdle callState = iota
	callWaiting
	callReading
	callDone
	callAbandoned
	callStates int = iota
)

// callMoves are the legal moves: row from, column to.
var callMoves = [callStates][callStates]bool{
	callIdle:      {callWaiting: true},
	callWaiting:   {callReading: true, callDone: true, callAbandoned: true},
	callReading:   {callDone: true, callAbandoned: true},
	callDone:      {callIdle: true},
	callAbandoned: {callIdle: true},
}

// String returns the state's name.
func (s callState) String() string {
	switch s {
	case callIdle:
		return "idle"
	case callWaiting:
		return "waiting"
	case callReading:
		return "reading"
	case callDone:
		return "done"
	case callAbandoned:
		return "abandoned"
	}
	return fmt.Sprintf("callState(%d)", uint8(s))
}

// A call is one request and its reply. Calls and their buffers are used again.
type call struct {
	op         proto.Op
	flags      proto.Flags
	frame      []byte          // room for the header, then the request's body
	payload    [][]byte        // what follows the frame
	payloadMax uint32          // of the reply, in bytes
	handle     uint64          // the transfer that the request ends, if it does
	stop       <-chan struct{} // ends the call with ErrClosed when closed; may be nil

	state callState
	done  chan struct{} // one token when state becomes done

	header proto.Header // of the reply
	body   []byte       // of the reply
	values []byte       // the reply's payload, never used again
	fd     int          // passed with the reply, or -1
	err    error        // why there is no reply
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// frameRoom stands for the header of a frame under construction.
var frameRoom [proto.HeaderSize]byte

// newCall returns an idle call without a body; the caller appends one to its frame.
func newCall(op proto.Op) *call {
	c, ok := calls.Get().(*call)
	if !ok {
		panic("client: the pool of calls holds something else")
	}
	*c = call{op: op, frame: append(c.frame[:0], frameRoom[:]...), done: c.done, body: c.body[:0], fd: -1}
	return c
}

// free gives the call back to the pool. Its body must not be used any more.
func (c *call) free() {
	if c.state != callIdle {
		c.moveTo(callIdle)
	}
	c.payload, c.values, c.err = nil, nil, nil
	calls.Put(c)
}

// rewind makes a done call ready to be sent again.
func (c *call) rewind() {
	c.moveTo(callIdle)
	c.err, c.values, c.fd = nil, nil, -1
}

// moveTo changes the state. An illegal move is a panic.
func (c *call) moveTo(to callState) {
	if !callMoves[c.state][to] {
		panic(fmt.Sprintf("client: call of %s moves from %s to %s", c.op, c.state, to))
	}
	c.state = to
}

// seal writes the header in front of the request's body.
func (c *call) seal(id, boot uint64) {
	var n uint32
	for _, p := range c.payload {
		n += uint32(len(p))
	}
	body := uint32(len(c.frame) - proto.HeaderSize)
	proto.AppendHeader(c.frame[:0], proto.Header{
		Size:    proto.HeaderSize + body + n,
		Version: proto.Version,
		Op:      c.op,
		Flags:   c.flags,
		Body:    body,
		Request: id,
		Boot:    boot,
	})
}
