package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server/access"
)

// onHello agrees on a version. It is the first request of a connection, and the only one
// that needs no boot id.
func (e *Engine) onHello(c *conn, r *request, payload uint32, body []byte) {
	var in proto.Hello
	switch {
	case c.state != connNew:
		e.refuse(r, proto.StatusBadRequest)
		return
	case proto.ParseHello(body, &in) != nil, payload > 0:
		e.refuse(r, proto.StatusBadRequest)
		c.hangup(e)
		return
	case in.VersionMin > proto.Version || in.VersionMax < proto.Version:
		e.refuse(r, proto.StatusBadVersion)
		c.hangup(e)
		return
	}
	c.token = access.DigestOf(in.Token)
	grant, verdict := e.judge(c)
	if verdict != access.Granted {
		e.host.Tell(&Notice{Kind: NoticeDenied, Peer: c.peer, Verdict: verdict})
		e.counters.Denied++
		e.refuse(r, proto.StatusDenied)
		c.hangup(e)
		return
	}
	c.grant = grant
	c.moveTo(connReady)
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendHelloReply(e.out, &proto.HelloReply{
		Version: proto.Version, Boot: e.cfg.Boot,
		MaxFrame: proto.MaxFrame, MaxKeys: proto.MaxKeys, MaxPayload: proto.MaxPayload,
		PoolSize: uint64(e.cfg.Pool.Size), Server: e.cfg.Server,
	})
	e.send(r)
}

