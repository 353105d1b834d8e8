package client

import (
	"context"
	"log/slog"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// reply builds a frame that answers r.
func reply(r *fakeRequest, h proto.Header, body []byte, payload int) []byte {
	h.Op, h.Request, h.Flags = r.Op, r.Request, h.Flags|proto.FlagReply
	return append(proto.AppendFrame(nil, h, body, uint32(payload)), make([]byte, payload)...)
}

func TestRepliesThatBreakTheProtocolEndTheConnection(t *testing.T) {
	slot := func(off, n uint64) proto.Slot { return proto.Slot{Off: off, Len: n} }
	lookup := func(x proto.LookupReply) []byte { return proto.AppendLookupReply(nil, &x) }
	prepare := func(x proto.PrepareStoreReply) []byte { return proto.AppendPrepareStoreReply(nil, &x) }
	reserved := func(off, n uint64) proto.StoreResult {
		return proto.StoreResult{Status: proto.StatusReserved, Slot: slot(off, n)}
	}
	retrieve := func(x proto.PrepareRetrieveReply) []byte { return proto.AppendPrepareRetrieveReply(nil, &x) }
	cases := map[string]struct {
		op   proto.Op
		body []byte
	}{
		"lookup: garbage":           {proto.OpLookup, []byte("garbage")},
		"lookup: too many hits":     {proto.OpLookup, lookup(proto.LookupReply{Hits: 4})},
		"lookup: no slots":          {proto.OpLookup, lookup(proto.LookupReply{Hits: 1, Lease: 1})},
		"lookup: slots, no lease":   {proto.OpLookup, lookup(proto.LookupReply{Hits: 1, Slots: []proto.Slot{slot(0, 1)}})},
		"lookup: slot outside":      {proto.OpLookup, lookup(proto.LookupReply{Hits: 1, Lease: 1, Slots: []proto.Slot{slot(4<<20, 1)}})},
		"lookup: bitmap":            {proto.OpLookup, lookup(proto.LookupReply{Bitmap: []byte{1}})},
		"prepare: too few":          {proto.OpPrepareStore, prepare(proto.PrepareStoreReply{})},
		"prepare: outside":          {proto.OpPrepareStore, prepare(proto.PrepareStoreReply{Transfer: 1, Results: []proto.StoreResult{reserved(4<<20, 10)}})},
		"prepare: wraps":            {proto.OpPrepareStore, prepare(proto.PrepareStoreReply{Transfer: 1, Results: []proto.StoreResult{reserved(^uint64(0)-4, 10)}})},
		"prepare: wrong length":     {proto.OpPrepareStore, prepare(proto.PrepareStoreReply{Transfer: 1, Results: []proto.StoreResult{reserved(0, 11)}})},
		"prepare: no transfer":      {proto.OpPrepareStore, prepare(proto.PrepareStoreReply{Results: []proto.StoreResult{reserved(0, 10)}})},
		"prepare: nothing reserved": {proto.OpPrepareStore, prepare(proto.PrepareStoreReply{Transfer: 1, Results: make([]proto.StoreResult, 1)})},
		"retrieve: too few":         {proto.OpPrepareRetrieve, retrieve(proto.PrepareRetrieveReply{Transfer: 1, Slots: []proto.Slot{slot(0, 1)}})},
		"retrieve: no transfer":     {proto.OpPrepareRetrieve, retrieve(proto.PrepareRetrieveReply{Slots: make([]proto.Slot, 3)})},
		"retrieve: outside":         {proto.OpPrepareRetrieve, retrieve(proto.PrepareRetrieveReply{Transfer: 1, Slots: []proto.Slot{slot(0, 1), slot(0, 1<<40), slot(0, 1)}})},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newFake(t, fakeConfig{kind: proto.ShmFd})
			w := open(t, s, Registration{})
			s.setHook(func(r *fakeRequest) fakeAct {
				if r.Op == c.op {
					return fakeAct{raw: reply(r, proto.Header{}, c.body, 0), skip: true}
				}
				return fakeAct{}
			})
			ctx := testContext(t)
			var err error
			if c.op == proto.OpPrepareStore {
				_, err = w.PrepareStore(ctx, 0, keysOf(100, 1), sizesOf(1, 10), 0)
			} else {
				err = grantingCalls(w)[c.op](ctx)
			}
			require.ErrorIs(t, err, ErrReply)
			s.setHook(nil)
			storeAll(t, w, 0, 3, 10) // over a new connection
		})
	}
}

