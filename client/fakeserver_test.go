package client

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// A fakeServer speaks the protocol over a Unix socket, with its pool in a memfd or a named
// segment: enough of a server to be deterministic, and to misbehave on request.
type fakeServer struct {
	t    testing.TB
	path string
	cfg  fakeConfig
	pool *fakePool

	mu        sync.Mutex
	ln        *net.UnixListener
	boot      uint64
	ready     uint64
	conns     map[*fakeConn]bool
	objects   map[fakeKey]*fakeObject
	transfers map[uint64]*fakeTransfer
	lives     map[uint64]*InstanceInfo // by id
	born      uint32
	next      uint64
	hook      func(r *fakeRequest) fakeAct
	seen      []proto.Op // requests, in order
	done      sync.WaitGroup
}

type fakeConfig struct {
	size       int
	kind       proto.ShmKind
	maxKeys    uint32
	maxPayload uint64
	ready      uint64 // 0: all
	server     string
	noPut      bool // it does not know PUT
}

type fakeKey struct {
	namespace string
	layout    string
	key       Key
}

type fakeObject struct {
	slot   proto.Slot
	holds  int
	gone   bool
	pinned bool
}

type fakeTransfer struct {
	kind     proto.TransferKind
	instance uint64
	conn     *fakeConn
	told     bool // the client knows slots
	expired  bool
	keys     []fakeKey
	objects  []*fakeObject
}

// fakeAct is what the server does with a request instead of answering it.
type fakeAct struct {
	drop      bool            // close the connection without carrying it out
	dropAfter bool            // carry it out and close the connection without a reply
	status    proto.Status    // if not 0: refuse
	hold      <-chan struct{} // carry it out, answer when closed
	raw       []byte          // answer with these bytes
	cut       int             // if not 0: send so many bytes of the reply, then close
	skip      bool            // don't carry it out
	noFd      bool            // don't pass a descriptor
}

type fakeRequest struct {
	proto.Header
	Body    []byte
	Payload []byte
}

type fakeConn struct {
	s    *fakeServer
	conn *net.UnixConn
	wmu  sync.Mutex
	reg  *proto.Register
}

func newFake(t testing.TB, cfg fakeConfig) *fakeServer {
	t.Helper()
	checkLeaks(t)
	if cfg.size == 0 {
		cfg.size = 4 << 20
	}
	if cfg.maxKeys == 0 {
		cfg.maxKeys = proto.MaxKeys
	}
	if cfg.maxPayload == 0 {
		cfg.maxPayload = proto.MaxPayload
	}
	if cfg.server == "" {
		cfg.server = "fake 1"
	}
	s := &fakeServer{t: t, path: filepath.Join(t.TempDir(), "s"), cfg: cfg}
	s.start()
	t.Cleanup(func() {
		s.stop()
		require.Eventually(t, func() bool { maps, _ := poolMaps(t); return len(maps) == 0 }, waitMax, tick, "memory is left mapped")
	})
	return s
}

func (s *fakeServer) addr() string { return "unix:" + s.path }

// start begins a new life: another boot id, another pool, no objects.
func (s *fakeServer) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool = newFakePool(s.t, s.cfg)
	s.boot += 0x1000
	s.ready = uint64(s.cfg.size)
	if s.cfg.ready != 0 {
		s.ready = s.cfg.ready
	}
	s.conns = map[*fakeConn]bool{}
	s.objects = map[fakeKey]*fakeObject{}
	s.transfers = map[uint64]*fakeTransfer{}
	s.lives = map[uint64]*InstanceInfo{}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	require.NoError(s.t, err)
	s.ln = ln
	s.done.Add(1)
	go s.accept(ln)
}

