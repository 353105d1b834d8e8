package proto

// PrepareStore reserves slots for objects to be written.
type PrepareStore struct {
	Layout uint16   // index into the registered layouts
	WaitMs uint32   // how long to wait for memory, in milliseconds
	Sizes  []uint64 // of the objects in bytes, one a key
	Keys   []Key
}

// AppendPrepareStore appends x.
func AppendPrepareStore(dst []byte, x *PrepareStore) []byte {
	if len(x.Sizes) != len(x.Keys) {
		panic("proto: prepare_store wants a size for each key")
	}
	dst = appendU16(dst, x.Layout)
	dst = appendU32(dst, x.WaitMs)
	dst = appendU64s(dst, x.Sizes, MaxKeys)
	return appendKeys(dst, x.Keys)
}

// ParsePrepareStore decodes p into x, whose slices it uses again. After an error
// x is undefined.
func ParsePrepareStore(p []byte, x *PrepareStore) error {
	d := decoder{p: p}
	x.Layout = d.u16()
	x.WaitMs = d.u32()
	x.Sizes = d.u64s("number of sizes", x.Sizes, MaxKeys)
	x.Keys = d.keys(x.Keys)
	if len(x.Sizes) != len(x.Keys) {
		d.fail("number of sizes unlike that of keys", uint64(len(x.Sizes)))
	}
	return d.end()
}

// A StoreResult is the answer to one key of a [PrepareStore].
type StoreResult struct {
	Status Status // reserved, exists, busy, no_space or too_large
	Slot   Slot   // to write to, if reserved
}

// PrepareStoreReply answers a [PrepareStore].
type PrepareStoreReply struct {
	Transfer uint64        // handle to commit or abort; 0 if nothing was reserved
	Results  []StoreResult // one a key, in order
}

// AppendPrepareStoreReply appends x.
func AppendPrepareStoreReply(dst []byte, x *PrepareStoreReply) []byte {
	dst = appendU64(dst, x.Transfer)
	dst = appendCount(dst, len(x.Results), MaxKeys)
	for i := range x.Results {
		r := &x.Results[i]
		dst = appendU16(dst, uint16(r.Status))
		dst = appendU64(dst, r.Slot.Off)
		dst = appendU64(dst, r.Slot.Len)
	}
	return dst
}

// ParsePrepareStoreReply decodes p into x, whose slices it uses again. After an
// error x is undefined.
func ParsePrepareStoreReply(p []byte, x *PrepareStoreReply) error {
	d := decoder{p: p}
	x.Transfer = d.u64()
	x.Results = resize(x.Results, d.count("number of results", resultSize, MaxKeys))
	for i := range x.Results {
		r := &x.Results[i]
		r.Status = Status(d.u16())
		r.Slot = d.slot()
		if !r.Status.Valid() {
			d.fail("status", uint64(r.Status))
		}
	}
	return d.end()
}

// CommitStore publishes what a [PrepareStore] reserved. With [FlagInline] the
// frame's payload is the reserved values, concatenated in order.
type CommitStore struct {
	Transfer uint64
	Sums     []uint64 // xxh3-64 of each reserved value in order, or empty
}

// AppendCommitStore appends x.
func AppendCommitStore(dst []byte, x *CommitStore) []byte {
	dst = appendU64(dst, x.Transfer)
	return appendU64s(dst, x.Sums, MaxKeys)
}

// ParseCommitStore decodes p into x, whose slices it uses again. After an error
// x is undefined.
func ParseCommitStore(p []byte, x *CommitStore) error {
	d := decoder{p: p}
	x.Transfer = d.u64()
	x.Sums = d.u64s("number of checksums", x.Sums, MaxKeys)
	return d.end()
}

// CommitStoreReply answers a [CommitStore].
type CommitStoreReply struct {
	Published uint32 // objects that are readable from now on
}

// AppendCommitStoreReply appends x.
func AppendCommitStoreReply(dst []byte, x *CommitStoreReply) []byte {
	return appendU32(dst, x.Published)
}

// ParseCommitStoreReply decodes p into x. After an error x is undefined.
func ParseCommitStoreReply(p []byte, x *CommitStoreReply) error {
	d := decoder{p: p}
	x.Published = d.u32()
	return d.end()
}

// AbortStore frees what a [PrepareStore] reserved. Its reply has no body.
type AbortStore struct {
	Transfer uint64
}

// AppendAbortStore appends x.
func AppendAbortStore(dst []byte, x *AbortStore) []byte { return appendU64(dst, x.Transfer) }

// ParseAbortStore decodes p into x. After an error x is undefined.
func ParseAbortStore(p []byte, x *AbortStore) error {
	d := decoder{p: p}
	x.Transfer = d.u64()
	return d.end()
}
