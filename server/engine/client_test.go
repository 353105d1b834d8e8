package engine

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// A client is one worker's connection.
type client struct {
	w      *world
	id     ConnID
	pid    int32
	lastID uint64
}

// connect opens a connection of a process, or of another host, and says HELLO.
func (w *world) connect(pid int32) *client {
	w.t.Helper()
	return w.open(Peer{PID: pid, Local: pid != 0})
}

func (w *world) open(peer Peer) *client {
	w.t.Helper()
	c := &client{w: w, id: NewConnID(w.nextID%uint32(len(w.e.conns)), w.nextID/uint32(len(w.e.conns))+1), pid: peer.PID}
	for w.e.conns[c.id.Index()].state != connFree {
		w.nextID++
		c.id = NewConnID(w.nextID%uint32(len(w.e.conns)), w.nextID/uint32(len(w.e.conns))+1)
	}
	w.nextID++
	w.peers[c.id] = peer
	w.step(Event{Kind: EventOpen, Conn: c.id, Peer: w.peers[c.id]})
	r := c.call(proto.OpHello, 0, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1, Token: w.token}), nil)
	require.Equal(w.t, proto.StatusOK, r.h.Status)
	return c
}

// worker is a connection that registered an instance with one layout.
func (w *world) worker(instance uint64, pid int32) *client {
	w.t.Helper()
	return w.workerIn(instance, pid, "space")
}

func (w *world) workerIn(instance uint64, pid int32, space string) *client {
	w.t.Helper()
	c := w.connect(pid)
	require.Equal(w.t, proto.StatusOK, c.register(instance, space, proto.TransportShared).h.Status)
	return c
}

func (c *client) register(instance uint64, space string, want proto.Transport) reply {
	return c.call(proto.OpRegister, 0, proto.AppendRegister(nil, &proto.Register{
		Instance: instance, Want: want, Name: fmt.Sprint("worker ", instance), Namespace: space,
		Layouts: []proto.Layout{{Name: "bf16", Dims: []uint32{2, 4}, Size: layoutMax}, {Name: "fp8", Size: layoutMax}},
	}), nil)
}

// post sends a request and returns its id.
func (c *client) post(op proto.Op, flags proto.Flags, body, payload []byte) uint64 {
	c.lastID++
	h := proto.Header{
		Version: proto.Version, Op: op, Flags: flags, Request: c.lastID, Boot: testBoot,
		Body: uint32(len(body)), Size: uint32(proto.HeaderSize + len(body) + len(payload)),
	}
	c.w.payload = payload
	c.w.heard[c.id] = c.w.now
	c.w.step(Event{Kind: EventFrame, Conn: c.id, Header: h, Body: body})
	return c.lastID
}

// take removes the reply to a request from the inbox, if it is there.
func (c *client) take(id uint64) (reply, bool) {
	in := c.w.inbox[c.id]
	for i := range in {
		if in[i].h.Request == id {
			r := in[i]
			c.w.inbox[c.id] = append(in[:i:i], in[i+1:]...)
			return r, true
		}
	}
	return reply{}, false
}

// call sends a request whose reply must be there at once.
func (c *client) call(op proto.Op, flags proto.Flags, body, payload []byte) reply {
	c.w.t.Helper()
	id := c.post(op, flags, body, payload)
	r, ok := c.take(id)
	require.True(c.w.t, ok, "%v has no reply", op)
	require.Equal(c.w.t, op, r.h.Op)
	return r
}

// close ends the connection; the process lives on.
func (c *client) close() {
	c.w.closed[c.id] = true
	c.w.breakMoves(c.id)
	c.w.step(Event{Kind: EventClosed, Conn: c.id})
	delete(c.w.inbox, c.id)
}

func (c *client) prepare(wait time.Duration, size uint64, keys ...string) uint64 {
	in := proto.PrepareStore{WaitMs: uint32(wait.Milliseconds()), Keys: testKeys(keys...)}
	for range keys {
		in.Sizes = append(in.Sizes, size)
	}
	return c.post(proto.OpPrepareStore, 0, proto.AppendPrepareStore(nil, &in), nil)
}

