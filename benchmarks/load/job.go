package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Job is one measurement of a worker process. What does not concern its kind is zero.
type Job struct {
	Kind   Kind   `json:"kind"`
	Socket string `json:"socket,omitempty"` // path of the server's
	Conns  int    `json:"conns,omitempty"`  // of a crowd; 0: one that blocks
	Depth  int    `json:"depth,omitempty"`  // requests under way on each connection of a crowd
	Count  int    `json:"count,omitempty"`  // keys of a request, or how many objects or connections
	Size   int64  `json:"size,omitempty"`   // of a value, in bytes
	Arena  int64  `json:"arena,omitempty"`  // memory that a copy goes over, in bytes; of a churn see there
	PID    int    `json:"pid,omitempty"`    // of the server, to tell its processor time
	Traced bool   `json:"traced,omitempty"` // tell the server's system calls too
	Allocs string `json:"allocs,omitempty"` // tell the server's heap allocations too, by its metrics at this HOST:PORT
	Cold   bool   `json:"cold,omitempty"`   // map the pool anew and do not populate it
	Among  int    `json:"among,omitempty"`  // so many workers do this at once, and leave each other's objects alone
	Last   bool   `json:"last,omitempty"`   // only when no other process wants the processor: what is measured is another's
	Span   Span   `json:"span"`
	Start  int64  `json:"start,omitempty"` // when the measured part begins at the earliest, in nanoseconds since 1970
}

// A Kind is what a job does.
type Kind string

// The kinds. A set or get is of values of Job.Size; those that get have their values set
// first, which is not measured.
const (
	KindEcho         Kind = "echo"          // frames to a server that sends them back
	KindSpin         Kind = "spin"          // the same, never sleeping
	KindPing         Kind = "ping"          // PING
	KindLookup       Kind = "lookup"        // LOOKUP of Count keys that are there
	KindStore        Kind = "store"         // prepare and commit of Count objects, nothing copied
	KindRetrieve     Kind = "retrieve"      // hold and slots, nothing copied; release without reply
	KindCopy         Kind = "copy"          // memory to warm shared memory, Count pieces, no server
	KindTouch        Kind = "touch"         // new memory touched, page by page, no server
	KindSet          Kind = "set"           // prepare, copy into the slots of Count objects, commit
	KindSetStream    Kind = "set_stream"    // the same, each commit together with the next prepare
	KindSetAhead     Kind = "set_ahead"     // the same, with a slot ready for the next value always
	KindSetInline    Kind = "set_inline"    // prepare, then commit with the bytes
	KindPut          Kind = "put"           // the bytes in the request: one round trip
	KindGet          Kind = "get"           // retrieve and copy out
	KindGetInPlace   Kind = "get_in_place"  // retrieve and use in place
	KindGetInline    Kind = "get_inline"    // retrieve with the bytes in the reply
	KindRedisSet     Kind = "redis_set"     // SET
	KindRedisGet     Kind = "redis_get"     // GET
	KindMemcachedSet Kind = "memcached_set" // set
	KindMemcachedGet Kind = "memcached_get" // get
	KindRawSet       Kind = "raw_set"       // bytes to a socket, and a byte back
	KindRawGet       Kind = "raw_get"       // bytes from a socket
	KindChurn        Kind = "churn"         // stores that go to disk, and loads from there of what Arena bytes ago was stored
	KindFetch        Kind = "fetch"         // loads from disk, one after the other, of Count objects in turn
	KindStall        Kind = "stall"         // PINGs while Count keys are looked up by another connection
	KindHold         Kind = "hold"          // open Count connections and keep them until the worker ends
	KindFill         Kind = "fill"          // store Count objects
)

// A Result is what came of a job. Times are in nanoseconds an operation.
type Result struct {
	Error    string        `json:"error,omitempty"`
	Ops      int64         `json:"ops"`
	Took     time.Duration `json:"took"`
	Times    []byte        `json:"times,omitempty"` // a histogram's own encoding
	Idle     []byte        `json:"idle,omitempty"`  // of a stall: the same without lookups
	CPU      time.Duration `json:"cpu"`             // of the server
	Syscalls uint64        `json:"syscalls"`        // of the server
	Mallocs  float64       `json:"mallocs"`         // of the server, less those of telling them
	Frames   float64       `json:"frames"`          // that the server took meanwhile
}

// Histogram decodes times.
func Histogram(p []byte) (*hdrhistogram.Histogram, error) {
	h, err := hdrhistogram.Decode(p)
	if err != nil {
		return nil, fmt.Errorf("load: times: %w", err)
	}
	return h, nil
}

// Work is a worker process: it does the jobs that it reads, one JSON value each, and writes
// a result for each, until the input ends.
func Work(in io.Reader, out io.Writer) error {
	runtime.GOMAXPROCS(2) // a pinned process starts with one, and waits here keep theirs
	debug.SetGCPercent(400)
	jobs, results := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	w := new(worker)
	for {
		var j Job
		if err := jobs.Decode(&j); err != nil {
			err = errors.Join(ignoreEOF(err), w.close())
			return err
		}
		r, err := w.do(&j)
		if err != nil {
			r.Error = fmt.Sprintf("%s: %v", j.Kind, err)
		}
		if err := results.Encode(&r); err != nil {
			return fmt.Errorf("load: result: %w", err)
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("load: job: %w", err)
}
