package proto

import "strconv"

// Stats asks for the server's counters. Its body is empty.
type Stats struct{}

// AppendStats appends nothing.
func AppendStats(dst []byte, _ *Stats) []byte { return dst }

// ParseStats checks that p is empty.
func ParseStats(p []byte, _ *Stats) error { return ParseEmpty(p) }

// A Counter is a named number.
type Counter struct {
	Name  string
	Value uint64
}

// StatsReply answers a [Stats].
type StatsReply struct {
	Counters []Counter
}

// AppendStatsReply appends x.
func AppendStatsReply(dst []byte, x *StatsReply) []byte {
	dst = appendCount(dst, len(x.Counters), MaxCounters)
	for i := range x.Counters {
		dst = appendName(dst, x.Counters[i].Name)
		dst = appendU64(dst, x.Counters[i].Value)
	}
	return dst
}

// ParseStatsReply decodes p into x, whose slices and strings it uses again. After
// an error x is undefined.
func ParseStatsReply(p []byte, x *StatsReply) error {
	d := decoder{p: p}
	x.Counters = resize(x.Counters, d.count("number of counters", counterSize, MaxCounters))
	for i := range x.Counters {
		d.name("counter name", &x.Counters[i].Name)
		x.Counters[i].Value = d.u64()
	}
	return d.end()
}

// States of an [InstanceInfo].
const (
	InstanceLive     uint8 = 1 // registered
	InstanceDraining uint8 = 2 // ended, but its process lives or its I/O is under way
	InstanceDetached uint8 = 3 // without a connection; its process lives and may come back
)

// Instances asks for a page of the list of instances.
type Instances struct {
	Cursor uint64 // 0 at first, then the reply's Next
}

// AppendInstances appends x.
func AppendInstances(dst []byte, x *Instances) []byte { return appendU64(dst, x.Cursor) }

// ParseInstances decodes p into x. After an error x is undefined.
func ParseInstances(p []byte, x *Instances) error {
	d := decoder{p: p}
	x.Cursor = d.u64()
	return d.end()
}

// An InstanceInfo is one instance of an [InstancesReply].
type InstanceInfo struct {
	ID          uint64
	Incarnation uint32
	State       uint8 // InstanceLive, InstanceDraining or InstanceDetached
	Transport   Transport
	PID         int32  // of its process, as the server sees it; 0 if unknown
	Staged      uint64 // bytes of its open stores
	Held        uint64 // bytes of its retrieves and leases
	Quarantined uint64 // bytes kept because its process may still write there
	AgeMs       uint64 // since it was registered, in milliseconds
	Name        string
	Namespace   string
}

// InstancesReply answers an [Instances].
type InstancesReply struct {
	Next      uint64 // cursor of the next page, 0 at the end
	Instances []InstanceInfo
}

// AppendInstancesReply appends x.
func AppendInstancesReply(dst []byte, x *InstancesReply) []byte {
	dst = appendU64(dst, x.Next)
	dst = appendCount(dst, len(x.Instances), MaxInstances)
	for i := range x.Instances {
		n := &x.Instances[i]
		dst = appendU64(dst, n.ID)
		dst = appendU32(dst, n.Incarnation)
		dst = append(dst, n.State, byte(n.Transport))
		dst = appendU32(dst, uint32(n.PID))
		dst = appendU64(dst, n.Staged)
		dst = appendU64(dst, n.Held)
		dst = appendU64(dst, n.Quarantined)
		dst = appendU64(dst, n.AgeMs)
		dst = appendName(dst, n.Name)
		dst = appendName(dst, n.Namespace)
	}
	return dst
}

// ParseInstancesReply decodes p into x, whose slices and strings it uses again.
// After an error x is undefined.
func ParseInstancesReply(p []byte, x *InstancesReply) error {
	d := decoder{p: p}
	x.Next = d.u64()
	x.Instances = resize(x.Instances, d.count("number of instances", instanceSize, MaxInstances))
	for i := range x.Instances {
		n := &x.Instances[i]
		n.ID = d.u64()
		n.Incarnation = d.u32()
		n.State = d.u8()
		n.Transport = Transport(d.enum("transport", uint8(TransportShared), uint8(TransportInline)))
		n.PID = int32(d.u32())
		n.Staged = d.u64()
		n.Held = d.u64()
		n.Quarantined = d.u64()
		n.AgeMs = d.u64()
		d.name("name", &n.Name)
		d.name("namespace", &n.Namespace)
	}
	return d.end()
}

