package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server/access"
)

func TestFirstRequestMustBeHello(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	hello := proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1})
	for name, first := range map[string]func(c *client) reply{
		"ping":                  func(c *client) reply { return c.call(proto.OpPing, 0, nil, nil) },
		"unknown":               func(c *client) reply { return c.call(proto.Op(200), 0, nil, nil) },
		"hello as a reply":      func(c *client) reply { return c.call(proto.OpHello, proto.FlagReply, hello, nil) },
		"hello with a payload":  func(c *client) reply { return c.call(proto.OpHello, proto.FlagInline, hello, []byte("x")) },
		"hello with bytes left": func(c *client) reply { return c.call(proto.OpHello, 0, append(hello, 0), nil) },
	} {
		w.nextID++
		c := &client{w: w, id: NewConnID(w.nextID, 1)}
		w.step(Event{Kind: EventOpen, Conn: c.id})
		require.Equal(t, proto.StatusBadRequest, first(c).h.Status, name)
		w.settle()
		require.True(t, w.closed[c.id], name)
	}
	w.nextID++
	c := w.connect(100)
	require.Equal(t, proto.StatusBadRequest, c.call(proto.OpHello, 0, hello, nil).h.Status, "twice")
	require.Equal(t, proto.StatusUnsupported, c.call(proto.Op(200), 0, nil, nil).h.Status)
	require.Equal(t, proto.StatusBadRequest, c.call(proto.OpPing, proto.FlagInline, nil, []byte("x")).h.Status)
	w.settle()
	require.False(t, w.closed[c.id])
}

func TestHelloRefusals(t *testing.T) {
	list := access.New(0)
	list.AddToken("secret", access.Everything)
	w := newWorld(t, setup{slots: 16, cfg: Config{Access: list}})
	for name, tc := range map[string]struct {
		in   proto.Hello
		want proto.Status
	}{
		"future version": {proto.Hello{VersionMin: 2, VersionMax: 3, Token: "secret"}, proto.StatusBadVersion},
		"no token":       {proto.Hello{VersionMin: 1, VersionMax: 1}, proto.StatusDenied},
		"wrong token":    {proto.Hello{VersionMin: 1, VersionMax: 1, Token: "guess"}, proto.StatusDenied},
		"right token":    {proto.Hello{VersionMin: 1, VersionMax: 1, Token: "secret"}, proto.StatusOK},
	} {
		w.nextID++
		c := &client{w: w, id: NewConnID(w.nextID, 1)}
		w.step(Event{Kind: EventOpen, Conn: c.id})
		r := c.call(proto.OpHello, 0, proto.AppendHello(nil, &tc.in), nil)
		require.Equal(t, tc.want, r.h.Status, name)
		w.settle()
		require.Equal(t, tc.want != proto.StatusOK, w.closed[c.id], name)
	}
}

func TestOldBootIDIsStaleEpoch(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	c := w.worker(1, 100)
	h := proto.Header{Version: 1, Op: proto.OpPing, Request: 99, Boot: testBoot + 1, Size: proto.HeaderSize}
	w.step(Event{Kind: EventFrame, Conn: c.id, Header: h})
	r, ok := c.take(99)
	require.True(t, ok)
	require.Equal(t, proto.StatusStaleEpoch, r.h.Status)
	require.EqualValues(t, testBoot, r.h.Boot)
}

func TestRequestsOfTheUnregistered(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	c := w.connect(100)
	for op, body := range map[proto.Op][]byte{
		proto.OpLookup:          proto.AppendLookup(nil, &proto.Lookup{Group: 1}),
		proto.OpPrepareStore:    proto.AppendPrepareStore(nil, &proto.PrepareStore{}),
		proto.OpCommitStore:     proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: 1}),
		proto.OpAbortStore:      proto.AppendAbortStore(nil, &proto.AbortStore{Transfer: 1}),
		proto.OpPrepareRetrieve: proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{}),
		proto.OpCommitRetrieve:  proto.AppendCommitRetrieve(nil, &proto.CommitRetrieve{Transfer: 1}),
		proto.OpDelete:          proto.AppendDelete(nil, &proto.Delete{}),
		proto.OpPut:             proto.AppendPut(nil, &proto.Put{}),
		proto.OpClear:           proto.AppendClear(nil, &proto.Clear{}),
		proto.OpUnregister:      nil,
	} {
		require.Equal(t, proto.StatusNotRegistered, c.call(op, 0, body, nil).h.Status, op)
	}
	for _, op := range []proto.Op{proto.OpPing, proto.OpStats} {
		require.Equal(t, proto.StatusOK, c.call(op, 0, nil, nil).h.Status, op)
	}
}

