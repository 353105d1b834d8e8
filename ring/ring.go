// Package ring submits I/O to the kernel and hands back its completions.
//
// [Interface] is what the event loops of this project are written against: operations are queued by methods that return at
// once, one call gives them to the kernel and waits, and what is done comes back as values that carry the caller's [Tag].
// There are no callbacks, channels or goroutines in it. [Uring] carries all of it (sockets, files, timers, wake-ups) over one
// io_uring; an implementation by other means passes the same suite, package ringtest.
//
// Everything runs on one goroutine, locked to its thread, except [Interface.Wake] and [Interface.Due].
//
// # Who owns what
//
// A buffer given to Read, Write, Send or SendFD belongs to the kernel until that operation's completion was handed out, whatever
// happens to the caller's reasons for it meanwhile; the ring keeps it reachable. It is shorter than 2 GiB. A descriptor stays open
// until the last completion of the operations on it: closing it does not end them, shutdown(2) and Pause do.
package ring

import (
	"errors"
	"time"
)

// ErrUnavailable tells that the kernel refuses io_uring to this process, or lacks what the ring needs of it. The error of New
// wraps it together with the errno and names the value of kernel.io_uring_disabled.
var ErrUnavailable = errors.New("io_uring is unavailable")

// ErrTooMany tells that an io_uring has no room for so many operations; [ControlMax] says how many there may be.
var ErrTooMany = errors.New("more operations than an io_uring takes")

// Defaults of [Config].
const (
	DefaultOps            = 1024
	DefaultControl        = 4096
	DefaultRecvBuffers    = 512
	DefaultRecvBufferSize = 32 << 10
	DefaultWorkers        = 16
)

// A Config sizes a ring. Everything is allocated by New; nothing grows.
type Config struct {
	// Ops is how many reads, writes and syncs may be in flight; 0 means DefaultOps. Room counts against it.
	Ops int
	// Control is how many other operations (accepts, receives, sends, polls, timers) may be in flight; 0 means DefaultControl.
	// A connection takes two at most: its receive and its one unresolved send.
	Control int
	// RecvBuffers is how many buffers all receives share, rounded up to a power of two; 0 means DefaultRecvBuffers.
	RecvBuffers int
	// RecvBufferSize is the size of each in bytes; 0 means DefaultRecvBufferSize.
	RecvBufferSize int
	// Workers is how many reads of files an Epoll makes at a time, and how many writes and syncs; 0 means DefaultWorkers. A Uring has no use for it.
	Workers int
	// Spin is how long Wait looks for completions before it sleeps. It buys latency with a whole CPU; 0 means not at all.
	Spin time.Duration
	// Look is how long Wait looks before it sleeps when completions of late came several at a time, or more is expected (Expect), as
	// long as most of such looks find something. It should be about what it costs to fall asleep and be woken; 0 means not at all. An Epoll has no use for it:
	// it cannot see without a system call.
	Look time.Duration
}

// A Tag names an operation to its caller: an index into a table of the caller's, and the generation of that entry, by which a
// completion for a former owner of the index is recognised. The ring only carries it, and finds armed operations by it for Pause.
type Tag uint64

// NewTag makes the Tag of an index and its generation.
func NewTag(index, generation uint32) Tag { return Tag(generation)<<32 | Tag(index) }

// Index returns the index the Tag was made of.
func (t Tag) Index() uint32 { return uint32(t) }

// Generation returns the generation the Tag was made of.
func (t Tag) Generation() uint32 { return uint32(t >> 32) }

// A Kind is the kind of operation that a Completion is of.
type Kind uint8

// Kinds of operations.
const (
	KindAccept Kind = iota + 1 // Accept
	KindRecv                   // Recv
	KindSend                   // SendNow, Send, SendFD
	KindRead                   // Read
	KindWrite                  // Write
	KindSync                   // Sync
	KindPoll                   // Poll
	KindTimer                  // Timer
	KindWake                   // Wake; the Tag is zero
)

var kindNames = [...]string{"none", "accept", "recv", "send", "read", "write", "sync", "poll", "timer", "wake"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "invalid"
}

// A Completion is what came of an operation. The operation is over, unless More is set.
type Completion struct {
	Tag Tag
	// Data is what a receive brought: Res bytes of a buffer of the ring, which takes it back at the next Wait.
	Data []byte
	// Res is a number of bytes, a descriptor (accept), 0 (sync, poll, timer, wake) or a negated errno.
	Res  int32
	Kind Kind
	// More tells that the accept or receive stays armed.
	More bool
}

// Stats are counters since New, except InFlight and Registered. All are exact.
type Stats struct {
	Enters      uint64 // system calls that submitted or waited
	Completions uint64 // completions handed out
	Overflows   uint64 // completions the kernel had no room for in the completion queue; 0 unless sizing is wrong; none is lost
	FixedIO     uint64 // reads and writes given to the kernel with registered memory
	PlainIO     uint64 // reads and writes given to it without
	ShortIO     uint64 // reads, writes and sends that the kernel ended early and the ring continued
	Retries     uint64 // system calls and operations tried again after EINTR, EAGAIN or EBUSY
	Stale       uint64 // completions of an operation that was over; 0 unless the bookkeeping is wrong
	Looks       uint64 // times that Wait looked for completions before it would have slept, as Config.Look has it
	Found       uint64 // of these found something
	InFlight    int    // operations queued or in the kernel's hands
	Registered  int64  // bytes of registered memory
}