// stop ends the life as a kill would: connections break, memory goes.
func (s *fakeServer) stop() {
	s.mu.Lock()
	if s.ln == nil {
		s.mu.Unlock()
		return
	}
	_ = s.ln.Close()
	s.ln = nil
	for c := range s.conns {
		_ = c.conn.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
	s.pool.close()
}

func (s *fakeServer) restart() {
	s.stop()
	s.start()
}

// disconnect breaks all connections of a server that lives on.
func (s *fakeServer) disconnect() {
	s.mu.Lock()
	for c := range s.conns {
		_ = c.conn.Close()
	}
	s.mu.Unlock()
	require.Eventually(s.t, func() bool { return s.count().conns == 0 }, waitMax, tick)
}

func (s *fakeServer) setHook(h func(r *fakeRequest) fakeAct) {
	s.mu.Lock()
	s.hook = h
	s.mu.Unlock()
}

// onNext lets act befall the next request of an op.
func (s *fakeServer) onNext(op proto.Op, act fakeAct) {
	used := false
	s.setHook(func(r *fakeRequest) fakeAct {
		if used || r.Op != op {
			return fakeAct{}
		}
		used = true
		return act
	})
}

type fakeCount struct{ conns, open, expired, objects, holds, requests int }

func (s *fakeServer) count() fakeCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := fakeCount{conns: len(s.conns), objects: len(s.objects), requests: len(s.seen)}
	for _, t := range s.transfers {
		if t.expired {
			n.expired++
		} else {
			n.open++
		}
		n.holds += len(t.objects)
	}
	return n
}

// ops returns how often each op was requested since the last call.
func (s *fakeServer) ops() map[proto.Op]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[proto.Op]int{}
	for _, op := range s.seen {
		m[op]++
	}
	s.seen = nil
	return m
}

// idle waits until nothing is held or staged.
func (s *fakeServer) idle() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { n := s.count(); return n.open+n.expired == 0 }, waitMax, tick, "transfers are left: %+v", s.count())
}

func (s *fakeServer) accept(ln *net.UnixListener) {
	defer s.done.Done()
	for {
		conn, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		c := &fakeConn{s: s, conn: conn}
		s.mu.Lock()
		if s.ln != ln {
			s.mu.Unlock()
			_ = conn.Close()
			continue
		}
		s.conns[c] = true
		s.done.Add(1)
		s.mu.Unlock()
		go c.serve()
	}
}

func (c *fakeConn) serve() {
	defer c.s.done.Done()
	defer c.gone()
	r := bufio.NewReader(c.conn)
	for {
		req, err := readFakeRequest(r)
		if err != nil {
			return
		}
		if !c.handle(req) {
			return
		}
	}
}

func readFakeRequest(r *bufio.Reader) (*fakeRequest, error) {
	var head [proto.HeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	h, err := proto.ParseHeader(head[:])
	if err != nil {
		return nil, err
	}
	q := &fakeRequest{Header: h, Body: make([]byte, h.Body), Payload: make([]byte, h.Payload())}
	if _, err := io.ReadFull(r, q.Body); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(r, q.Payload)
	return q, err
}

// handle carries a request out and answers it. It reports false to end the connection.
func (c *fakeConn) handle(q *fakeRequest) bool {
	s := c.s
	s.mu.Lock()
	s.seen = append(s.seen, q.Op)
	act := fakeAct{}
	if s.hook != nil {
		act = s.hook(q)
	}
	if act.drop {
		s.mu.Unlock()
		return false
	}
	status, body, payload, fd := act.status, []byte(nil), []byte(nil), -1
	if status == 0 && q.Op != proto.OpHello && q.Boot != s.boot {
		status = proto.StatusStaleEpoch
	}
	if status == 0 && !act.skip {
		status, body, payload, fd = c.carryOut(q)
	}
	if act.noFd {
		fd = -1
	}
	boot := s.boot
	s.mu.Unlock()
	if act.dropAfter {
		return false
	}
	if q.Flags&proto.FlagNoReply != 0 {
		return true
	}
	frame := proto.AppendFrame(nil, proto.Header{Op: q.Op, Flags: proto.FlagReply, Status: status, Request: q.Request, Boot: boot}, body, uint32(len(payload)))
	frame = append(frame, payload...)
	if act.raw != nil {
		frame = act.raw
	}
	if act.cut > 0 {
		_ = c.write(frame[:min(act.cut, len(frame))], fd)
		return false
	}
	if act.hold != nil {
		s.done.Add(1)
		go func() {
			defer s.done.Done()
			<-act.hold
			_ = c.write(frame, fd)
		}()
		return true
	}
	return c.write(frame, fd) == nil
}

func (c *fakeConn) write(frame []byte, fd int) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if fd < 0 {
		_, err := c.conn.Write(frame)
		return err
	}
	n, _, err := c.conn.WriteMsgUnix(frame, unix.UnixRights(fd), nil)
	if err == nil && n < len(frame) {
		err = fmt.Errorf("sent %d of %d", n, len(frame))
	}
	return err
}

