package proto

import "strconv"

// A Transport is how the bytes of objects travel.
type Transport uint8

// The transports.
const (
	TransportShared Transport = 1 // through the pool in shared memory
	TransportInline Transport = 2 // in the frames' payloads
)

// String returns the transport's name.
func (t Transport) String() string {
	switch t {
	case TransportShared:
		return "shared"
	case TransportInline:
		return "inline"
	default:
		return "transport_" + strconv.Itoa(int(t))
	}
}

// A ShmKind is how an instance comes by the pool's memory.
type ShmKind uint8

// The kinds of shared memory.
const (
	ShmNone  ShmKind = 0 // none: inline transport
	ShmFd    ShmKind = 1 // a file descriptor comes with the reply's first byte
	ShmNamed ShmKind = 2 // a segment is opened by name
)

// String returns the kind's name.
func (k ShmKind) String() string {
	switch k {
	case ShmNone:
		return "none"
	case ShmFd:
		return "fd"
	case ShmNamed:
		return "named"
	default:
		return "shm_" + strconv.Itoa(int(k))
	}
}

// Hello opens a connection. It is the first request.
type Hello struct {
	VersionMin, VersionMax uint16 // the client's versions of the protocol, both included
	Features               uint64 // bits the client would use; none are defined yet
	Token                  string // the server's secret, where it asks for one
}

// AppendHello appends x.
func AppendHello(dst []byte, x *Hello) []byte {
	dst = appendU16(dst, x.VersionMin)
	dst = appendU16(dst, x.VersionMax)
	dst = appendU64(dst, x.Features)
	return appendName(dst, x.Token)
}

// ParseHello decodes p into x. After an error x is undefined.
func ParseHello(p []byte, x *Hello) error {
	d := decoder{p: p}
	x.VersionMin = d.u16()
	x.VersionMax = d.u16()
	x.Features = d.u64()
	d.name("token", &x.Token)
	if x.VersionMin > x.VersionMax {
		d.fail("least version above the greatest", uint64(x.VersionMin))
	}
	return d.end()
}

// HelloReply answers a [Hello].
type HelloReply struct {
	Version    uint16 // the version both speak from here on
	Features   uint64 // the bits both know
	Boot       uint64 // the server's boot id, for the header of all further requests
	MaxFrame   uint32 // the server's limits: bytes of header and body,
	MaxKeys    uint32 // keys in a request,
	MaxPayload uint64 // bytes of a payload
	PoolSize   uint64 // of the server's memory, in bytes
	Server     string // the server's name and version, for logs
}

// AppendHelloReply appends x.
func AppendHelloReply(dst []byte, x *HelloReply) []byte {
	dst = appendU16(dst, x.Version)
	dst = appendU64(dst, x.Features)
	dst = appendU64(dst, x.Boot)
	dst = appendU32(dst, x.MaxFrame)
	dst = appendU32(dst, x.MaxKeys)
	dst = appendU64(dst, x.MaxPayload)
	dst = appendU64(dst, x.PoolSize)
	return appendName(dst, x.Server)
}

// ParseHelloReply decodes p into x. After an error x is undefined.
func ParseHelloReply(p []byte, x *HelloReply) error {
	d := decoder{p: p}
	x.Version = d.u16()
	x.Features = d.u64()
	x.Boot = d.u64()
	x.MaxFrame = d.u32()
	x.MaxKeys = d.u32()
	x.MaxPayload = d.u64()
	x.PoolSize = d.u64()
	d.name("server", &x.Server)
	return d.end()
}

// A Layout says what the objects stored under it are. The server compares it
// and checks Size, and does not look into the rest.
type Layout struct {
	Name string   // free text: data type, ordering and whatever else must agree
	Dims []uint32 // the shape
	Size uint64   // of a whole chunk, the largest object under it, in bytes
}

// Register makes the connection's peer an instance.
type Register struct {
	Instance  uint64    // id, chosen by the client, the same each time it registers
	Want      Transport // wanted; the reply says what was had
	ReadOnly  bool      // stores, deletes and clears nothing
	Name      string    // for logs and lists
	Namespace string    // objects of different namespaces never meet
	Layouts   []Layout  // requests name one by its index here
}

// AppendRegister appends x.
func AppendRegister(dst []byte, x *Register) []byte {
	dst = appendU64(dst, x.Instance)
	dst = append(dst, byte(x.Want))
	dst = appendBool(dst, x.ReadOnly)
	dst = appendName(dst, x.Name)
	dst = appendName(dst, x.Namespace)
	dst = appendCount(dst, len(x.Layouts), MaxLayouts)
	for i := range x.Layouts {
		l := &x.Layouts[i]
		dst = appendName(dst, l.Name)
		dst = appendCount(dst, len(l.Dims), MaxDims)
		for _, n := range l.Dims {
			dst = appendU32(dst, n)
		}
		dst = appendU64(dst, l.Size)
	}
	return dst
}

