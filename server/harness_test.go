package server_test

import (
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// running is a server under test.
type running struct {
	*server.Server
	t    *testing.T
	path string // of its socket
	done chan error
}

// socketPath returns a short path for a socket in a directory of the test's own.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "slot")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// logWriter hands a server's log to its test.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// start runs a server until the end of the test.
func start(t *testing.T, change func(*server.Config)) *running {
	t.Helper()
	r := open(t, change)
	r.run()
	return r
}

// open makes a server that does not run yet.
func open(t *testing.T, change func(*server.Config)) *running {
	t.Helper()
	path := socketPath(t)
	cfg := server.Config{
		Listen: []string{"unix:" + path}, L1Size: 16 << 20,
		Logger: slog.New(slog.NewTextHandler(logWriter{t}, nil)), Engine: ringtest.Engine(t),
	}
	if change != nil {
		change(&cfg)
	}
	s, err := server.New(cfg)
	require.NoError(t, err)
	return &running{Server: s, t: t, path: path, done: make(chan error, 1)}
}

// run runs the server until the end of the test.
func (r *running) run() {
	r.t.Helper()
	go func() { r.done <- r.Run() }()
	r.t.Cleanup(r.stop)
	select {
	case <-r.Ready():
	case err := <-r.done:
		r.t.Fatalf("the server ended: %v", err)
	case <-time.After(patience):
		r.t.Fatal("the server is not ready")
	}
}

// stop ends the server, as often as it is called.
func (r *running) stop() {
	r.Shutdown()
	select {
	case err := <-r.done:
		r.done <- err
		require.NoError(r.t, err)
	case <-time.After(patience):
		r.t.Fatal("the server does not end")
	}
}

// A peer is one raw connection.
type peer struct {
	t    *testing.T
	conn net.Conn
	boot uint64
	last uint64 // request id
}

// dial connects without a word.
func dial(t *testing.T, addr string) *peer {
	t.Helper()
	kind, rest, _ := strings.Cut(addr, ":")
	c, err := net.Dial(kind, rest)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &peer{t: t, conn: c}
}

// greet connects and says HELLO.
func greet(t *testing.T, r *running) *peer {
	t.Helper()
	p := dial(t, r.Addrs()[0])
	p.hello()
	return p
}

func (p *peer) hello() {
	p.t.Helper()
	p.send(proto.OpHello, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1}), nil)
	h, body, _ := p.receive()
	require.Equal(p.t, proto.StatusOK, h.Status)
	var hello proto.HelloReply
	require.NoError(p.t, proto.ParseHelloReply(body, &hello))
	p.boot = hello.Boot
}

// register makes p an instance with one layout, that sends and gets its bytes inline.
func (p *peer) register(size uint64) {
	p.t.Helper()
	h, _, _ := p.call(proto.OpRegister, proto.AppendRegister(nil, &proto.Register{
		Instance: rand.Uint64() | 1, Want: proto.TransportInline, Name: "peer", Namespace: "test",
		Layouts: []proto.Layout{{Name: "bytes", Dims: []uint32{1}, Size: size}},
	}), nil)
	require.Equal(p.t, proto.StatusOK, h.Status)
}

// frame returns a request, with its payload.
func (p *peer) frame(op proto.Op, body, payload []byte) []byte {
	p.last++
	h := proto.Header{Op: op, Request: p.last, Boot: p.boot}
	if op == proto.OpCommitStore {
		h.Flags = proto.FlagInline // also for values of no bytes
	}
	f := proto.AppendFrame(nil, h, body, uint32(len(payload)))
	return append(f, payload...)
}

// send writes a request.
func (p *peer) send(op proto.Op, body, payload []byte) {
	p.t.Helper()
	_, err := p.conn.Write(p.frame(op, body, payload))
	require.NoError(p.t, err)
}

