package server_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// share registers p for shared memory and returns the reply and the descriptor with it.
func (p *peer) share(id uint64, readOnly bool) (proto.RegisterReply, int) {
	p.t.Helper()
	p.send(proto.OpRegister, proto.AppendRegister(nil, &proto.Register{
		Instance: id, Want: proto.TransportShared, ReadOnly: readOnly, Name: "peer", Namespace: "test",
		Layouts: []proto.Layout{{Name: "bytes", Dims: []uint32{1}, Size: 1 << 20}},
	}), nil)
	frame, control := make([]byte, 4096), make([]byte, 64)
	n, nc, _, _, err := p.conn.(*net.UnixConn).ReadMsgUnix(frame, control)
	require.NoError(p.t, err)
	h, err := proto.ParseHeader(frame[:n])
	require.NoError(p.t, err)
	require.Equal(p.t, proto.StatusOK, h.Status)
	var out proto.RegisterReply
	require.NoError(p.t, proto.ParseRegisterReply(frame[proto.HeaderSize:n], &out))
	if nc == 0 {
		return out, -1
	}
	messages, err := unix.ParseSocketControlMessage(control[:nc])
	require.NoError(p.t, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	require.NoError(p.t, err)
	require.Len(p.t, fds, 1)
	p.t.Cleanup(func() { _ = unix.Close(fds[0]) })
	return out, fds[0]
}

func TestWhatIsWrittenToASlotIsReadFromIt(t *testing.T) {
	r := start(t, nil)
	writer := greet(t, r)
	reply, fd := writer.share(1, false)
	require.Equal(t, proto.TransportShared, reply.Transport)
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	require.EqualValues(t, reply.PoolSize, st.Size)
	require.Equal(t, reply.Inode, st.Ino)
	require.Equal(t, reply.PoolSize, reply.Ready)
	memory, err := unix.Mmap(fd, 0, int(reply.PoolSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(memory) }()

	value := valueOf(1, 777_777)
	_, body, _ := writer.call(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{keyOf(1)}, Sizes: []uint64{777_777}}), nil)
	var out proto.PrepareStoreReply
	require.NoError(t, proto.ParsePrepareStoreReply(body, &out))
	copy(memory[out.Results[0].Slot.Off:], value)
	writer.last++
	_, err = writer.conn.Write(proto.AppendFrame(nil, proto.Header{Op: proto.OpCommitStore, Request: writer.last, Boot: writer.boot},
		proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), 0))
	require.NoError(t, err)
	h, _, _ := writer.receive()
	require.Equal(t, proto.StatusOK, h.Status)

	reader := greet(t, r)
	reply, only := reader.share(2, true)
	require.Equal(t, reply.Inode, st.Ino)
	_, err = unix.Mmap(only, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.Error(t, err, "a reader's descriptor can be written through")
	inline := greet(t, r)
	inline.register(1 << 20)
	status, got := inline.get(keyOf(1))
	require.Equal(t, proto.StatusOK, status)
	require.True(t, bytes.Equal(value, got))
}

func TestTCPPeersGetNoSharedMemory(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Listen = []string{"tcp:127.0.0.1:0"} })
	p := greet(t, r)
	p.register(1 << 20)
	p.put(keyOf(1), valueOf(1, 500_000))
	_, got := p.get(keyOf(1))
	require.True(t, bytes.Equal(valueOf(1, 500_000), got))
}

// Whoever can open a named pool can truncate it. Then bytes are lost, and requests for them
// fail; the server and its other connections stay.
func TestATruncatedPoolFailsRequestsOnly(t *testing.T) {
	name := fmt.Sprintf("test_%d", os.Getpid())
	r := start(t, func(c *server.Config) { c.ShmName = &name })
	other := greet(t, r)
	p := greet(t, r)
	p.register(1 << 20)
	p.put(keyOf(1), valueOf(1, 1000))
	p.put(keyOf(2), valueOf(2, 900_000))
	files, err := filepath.Glob("/dev/shm/slotcache_l1_pool_" + name)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Truncate(files[0], 0))

	for _, n := range []int{1, 2} { // copied by the server, and read by the kernel
		q := greet(t, r)
		q.register(1 << 20)
		q.send(proto.OpPrepareRetrieve, retrieval(keyOf(n)), nil)
		q.closed()
		other.ping()
	}
	h, body, _ := p.call(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{keyOf(3)}, Sizes: []uint64{900_000}}), nil)
	require.Equal(t, proto.StatusOK, h.Status)
	var out proto.PrepareStoreReply
	require.NoError(t, proto.ParsePrepareStoreReply(body, &out))
	h, _, _ = p.call(proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), valueOf(3, 900_000))
	require.Equal(t, proto.StatusIO, h.Status)
	p.ping()
	require.EqualValues(t, 0, p.stats()["l1_staged_bytes"])
	r.stop()
	require.NoFileExists(t, files[0])
}

func TestABrokenPayloadFreesItsSlots(t *testing.T) {
	r := start(t, nil)
	watcher := greet(t, r)
	for range 30 { // more than the pool could hold at once
		p := greet(t, r)
		p.register(1 << 20)
		_, body, _ := p.call(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &proto.PrepareStore{Keys: []proto.Key{keyOf(1)}, Sizes: []uint64{1 << 20}}), nil)
		var out proto.PrepareStoreReply
		require.NoError(t, proto.ParsePrepareStoreReply(body, &out))
		require.Equal(t, proto.StatusReserved, out.Results[0].Status)
		frame := p.frame(proto.OpCommitStore, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: out.Transfer}), valueOf(1, 1<<20))
		_, err := p.conn.Write(frame[:len(frame)-1])
		require.NoError(t, err)
		require.NoError(t, p.conn.Close())
		eventually(t, "the slot is free", func() bool { return watcher.stats()["l1_used_bytes"] == 0 })
	}
}
