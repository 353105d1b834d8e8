package engine

import (
	"time"

	"github.com/slotcache/slotcache/proto"
)

// EventKind says what happened.
type EventKind uint8

// The events. Each names the fields that are set beside Kind and Now.
const (
	EventOpen      EventKind = iota // a connection was accepted: Conn, Peer
	EventFrame                      // a whole frame (without its payload) arrived: Conn, Header, Body
	EventPayload                    // a payload asked for with Host.Receive is in the pool: Op, Res (0, or negative when the connection broke)
	EventSent                       // a Host.SendPool ended: Op, Res (0, or negative)
	EventClosed                     // a connection is closed and its ID will not be used again: Conn
	EventDisk                       // an I/O of the log ended: Disk, Res (bytes or -errno), Sum
	EventGone                       // a watched process has ended: Watch
	EventReady                      // more of the pool is populated: Res (bytes from its start)
	EventPopulated                  // no more of the pool will be populated, be it all of it or not
	EventSighted                    // the opinion on a Host.Sight: Op is its batch, Sum has a bit for each object that is to be admitted, the first one lowest
	EventTick                       // time passed: only Now
)

// An Event is one thing that happened outside. Now is the time since start on a
// monotonic clock and never goes back. Body is valid during Step only.
type Event struct {
	Kind   EventKind
	Now    time.Duration
	Conn   ConnID
	Peer   Peer
	Header proto.Header
	Body   []byte
	Op     OpID
	Disk   uint64 // seglog.IO.ID
	Res    int64
	Sum    uint64
	Watch  WatchID
}

// A Peer is what the kernel says of a connection's other end.
type Peer struct {
	PID     int32  // 0 when unknown (another host, another PID namespace)
	Process uint64 // another number of the process, which no other ever has, or 0; [Host.Process] tells it when it is needed
	Local   bool   // a Unix socket: file descriptors can be passed

	UID    uint32   // of a Unix socket's peer
	Groups []uint32 // the same's, where the host was asked for them
}

// known says that the peer's process can be told from others.
func (p *Peer) known() bool { return p.PID != 0 || p.Process != 0 }
