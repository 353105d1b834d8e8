package engine

import (
	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
)

// ConnID names a connection: the index of its place in the server's table and the
// generation of that place, so that what is late for a closed connection never
// reaches its successor. The server makes them; index < Config.Conns.
type ConnID uint64

// NewConnID joins an index and a generation.
func NewConnID(index, generation uint32) ConnID {
	return ConnID(uint64(generation)<<32 | uint64(index))
}

// Index is the place in the server's table.
func (c ConnID) Index() uint32 { return uint32(c) }

// Generation is the life of that place.
func (c ConnID) Generation() uint32 { return uint32(c >> 32) }

// OpID names work the host does for the engine and reports back: index and
// generation of the engine's op table.
type OpID uint64

// WatchID names a watched process: index and generation of the engine's instance
// table.
type WatchID uint64

// A Host carries out what the engine decides. Its methods only queue work: none calls
// back into the engine before [Engine.Step] or [Engine.Flush] has returned. Slices given
// to it are valid during the call only. A ConnID that is not open any more is ignored,
// except that work with an OpID is still reported exactly once.
type Host interface {
	// Send queues one whole frame.
	Send(c ConnID, frame []byte)

	// SendPool queues a frame whose payload is the given parts of the pool, in order.
	// The parts belong to the kernel until EventSent with this op, which comes exactly
	// once, whether the bytes went out or the connection broke.
	SendPool(c ConnID, frame []byte, parts []table.Extent, op OpID)

	// SendPoolFD queues a frame with the pool's file descriptor as ancillary data.
	SendPoolFD(c ConnID, frame []byte, access PoolAccess)

	// Receive directs the payload of the frame being stepped into the given parts of the
	// pool, in order; their lengths add up to the frame's payload. EventPayload with this
	// op comes exactly once, when all of it has arrived or the connection broke. The
	// connection's next frame is stepped only after that. A payload that no Receive
	// claims during Step is read and thrown away.
	Receive(c ConnID, parts []table.Extent, op OpID)

	// Hangup closes the connection once what is queued on it has gone out (or at once if
	// it does not go out within a bounded time). EventClosed follows.
	Hangup(c ConnID)

	// Passable says whether the pool's descriptor may be passed on connection c: not if its peer
	// has not read those that it was passed before. The kernel allows a user so many of them at a time.
	Passable(c ConnID) bool

	// Process tells a number of the process that made connection c that no other ever has, or 0 where there is none: its PID
	// may be another's by now, while a child of it keeps the connection. False: it cannot be told now, but later perhaps. It is
	// asked when a client registers, once more after a false: it costs the host some system calls.
	Process(c ConnID) (number uint64, ok bool)

	// Watchable says whether the process that made connection c lives and can be watched. It
	// is asked when a client registers for shared memory, not before: to watch a process
	// costs the host a descriptor.
	Watchable(c ConnID) bool

	// Watch asks for EventGone when the process that made c has ended, even after c is
	// closed. Only in the step in which Watchable has said that it can be.
	Watch(c ConnID, w WatchID)

	// Unwatch ends a Watch. An EventGone already under way may still arrive; the engine
	// knows it by its generation.
	Unwatch(w WatchID)

	// Kill ends the process of a Watch by SIGKILL, as far as the host may. It does not wait:
	// EventGone tells when the process has ended.
	Kill(w WatchID) bool

	// Quiet says that nothing of a connection is under way: all that has arrived from it was
	// stepped, and it has taken all that it is owed.
	Quiet(c ConnID) bool

	// Hears says that a reply to c may still arrive: c takes what is sent, and its peer is not known to have gone.
	Hears(c ConnID) bool

	// Tell says something for the log.
	Tell(n *Notice)

	// Sight tells of sightings of objects, 64 at most, by hashes of their names. EventSighted with
	// this batch comes exactly once; objects are not kept waiting for it long. Only with AdmitTinyLFU.
	Sight(batch int, hashes []uint64)

	// DiskRoom is how many more calls of Disk the host takes now.
	DiskRoom() int

	// Disk starts one I/O of the segment log. EventDisk with its ID comes exactly once.
	// The IO is valid during the call only; the memory it names belongs to the kernel
	// until that event.
	Disk(io *seglog.IO)
}

// PoolAccess is what a passed descriptor of the pool allows.
type PoolAccess uint8

// The kinds of access.
const (
	PoolReadWrite PoolAccess = iota
	PoolReadOnly
)
