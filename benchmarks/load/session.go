package load

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// A Session is a connection that is registered with a cache server.
type Session struct {
	*Link
	Boot uint64
	Pool []byte // the server's memory; nil: inline

	path string
	want proto.Transport // 0: it is not registered
}

// Close closes the connection and ends all that this process has open at the server: an
// instance whose process lives keeps it otherwise.
func (s *Session) Close() error {
	err := s.Link.Close()
	if s.want != 0 {
		err = errors.Join(err, End(s.path, s.want))
	}
	return err
}

// Clear empties the server of the benchmarks' objects, so that what a job stores first stays.
func (s *Session) Clear() error {
	_, err := s.ask(proto.OpClear, proto.AppendClear(nil, &proto.Clear{}))
	return err
}

// End ends the instance of this process at a server, with all its connections.
func End(path string, want proto.Transport) error {
	s, err := Open(path, want)
	if err != nil {
		return err
	}
	_, err = s.ask(proto.OpUnregister, nil)
	return errors.Join(err, s.Link.Close())
}

// pools are the mappings of this process, by device and inode: a pool is mapped and populated
// once, as a worker does.
var pools = map[[2]uint64][]byte{}

// cold says that a new mapping is not to be populated.
var cold bool

// instance is this process' id at every server.
var instance = uint64(os.Getpid())<<32 | 0x5107

// layoutSize is the largest object of the benchmarks' layout, in bytes.
const layoutSize = 64 << 20

// Greet connects and says hello, no more.
func Greet(path string) (*Session, error) {
	l, err := Dial(path)
	if err != nil {
		return nil, err
	}
	s := &Session{Link: l, path: path}
	body := proto.AppendHello(nil, &proto.Hello{VersionMin: proto.Version, VersionMax: proto.Version})
	reply, err := s.ask(proto.OpHello, body)
	if err == nil {
		var hello proto.HelloReply
		if err = proto.ParseHelloReply(reply, &hello); err == nil {
			s.Boot = hello.Boot
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}

// Open connects and registers, with memory shared or inline, and maps and populates the
// memory if this process has not done so before.
func Open(path string, want proto.Transport) (*Session, error) {
	s, err := Greet(path)
	if err != nil {
		return nil, err
	}
	if err := s.register(want); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.want = want
	return s, nil
}

func (s *Session) register(want proto.Transport) error {
	id := instance
	if want == proto.TransportInline {
		id++ // two ways at one server are two instances
	}
	body := proto.AppendRegister(nil, &proto.Register{
		Instance: id, Want: want, Name: "slotbench", Namespace: "slotbench",
		Layouts: []proto.Layout{{Name: "bench", Dims: []uint32{layoutSize}, Size: layoutSize}},
	})
	if err := s.Send(proto.AppendFrame(nil, proto.Header{Op: proto.OpRegister, Boot: s.Boot}, body, 0)); err != nil {
		return err
	}
	fd, err := s.receiveFD()
	if err != nil {
		return err
	}
	frame, err := s.Frame()
	var reply proto.RegisterReply
	if err == nil {
		if frame, err = done(frame); err == nil {
			err = proto.ParseRegisterReply(frame, &reply)
		}
	}
	if err == nil && reply.Transport != want {
		err = fmt.Errorf("load: transport %v, want %v", reply.Transport, want)
	}
	if err == nil && want == proto.TransportShared {
		err = s.attach(&reply, fd)
	}
	if fd >= 0 {
		_ = unix.Close(fd) // the mapping stays
	}
	return err
}

// receiveFD receives the first bytes of the reply and the descriptor beside them, -1 if there
// is none.
func (s *Session) receiveFD() (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(s.fd, s.in[s.w:], oob, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, oobn, _, _, err = unix.Recvmsg(s.fd, s.in[s.w:], oob, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil || n == 0 {
		return -1, fmt.Errorf("load: the reply to register: %d bytes, %w", n, err)
	}
	s.w += n
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return -1, fmt.Errorf("load: the pool's descriptor: %w", err)
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, nil
}

// attach maps the pool.
func (s *Session) attach(reply *proto.RegisterReply, fd int) error {
	id := [2]uint64{reply.Dev, reply.Inode}
	if pool, ok := pools[id]; ok {
		s.Pool = pool
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("load: the pool: %w", err)
	}
	if st.Dev != id[0] || st.Ino != id[1] || uint64(st.Size) != reply.PoolSize || reply.PoolSize > math.MaxInt64 {
		return fmt.Errorf("load: the pool is %d:%d of %d bytes, not as announced", st.Dev, st.Ino, st.Size)
	}
	pool, err := unix.Mmap(fd, 0, int(reply.PoolSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		err = unix.Madvise(pool, unix.MADV_DONTFORK)
	}
	if err != nil {
		return fmt.Errorf("load: map the pool: %w", err)
	}
	if !cold {
		if err := populate(pool[:reply.Ready]); err != nil {
			return err
		}
	}
	pools[id] = pool
	s.Pool = pool
	return nil
}

// Prepare reserves a slot for one object and gives its transfer.
func (s *Session) Prepare(key proto.Key, size uint64) (uint64, error) {
	body, err := s.ask(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{key}, Sizes: []uint64{size}}))
	var reply proto.PrepareStoreReply
	if err == nil {
		err = proto.ParsePrepareStoreReply(body, &reply)
	}
	if err == nil && reply.Transfer == 0 {
		err = fmt.Errorf("load: prepare is answered %v", reply.Results[0].Status)
	}
	return reply.Transfer, err
}

// Forget unmaps all pools, so that the next session begins with a cold mapping.
func Forget() error {
	var failures []error
	for id, pool := range pools {
		failures = append(failures, unix.Munmap(pool))
		delete(pools, id)
	}
	return errors.Join(failures...)
}

// populate makes the pages of p present.
func populate(p []byte) error {
	for len(p) > 0 {
		err := unix.Madvise(p, unix.MADV_POPULATE_WRITE)
		if err == nil {
			return nil
		}
		if err != unix.EINTR && err != unix.EAGAIN {
			return fmt.Errorf("load: populate %d bytes: %w", len(p), err)
		}
	}
	return nil
}

// ask sends one request and returns the body of its reply.
func (s *Session) ask(op proto.Op, body []byte) ([]byte, error) {
	if err := s.Send(proto.AppendFrame(nil, proto.Header{Op: op, Boot: s.Boot}, body, 0)); err != nil {
		return nil, err
	}
	frame, err := s.Frame()
	if err != nil {
		return nil, err
	}
	return done(frame)
}

// done returns the body of a reply that says that its request was done.
func done(frame []byte) ([]byte, error) {
	h, err := proto.ParseHeader(frame)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if !h.Reply() || h.Status != proto.StatusOK {
		return nil, fmt.Errorf("load: %v is answered %v", h.Op, h.Status)
	}
	return frame[proto.HeaderSize:], nil
}
