// Package load is the client side of the benchmarks, kept thin because it shares the machine
// with the server that it measures: raw system calls on Unix sockets, or one io_uring for
// many connections, on one locked thread; nothing is allocated while it measures.
//
// A [Script] is what one request after another looks like in the cache's protocol (or an
// echo's). [Closed] plays one on a blocking connection, [Crowd] many on many connections.
// An [Op] is one set or get of a peer with a protocol of its own.
package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest time that is told apart, in nanoseconds.
const longest = int64(60 * time.Second)

// NewTimes makes a histogram of nanoseconds with three digits.
func NewTimes() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, 3) }

// A Script plays the client of one connection, or one of several that share it. It is told
// of every frame that carries its id.
type Script interface {
	// Step takes a reply, nil at the start, and returns what is to be sent next: dst with
	// something appended, or memory of its own that stays as it is until the next Step. Done
	// tells that the reply ended an operation, of which the next has begun with what is sent.
	Step(dst, reply []byte) (out []byte, done bool, err error)
}

// An Op does one thing and waits for its end.
type Op interface{ Do() error }

// base is the origin of all times of this process.
var base = time.Now()

// now is monotonic, in nanoseconds.
func now() int64 { return int64(time.Since(base)) }

// record puts a time into h; what is longer than it can hold counts as the longest.
func record(h *hdrhistogram.Histogram, ns int64) {
	_ = h.RecordValue(min(max(ns, 1), longest)) // it is within the bounds
}
