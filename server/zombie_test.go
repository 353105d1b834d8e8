package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// childZombie, in the environment, makes the test binary a client of the server on that
// socket that prepares a store, and writes and commits it when it is told to.
const childZombie = "SLOTCACHE_TEST_ZOMBIE"

const zombieSize = 1 << 20

// lateBytes are what a zombie writes.
var lateBytes = bytes.Repeat([]byte{0x5A}, zombieSize)

// attach registers p for shared memory and maps the pool.
func (p *peer) attach(id uint64) []byte {
	p.t.Helper()
	reply, fd := p.share(id, false)
	memory, err := unix.Mmap(fd, 0, int(reply.PoolSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = unix.Munmap(memory) })
	return memory
}

// reserve asks for slots of zombieSize.
func (p *peer) reserve(keys ...proto.Key) proto.PrepareStoreReply {
	p.t.Helper()
	in := proto.PrepareStore{Keys: keys}
	for range keys {
		in.Sizes = append(in.Sizes, zombieSize)
	}
	_, body, _ := p.call(proto.OpPrepareStore, proto.AppendPrepareStore(nil, &in), nil)
	var out proto.PrepareStoreReply
	require.NoError(p.t, proto.ParsePrepareStoreReply(body, &out))
	return out
}

// commitShared commits slots that were written through the mapping.
func (p *peer) commitShared(transfer uint64) proto.Status {
	p.t.Helper()
	p.last++
	_, err := p.conn.Write(proto.AppendFrame(nil, proto.Header{Op: proto.OpCommitStore, Request: p.last, Boot: p.boot},
		proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: transfer}), 0))
	require.NoError(p.t, err)
	h, _, _ := p.receive()
	return h.Status
}

func zombie(path string) {
	p := dial(&testing.T{}, "unix:"+path)
	p.hello()
	memory := p.attach(uint64(os.Getpid()))
	out := p.reserve(keyOf(1))
	slot := out.Results[0].Slot
	fmt.Println(slot.Off, out.Transfer)
	orders := bufio.NewScanner(os.Stdin)
	orders.Scan()
	copy(memory[slot.Off:slot.Off+slot.Len], lateBytes)
	fmt.Println(p.commitShared(out.Transfer))
	orders.Scan()
}

// stopped says that a process has stopped, by the kernel's account.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(state, "T")
}

// TestAKeyIsFreeOnceItsStoppedWriterIsKilled: a key stuck for good after its writer crashed.
// While the writer is stopped others are told *busy* and read nothing; a SIGKILL frees the
// key at once, and nothing of what it wrote is ever read.
func TestAKeyIsFreeOnceItsStoppedWriterIsKilled(t *testing.T) {
	r := start(t, nil)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childZombie+"="+r.path)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var off, transfer uint64
	_, err = fmt.Fscanln(bufio.NewReader(out), &off, &transfer)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(unix.SIGSTOP))
	eventually(t, "the writer stops", func() bool { return stopped(cmd.Process.Pid) })

	other := greet(t, r)
	other.register(zombieSize)
	for range 3 {
		res := other.reserve(keyOf(1))
		require.Equal(t, proto.StatusBusy, res.Results[0].Status)
		require.Zero(t, res.Transfer)
		st, _ := other.get(keyOf(1))
		require.Equal(t, proto.StatusMiss, st)
	}
	require.NoError(t, cmd.Process.Signal(unix.SIGKILL))
	eventually(t, "the slot is free", func() bool { return other.stats()["l1_used_bytes"] == 0 })
	st, _ := other.get(keyOf(1))
	require.Equal(t, proto.StatusMiss, st, "nobody committed it")
	other.put(keyOf(1), valueOf(1, zombieSize))
	_, got := other.get(keyOf(1))
	require.True(t, bytes.Equal(valueOf(1, zombieSize), got))
}