func (c *client) prepared(id uint64) proto.PrepareStoreReply {
	c.w.t.Helper()
	r, ok := c.take(id)
	require.True(c.w.t, ok, "prepare_store has no reply")
	require.Equal(c.w.t, proto.StatusOK, r.h.Status)
	var out proto.PrepareStoreReply
	require.NoError(c.w.t, proto.ParsePrepareStoreReply(r.body, &out))
	return out
}

// fill writes what belongs under the keys into reserved slots.
func (c *client) fill(out proto.PrepareStoreReply, keys ...string) {
	for i, r := range out.Results {
		if r.Status == proto.StatusReserved {
			fillValue(c.w.pool[r.Slot.Off:r.Slot.Off+r.Slot.Len], keys[i])
		}
	}
}

func (c *client) commit(transfer uint64) proto.Status {
	c.w.t.Helper()
	return c.call(proto.OpCommitStore, 0, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: transfer}), nil).h.Status
}

func (c *client) abort(transfer uint64) proto.Status {
	c.w.t.Helper()
	return c.call(proto.OpAbortStore, 0, proto.AppendAbortStore(nil, &proto.AbortStore{Transfer: transfer}), nil).h.Status
}

// store puts values of the size under the keys; all must be reserved.
func (c *client) store(size uint64, keys ...string) {
	c.w.t.Helper()
	out := c.prepared(c.prepare(0, size, keys...))
	for i, r := range out.Results {
		require.Equal(c.w.t, proto.StatusReserved, r.Status, keys[i])
	}
	c.fill(out, keys...)
	require.Equal(c.w.t, proto.StatusOK, c.commit(out.Transfer))
}

func (c *client) lookup(opt proto.LookupOptions, wait time.Duration, keys ...string) uint64 {
	return c.post(proto.OpLookup, 0, proto.AppendLookup(nil, &proto.Lookup{
		Options: opt, Group: 1, WaitMs: uint32(wait.Milliseconds()), Keys: testKeys(keys...),
	}), nil)
}

func (c *client) found(id uint64) proto.LookupReply {
	c.w.t.Helper()
	r, ok := c.take(id)
	require.True(c.w.t, ok, "lookup has no reply")
	require.Equal(c.w.t, proto.StatusOK, r.h.Status)
	var out proto.LookupReply
	require.NoError(c.w.t, proto.ParseLookupReply(r.body, &out))
	return out
}

// hits is how many leading keys are there.
func (c *client) hits(keys ...string) int {
	c.w.t.Helper()
	return int(c.found(c.lookup(0, 0, keys...)).Hits)
}

func (c *client) release(lease uint64) proto.Status {
	c.w.t.Helper()
	return c.call(proto.OpRelease, 0, proto.AppendRelease(nil, &proto.Release{Leases: []uint64{lease}}), nil).h.Status
}

func (c *client) retrieve(in proto.PrepareRetrieve) (proto.PrepareRetrieveReply, proto.Status) {
	c.w.t.Helper()
	r := c.call(proto.OpPrepareRetrieve, 0, proto.AppendPrepareRetrieve(nil, &in), nil)
	var out proto.PrepareRetrieveReply
	if r.h.Status == proto.StatusOK {
		require.NoError(c.w.t, proto.ParsePrepareRetrieveReply(r.body, &out))
	}
	return out, r.h.Status
}

func (c *client) endRetrieve(transfer uint64) proto.Status {
	c.w.t.Helper()
	return c.call(proto.OpCommitRetrieve, 0, proto.AppendCommitRetrieve(nil, &proto.CommitRetrieve{Transfer: transfer}), nil).h.Status
}

func (c *client) verify(slots []proto.Slot, keys ...string) {
	c.w.t.Helper()
	require.Len(c.w.t, slots, len(keys))
	for i, s := range slots {
		require.Equal(c.w.t, valueOf(keys[i], int(s.Len)), c.w.pool[s.Off:s.Off+s.Len], keys[i])
	}
}
