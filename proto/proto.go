// Package proto defines the frames that workers and the cache server exchange:
// their layout, operations, statuses and limits, and how a stream of bytes is
// cut into frames.
//
// A frame is a [Header] of 32 bytes, a body that holds one payload structure
// (such as [Lookup] or [LookupReply]) and, in inline transport only, a payload
// of raw bytes. All integers are little-endian. Every structure X has a function
// AppendX that appends its encoding to a slice and a function ParseX that decodes
// it into a structure that may be used again and again; neither allocates once
// the slices have grown.
//
// The package does no I/O. What a peer got wrong is an error, [ErrFrame] or
// [ErrBody]; what the caller got wrong (a name too long to encode) is a panic.
package proto

import "errors"

// Version is the version of the framing, the only one that [ParseHeader] takes.
const Version = 1

// Limits of the protocol. Sizes are in bytes.
const (
	// HeaderSize is the length of a frame's header.
	HeaderSize = 32
	// MaxFrame is the longest header and body together, inline payload excluded.
	MaxFrame = 512 << 10
	// MaxBody is the longest body.
	MaxBody = MaxFrame - HeaderSize
	// MaxPayload is the longest inline payload.
	MaxPayload = 128 << 20
	// MaxKeys is the largest number of keys, leases or results in one frame.
	MaxKeys = 4096
	// MaxName is the longest string, of names, namespaces, layouts and tokens.
	MaxName = 64
	// KeySize is the length of a key.
	KeySize = 32
	// MaxLayouts is the largest number of layouts of one registration.
	MaxLayouts = 16
	// MaxDims is the largest number of dimensions of a layout.
	MaxDims = 8
	// MaxCounters is the largest number of counters in a [StatsReply].
	MaxCounters = 2048
	// MaxInstances is the largest number of instances in one [InstancesReply].
	MaxInstances = 1024
	// MaxTransfers is the largest number of transfers in one [TransfersReply].
	MaxTransfers = 4096
	// MaxBitmap is the longest bitmap of a [LookupReply]: a bit a key.
	MaxBitmap = MaxKeys / 8
)

// Lengths of encoded elements, in bytes; those of elements with strings are the
// shortest ones.
const (
	slotSize     = 8 + 8
	resultSize   = 2 + slotSize
	layoutSize   = 1 + 4 + 8
	counterSize  = 1 + 8
	instanceSize = 8 + 4 + 1 + 1 + 4 + 4*8 + 1 + 1
	transferSize = 8 + 1 + 1 + 8 + 4 + 4 + 8 + 8
)

// The largest body of every list-carrying operation fits into a frame: each of
// these constants is a compile error when it does not.
const (
	_ = uint(MaxBody - (8 + 1 + 1 + 1 + MaxName + 1 + MaxName + 4 + MaxLayouts*(layoutSize+MaxName+4*MaxDims))) // register
	_ = uint(MaxBody - (4 + 1 + 1 + 1 + MaxName + 4*8 + 4 + MaxLayouts*8))                                      // register's reply
	_ = uint(MaxBody - (2 + 1 + 1 + 2 + 4 + 4 + MaxKeys*KeySize))                                               // lookup
	_ = uint(MaxBody - (3*4 + 8 + 4 + MaxBitmap + 4 + MaxKeys*slotSize))                                        // lookup's reply
	_ = uint(MaxBody - (2 + 4 + 4 + MaxKeys*8 + 4 + MaxKeys*KeySize))                                           // prepare_store
	_ = uint(MaxBody - (8 + 4 + MaxKeys*resultSize))                                                            // prepare_store's reply
	_ = uint(MaxBody - (8 + 4 + MaxKeys*8))                                                                     // commit_store, release
	_ = uint(MaxBody - (2 + 1 + 4 + 8 + 4 + 4 + 4 + MaxKeys*KeySize))                                           // prepare_retrieve
	_ = uint(MaxBody - (8 + 4 + MaxKeys*slotSize))                                                              // prepare_retrieve's reply
	_ = uint(MaxBody - (2 + 1 + 4 + 4 + MaxKeys*KeySize))                                                       // delete, pin, unpin, touch
	_ = uint(MaxBody - (4 + MaxCounters*(counterSize+MaxName)))                                                 // stats' reply
	_ = uint(MaxBody - (8 + 4 + MaxInstances*(instanceSize+2*MaxName)))                                         // instances' reply
	_ = uint(MaxBody - (8 + 4 + MaxTransfers*transferSize))                                                     // transfers' reply
)

// Errors of parsing. Those returned are wrapped with what was wrong.
var (
	// ErrFrame says that the framing is broken, so that nothing more can be
	// read from the stream: the connection must be closed.
	ErrFrame = errors.New("proto: broken frame")
	// ErrBody says that a body is malformed. The stream is still in step; the
	// request is to be answered with [StatusBadRequest].
	ErrBody = errors.New("proto: malformed body")
)

// A Key names an object within a namespace and a layout. Clients hash longer
// names to it.
type Key [KeySize]byte

// A Slot is an extent of the pool that holds one object's bytes.
type Slot struct {
	Off uint64 // from the start of the pool, in bytes; 0 in inline transport
	Len uint64 // of the object, in bytes
}
