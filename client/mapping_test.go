package client

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

func TestTheMappingStaysOutOfChildrenAndNoDescriptorStays(t *testing.T) {
	for _, kind := range []proto.ShmKind{proto.ShmFd, proto.ShmNamed} {
		t.Run(kind.String(), func(t *testing.T) {
			s := newFake(t, fakeConfig{kind: kind})
			w := open(t, s, Registration{})
			_, flags := poolMaps(t)
			require.Len(t, flags, 2, "the server's mapping and the worker's")
			n := 0
			for _, f := range flags {
				n += strings.Count(f+" ", " dc ")
			}
			require.Equal(t, 1, n, "MADV_DONTFORK is not set: %v", flags)
			require.Equal(t, 1, poolFds(t), "only the server's descriptor is open")

			// The slots are the server's memory itself.
			st, err := w.PrepareStore(testContext(t), 0, keysOf(0, 1), sizesOf(1, 4096), 0)
			require.NoError(t, err)
			copy(st.Slot(0), "written by the worker")
			require.True(t, bytes.Contains(s.pool.data, []byte("written by the worker")))
			require.NoError(t, st.Abort(testContext(t)))
		})
	}
}

// A reply that lies about the memory costs the shared transport, not the worker.
func TestMemoryThatIsNotWhatWasSaidIsNotUsed(t *testing.T) {
	lies := map[string]func(x *proto.RegisterReply){
		"size":      func(x *proto.RegisterReply) { x.PoolSize += 4096 },
		"no size":   func(x *proto.RegisterReply) { x.PoolSize, x.Ready = 0, 0 },
		"inode":     func(x *proto.RegisterReply) { x.Inode++ },
		"device":    func(x *proto.RegisterReply) { x.Dev++ },
		"none":      func(x *proto.RegisterReply) { x.ShmKind = proto.ShmNone },
		"no fd":     func(x *proto.RegisterReply) {},
		"name":      func(x *proto.RegisterReply) { x.ShmKind, x.ShmName = proto.ShmNamed, "../etc/passwd" },
		"no name":   func(x *proto.RegisterReply) { x.ShmKind, x.ShmName = proto.ShmNamed, "" },
		"not there": func(x *proto.RegisterReply) { x.ShmKind, x.ShmName = proto.ShmNamed, "slotcache_l1_pool_not" },
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			s := newFake(t, fakeConfig{kind: proto.ShmFd})
			s.setHook(func(r *fakeRequest) fakeAct {
				var x proto.Register
				if r.Op != proto.OpRegister || proto.ParseRegister(r.Body, &x) != nil || x.Want == proto.TransportInline {
					return fakeAct{}
				}
				out := proto.RegisterReply{
					Incarnation: 1, Transport: proto.TransportShared, ShmKind: proto.ShmFd, PoolSize: uint64(s.cfg.size),
					Ready: s.ready, Dev: s.pool.st.Dev, Inode: s.pool.st.Ino, LayoutIDs: []uint64{1},
				}
				lie(&out)
				act := fakeAct{raw: proto.AppendFrame(nil, proto.Header{Op: r.Op, Flags: proto.FlagReply, Request: r.Request, Boot: s.boot}, proto.AppendRegisterReply(nil, &out), 0)}
				act.noFd = name == "no fd"
				return act
			})
			log := &logs{}
			w, err := Open(testContext(t), s.addr(), Options{Logger: log.logger()}, Registration{Layouts: []Layout{testLayout}})
			require.NoError(t, err)
			require.Equal(t, proto.TransportInline, w.Transport())
			storeAll(t, w, 0, 2, 10)
			require.Equal(t, 1, log.count("going on inline"))
			require.Equal(t, 1, log.count("client: registered"))
			require.Equal(t, 1, log.count("transport=inline"))
			require.Equal(t, 1, poolFds(t))
			maps, _ := poolMaps(t)
			require.Len(t, maps, 1)
			require.NoError(t, w.Close())
		})
	}
}