// onRegister makes the connection act for an instance: a new one, or one its process
// registered before.
func (e *Engine) onRegister(c *conn, r *request, body []byte) {
	var in proto.Register
	if proto.ParseRegister(body, &in) != nil || in.Instance == 0 {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	if e.stopping {
		e.refuse(r, proto.StatusDraining)
		return
	}
	if x := e.liveInstance(c); x != none && e.insts[x].id != in.Instance {
		e.refuse(r, proto.StatusExists) // one connection acts for one instance
		return
	}
	if !c.grant.Allows(in.Namespace) {
		e.refuse(r, proto.StatusDenied)
		return
	}
	if in.Want == proto.TransportShared && e.cfg.Pool.Kind == proto.ShmFd && c.peer.Local && !e.host.Passable(c.id) {
		e.counters.Crowded++
		e.refuse(r, proto.StatusBusy)
		return
	}
	s := e.spaceOf(in.Namespace)
	if s == none {
		e.refuse(r, proto.StatusBusy)
		return
	}
	x, st := e.admitInstance(c, &in, s)
	if st != proto.StatusOK {
		e.refuse(r, st)
		return
	}
	i := &e.insts[x]
	out := proto.RegisterReply{
		Incarnation: i.incarnation, Transport: proto.TransportShared,
		PoolSize: uint64(e.cfg.Pool.Size), Ready: uint64(e.ready),
	}
	if c.inline {
		out.Transport = proto.TransportInline
	} else {
		out.ShmKind, out.ShmName = e.cfg.Pool.Kind, e.cfg.Pool.Name
		out.Dev, out.Inode = e.cfg.Pool.Dev, e.cfg.Pool.Inode
	}
	c.nlayout = uint16(len(in.Layouts))
	for n := range in.Layouts {
		l := layout{id: layoutID(&in.Layouts[n]), size: int64(min(in.Layouts[n].Size, 1<<62))}
		c.layouts[n] = l
		out.LayoutIDs = append(out.LayoutIDs, l.id)
	}
	e.host.Tell(&Notice{
		Kind: NoticeRegistered, Peer: c.peer, Instance: i.id, Incarnation: i.incarnation,
		Name: i.name, Namespace: in.Namespace, Transport: out.Transport, Shm: out.ShmKind, Segment: out.ShmName,
	})
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendRegisterReply(e.out, &out)
	if out.ShmKind != proto.ShmFd || r.silent() {
		e.send(r)
		return
	}
	access := PoolReadWrite
	if i.readOnly {
		access = PoolReadOnly
	}
	e.out = proto.EndFrame(e.out, 0, 0)
	e.host.SendPoolFD(c.id, e.out, access)
}

// admitInstance finds or makes the instance that c registers, and binds c to it. An
// instance is an id of one process in a namespace: the same process gets the one it has, another process
// starts a new incarnation and the old one drains. While it has a connection its layouts
// stay what they are: requests name them by their index.
func (e *Engine) admitInstance(c *conn, in *proto.Register, s uint32) (uint32, proto.Status) {
	if !e.learn(c) {
		return none, proto.StatusBusy
	}
	shared := in.Want == proto.TransportShared && e.cfg.Pool.Kind != proto.ShmNone && c.peer.Local && c.grant.Shared &&
		e.host.Watchable(c.id)
	layouts := layoutsID(in.Layouts)
	if former := e.instanceByID(in.Instance, s); former != none {
		i := &e.insts[former]
		if i.sameProcess(&c.peer, shared) && i.readOnly == in.ReadOnly {
			if i.layouts == layouts {
				if e.crowdsConns(c) {
					e.counters.Crowded++
					return none, proto.StatusBusy
				}
				e.rejoin(c, former, shared)
				return former, proto.StatusOK
			}
			if i.state == instLive {
				return none, proto.StatusMismatch
			}
		}
	}
	if e.crowdsConns(c) || e.crowdsInstances(c) {
		e.counters.Crowded++
		return none, proto.StatusBusy
	}
	x := e.newInstance(c.owner())
	if x == none {
		return none, proto.StatusBusy
	}
	e.supersedeFormer(c, in.Instance, s)
	i := &e.insts[x]
	e.incarnation++
	i.id, i.incarnation, i.space = in.Instance, e.incarnation, s
	i.pid, i.process = c.peer.PID, c.peer.Process
	i.readOnly, i.name, i.layouts = in.ReadOnly, in.Name, layouts
	i.transport = proto.TransportInline
	e.spaces[s].instances++
	e.counters.Registrations++
	e.leave(c)
	e.bind(c, x)
	e.share(c, i, x, shared)
	return x, proto.StatusOK
}

// learn has the host tell which process c is of, and says whether it could.
func (e *Engine) learn(c *conn) bool {
	if !c.learnt && c.peer.Local {
		number, ok := e.host.Process(c.id)
		if !ok {
			return false
		}
		c.peer.Process = number
	}
	c.learnt = true
	return true
}

// rejoin binds a further connection of the same process to its instance.
func (e *Engine) rejoin(c *conn, x uint32, shared bool) {
	if e.liveInstance(c) != x {
		e.leave(c)
		e.bind(c, x)
	}
	i := &e.insts[x]
	if i.state == instDetached {
		i.moveTo(instLive)
		e.watchSilence(x)
	}
	e.share(c, i, x, shared)
}

// share lets an instance have slots by this connection, once its process is watched. Another connection of it may have
// them, and this one not: it may be a token that has no right to them.
func (e *Engine) share(c *conn, i *instance, x uint32, shared bool) {
	c.inline = !shared
	if !shared {
		return
	}
	i.transport = proto.TransportShared
	if !i.watched {
		i.watched = true
		e.host.Watch(c.id, e.watchID(x))
	}
}

// onUnregister gives back all the instance has: its process says that it touches nothing
// any more. The reply does not wait for bytes that are being moved; it tells how many.
func (e *Engine) onUnregister(c *conn, r *request, body []byte) {
	if proto.ParseEmpty(body) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	x := e.boundInstance(c)
	if x == none {
		e.refuse(r, proto.StatusNotRegistered)
		return
	}
	generation, id := e.insts[x].generation, e.insts[x].id
	e.endInstance(x)
	e.endFormerLives(id, &c.peer)
	var draining int64
	if i := &e.insts[x]; i.generation == generation && i.state == instDraining {
		draining = i.owned()
	}
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendUnregisterReply(e.out, &proto.UnregisterReply{Draining: uint64(draining)})
	e.send(r)
}

// boundInstance is the instance that c registered, live or ending, or none.
func (e *Engine) boundInstance(c *conn) uint32 {
	if c.inst == none {
		return none
	}
	i := &e.insts[c.inst]
	if i.generation != c.instGen || i.state == instFree {
		return none
	}
	return c.inst
}

func (e *Engine) onPing(r *request, body []byte) {
	if proto.ParseEmpty(body) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendPingReply(e.out, &proto.PingReply{Ready: uint64(e.ready), UptimeMs: uint64(e.now.Milliseconds())})
	e.send(r)
}

// spacesMax bounds the namespaces. It fits the index part of a space's key.
const (
	spacesMax = 1 << 12
	spaceBits = 16
)

// A space is a namespace. On disk it is known by a hash of its name. In memory it is
// known by key, its index and an epoch: CLEAR gives it a new key, so that all its objects
// are out of reach in the same step, however many they are.
type space struct {
	name      string
	id        uint64 // on disk
	key       uint64 // in memory
	instances uint32
	left      time.Duration // when it had an instance last
	counters  SpaceCounters
}

// goesBefore says that of two without instances s makes room rather than o: what nobody stored to, or read from disk,
// has nothing in memory; of the others it is what was left longer ago.
func (s *space) goesBefore(o *space) bool {
	if empty := s.empty(); empty != o.empty() {
		return empty
	}
	return s.left < o.left
}

func (s *space) empty() bool { return s.counters.StoredBytes == 0 && s.counters.HitsDisk == 0 }

// spaceOf finds a namespace or begins it. When the table is full one without instances
// makes room; what it has in memory is then out of reach and evicted in time.
func (e *Engine) spaceOf(name string) uint32 {
	if s := e.findSpace(name); s != none {
		return s
	}
	free := uint32(len(e.spaces))
	if free < spacesMax {
		e.spaces = append(e.spaces, space{})
	} else if free = e.leftSpace(); free == none {
		return none
	}
	e.spaces[free] = space{name: name, id: spaceID(name), left: e.now}
	e.renewSpace(free)
	return free
}

// leftSpace is the namespace that makes room for another, or none.
func (e *Engine) leftSpace() uint32 {
	first := none
	for x := range e.spaces {
		if s := &e.spaces[x]; s.instances == 0 && (first == none || s.goesBefore(&e.spaces[first])) {
			first = uint32(x)
		}
	}
	return first
}

// leaveSpace is for the end of an instance.
func (e *Engine) leaveSpace(s uint32) {
	e.spaces[s].instances--
	e.spaces[s].left = e.now
}

// findSpace finds a namespace, or none: then nothing of it is in memory.
func (e *Engine) findSpace(name string) uint32 {
	for x := range e.spaces {
		if e.spaces[x].name == name {
			return uint32(x)
		}
	}
	return none
}

// renewSpace gives a namespace a key that no object has.
func (e *Engine) renewSpace(s uint32) {
	e.spaceEpoch++
	e.spaces[s].key = e.spaceEpoch<<spaceBits | uint64(s)
}

// spaceByKey finds the namespace an object in memory belongs to, or none when it was
// cleared since.
func (e *Engine) spaceByKey(key uint64) uint32 {
	s := uint32(key & (1<<spaceBits - 1))
	if e.spaces[s].key != key {
		return none
	}
	return s
}

// spaceID is a namespace's name on disk: the first 8 bytes of its SHA-256.
func spaceID(name string) uint64 {
	sum := sha256.Sum256([]byte("namespace\x00" + name))
	return binary.LittleEndian.Uint64(sum[:])
}

// layoutID is a layout's name on disk: the first 8 bytes of the SHA-256 of its name,
// dimensions and size.
func layoutID(l *proto.Layout) uint64 {
	b := append([]byte("layout\x00"), l.Name...)
	b = append(b, 0)
	for _, d := range l.Dims {
		b = binary.LittleEndian.AppendUint32(b, d)
	}
	b = binary.LittleEndian.AppendUint64(b, l.Size)
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:])
}

// layoutsID stands for a list of layouts.
func layoutsID(list []proto.Layout) uint64 {
	b := make([]byte, 0, 8*proto.MaxLayouts)
	for n := range list {
		b = binary.LittleEndian.AppendUint64(b, layoutID(&list[n]))
	}
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:])
}
