package main

import (
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/benchmarks/observe"
	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/proto"
)

const (
	idleConns = 10_000
	// idlePlaces are enough that one process may have so many.
	idlePlaces = 14_000
	// idleMost is what an idle connection may take of the server's memory, in bytes.
	idleMost = 16 << 10
)

// exchange sends one frame on a raw connection and reads the head of its reply, and as much of
// the rest as there is.
func exchange(t *testing.T, c net.Conn, h proto.Header, body []byte) proto.Header {
	t.Helper()
	_, err := c.Write(proto.AppendFrame(nil, h, body, 0))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	head := make([]byte, proto.HeaderSize)
	_, err = io.ReadFull(c, head)
	require.NoError(t, err)
	reply, err := proto.ParseHeader(head)
	require.NoError(t, err)
	require.Equal(t, proto.StatusOK, reply.Status)
	_, err = io.CopyN(io.Discard, c, int64(reply.Size)-proto.HeaderSize)
	require.NoError(t, err)
	return reply
}

// bring connects, says HELLO and registers for shared memory, as another connection of one worker.
func bring(t *testing.T, addr string) net.Conn {
	t.Helper()
	kind, path, _ := strings.Cut(addr, ":")
	c, err := net.Dial(kind, path)
	require.NoError(t, err)
	hello := exchange(t, c, proto.Header{Op: proto.OpHello, Request: 1}, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1}))
	exchange(t, c, proto.Header{Op: proto.OpRegister, Request: 2, Boot: hello.Boot}, proto.AppendRegister(nil, &proto.Register{
		Instance: 7, Want: proto.TransportShared, Name: "idle", Namespace: "test",
		Layouts: []proto.Layout{{Name: "bytes", Dims: []uint32{1}, Size: 4096}},
	}))
	return c
}

// unreclaimable is the kernel's own memory that it cannot give up, in bytes: sockets and what a
// ring keeps of its operations are in it, and all else that the machine does.
func unreclaimable(t *testing.T) int64 {
	t.Helper()
	n, err := memoryField("/", "SUnreclaim:")
	require.NoError(t, err)
	return n
}

func serverFiles(t *testing.T, s *cmdtest.Server) int {
	t.Helper()
	list, err := os.ReadDir("/proc/" + strconv.Itoa(s.PID()) + "/fd")
	require.NoError(t, err)
	return len(list)
}

// TestTenThousandIdleConnectionsAreCheap: ten thousand idle connections use up descriptors or
// memory. Each costs the server one descriptor and less than 16 KiB, though all of them registered
// for shared memory; their process costs one descriptor more.
func TestTenThousandIdleConnectionsAreCheap(t *testing.T) {
	var files unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	if files.Max < idlePlaces+2048 {
		t.Skipf("%d files may be open, and this takes %d of them", files.Max, idlePlaces+2048)
	}
	few := cmdtest.Dir(t)
	small := cmdtest.Start(t, append(cmdtest.Small(few), "--connections", "16")...)
	one := bring(t, cmdtest.Addr(few))
	defer func() { _ = one.Close() }()
	without, err := observe.Memory(small.PID())
	require.NoError(t, err)
	small.Kill()

	dir := cmdtest.Dir(t)
	s := cmdtest.Start(t, append(cmdtest.Small(dir), "--connections", strconv.Itoa(idlePlaces))...)
	open := serverFiles(t, s)
	kernel := unreclaimable(t)
	for range idleConns {
		c := bring(t, cmdtest.Addr(dir))
		defer func() { _ = c.Close() }()
	}
	kernel = unreclaimable(t) - kernel
	with, err := observe.Memory(s.PID())
	require.NoError(t, err)
	require.LessOrEqual(t, serverFiles(t, s), open+idleConns+16) // the disk tier opens some of its own
	each := (with - without) / idleConns
	t.Logf("%d bytes a connection (%d KiB with %d, %d KiB with one); the kernel's own memory on both sides, and of all else: %d bytes each",
		each, with>>10, idleConns, without>>10, kernel/idleConns)
	if !cmdtest.Race { // which takes several times as much
		require.Less(t, each, int64(idleMost))
	}
}