// TestAStoppedWriterWritesLateIntoItsOwnSlotOnly: a writer that was declared dead writes on.
// A writer that stops for longer than its transfer may take writes and commits late. The key
// is free for others before, the slot is not: what it writes lands there and nowhere else.
func TestAStoppedWriterWritesLateIntoItsOwnSlotOnly(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Limits.TransferTime, c.Limits.InstanceCap = time.Second, 1<<40 })
	watcher := greet(t, r)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childZombie+"="+r.path)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var off, transfer uint64
	words := bufio.NewReader(out)
	_, err = fmt.Fscanln(words, &off, &transfer)
	require.NoError(t, err)
	require.NotZero(t, transfer)
	require.NoError(t, cmd.Process.Signal(unix.SIGSTOP))
	eventually(t, "the writer stops", func() bool { return stopped(cmd.Process.Pid) })
	_, err = in.Write([]byte("write\n"))
	require.NoError(t, err)

	other := greet(t, r)
	memory := other.attach(7)
	value := valueOf(1, zombieSize)
	var slot proto.Slot
	eventually(t, "the key is free", func() bool {
		res := other.reserve(keyOf(1))
		if res.Transfer == 0 {
			require.Equal(t, proto.StatusBusy, res.Results[0].Status)
			return false
		}
		slot = res.Results[0].Slot
		copy(memory[slot.Off:], value)
		return other.commitShared(res.Transfer) == proto.StatusOK // on a slow machine it may be late itself
	})
	require.True(t, slot.Off+slot.Len <= off || off+zombieSize <= slot.Off, "a slot of a living process was given away")
	require.EqualValues(t, 1, watcher.stats()["quarantined_transfers"])
	require.EqualValues(t, zombieSize, watcher.stats()["l1_quarantined_bytes"])

	require.NoError(t, cmd.Process.Signal(unix.SIGCONT))
	status, err := words.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "stale\n", status)
	require.True(t, bytes.Equal(lateBytes, memory[off:off+zombieSize]), "it has written")
	inline := greet(t, r)
	inline.register(zombieSize)
	for n := 2; n < 22; n++ { // more than the pool has room for: whatever may be reused is
		inline.put(keyOf(n), valueOf(n, zombieSize))
	}
	status1, got := inline.get(keyOf(21))
	require.Equal(t, proto.StatusOK, status1)
	require.True(t, bytes.Equal(valueOf(21, zombieSize), got))
	require.True(t, bytes.Equal(lateBytes, memory[off:off+zombieSize]), "somebody else has written there")
	require.EqualValues(t, zombieSize, watcher.stats()["l1_quarantined_bytes"])

	require.NoError(t, cmd.Process.Signal(unix.SIGKILL))
	eventually(t, "the slot is free", func() bool { return watcher.stats()["l1_quarantined_bytes"] == 0 })
	require.Zero(t, watcher.stats()["quarantined_transfers"])
	keys := make([]proto.Key, 16)
	for n := range keys {
		keys[n] = keyOf(100 + n)
	}
	all := inline.reserve(keys...)
	for _, res := range all.Results {
		require.Equal(t, proto.StatusReserved, res.Status, "the whole pool is to be had")
	}
}

// The value that another writer stored stays what it is, whatever the late one does.
func TestALateWriterChangesNothingOfTheNext(t *testing.T) {
	r := start(t, nil)
	operator, late, next := greet(t, r), greet(t, r), greet(t, r)
	memory := late.attach(1)
	first := late.reserve(keyOf(1))
	h, body, _ := operator.call(proto.OpEvict, proto.AppendEvict(nil, &proto.Evict{Instance: 1}), nil)
	require.Equal(t, proto.StatusOK, h.Status)
	var out proto.EvictReply
	require.NoError(t, proto.ParseEvictReply(body, &out))
	require.EqualValues(t, zombieSize, out.Draining)
	next.register(zombieSize)
	next.put(keyOf(1), valueOf(1, zombieSize))
	slot := first.Results[0].Slot
	copy(memory[slot.Off:slot.Off+slot.Len], lateBytes)
	require.Equal(t, proto.StatusStale, late.commitShared(first.Transfer))
	_, got := next.get(keyOf(1))
	require.True(t, bytes.Equal(valueOf(1, zombieSize), got))

	// The server never kills itself, where its clients live in its process.
	h, _, _ = operator.call(proto.OpEvict, proto.AppendEvict(nil, &proto.Evict{Instance: 1, Kill: true}), nil)
	require.Equal(t, proto.StatusDenied, h.Status)
	operator.ping()
	h, _, _ = late.call(proto.OpAbortStore, proto.AppendAbortStore(nil, &proto.AbortStore{Transfer: first.Transfer}), nil)
	require.Equal(t, proto.StatusOK, h.Status)
	eventually(t, "the slot is free", func() bool { return operator.stats()["l1_quarantined_bytes"] == 0 })
}