func TestBadBodiesAreAnsweredAndTheNextRequestIsServed(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	c := w.worker(1, 100)
	for op := proto.Op(0); op < 40; op++ {
		if op == proto.OpRegister {
			continue
		}
		r := c.call(op, 0, []byte{1, 2, 3}, nil)
		want := proto.StatusBadRequest
		if !op.Valid() {
			want = proto.StatusUnsupported
		}
		require.Equal(t, want, r.h.Status, op)
		require.Equal(t, proto.StatusOK, c.call(proto.OpPing, 0, nil, nil).h.Status, op)
	}
	for _, layout := range []uint16{2, 65535} {
		r := c.call(proto.OpLookup, 0, proto.AppendLookup(nil, &proto.Lookup{Layout: layout, Group: 1}), nil)
		require.Equal(t, proto.StatusBadRequest, r.h.Status)
	}
	for _, handle := range []uint64{1, 1 << 32, ^uint64(0), 0xffffffff} {
		require.Equal(t, proto.StatusStale, c.commit(handle))
		require.Equal(t, proto.StatusStale, c.abort(handle))
		require.Equal(t, proto.StatusStale, c.endRetrieve(handle))
		require.Equal(t, proto.StatusOK, c.release(handle))
	}
	w.baseline()
}

func TestNoReplyIsWantedNoneIsSent(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	c := w.worker(1, 100)
	c.store(slotSize, "x")
	lease := c.found(c.lookup(proto.LookupHold|proto.LookupSlots, 0, "x")).Lease
	id := c.post(proto.OpRelease, proto.FlagNoReply, proto.AppendRelease(nil, &proto.Release{Leases: []uint64{lease}}), nil)
	_, ok := c.take(id)
	require.False(t, ok)
	w.baseline()
}

func TestReadOnlyInstanceStoresAndDeletesNothing(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a, r := w.worker(1, 100), w.connect(200)
	st := r.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: 2, Want: proto.TransportShared, ReadOnly: true, Namespace: "space",
		Layouts: []proto.Layout{{Name: "bf16", Dims: []uint32{2, 4}, Size: layoutMax}},
	}), nil).h.Status
	require.Equal(t, proto.StatusOK, st)
	a.store(slotSize, "x")
	require.Equal(t, 1, r.hits("x"))
	in := proto.PrepareStore{Keys: testKeys("y"), Sizes: []uint64{1}}
	require.Equal(t, proto.StatusDenied, r.call(proto.OpPrepareStore, 0, proto.AppendPrepareStore(nil, &in), nil).h.Status)
	require.Equal(t, proto.StatusDenied, r.call(proto.OpDelete, 0, proto.AppendDelete(nil, &proto.Delete{Keys: testKeys("x")}), nil).h.Status)
	require.Equal(t, proto.StatusDenied, r.call(proto.OpClear, 0, proto.AppendClear(nil, &proto.Clear{}), nil).h.Status)
	require.Equal(t, 1, a.hits("x"))
}

func TestStatsInstancesAndTransfersTellWhatIsOpen(t *testing.T) {
	w := newWorld(t, setup{slots: 16})
	a := w.worker(1, 100)
	a.prepare(0, slotSize, "x")
	var is proto.InstancesReply
	require.NoError(t, proto.ParseInstancesReply(a.call(proto.OpInstances, 0, proto.AppendInstances(nil, &proto.Instances{}), nil).body, &is))
	require.Len(t, is.Instances, 1)
	require.EqualValues(t, slotSize, is.Instances[0].Staged)
	require.EqualValues(t, 100, is.Instances[0].PID)
	require.Equal(t, "space", is.Instances[0].Namespace)
	var ts proto.TransfersReply
	require.NoError(t, proto.ParseTransfersReply(a.call(proto.OpTransfers, 0, proto.AppendTransfers(nil, &proto.Transfers{}), nil).body, &ts))
	require.Len(t, ts.Transfers, 1)
	require.EqualValues(t, slotSize, ts.Transfers[0].Bytes)
	var st proto.StatsReply
	require.NoError(t, proto.ParseStatsReply(a.call(proto.OpStats, 0, nil, nil).body, &st))
	got := map[string]uint64{}
	for _, c := range st.Counters {
		got[c.Name] = c.Value
	}
	require.EqualValues(t, slotSize, got["l1_staged_bytes"])
	require.EqualValues(t, 1, got["instances"])
	require.EqualValues(t, 1, got["transfers"])
}
