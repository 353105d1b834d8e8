package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/mounttest"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// safeBuffer takes a server's log while a test reads it.
type safeBuffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

func TestTenThousandConnectionsComeAndGo(t *testing.T) {
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	watcher := greet(t, r)
	before := openFiles(t)
	hello := proto.AppendFrame(nil, proto.Header{Op: proto.OpHello, Request: 1}, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1}), 0)
	for i := range 10_000 {
		c, err := net.Dial("unix", r.path)
		require.NoError(t, err)
		switch i % 5 {
		case 1:
			_, _ = c.Write(hello[:10])
		case 2:
			_, _ = c.Write(hello) // its reply is never read
		case 3:
			_, _ = c.Write(hello)
			_, _ = c.Read(make([]byte, 8))
		case 4:
			_ = c.(*net.UnixConn).CloseWrite()
		}
		require.NoError(t, c.Close())
	}
	eventually(t, "all connections end", func() bool { return watcher.stats()["connections"] == 1 })
	eventually(t, "all descriptors are closed", func() bool { return openFiles(t) <= before })
	all := scrape(t, r)
	require.EqualValues(t, 10_001, all["slotcache_accepted_total"])
	require.EqualValues(t, 10_000, all["slotcache_closed_total"])
	require.Zero(t, all["slotcache_output_queued_bytes"])
	require.LessOrEqual(t, all["slotcache_output_buffer_bytes"], uint64(4096)) // the watcher's
	require.LessOrEqual(t, all["slotcache_input_buffer_bytes"], uint64(4096))
}

func TestConnectionsOverTheLimitAreClosedAtOnce(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Limits.Conns = 3 })
	var open []*peer
	for range 3 {
		p := greet(t, r)
		p.register(4096) // who is not, gives way
		open = append(open, p)
	}
	dial(t, r.Addrs()[0]).closed()
	for _, p := range open {
		p.ping()
	}
	require.NoError(t, open[1].conn.Close())
	eventually(t, "there is room again", func() bool {
		p := dial(t, r.Addrs()[0])
		defer func() { _ = p.conn.Close() }()
		_, err := p.conn.Write(p.frame(proto.OpHello, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1}), nil))
		if err == nil { // else it is closed already
			_, _, _, err = p.read()
		}
		return err == nil
	})
}

// It asks a hundred thousand times for what makes a reply of some KiB, so that the replies
// would take hundreds of MiB.
func TestAPeerThatNeverReadsCostsBoundedMemory(t *testing.T) {
	r := start(t, nil)
	p := greet(t, r)
	one := p.frame(proto.OpStats, nil, nil)
	reply := len(func() []byte { _, b, _ := p.call(proto.OpStats, nil, nil); return b }())
	require.NoError(t, p.conn.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
	written := 0
	for range 100_000 {
		n, err := p.conn.Write(one)
		written += n
		if err != nil {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			break
		}
	}
	require.Less(t, written/len(one)*reply, 8<<20, "the server goes on taking requests")
	greet(t, r).ping()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("%d requests taken, replies of %d bytes", written/len(one), reply)
}

// childServer, in the environment, makes the test binary a client that stores one value,
// prepares another and waits to be killed.
const childServer = "SLOTCACHE_TEST_CHILD"

// childListens, in the environment, makes the test binary listen on the socket it was given
// and end.
const childListens = "SLOTCACHE_TEST_LISTENS"

func TestMain(m *testing.M) {
	mounttest.Private()
	if path := os.Getenv(childServer); path != "" {
		child(path)
		return
	}
	if path := os.Getenv(childZombie); path != "" {
		zombie(path)
		return
	}
	if path := os.Getenv(childConnects); path != "" {
		connects(path)
		return
	}
	if os.Getenv(childListens) != "" {
		if err := unix.Listen(3, 16); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child registers for shared memory and prepares a store that it never ends.
func child(path string) {
	t := &testing.T{}
	p := dial(t, "unix:"+path)
	p.hello()
	h, _, _ := p.call(proto.OpRegister, proto.AppendRegister(nil, &proto.Register{
		Instance: uint64(os.Getpid()), Want: proto.TransportShared, Name: "child", Namespace: "test",
		Layouts: []proto.Layout{{Name: "bytes", Dims: []uint32{1}, Size: 4 << 20}},
	}), nil)
	fmt.Println("registered", h.Status)
	_, body, _ := p.call(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{keyOf(1)}, Sizes: []uint64{4 << 20}}), nil)
	var out proto.PrepareStoreReply
	fmt.Println("prepared", proto.ParsePrepareStoreReply(body, &out), out.Transfer != 0)
	if os.Getenv(childServer+"_CLOSE") != "" { // the process outlives its connection
		_ = p.conn.Close()
		fmt.Println("closed")
	}
	time.Sleep(time.Minute)
}

func TestAKilledProcessGivesItsSlotsBack(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run("closed before is "+strconv.FormatBool(closes), func(t *testing.T) {
			r := start(t, nil)
			watcher := greet(t, r)
			before := openFiles(t)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childServer+"="+r.path)
			words := 2
			if closes {
				cmd.Env = append(cmd.Env, childServer+"_CLOSE=1")
				words = 3
			}
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			lines := bufio.NewScanner(out)
			for range words {
				require.True(t, lines.Scan())
				require.False(t, strings.Contains(lines.Text(), "rror"), lines.Text())
			}
			if closes {
				eventually(t, "the connection ends", func() bool { return watcher.stats()["connections"] == 1 })
			}
			used := watcher.stats()["l1_used_bytes"]
			require.GreaterOrEqual(t, used, uint64(4<<20), "slots of a living process are given away")
			require.NoError(t, cmd.Process.Signal(unix.SIGKILL))
			eventually(t, "the slots are free", func() bool { return watcher.stats()["l1_used_bytes"] == 0 })
			eventually(t, "the instance is gone", func() bool { return watcher.stats()["instances"] == 0 })
			_ = cmd.Wait()
			_ = out.Close()
			eventually(t, "all descriptors are closed", func() bool { return openFiles(t) <= before })
		})
	}
}