// A TransferKind is what a [TransferInfo] describes.
type TransferKind uint8

// The kinds of transfers.
const (
	TransferStore    TransferKind = 1 // from prepare_store to its commit or abort
	TransferRetrieve TransferKind = 2 // from prepare_retrieve to its commit
	TransferLease    TransferKind = 3 // from lookup to its release
)

// String returns the kind's name.
func (k TransferKind) String() string {
	switch k {
	case TransferStore:
		return "store"
	case TransferRetrieve:
		return "retrieve"
	case TransferLease:
		return "lease"
	default:
		return "transfer_" + strconv.Itoa(int(k))
	}
}

// States of a [TransferInfo].
const (
	TransferOpen    uint8 = 1 // can be committed
	TransferExpired uint8 = 2 // timed out, or its owner was lost: a commit is refused, its memory is quarantined
	TransferLoading uint8 = 3 // a request that waits for the disk
	TransferWaiting uint8 = 4 // a request that waits for memory
	TransferMoving  uint8 = 5 // its bytes are on their way through a connection
	TransferEnding  uint8 = 6 // the same, but its owner has ended
)

// Transfers asks for a page of the list of open transfers and leases.
type Transfers struct {
	Cursor uint64 // 0 at first, then the reply's Next
}

// AppendTransfers appends x.
func AppendTransfers(dst []byte, x *Transfers) []byte { return appendU64(dst, x.Cursor) }

// ParseTransfers decodes p into x. After an error x is undefined.
func ParseTransfers(p []byte, x *Transfers) error {
	d := decoder{p: p}
	x.Cursor = d.u64()
	return d.end()
}

// A TransferInfo is one transfer of a [TransfersReply].
type TransferInfo struct {
	Handle      uint64
	Kind        TransferKind
	State       uint8 // TransferOpen and so on
	Instance    uint64
	Incarnation uint32
	Keys        uint32 // objects in it
	Bytes       uint64 // of these objects
	AgeMs       uint64 // since it was prepared, in milliseconds
}

// TransfersReply answers a [Transfers].
type TransfersReply struct {
	Next      uint64 // cursor of the next page, 0 at the end
	Transfers []TransferInfo
}

// AppendTransfersReply appends x.
func AppendTransfersReply(dst []byte, x *TransfersReply) []byte {
	dst = appendU64(dst, x.Next)
	dst = appendCount(dst, len(x.Transfers), MaxTransfers)
	for i := range x.Transfers {
		t := &x.Transfers[i]
		dst = appendU64(dst, t.Handle)
		dst = append(dst, byte(t.Kind), t.State)
		dst = appendU64(dst, t.Instance)
		dst = appendU32(dst, t.Incarnation)
		dst = appendU32(dst, t.Keys)
		dst = appendU64(dst, t.Bytes)
		dst = appendU64(dst, t.AgeMs)
	}
	return dst
}

// ParseTransfersReply decodes p into x, whose slices it uses again. After an
// error x is undefined.
func ParseTransfersReply(p []byte, x *TransfersReply) error {
	d := decoder{p: p}
	x.Next = d.u64()
	x.Transfers = resize(x.Transfers, d.count("number of transfers", transferSize, MaxTransfers))
	for i := range x.Transfers {
		t := &x.Transfers[i]
		t.Handle = d.u64()
		t.Kind = TransferKind(d.enum("kind of transfer", uint8(TransferStore), uint8(TransferLease)))
		t.State = d.u8()
		t.Instance = d.u64()
		t.Incarnation = d.u32()
		t.Keys = d.u32()
		t.Bytes = d.u64()
		t.AgeMs = d.u64()
	}
	return d.end()
}
