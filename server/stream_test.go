package server_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

func TestFramesMayComeAByteAtATime(t *testing.T) {
	r := start(t, nil)
	p := greet(t, r)
	p.register(1 << 20)
	value := valueOf(1, 5000)
	slow := func(frame []byte) {
		for i := range frame {
			_, err := p.conn.Write(frame[i : i+1])
			require.NoError(t, err)
		}
	}
	slow(p.frame(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{keyOf(1)}, Sizes: []uint64{5000}}), nil))
	_, body, _ := p.receive()
	var out proto.PrepareStoreReply
	require.NoError(t, proto.ParsePrepareStoreReply(body, &out))
	commit := p.frame(proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), value)
	slow(append(commit, p.frame(proto.OpPing, nil, nil)...))
	h, _, _ := p.receive()
	require.Equal(t, proto.OpCommitStore, h.Op)
	require.Equal(t, proto.StatusOK, h.Status)
	h, _, _ = p.receive()
	require.Equal(t, proto.OpPing, h.Op)
	status, got := p.get(keyOf(1))
	require.Equal(t, proto.StatusOK, status)
	require.True(t, bytes.Equal(value, got))
}

func TestAThousandFramesMayComeInOneWrite(t *testing.T) {
	r := start(t, nil)
	p := greet(t, r)
	first := p.last + 1
	var all []byte
	for range 1000 {
		all = append(all, p.frame(proto.OpPing, nil, nil)...)
	}
	_, err := p.conn.Write(all)
	require.NoError(t, err)
	for id := first; id <= p.last; id++ {
		h, _, _ := p.receive()
		require.Equal(t, proto.OpPing, h.Op)
		require.Equal(t, id, h.Request)
	}
}

// Puts need no reply to be sent, so that many may come in one write, cut anywhere. Those of a key
// that is there are read over.
func TestPutsMayComeInOneWrite(t *testing.T) {
	r := start(t, nil)
	p := greet(t, r)
	p.register(1 << 20)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const keys = 50
	first := p.last + 1
	var all []byte
	for i := range 2 * keys {
		value := valueOf(i%keys, []int{0, 1, 4096, 65536, 200_000}[i%5])
		all = append(all, p.frame(proto.OpPut, proto.AppendPut(nil, &proto.Put{Key: keyOf(i % keys)}), value)...)
	}
	sent := make(chan error, 1)
	go func() {
		for len(all) > 0 {
			n := min(len(all), 1+random.IntN(150_000))
			if _, err := p.conn.Write(all[:n]); err != nil {
				sent <- err
				return
			}
			all = all[n:]
		}
		sent <- nil
	}()
	for i := range uint64(2 * keys) {
		h, body, _ := p.receive()
		require.Equal(t, first+i, h.Request)
		require.Empty(t, body)
		want := proto.StatusOK
		if i >= keys {
			want = proto.StatusExists
		}
		require.Equal(t, want, h.Status, i)
	}
	require.NoError(t, <-sent)
	for i := range keys {
		status, got := p.get(keyOf(i))
		require.Equal(t, proto.StatusOK, status)
		require.True(t, bytes.Equal(valueOf(i, []int{0, 1, 4096, 65536, 200_000}[i%5]), got), i)
	}
}

// A megabyte of requests is more than a connection's share of a turn and than the buffers
// between the peers, so that the server holds back input in every way it has.
func TestManyMoreRequestsThanATurnTakesAreAnsweredInOrder(t *testing.T) {
	r := start(t, nil)
	p := greet(t, r)
	first := p.last + 1
	const count = 40_000
	sent := make(chan error, 1)
	var all []byte
	for range count {
		all = append(all, p.frame(proto.OpPing, nil, nil)...)
	}
	go func() {
		_, err := p.conn.Write(all)
		sent <- err
	}()
	for id := first; id < first+count; id++ {
		h, _, _ := p.receive()
		require.Equal(t, id, h.Request)
	}
	require.NoError(t, <-sent)
}

// The replies are inline values between nothing and 300 KiB, copied behind their frames or
// sent out of the pool, to a reader with a tiny buffer that reads little at a time.
func TestASlowReaderGetsEveryByte(t *testing.T) {
	r := start(t, nil)
	p := greet(t, r)
	p.register(1 << 20)
	const values = 24
	sizes := []int{0, 1, 100, 4095, 4096, 32 << 10, 32<<10 + 1, 100_000, 300 << 10}
	var want [values][]byte
	for i := range values {
		want[i] = valueOf(i, sizes[i%len(sizes)])
		p.put(keyOf(i), want[i])
	}
	require.NoError(t, p.conn.(*net.UnixConn).SetReadBuffer(1))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const count = 1000
	var asked [count][]int
	var all []byte
	for i := range asked {
		for range random.IntN(4) {
			asked[i] = append(asked[i], random.IntN(values))
		}
		keys := make([]proto.Key, len(asked[i]))
		for k, n := range asked[i] {
			keys[k] = keyOf(n)
		}
		all = append(all, p.frame(proto.OpPrepareRetrieve, retrieval(keys...), nil)...)
	}
	sent := make(chan error, 1)
	conn := p.conn
	go func() {
		_, err := conn.Write(all)
		sent <- err
	}()
	first := p.last - count + 1
	p.conn = &slowReader{Conn: conn, random: random}
	for i := range asked {
		h, _, payload := p.receive()
		require.Equal(t, first+uint64(i), h.Request)
		require.Equal(t, proto.StatusOK, h.Status)
		for _, n := range asked[i] {
			require.True(t, bytes.Equal(want[n], payload[:len(want[n])]), "reply %d has wrong bytes for value %d", i, n)
			payload = payload[len(want[n]):]
		}
		require.Empty(t, payload)
	}
	require.NoError(t, <-sent)
	p.ping()
}

