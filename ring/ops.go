package ring

import "golang.org/x/sys/unix"

// opCode is what an operation asks of the kernel; finer than Kind.
type opCode uint8

const (
	codeAccept opCode = iota
	codeRecv
	codeSendNow
	codeSend
	codeSendFD
	codeRead
	codeWrite
	codeSync
	codePoll
	codeTimer
	opCodes
)

var codeKinds = [opCodes]Kind{
	codeAccept: KindAccept, codeRecv: KindRecv, codeSendNow: KindSend, codeSend: KindSend, codeSendFD: KindSend,
	codeRead: KindRead, codeWrite: KindWrite, codeSync: KindSync, codePoll: KindPoll, codeTimer: KindTimer,
}

// file tells whether the operation is of those that Room counts.
func (c opCode) file() bool { return c == codeRead || c == codeWrite || c == codeSync }

// armed tells whether the operation is found by its tag.
func (c opCode) armed() bool {
	return c == codeAccept || c == codeRecv || c == codePoll || c == codeTimer
}

// An op is one operation from the call that queues it to the kernel's last word on it. It owns its buffer all that time. At most one
// submission of it is with the kernel: a continuation follows the completion it continues.
type op struct {
	buf        []byte     // what is left of the caller's buffer begins at done
	msg        *fdMessage // of codeSendFD
	tag        Tag
	off        int64 // file offset of buf; of codeSendFD the descriptor
	done       int   // bytes moved
	chunk      int   // bytes the submission in flight asks for
	fd         int32
	generation uint32
	next       uint32 // next free entry
	peer       uint32 // Epoll: index + 1 of the next operation on fd; 0: none
	before     uint32 // Epoll: of the one before it
	res        int32  // Epoll: the result, once it is known
	code       opCode
	state      opState
	retries    uint8 // times in a row that the kernel said EINTR or EAGAIN
}

// opNone is the end of the free list.
const opNone = ^uint32(0)

// opTable is the preallocated table of operations. An index with its generation is what a submission carries to its completions.
type opTable struct {
	ops     []op
	times   []unix.Timespec // of timers, by index
	free    uint32
	files   int // live entries that Room counts
	control int // live entries that it does not

	filesMax, controlMax int
}

func newOpTable(files, control int) opTable {
	t := opTable{
		ops: make([]op, files+control), times: make([]unix.Timespec, files+control),
		filesMax: files, controlMax: control,
	}
	for i := range t.ops {
		t.ops[i].next = uint32(i) + 1
		t.ops[i].generation = 1
	}
	t.ops[len(t.ops)-1].next = opNone
	return t
}

// take makes an entry live.
func (t *opTable) take(code opCode) uint32 {
	if code.file() {
		if t.files == t.filesMax {
			panic("ring: more reads, writes and syncs than Room")
		}
		t.files++
	} else {
		if t.control == t.controlMax {
			panic("ring: more operations than Config.Control")
		}
		t.control++
	}
	i := t.free
	o := &t.ops[i]
	t.free = o.next
	o.moveTo(opLive)
	o.code = code
	o.done, o.chunk, o.retries = 0, 0, 0
	return i
}

// release ends the life of entry i: completions that name it from now on are not its.
func (t *opTable) release(i uint32) {
	o := &t.ops[i]
	o.moveTo(opFree)
	if o.code.file() {
		t.files--
	} else {
		t.control--
	}
	o.buf = nil
	o.generation++
	o.next = t.free
	t.free = i
}

// live is how many entries are not free.
func (t *opTable) live() int { return t.files + t.control }

// userOf is what the submissions of entry i carry.
func (t *opTable) userOf(i uint32) uint64 { return uint64(t.ops[i].generation)<<32 | uint64(i) }

// find returns the entry that user names, or false if that life of it is over.
func (t *opTable) find(user uint64) (uint32, bool) {
	i := uint32(user)
	if uint64(i) >= uint64(len(t.ops)) {
		return 0, false
	}
	o := &t.ops[i]
	return i, o.state != opFree && o.generation == uint32(user>>32)
}

// What submissions that are no operation's carry: no entry has these indexes.
const (
	userIgnored uint64 = 0xffff_ffff // cancellations and what Close uses
	userWake    uint64 = 0xffff_fffe // the read of the eventfd
)