// receive reads a reply. What it returns is valid until the next call.
func (p *peer) receive() (proto.Header, []byte, []byte) {
	p.t.Helper()
	h, body, payload, err := p.read()
	require.NoError(p.t, err)
	return h, body, payload
}

func (p *peer) read() (proto.Header, []byte, []byte, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return proto.Header{}, nil, nil, err
	}
	var head [proto.HeaderSize]byte
	if _, err := io.ReadFull(p.conn, head[:]); err != nil {
		return proto.Header{}, nil, nil, err
	}
	h, err := proto.ParseHeader(head[:])
	if err != nil {
		return h, nil, nil, err
	}
	rest := make([]byte, h.Size-proto.HeaderSize)
	_, err = io.ReadFull(p.conn, rest)
	return h, rest[:h.Body], rest[h.Body:], err
}

// call is a round trip.
func (p *peer) call(op proto.Op, body, payload []byte) (proto.Header, []byte, []byte) {
	p.t.Helper()
	p.send(op, body, payload)
	h, reply, bytes := p.receive()
	require.Equal(p.t, op, h.Op)
	require.Equal(p.t, p.last, h.Request)
	return h, reply, bytes
}

// ping is a round trip that must go well.
func (p *peer) ping() {
	p.t.Helper()
	h, _, _ := p.call(proto.OpPing, nil, nil)
	require.Equal(p.t, proto.StatusOK, h.Status)
}

// put stores one value inline.
func (p *peer) put(key proto.Key, value []byte) {
	p.t.Helper()
	p.putAll([]proto.Key{key}, [][]byte{value})
}

// putAll stores values inline, in one commit.
func (p *peer) putAll(keys []proto.Key, values [][]byte) {
	p.t.Helper()
	in := proto.PrepareStore{Keys: keys, WaitMs: 20_000} // for spills, when memory is full of what the disk has not
	var all []byte
	for _, v := range values {
		in.Sizes = append(in.Sizes, uint64(len(v)))
		all = append(all, v...)
	}
	h, body, _ := p.call(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &in), nil)
	require.Equal(p.t, proto.StatusOK, h.Status)
	var out proto.PrepareStoreReply
	require.NoError(p.t, proto.ParsePrepareStoreReply(body, &out))
	for _, res := range out.Results {
		require.Equal(p.t, proto.StatusReserved, res.Status)
	}
	h, _, _ = p.call(proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), all)
	require.Equal(p.t, proto.StatusOK, h.Status)
}

// retrieval is the body of a request for values.
func retrieval(keys ...proto.Key) []byte {
	return proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{Keys: keys})
}

// get fetches values inline.
func (p *peer) get(keys ...proto.Key) (proto.Status, []byte) {
	p.t.Helper()
	h, _, payload := p.call(proto.OpPrepareRetrieve, retrieval(keys...), nil)
	return h.Status, payload
}

// stats asks for the server's numbers.
func (p *peer) stats() map[string]uint64 {
	p.t.Helper()
	h, body, _ := p.call(proto.OpStats, nil, nil)
	require.Equal(p.t, proto.StatusOK, h.Status)
	var out proto.StatsReply
	require.NoError(p.t, proto.ParseStatsReply(body, &out))
	all := make(map[string]uint64)
	for _, c := range out.Counters {
		all[c.Name] = c.Value
	}
	return all
}

// closed waits for the server to close the connection.
func (p *peer) closed() {
	p.t.Helper()
	for {
		if _, _, _, err := p.read(); err != nil {
			require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded)
			return
		}
	}
}

// keyOf makes a key of a number.
func keyOf(n int) (k proto.Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(n))
	return k
}

// valueOf makes a value that tells its key and its place.
func valueOf(n, size int) []byte {
	random := rand.New(rand.NewPCG(uint64(n), uint64(size)))
	v := make([]byte, 0, size+8)
	for len(v) < size {
		v = binary.LittleEndian.AppendUint64(v, random.Uint64())
	}
	return v[:size]
}

// eventually waits until what is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		if f() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it does not happen that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