func TestShutdownUnderLoad(t *testing.T) {
	for _, calls := range []int{1, 2} {
		t.Run(strconv.Itoa(calls), func(t *testing.T) { shutdownUnderLoad(t, calls) })
	}
}

// shutdownUnderLoad calls Shutdown so many times at once.
func shutdownUnderLoad(t *testing.T, calls int) {
	r := start(t, nil)
	var group sync.WaitGroup
	for range 8 {
		p := greet(t, r)
		p.register(1 << 20)
		group.Go(func() {
			value := valueOf(1, 100_000)
			for i := 0; ; i++ {
				body := proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{keyOf(i)}, Sizes: []uint64{100_000}})
				if _, err := p.conn.Write(p.frame(proto.OpPrepareStore, body, nil)); err != nil {
					return
				}
				_, reply, _, err := p.read()
				if err != nil {
					return
				}
				var out proto.PrepareStoreReply
				if proto.ParsePrepareStoreReply(reply, &out) != nil || out.Transfer == 0 {
					continue
				}
				_, _ = p.conn.Write(p.frame(proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), value))
				if _, _, _, err := p.read(); err != nil {
					return
				}
			}
		})
	}
	watcher := greet(t, r)
	eventually(t, "there is load", func() bool { return watcher.stats()["stored_bytes_total"] > 10<<20 })
	began := time.Now()
	for range calls {
		r.Shutdown()
	}
	require.NoError(t, <-r.done)
	r.done <- nil
	t.Logf("stopped in %v", time.Since(began))
	group.Wait()
	require.NoFileExists(t, r.path)
}

// The replies it does not take would keep the pool's memory, and with it the stop, as long
// as the peer likes.
func TestAPeerThatNeverReadsDoesNotHoldUpAStop(t *testing.T) {
	var text safeBuffer
	r := start(t, func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(&text, nil)) })
	p := greet(t, r)
	p.register(1 << 20)
	p.put(keyOf(1), valueOf(1, 1<<20))
	for range 20 {
		p.send(proto.OpPrepareRetrieve, retrieval(keyOf(1)), nil)
	}
	ended := greet(t, r) // it has sent its last byte already
	ended.register(1 << 20)
	for range 20 {
		ended.send(proto.OpPrepareRetrieve, retrieval(keyOf(1)), nil)
	}
	require.NoError(t, ended.conn.(*net.UnixConn).CloseWrite())
	r.Shutdown()
	require.NoError(t, <-r.done)
	r.done <- nil
	require.Contains(t, text.String(), "msg=stopped\n", "it has ended in order, not for want of time")
}

// It costs the peer nothing to connect and send what is no frame.
func TestBrokenFramesDoNotFloodTheLog(t *testing.T) {
	var text safeBuffer
	r := start(t, func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(&text, nil)) })
	began := time.Now()
	for range 300 {
		p := dial(t, r.Addrs()[0])
		_, err := p.conn.Write(make([]byte, proto.HeaderSize))
		require.NoError(t, err)
		p.closed()
		require.NoError(t, p.conn.Close())
	}
	most := 5 + int(time.Since(began)/time.Second)
	said := strings.Count(text.String(), "not a frame")
	require.Positive(t, said)
	require.LessOrEqual(t, said, most)
}

func TestShutdownBeforeRunAndTwice(t *testing.T) {
	path := socketPath(t)
	s, err := server.New(server.Config{Listen: []string{"unix:" + path}, L1Size: 1 << 20})
	require.NoError(t, err)
	s.Shutdown()
	s.Shutdown()
	require.NoError(t, s.Run())
	require.NoFileExists(t, path)
	s.Shutdown()
	require.Error(t, s.Run())
}

// The limit on open files is lowered after the server has looked at it.
func TestWithoutDescriptorsItRestsAndGoesOn(t *testing.T) {
	r := open(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	var clients []int
	highest := 0
	for range 12 {
		f, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer func() { _ = unix.Close(f) }()
		clients = append(clients, f)
		highest = max(highest, f)
	}
	for { // fill the holes
		f, err := unix.FcntlInt(uintptr(highest), unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		if f > highest {
			require.NoError(t, unix.Close(f))
			break
		}
		defer func() { _ = unix.Close(f) }()
	}
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(highest) + 7, Max: old.Max}))
	r.run()
	p := greet(t, r) // three of the six
	for _, f := range clients {
		require.NoError(t, unix.Connect(f, &unix.SockaddrUnix{Name: r.path}))
	}
	for range 50 {
		p.ping()
	}
	time.Sleep(300 * time.Millisecond) // a loop that spins would turn thousands of times
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	greet(t, r).ping() // what waited and what comes later is served
	all := scrape(t, r)
	require.Positive(t, all["slotcache_accept_errors_total"])
	require.Less(t, all["slotcache_turns_total"], uint64(300))
	require.EqualValues(t, 14, all["slotcache_accepted_total"])
}
