package seglog

// BlockSize is the unit of the disk format, in bytes: every offset and length of an I/O is a multiple of it.
const BlockSize = 4096

// AlignUp rounds n up to a multiple of [BlockSize].
func AlignUp(n int64) int64 { return (n + BlockSize - 1) &^ (BlockSize - 1) }

// A Key names an object: the same hash under another namespace or layout is another object.
type Key struct {
	Namespace, Layout uint64
	Hash              [32]byte
}

// A SegmentID numbers a segment file, from 0 to the number of segments less one.
type SegmentID uint32

// An Addr is a place in a segment file. Off is in bytes.
type Addr struct {
	Segment SegmentID
	Off     int64
}

// A Mem is a range of the driver's memory, in bytes. With Own it lies in the log's arena ([Config.Arena]), else in the
// driver's pool, whose offsets the log takes from [Log.Put] and [Log.Read] and never looks behind.
type Mem struct {
	Off, Len int64
	Own      bool
}

// A Token is the caller's name for what it asked; the log hands it back in the [Outcome].
type Token uint64

// An IOKind says what the driver has to do for an [IO].
type IOKind uint8

// The kinds of I/O. Done's res is Mem.Len for reads, writes, sums and copies, 0 for the others; or -errno.
const (
	// IORead reads Mem.Len bytes at Addr into Mem.
	IORead IOKind = iota + 1
	// IOWrite writes Mem to Addr.
	IOWrite
	// IOSum computes the xxh3-64 of Mem; Addr means nothing.
	IOSum
	// IOCreate makes the file of Addr.Segment, preallocated to Mem.Len bytes (Mem is no memory here), and its name durable.
	// A file that is there already is replaced.
	IOCreate
	// IOSync makes what was written to Addr.Segment durable (fdatasync).
	IOSync
	// IOCopy copies Mem.Len bytes from IO.From to Mem, which is as long: one of them is in the arena, the other in the driver's
	// pool. Addr means nothing.
	IOCopy
	// IORemove removes the file of Addr.Segment and makes that durable. A file that is not there is a success.
	IORemove
	// IOSpace asks what the file system has free, which [Log.SetFree] tells before this is done. Addr means nothing.
	IOSpace
)

// String names the kind.
func (k IOKind) String() string {
	switch k {
	case IORead:
		return "read"
	case IOWrite:
		return "write"
	case IOSum:
		return "sum"
	case IOCreate:
		return "create"
	case IOSync:
		return "sync"
	case IOCopy:
		return "copy"
	case IORemove:
		return "remove"
	case IOSpace:
		return "space"
	}
	return "unknown"
}

// An IO is something for the driver to do. It is the log's, and valid until [Log.Done] is called with its ID.
type IO struct {
	ID   uint64 // index and generation: a late or second completion is recognised
	Kind IOKind
	Addr Addr
	Mem  Mem
	From Mem  // of a copy
	Load bool // somebody waits for a read
	// Again: of a read, that what came the first time was not what was written. Where the kernel knows the memory by its pages
	// (registered buffers), they may have been exchanged: the driver should not have it use those any more.
	Again bool
}

// An OutcomeKind says which request an [Outcome] answers.
type OutcomeKind uint8

// The kinds of outcome.
const (
	// OutcomePut ends a [Log.Put]: the source memory is the caller's again.
	OutcomePut OutcomeKind = iota + 1
	// OutcomeRead ends a [Log.Read]: the destination is the caller's again, and holds the value only with ResultOK.
	OutcomeRead
	// OutcomeFence ends a [Log.Delete] or [Log.Clear] that returned true.
	OutcomeFence
)

// String names the kind.
func (k OutcomeKind) String() string {
	switch k {
	case OutcomePut:
		return "put"
	case OutcomeRead:
		return "read"
	case OutcomeFence:
		return "fence"
	}
	return "unknown"
}

// A Result says how a request ended.
type Result uint8

// The results.
const (
	// ResultOK: a put is on disk and visible, a read is verified, a fence is written.
	ResultOK Result = iota
	// ResultMiss: a read found the record deleted, replaced, evicted, or not what was written (it is then gone).
	ResultMiss
	// ResultIO: an I/O failed. A put is not visible; whether its bytes show up after a restart is open until the key is put or
	// deleted again.
	ResultIO
	// ResultFull: the record cannot be stored: no room can be made.
	ResultFull
	// ResultNotDurable: a fence holds in memory; its record is still owed to the disk. Nothing is served until it is written.
	ResultNotDurable
	// ResultSuperseded: a put was overtaken by a delete, a clear or a newer put of its key, and is not visible.
	ResultSuperseded
)

// String names the result.
func (r Result) String() string {
	switch r {
	case ResultOK:
		return "ok"
	case ResultMiss:
		return "miss"
	case ResultIO:
		return "io"
	case ResultFull:
		return "full"
	case ResultNotDurable:
		return "not_durable"
	case ResultSuperseded:
		return "superseded"
	}
	return "unknown"
}

// An Outcome answers one request.
type Outcome struct {
	Token  Token
	Kind   OutcomeKind
	Result Result
}

// A Reader reads the segment files at start, blocking.
type Reader interface {
	// Segments lists the segment files that exist, in any order.
	Segments() ([]SegmentID, error)
	// ReadAt reads like io.ReaderAt. p is a multiple of BlockSize long, begins at an offset that is one, and is aligned for
	// direct I/O if Config.Arena is.
	ReadAt(id SegmentID, p []byte, off int64) (int, error)
	// Size is the file's size in bytes.
	Size(id SegmentID) (int64, error)
}

// A Report says what [Recover] found.
type Report struct {
	Segments     int      // segment files found
	Sealed       int      // of these, loaded from their footer
	Scanned      int      // of these, without a valid footer and scanned
	Records      int      // keys visible
	Tombstones   int      // tombstone and clear records seen
	Superseded   int      // put records seen that are not visible: overwritten, deleted or cleared
	Dropped      int      // segments left out because of Config.MaxEntries
	Ignored      []string // files not used, each with the reason
	BytesScanned int64    // bytes read
}