func TestANameThatIsALinkIsNotFollowed(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmNamed})
	real, link := "/dev/shm/"+s.pool.name, "/dev/shm/"+s.pool.name+"_link"
	require.NoError(t, os.Symlink(real, link))
	t.Cleanup(func() { _ = os.Remove(link) })
	_, err := openSegment(shmDir, s.pool.name+"_link", false)
	require.ErrorIs(t, err, unix.ELOOP)
	fd, err := openSegment(shmDir, s.pool.name, true)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	require.NoError(t, os.Mkdir("/dev/shm/"+s.pool.name+"_dir", 0o700))
	t.Cleanup(func() { _ = os.Remove("/dev/shm/" + s.pool.name + "_dir") })
	x := &proto.RegisterReply{ShmKind: proto.ShmNamed, ShmName: s.pool.name + "_dir", PoolSize: 4096}
	_, err = mapReply(x, shmDir, -1, true)
	require.ErrorContains(t, err, "no file")
}

func TestMemoryThatMayShrinkIsNotUsed(t *testing.T) {
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, 4096))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	_, err = mapReply(&proto.RegisterReply{ShmKind: proto.ShmFd, PoolSize: 4096, Dev: st.Dev, Inode: st.Ino}, shmDir, fd, false)
	require.ErrorContains(t, err, "may shrink")
	require.ErrorIs(t, unix.Fstat(fd, &st), unix.EBADF, "the descriptor is closed in every case")
}

func TestASlotLiesInsideThePool(t *testing.T) {
	m := &mapping{data: make([]byte, 8192)}
	for _, c := range []struct {
		slot proto.Slot
		ok   bool
	}{
		{proto.Slot{}, true},
		{proto.Slot{Off: 0, Len: 8192}, true},
		{proto.Slot{Off: 8192, Len: 0}, true},
		{proto.Slot{Off: 4096, Len: 4097}, false},
		{proto.Slot{Off: 8193, Len: 0}, false},
		{proto.Slot{Off: 1 << 63, Len: 1 << 63}, false},
		{proto.Slot{Off: ^uint64(0), Len: 2}, false},
	} {
		b, ok := m.slice(c.slot)
		require.Equal(t, c.ok, ok, "%+v", c.slot)
		if ok {
			require.NotNil(t, b)
			require.Len(t, b, int(c.slot.Len))
			require.Equal(t, len(b), cap(b))
		}
	}
}

func TestWhatBecomesReadyIsPopulated(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd, size: 40 << 20, ready: 4 << 20})
	w := open(t, s, Registration{})
	require.EqualValues(t, 40<<20, w.PoolSize())
	require.EqualValues(t, 4<<20, w.Ready())
	s.mu.Lock()
	s.ready = 40 << 20
	s.mu.Unlock()
	// The populator asks by itself, and ends when all is there.
	require.Eventually(t, func() bool { return w.Ready() == 40<<20 }, waitMax, tick)
	require.Eventually(t, func() bool { return w.session.Load().refs.Load() == 1 }, waitMax, tick)
	resident := make([]byte, 40<<20/4096)
	data := w.session.Load().pool.data
	require.NoError(t, mincore(data, resident))
	for i, r := range resident {
		require.EqualValues(t, 1, r&1, "page %d is not there", i)
	}
	p, err := w.Ping(testContext(t))
	require.NoError(t, err)
	require.EqualValues(t, 40<<20, p.Ready)
}

func TestTheTransportIsLoggedOnceARegistration(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	log := &logs{}
	w, err := Open(testContext(t), s.addr(), Options{Logger: log.logger(), Name: "worker"}, Registration{Instance: 42, Layouts: []Layout{testLayout}})
	require.NoError(t, err)
	require.Equal(t, 1, log.count("client: registered"))
	require.Equal(t, 1, log.count("instance=42"))
	require.Equal(t, 1, log.count("transport=shared shm=fd"))
	require.Equal(t, 1, log.count("size=4194304"))
	s.restart()
	_, err = w.Ping(testContext(t))
	require.NoError(t, err)
	require.Equal(t, 2, log.count("client: registered"))
	require.NoError(t, w.Close())
}