// An Interface carries out I/O for one event loop. All methods but Wake and Due belong to the goroutine that runs the loop, which is locked
// to its thread; the ring takes the thread of the first Submit or Wait for the loop's.
//
// Operations are queued until the next Submit or Wait; some may start earlier. Queueing more than Config allows, or arming a second
// operation under a Tag that an armed one has, is a mistake of the caller and panics. Armed are Accept, Recv, Poll and Timer, from
// the call to the completion with More false; one Tag may be used by one armed operation and by any others at a time, and
// completions tell them apart by Kind.
type Interface interface {
	// Accept takes connections from the listening socket fd, which should be non-blocking, a few at a time: one completion each,
	// whose Res is its descriptor, non-blocking and close-on-exec, or a negated errno. It ends by a completion with More false.
	Accept(tag Tag, fd int)

	// Recv receives from the stream socket fd: completions with Data, in order. Res 0 is the end of the stream, negative an errno. A
	// completion with More false (it may carry data) ends it. If that is -ENOBUFS, the ring's buffers ran out and no data is lost:
	// arm it again, at the next turn, when the buffers handed out before are the ring's again.
	Recv(tag Tag, fd int)

	// Pause asks the operation armed under tag, if there is one, to end. It ends by a completion with More false and Res -ECANCELED,
	// unless others come first: until that one was handed out the operation lives and tag is taken.
	Pause(tag Tag)

	// SendNow tries once, at the next Submit or Wait and without blocking, to send all of p on the stream socket fd. If it all went
	// there is no completion: once Submit or Wait has returned, and Collect after it had room in dst to spare, none will come.
	// Otherwise there is one, KindSend, whose Res is the bytes sent (fewer than len(p)) or a negated errno (-EAGAIN: none sent).
	// p stays untouched until then. At most one unresolved send (SendNow, Send, SendFD) per fd is the caller's duty: several on a
	// full socket would interleave.
	SendNow(tag Tag, fd int, p []byte)

	// Send sends all of p on the stream socket fd, waiting for room. One completion: Res is len(p) or a negated errno.
	Send(tag Tag, fd int, p []byte)

	// SendFD is Send with the descriptor passed beside the first byte (SCM_RIGHTS). p has at least one byte. The caller's copy of
	// passed stays open until the completion.
	SendFD(tag Tag, fd int, p []byte, passed int)

	// Read reads len(p) bytes at off of the file fd. One completion: Res is the bytes read, fewer than len(p) only at the end of the
	// file, or a negated errno.
	Read(tag Tag, fd int, off int64, p []byte)

	// Write writes p at off of the file fd. One completion: Res is len(p) or a negated errno, after which any part may be written.
	Write(tag Tag, fd int, off int64, p []byte)

	// Sync makes the file's written data durable (fdatasync). One completion: Res is 0 or a negated errno.
	Sync(tag Tag, fd int)

	// Poll completes once, with Res 0, when fd is readable (a pidfd: when the process ended) or hung up.
	Poll(tag Tag, fd int)

	// Timer completes once, with Res 0, when d has passed on the monotonic clock.
	Timer(tag Tag, d time.Duration)

	// Wake makes Wait return with a completion of KindWake; several calls may merge into one, but what the caller did before Wake
	// is visible to the loop after that completion. Any goroutine may call it, and after Close it does nothing.
	Wake()

	// Due tells that the loop is at work or has something to do: what came is not handed out yet, or Wait has handed out something
	// and was not called again. Any goroutine may ask, before Close: one that works long and shares a processor with the loop's
	// thread should let that run first, which the scheduler may not see to. It costs three looks at memory, or a system call. A ring
	// that cannot tell says no.
	Due() bool

	// Expect tells that somebody is about to ask for more, so that to look for that for a short time (Config.Look) is better than
	// to sleep. It is about the next Wait only, and a hint: a ring that cannot look without a system call takes no notice.
	Expect()

	// RegisterMemory makes later reads and writes within p cheaper. p is page aligned (what is not is left out) and stays mapped
	// until Close. Ranges may be adjacent; I/O across their borders is split inside. It may block for about 0.3 ms a MiB that
	// is not populated. An error (no memlock allowance, no support) means that plain I/O goes on being used, no failure.
	RegisterMemory(p []byte) error

	// ForgetMemory has the kernel forget the registered memory around p, which is used plainly from then on. It keeps the pages
	// that were there when they were registered, and would go on using them if somebody else who maps the memory had others put
	// in their place, by a hole that is punched. Operations under way keep what they began with. Registering the memory anew
	// would put a page into every hole, which takes 60 ms where all of 64 MiB is one.
	ForgetMemory(p []byte)

	// HoldFile keeps the open file behind fd alive with the ring, so that a lock on it outlives a killed process until the kernel
	// has finished the process's I/O.
	HoldFile(fd int) error

	// Room is how many more reads, writes and syncs may be queued now; callers keep the rest in queues of their own. The other
	// operations have a share of their own (Config.Control) and do not count.
	Room() int

	// Submit gives what is queued to the kernel without waiting. An error is one of the environment and final.
	Submit() error

	// Wait takes back the Data handed out so far, submits what is queued, blocks until there is a completion, and appends completions
	// to dst up to its capacity, of which some must be left. It makes one system call where one will do.
	Wait(dst []Completion) ([]Completion, error)

	// Pass is Wait without blocking, for a loop that has work of its own: it may append nothing.
	Pass(dst []Completion) ([]Completion, error)

	// Collect appends the completions that are there to dst, up to its capacity, without a system call where the ring can do so. It
	// does not take back Data.
	Collect(dst []Completion) []Completion

	// Stats returns the counters.
	Stats() Stats

	// Close ends all operations, waits until the kernel is done with them and their buffers, and frees the ring. Their completions
	// are dropped (accepted connections are closed).
	Close() error
}