// ParseRegister decodes p into x, whose slices it uses again. After an error x
// is undefined.
func ParseRegister(p []byte, x *Register) error {
	d := decoder{p: p}
	x.Instance = d.u64()
	x.Want = Transport(d.enum("wanted transport", uint8(TransportShared), uint8(TransportInline)))
	x.ReadOnly = d.bool("read-only flag")
	d.name("name", &x.Name)
	d.name("namespace", &x.Namespace)
	x.Layouts = resize(x.Layouts, d.count("number of layouts", layoutSize, MaxLayouts))
	for i := range x.Layouts {
		l := &x.Layouts[i]
		d.name("layout name", &l.Name)
		l.Dims = resize(l.Dims, d.count("number of dimensions", 4, MaxDims))
		for j := range l.Dims {
			l.Dims[j] = d.u32()
		}
		l.Size = d.u64()
	}
	return d.end()
}

// RegisterReply answers a [Register].
type RegisterReply struct {
	Incarnation uint32    // counts the processes that have used this instance id
	Transport   Transport // the one to use
	ShmKind     ShmKind   // how to come by the memory
	ShmName     string    // of the segment, if ShmNamed
	PoolSize    uint64    // of the mapping, in bytes
	Ready       uint64    // bytes [0, Ready) of the pool are populated
	Dev, Inode  uint64    // of the pool's file, to be verified by fstat
	LayoutIDs   []uint64  // the server's identity of each layout, in order
}

// AppendRegisterReply appends x.
func AppendRegisterReply(dst []byte, x *RegisterReply) []byte {
	dst = appendU32(dst, x.Incarnation)
	dst = append(dst, byte(x.Transport), byte(x.ShmKind))
	dst = appendName(dst, x.ShmName)
	dst = appendU64(dst, x.PoolSize)
	dst = appendU64(dst, x.Ready)
	dst = appendU64(dst, x.Dev)
	dst = appendU64(dst, x.Inode)
	return appendU64s(dst, x.LayoutIDs, MaxLayouts)
}

// ParseRegisterReply decodes p into x, whose slices it uses again. After an
// error x is undefined.
func ParseRegisterReply(p []byte, x *RegisterReply) error {
	d := decoder{p: p}
	x.Incarnation = d.u32()
	x.Transport = Transport(d.enum("transport", uint8(TransportShared), uint8(TransportInline)))
	x.ShmKind = ShmKind(d.enum("kind of shared memory", uint8(ShmNone), uint8(ShmNamed)))
	d.name("segment name", &x.ShmName)
	x.PoolSize = d.u64()
	x.Ready = d.u64()
	x.Dev = d.u64()
	x.Inode = d.u64()
	x.LayoutIDs = d.u64s("number of layout ids", x.LayoutIDs, MaxLayouts)
	if x.Ready > x.PoolSize {
		d.fail("more ready than the pool has", x.Ready)
	}
	return d.end()
}

// Unregister ends the connection's instance. Its body is empty.
type Unregister struct{}

// AppendUnregister appends nothing.
func AppendUnregister(dst []byte, _ *Unregister) []byte { return dst }

// ParseUnregister checks that p is empty.
func ParseUnregister(p []byte, _ *Unregister) error { return ParseEmpty(p) }

// UnregisterReply answers an [Unregister].
type UnregisterReply struct {
	Draining uint64 // bytes whose I/O is still under way
}

// AppendUnregisterReply appends x.
func AppendUnregisterReply(dst []byte, x *UnregisterReply) []byte {
	return appendU64(dst, x.Draining)
}

// ParseUnregisterReply decodes p into x. After an error x is undefined.
func ParseUnregisterReply(p []byte, x *UnregisterReply) error {
	d := decoder{p: p}
	x.Draining = d.u64()
	return d.end()
}

// Ping says that the client lives. Its body is empty.
type Ping struct{}

// AppendPing appends nothing.
func AppendPing(dst []byte, _ *Ping) []byte { return dst }

// ParsePing checks that p is empty.
func ParsePing(p []byte, _ *Ping) error { return ParseEmpty(p) }

// PingReply answers a [Ping].
type PingReply struct {
	Ready    uint64 // bytes [0, Ready) of the pool are populated
	UptimeMs uint64 // since the server started, in milliseconds
}

// AppendPingReply appends x.
func AppendPingReply(dst []byte, x *PingReply) []byte {
	dst = appendU64(dst, x.Ready)
	return appendU64(dst, x.UptimeMs)
}

// ParsePingReply decodes p into x. After an error x is undefined.
func ParsePingReply(p []byte, x *PingReply) error {
	d := decoder{p: p}
	x.Ready = d.u64()
	x.UptimeMs = d.u64()
	return d.end()
}