func TestFramesThatBreakTheProtocolEndTheConnection(t *testing.T) {
	ok := proto.AppendPingReply(nil, &proto.PingReply{})
	cases := map[string]func(r *fakeRequest) []byte{
		"garbage":        func(*fakeRequest) []byte { return make([]byte, 64) },
		"request":        func(r *fakeRequest) []byte { f := reply(r, proto.Header{}, ok, 0); f[6] = 0; return f },
		"unknown id":     func(r *fakeRequest) []byte { f := reply(r, proto.Header{}, ok, 0); f[16]++; return f },
		"another op":     func(r *fakeRequest) []byte { f := reply(r, proto.Header{}, ok, 0); f[5]++; return f },
		"no such status": func(r *fakeRequest) []byte { return reply(r, proto.Header{Status: 999}, nil, 0) },
		"payload":        func(r *fakeRequest) []byte { return reply(r, proto.Header{Flags: proto.FlagInline}, ok, 1) },
		"refusal's body": func(r *fakeRequest) []byte { return reply(r, proto.Header{Status: proto.StatusBusy}, ok, 0) },
		"size":           func(r *fakeRequest) []byte { f := reply(r, proto.Header{}, ok, 0); f[3] = 0xFF; return f },
		"body":           func(r *fakeRequest) []byte { f := reply(r, proto.Header{}, ok, 0); f[15] = 0xFF; return f },
		"short body":     func(r *fakeRequest) []byte { return reply(r, proto.Header{}, ok[:3], 0) },
	}
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	for name, frame := range cases {
		s.setHook(func(r *fakeRequest) fakeAct {
			if r.Op == proto.OpPing {
				return fakeAct{raw: frame(r), skip: true}
			}
			return fakeAct{}
		})
		_, err := w.Ping(testContext(t))
		require.Error(t, err, name)
		require.NotErrorIs(t, err, ErrClosed, name)
		s.setHook(nil)
		_, err = w.Ping(testContext(t))
		require.NoError(t, err, name)
	}
}

// A payload may be as large as what was asked for, and no larger.
func TestAPayloadIsBoundedByWhatWasAskedFor(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmNone})
	w := open(t, s, Registration{Layouts: []Layout{{Name: "small", Size: 1000}}})
	ctx := testContext(t)
	for _, n := range []int{3001, 3000} {
		used := false
		s.setHook(func(r *fakeRequest) fakeAct {
			if r.Op != proto.OpPrepareRetrieve || used {
				return fakeAct{}
			}
			used = n == 3000
			body := proto.AppendPrepareRetrieveReply(nil, &proto.PrepareRetrieveReply{Slots: []proto.Slot{{Len: 1000}, {Len: 1000}, {Len: uint64(n - 2000)}}})
			return fakeAct{raw: reply(r, proto.Header{Flags: proto.FlagInline}, body, n), skip: true}
		})
		r, err := w.Retrieve(ctx, 0, keysOf(0, 3), RetrieveOptions{})
		if n > 3000 {
			require.ErrorIs(t, err, ErrReply)
			continue
		}
		require.NoError(t, err)
		require.Len(t, r.Values(), 3)
		require.NoError(t, r.Release(ctx))
	}
}

// A server may send any bytes; the client ends the connection and no more, and no slice
// leads out of the pool.
func FuzzReply(f *testing.F) {
	r := &fakeRequest{Header: proto.Header{Op: proto.OpLookup, Request: 1}}
	f.Add(reply(r, proto.Header{}, proto.AppendLookupReply(nil, &proto.LookupReply{Hits: 1, Lease: 9, Slots: []proto.Slot{{Off: 0, Len: 10}}}), 0))
	f.Add(reply(r, proto.Header{}, proto.AppendLookupReply(nil, &proto.LookupReply{Hits: 1}), 0))
	f.Add(reply(r, proto.Header{Status: proto.StatusMiss}, nil, 0))
	f.Add(reply(r, proto.Header{Flags: proto.FlagInline}, nil, 5))
	f.Add(make([]byte, 40))
	pool := make([]byte, 8192)
	f.Fuzz(func(t *testing.T, frame []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		file := os.NewFile(uintptr(fds[0]), "client")
		conn, err := net.FileConn(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		l := newLink(conn, slog.New(slog.DiscardHandler))
		l.hello.MaxKeys = proto.MaxKeys
		require.NoError(t, l.out.open(conn, l.lost))
		go l.readReplies()
		go func() {
			var request [512]byte
			_, _ = unix.Read(fds[1], request[:]) // what it says does not matter
			_, _ = unix.Write(fds[1], frame)
			_ = unix.Close(fds[1])
		}()
		s := &session{link: l, worker: &Worker{base: context.Background()}, transport: proto.TransportShared, pool: &mapping{data: pool}}
		s.refs.Store(1)
		res, err := s.lookup(testContext(t), &LookupRequest{Keys: keysOf(0, 3), Group: 1, Hold: true, Slots: true})
		if err == nil && res.Lease != nil {
			for _, v := range res.Lease.Values() {
				require.LessOrEqual(t, len(v), len(pool))
			}
			_ = res.Lease.Release(context.Background()) // the connection may be gone
		}
		l.fail(ErrClosed)
		<-l.read
		require.EqualValues(t, 1, s.refs.Load(), "a reference is left")
	})
}