// slowReader reads a random little at a time.
type slowReader struct {
	net.Conn
	random *rand.Rand
}

func (s *slowReader) Read(p []byte) (int, error) {
	return s.Conn.Read(p[:min(len(p), 1+s.random.IntN(60_000))])
}

func TestWhatIsNotAFrameClosesOnlyItsConnection(t *testing.T) {
	r := start(t, nil)
	good := greet(t, r)
	header := func(change func(p []byte)) []byte {
		p := proto.AppendFrame(nil, proto.Header{Op: proto.OpPing, Request: 1}, nil, 0)
		change(p)
		return p
	}
	bad := map[string][]byte{
		"version":       header(func(p []byte) { p[4] = 9 }),
		"size 0":        header(func(p []byte) { copy(p, []byte{0, 0, 0, 0}) }),
		"size maximum":  header(func(p []byte) { copy(p, []byte{255, 255, 255, 255}) }),
		"body too long": header(func(p []byte) { copy(p, []byte{255, 255, 255, 15}); copy(p[12:], []byte{255, 255, 255, 15}) }),
		"reserved":      header(func(p []byte) { p[10] = 1 }),
		"text":          []byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"),
		"random":        valueOf(7, 100_000),
	}
	for name, frame := range bad {
		t.Run(name, func(t *testing.T) {
			p := dial(t, r.Addrs()[0])
			_, _ = p.conn.Write(frame) // the server may close first
			p.closed()
			good.ping()
		})
	}
}

func TestAnErrorReplyLeavesTheStreamInStep(t *testing.T) {
	r := start(t, nil)
	p := greet(t, r)
	p.register(1 << 20)
	var all []byte
	all = append(all, p.frame(200, []byte("what"), nil)...)
	all = append(all, p.frame(proto.OpPing, []byte{1}, nil)...)
	all = append(all, p.frame(proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: 77}), valueOf(1, 200_000))...)
	all = append(all, p.frame(proto.OpPut, proto.AppendPut(nil, &proto.Put{Layout: 3}), valueOf(1, 200_000))...)
	all = append(all, p.frame(proto.OpPing, nil, valueOf(1, 10))...)
	all = append(all, p.frame(proto.OpPing, nil, nil)...)
	_, err := p.conn.Write(all)
	require.NoError(t, err)
	for _, want := range []proto.Status{proto.StatusUnsupported, proto.StatusBadRequest, proto.StatusStale, proto.StatusBadRequest, proto.StatusBadRequest, proto.StatusOK} {
		h, _, _ := p.receive()
		require.Equal(t, want, h.Status)
	}
}

func TestAHalfClosedPeerGetsItsReplies(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Listen = append(c.Listen, "tcp:127.0.0.1:0") })
	for _, addr := range r.Addrs() {
		t.Run(addr[:4], func(t *testing.T) {
			p := dial(t, addr)
			p.hello()
			p.register(1 << 20)
			value := valueOf(3, 900_000)
			p.put(keyOf(3), value)
			var all []byte
			for range 10 {
				all = append(all, p.frame(proto.OpPrepareRetrieve, retrieval(keyOf(3)), nil)...)
			}
			all = append(all, p.frame(proto.OpPing, nil, nil)[:20]...) // what is cut off is nothing
			_, err := p.conn.Write(all)
			require.NoError(t, err)
			require.NoError(t, p.conn.(interface{ CloseWrite() error }).CloseWrite())
			for range 10 {
				h, _, payload := p.receive()
				require.Equal(t, proto.StatusOK, h.Status)
				require.True(t, bytes.Equal(value, payload))
			}
			_, _, _, err = p.read()
			require.ErrorIs(t, err, io.EOF)
			_, _, _ = greet(t, r).call(proto.OpClear, proto.AppendClear(nil, &proto.Clear{Namespace: "test"}), nil)
		})
	}
}

func TestAHungUpPeerGetsItsLastReply(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Access.Token = "open sesame" })
	p := dial(t, r.Addrs()[0])
	hello := proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1, Token: "open"})
	_, err := p.conn.Write(append(p.frame(proto.OpHello, hello, nil), valueOf(1, 100_000)...)) // more, that nobody will read
	require.NoError(t, err)
	h, _, _ := p.receive()
	require.Equal(t, proto.StatusDenied, h.Status)
	p.closed()
}

// Each connection sends all but the last byte of a large frame, 100 MB together.
func TestUnfinishedFramesTakeBoundedMemory(t *testing.T) {
	const budget = 64 << 20
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	good := greet(t, r)
	frame := good.frame(proto.OpLookup, make([]byte, 500_000), nil)
	for range 200 {
		p := dial(t, r.Addrs()[0])
		_, _ = p.conn.Write(frame[:len(frame)-1]) // the server may close first
	}
	eventually(t, "connections are closed for it", func() bool { return scrape(t, r)["slotcache_over_budget_total"] > 0 })
	require.LessOrEqual(t, scrape(t, r)["slotcache_input_buffer_bytes"], uint64(budget))
	good.ping()
}
