package proto

import "strconv"

// A RetrieveMode is what a [PrepareRetrieve] does when objects are missing.
type RetrieveMode uint8

// The modes of a retrieve.
const (
	RetrieveAll    RetrieveMode = 0 // all objects or none
	RetrievePrefix RetrieveMode = 1 // the leading objects that are there
)

// String returns the mode's name.
func (m RetrieveMode) String() string {
	switch m {
	case RetrieveAll:
		return "all"
	case RetrievePrefix:
		return "prefix"
	default:
		return "mode_" + strconv.Itoa(int(m))
	}
}

// PrepareRetrieve holds objects to be read: those of the keys, or those of a
// range of a lease. With [FlagInline] it is the whole retrieve.
type PrepareRetrieve struct {
	Layout       uint16 // index into the registered layouts; a lease has its own
	Mode         RetrieveMode
	WaitMs       uint32 // how long to wait for loads, in milliseconds
	Lease        uint64 // of a lookup; 0: by keys
	First, Count uint32 // the lease's objects to retrieve; both 0 without a lease
	Keys         []Key  // empty with a lease
}

// AppendPrepareRetrieve appends x.
func AppendPrepareRetrieve(dst []byte, x *PrepareRetrieve) []byte {
	dst = appendU16(dst, x.Layout)
	dst = append(dst, byte(x.Mode))
	dst = appendU32(dst, x.WaitMs)
	dst = appendU64(dst, x.Lease)
	dst = appendU32(dst, x.First)
	dst = appendU32(dst, x.Count)
	return appendKeys(dst, x.Keys)
}

// ParsePrepareRetrieve decodes p into x, whose slices it uses again. After an
// error x is undefined.
func ParsePrepareRetrieve(p []byte, x *PrepareRetrieve) error {
	d := decoder{p: p}
	x.Layout = d.u16()
	x.Mode = RetrieveMode(d.enum("mode", uint8(RetrieveAll), uint8(RetrievePrefix)))
	x.WaitMs = d.u32()
	x.Lease = d.u64()
	x.First = d.u32()
	x.Count = d.u32()
	x.Keys = d.keys(x.Keys)
	switch {
	case x.Lease != 0 && len(x.Keys) > 0:
		d.fail("keys beside a lease", uint64(len(x.Keys)))
	case x.Lease == 0 && (x.First != 0 || x.Count != 0):
		d.fail("range without a lease, count", uint64(x.Count))
	case x.First > MaxKeys || x.Count > MaxKeys:
		d.fail("range of the lease", max(uint64(x.First), uint64(x.Count)))
	}
	return d.end()
}

// PrepareRetrieveReply answers a [PrepareRetrieve]. In inline transport Transfer
// and all offsets are 0, and the frame's payload is the values, concatenated in
// order.
type PrepareRetrieveReply struct {
	Transfer uint64 // handle to commit
	Slots    []Slot // to read from, in the order of the keys
}

// AppendPrepareRetrieveReply appends x.
func AppendPrepareRetrieveReply(dst []byte, x *PrepareRetrieveReply) []byte {
	dst = appendU64(dst, x.Transfer)
	return appendSlots(dst, x.Slots)
}

// ParsePrepareRetrieveReply decodes p into x, whose slices it uses again. After
// an error x is undefined.
func ParsePrepareRetrieveReply(p []byte, x *PrepareRetrieveReply) error {
	d := decoder{p: p}
	x.Transfer = d.u64()
	x.Slots = d.slots(x.Slots)
	return d.end()
}

// CommitRetrieve ends a retrieve and its holds. Its reply has no body.
type CommitRetrieve struct {
	Transfer uint64
}

// AppendCommitRetrieve appends x.
func AppendCommitRetrieve(dst []byte, x *CommitRetrieve) []byte {
	return appendU64(dst, x.Transfer)
}

// ParseCommitRetrieve decodes p into x. After an error x is undefined.
func ParseCommitRetrieve(p []byte, x *CommitRetrieve) error {
	d := decoder{p: p}
	x.Transfer = d.u64()
	return d.end()
}

// Release ends leases and their holds; those that have ended are passed over.
// Its reply has no body.
type Release struct {
	Leases []uint64
}

// AppendRelease appends x.
func AppendRelease(dst []byte, x *Release) []byte {
	return appendU64s(dst, x.Leases, MaxKeys)
}

// ParseRelease decodes p into x, whose slices it uses again. After an error x is
// undefined.
func ParseRelease(p []byte, x *Release) error {
	d := decoder{p: p}
	x.Leases = d.u64s("number of leases", x.Leases, MaxKeys)
	return d.end()
}