// gone does what the protocol says of a connection that ends while its process lives.
func (c *fakeConn) gone() {
	_ = c.conn.Close()
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	for h, t := range s.transfers {
		if t.conn == c && t.told {
			t.expired = true
		} else if t.conn == c {
			s.end(h)
		}
	}
}

// end ends a transfer. The caller holds the mutex.
func (s *fakeServer) end(handle uint64) {
	t := s.transfers[handle]
	delete(s.transfers, handle)
	for _, o := range t.objects {
		if t.kind == proto.TransferStore {
			s.pool.free(o.slot)
			continue
		}
		if o.holds--; o.holds == 0 && o.gone {
			s.pool.free(o.slot)
		}
	}
}

// A fakePool is memory and who has it.
type fakePool struct {
	t    testing.TB
	fd   int
	name string
	st   unix.Stat_t
	data []byte
	used []proto.Slot
}

func newFakePool(t testing.TB, cfg fakeConfig) *fakePool {
	p := &fakePool{t: t}
	var err error
	if cfg.kind == proto.ShmNamed {
		p.name = fmt.Sprintf("slotcache_l1_pool_test_%d", unix.Getpid())
		p.fd, err = unix.Open("/dev/shm/"+p.name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC|unix.O_TRUNC, 0o600)
	} else {
		p.fd, err = unix.MemfdCreate("fakepool", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(p.fd, int64(cfg.size)))
	if p.name == "" {
		_, err = unix.FcntlInt(uintptr(p.fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
		require.NoError(t, err)
	}
	require.NoError(t, unix.Fstat(p.fd, &p.st))
	p.data, err = unix.Mmap(p.fd, 0, cfg.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	return p
}

func (p *fakePool) close() {
	require.NoError(p.t, unix.Munmap(p.data))
	require.NoError(p.t, unix.Close(p.fd))
	if p.name != "" {
		_ = unix.Unlink("/dev/shm/" + p.name)
	}
}

// alloc takes the first fit.
func (p *fakePool) alloc(n uint64) (proto.Slot, bool) {
	var at uint64
	i := 0
	for ; i < len(p.used) && at+n > p.used[i].Off; i++ {
		at = (p.used[i].Off + p.used[i].Len + 4095) &^ 4095
	}
	if at+n > uint64(len(p.data)) {
		return proto.Slot{}, false
	}
	slot := proto.Slot{Off: at, Len: n}
	if n > 0 {
		p.used = slices.Insert(p.used, i, slot)
	}
	return slot, true
}

func (p *fakePool) free(slot proto.Slot) {
	if slot.Len > 0 {
		i := slices.Index(p.used, slot)
		require.GreaterOrEqual(p.t, i, 0, "slot %v is freed twice", slot)
		p.used = slices.Delete(p.used, i, i+1)
	}
}

func (p *fakePool) bytes(slot proto.Slot) []byte { return p.data[slot.Off : slot.Off+slot.Len] }
