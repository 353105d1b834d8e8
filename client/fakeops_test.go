package client

import (
	"hash/fnv"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// carryOut does what a request asks. The caller holds the server's mutex.
func (c *fakeConn) carryOut(q *fakeRequest) (status proto.Status, body, payload []byte, fd int) {
	s, fd := c.s, -1
	switch q.Op { //nolint:exhaustive // the others need a registration
	case proto.OpHello:
		return 0, proto.AppendHelloReply(nil, &proto.HelloReply{
			Version: 1, Boot: s.boot, MaxFrame: proto.MaxFrame, MaxKeys: s.cfg.maxKeys,
			MaxPayload: s.cfg.maxPayload, PoolSize: uint64(s.cfg.size), Server: s.cfg.server,
		}), nil, fd
	case proto.OpPing:
		return 0, proto.AppendPingReply(nil, &proto.PingReply{Ready: s.ready, UptimeMs: 1500}), nil, fd
	case proto.OpStats:
		return 0, proto.AppendStatsReply(nil, &proto.StatsReply{Counters: []Counter{{Name: "lookups", Value: 7}}}), nil, fd
	case proto.OpTransfers:
		return 0, c.listTransfers(q.Body), nil, fd
	case proto.OpInstances:
		return 0, c.listInstances(q.Body), nil, fd
	case proto.OpRegister:
		return c.register(q.Body)
	}
	if c.reg == nil && q.Op != proto.OpClear {
		return proto.StatusNotRegistered, nil, nil, fd
	}
	switch q.Op { //nolint:exhaustive // the others are below
	case proto.OpUnregister:
		for h, t := range s.transfers {
			if t.instance == c.reg.Instance {
				s.end(h)
			}
		}
		id := c.reg.Instance
		delete(s.lives, id)
		for o := range s.conns {
			if o.reg != nil && o.reg.Instance == id {
				o.reg = nil
			}
		}
		return 0, proto.AppendUnregisterReply(nil, &proto.UnregisterReply{Draining: 3}), nil, fd
	case proto.OpLookup:
		return 0, c.lookup(q.Body), nil, fd
	case proto.OpPrepareStore:
		return 0, c.prepareStore(q), nil, fd
	case proto.OpCommitStore:
		status, body = c.commitStore(q)
		return status, body, nil, fd
	case proto.OpPut:
		return c.put(q), nil, nil, fd
	case proto.OpPrepareRetrieve:
		status, body, payload = c.prepareRetrieve(q)
		return status, body, payload, fd
	case proto.OpAbortStore, proto.OpCommitRetrieve:
		var x proto.AbortStore // both are a handle
		require.NoError(s.t, proto.ParseAbortStore(q.Body, &x))
		return c.endOwn(x.Transfer), nil, nil, fd
	case proto.OpRelease:
		var x proto.Release
		require.NoError(s.t, proto.ParseRelease(q.Body, &x))
		for _, h := range x.Leases {
			c.endOwn(h)
		}
		return 0, nil, nil, fd
	}
	status, body = c.keysOp(q)
	return status, body, nil, fd
}

func (c *fakeConn) register(body []byte) (proto.Status, []byte, []byte, int) {
	s := c.s
	var x proto.Register
	require.NoError(s.t, proto.ParseRegister(body, &x))
	c.reg = &x
	out := proto.RegisterReply{Transport: proto.TransportInline, PoolSize: uint64(s.cfg.size), Ready: s.ready}
	for i := range x.Layouts {
		h := fnv.New64a()
		_, _ = h.Write([]byte(x.Layouts[i].Name))
		out.LayoutIDs = append(out.LayoutIDs, h.Sum64())
	}
	fd := -1
	if x.Want == proto.TransportShared && s.cfg.kind != proto.ShmNone {
		out.Transport, out.ShmKind, out.ShmName = x.Want, s.cfg.kind, s.pool.name
		out.Dev, out.Inode = s.pool.st.Dev, s.pool.st.Ino
		if out.ShmKind == proto.ShmFd {
			fd = s.pool.fd
		}
	}
	life := s.lives[x.Instance]
	if life == nil {
		s.born++
		life = &InstanceInfo{ID: x.Instance, Incarnation: s.born, State: proto.InstanceLive}
		s.lives[x.Instance] = life
	}
	life.Transport, life.Name, life.Namespace = out.Transport, x.Name, x.Namespace
	out.Incarnation = life.Incarnation
	return 0, proto.AppendRegisterReply(nil, &out), nil, fd
}

func (c *fakeConn) inline(q *fakeRequest) bool {
	return c.reg.Want == proto.TransportInline || c.s.cfg.kind == proto.ShmNone || q.Flags&proto.FlagInline != 0
}

func (c *fakeConn) key(layout uint16, k Key) fakeKey {
	return fakeKey{namespace: c.reg.Namespace, layout: c.reg.Layouts[layout].Name, key: k}
}

func (c *fakeConn) open(t *fakeTransfer) uint64 {
	c.s.next++
	t.instance, t.conn = c.reg.Instance, c
	c.s.transfers[c.s.next] = t
	return c.s.next
}

// endOwn ends a transfer of the connection's instance.
func (c *fakeConn) endOwn(handle uint64) proto.Status {
	t := c.s.transfers[handle]
	if t == nil || t.instance != c.reg.Instance {
		return proto.StatusStale
	}
	c.s.end(handle)
	return proto.StatusOK
}

func (c *fakeConn) lookup(body []byte) []byte {
	s := c.s
	var x proto.Lookup
	require.NoError(s.t, proto.ParseLookup(body, &x))
	require.LessOrEqual(s.t, len(x.Keys), int(s.cfg.maxKeys))
	out := proto.LookupReply{}
	if x.Mode == proto.ModeAny {
		out.Bitmap = make([]byte, (len(x.Keys)+7)/8)
	}
	t := &fakeTransfer{kind: proto.TransferLease, told: x.Options&proto.LookupSlots != 0}
	for i, k := range x.Keys {
		o := s.objects[c.key(x.Layout, k)]
		if o == nil && x.Mode == proto.ModePrefix {
			break
		}
		if o == nil {
			continue
		}
		out.Hits++
		if x.Mode == proto.ModeAny {
			out.Bitmap[i/8] |= 1 << (i % 8)
		}
		t.objects = append(t.objects, o)
	}
	if x.Mode == proto.ModePrefix {
		out.Hits -= out.Hits % uint32(x.Group)
		t.objects = t.objects[:out.Hits]
	}
	out.FromMemory = out.Hits
	if x.Options&proto.LookupHold != 0 && out.Hits > 0 {
		for _, o := range t.objects {
			o.holds++
			if t.told {
				out.Slots = append(out.Slots, o.slot)
			}
		}
		out.Lease = c.open(t)
	}
	return proto.AppendLookupReply(nil, &out)
}

func (c *fakeConn) prepareStore(q *fakeRequest) []byte {
	s := c.s
	var x proto.PrepareStore
	require.NoError(s.t, proto.ParsePrepareStore(q.Body, &x))
	require.LessOrEqual(s.t, len(x.Keys), int(s.cfg.maxKeys))
	t := &fakeTransfer{kind: proto.TransferStore, told: !c.inline(q)}
	out := proto.PrepareStoreReply{}
	for i, k := range x.Keys {
		key := c.key(x.Layout, k)
		if s.objects[key] != nil {
			out.Results = append(out.Results, proto.StoreResult{Status: proto.StatusExists})
			continue
		}
		if x.Sizes[i] > c.reg.Layouts[x.Layout].Size {
			out.Results = append(out.Results, proto.StoreResult{Status: proto.StatusTooLarge})
			continue
		}
		slot, ok := s.pool.alloc(x.Sizes[i])
		if !ok {
			out.Results = append(out.Results, proto.StoreResult{Status: proto.StatusNoSpace})
			continue
		}
		t.keys, t.objects = append(t.keys, key), append(t.objects, &fakeObject{slot: slot})
		if !t.told {
			slot.Off = 0
		}
		out.Results = append(out.Results, proto.StoreResult{Status: proto.StatusReserved, Slot: slot})
	}
	if len(t.keys) > 0 {
		out.Transfer = c.open(t)
	}
	return proto.AppendPrepareStoreReply(nil, &out)
}

func (c *fakeConn) put(q *fakeRequest) proto.Status {
	var x proto.Put
	if c.s.cfg.noPut {
		return proto.StatusUnsupported
	}
	require.NoError(c.s.t, proto.ParsePut(q.Body, &x))
	key := c.key(x.Layout, x.Key)
	if c.s.objects[key] != nil {
		return proto.StatusExists
	}
	if uint64(len(q.Payload)) > c.reg.Layouts[x.Layout].Size {
		return proto.StatusTooLarge
	}
	slot, ok := c.s.pool.alloc(uint64(len(q.Payload)))
	if !ok {
		return proto.StatusNoSpace
	}
	copy(c.s.pool.bytes(slot), q.Payload)
	c.s.objects[key] = &fakeObject{slot: slot}
	return proto.StatusOK
}

func (c *fakeConn) commitStore(q *fakeRequest) (proto.Status, []byte) {
	s := c.s
	var x proto.CommitStore
	require.NoError(s.t, proto.ParseCommitStore(q.Body, &x))
	require.LessOrEqual(s.t, uint64(len(q.Payload)), s.cfg.maxPayload)
	t := s.transfers[x.Transfer]
	if t == nil || t.conn != c || t.expired {
		return proto.StatusStale, nil
	}
	payload := q.Payload
	for i, o := range t.objects {
		if !t.told {
			require.GreaterOrEqual(s.t, uint64(len(payload)), o.slot.Len)
			payload = payload[copy(s.pool.bytes(o.slot), payload[:o.slot.Len]):]
		}
		s.objects[t.keys[i]] = o
	}
	require.Empty(s.t, payload)
	delete(s.transfers, x.Transfer)
	return 0, proto.AppendCommitStoreReply(nil, &proto.CommitStoreReply{Published: uint32(len(t.keys))})
}

func (c *fakeConn) prepareRetrieve(q *fakeRequest) (proto.Status, []byte, []byte) {
	s := c.s
	var x proto.PrepareRetrieve
	require.NoError(s.t, proto.ParsePrepareRetrieve(q.Body, &x))
	t := &fakeTransfer{kind: proto.TransferRetrieve, told: !c.inline(q)}
	if x.Lease != 0 {
		from := s.transfers[x.Lease]
		if from == nil || from.expired {
			return proto.StatusStale, nil, nil
		}
		t.objects = append(t.objects, from.objects[x.First:x.First+x.Count]...)
	}
	for _, k := range x.Keys {
		o := s.objects[c.key(x.Layout, k)]
		if o == nil {
			if x.Mode == proto.RetrieveAll {
				return proto.StatusMiss, nil, nil
			}
			break
		}
		t.objects = append(t.objects, o)
	}
	var out proto.PrepareRetrieveReply
	var payload []byte
	for _, o := range t.objects {
		if t.told {
			o.holds++
			out.Slots = append(out.Slots, o.slot)
			continue
		}
		out.Slots = append(out.Slots, proto.Slot{Len: o.slot.Len})
		payload = append(payload, s.pool.bytes(o.slot)...)
	}
	if t.told && len(t.objects) > 0 {
		out.Transfer = c.open(t)
	}
	return 0, proto.AppendPrepareRetrieveReply(nil, &out), payload
}

// keysOp carries out what is about keys and answers with a count.
func (c *fakeConn) keysOp(q *fakeRequest) (proto.Status, []byte) {
	s := c.s
	if q.Op == proto.OpClear {
		n := len(s.objects)
		for k, o := range s.objects {
			s.remove(k, o)
		}
		return proto.StatusOKNotDurable, proto.AppendClearReply(nil, &proto.ClearReply{Deleted: uint64(n)})
	}
	if q.Op == proto.OpPin {
		return 0, c.pin(q.Body)
	}
	if q.Op != proto.OpDelete && q.Op != proto.OpTouch && q.Op != proto.OpUnpin {
		return proto.StatusUnsupported, nil
	}
	var x proto.Delete // touch and unpin have the same fields
	require.NoError(s.t, proto.ParseDelete(q.Body, &x))
	require.LessOrEqual(s.t, len(x.Keys), int(s.cfg.maxKeys))
	var n uint32
	for _, k := range x.Keys {
		key := c.key(x.Layout, k)
		if o := s.objects[key]; o != nil && (q.Op != proto.OpUnpin || o.pinned) {
			n++
			o.pinned = false
			if q.Op == proto.OpDelete {
				s.remove(key, o)
			}
		}
	}
	return 0, proto.AppendDeleteReply(nil, &proto.DeleteReply{Deleted: n})
}

// pin grants a minute at most.
func (c *fakeConn) pin(body []byte) []byte {
	var x proto.Pin
	require.NoError(c.s.t, proto.ParsePin(body, &x))
	require.LessOrEqual(c.s.t, len(x.Keys), int(c.s.cfg.maxKeys))
	out := proto.PinReply{TTLMs: min(x.TTLMs, 60_000)}
	for _, k := range x.Keys {
		st := proto.StatusMiss
		if o := c.s.objects[c.key(x.Layout, k)]; o != nil {
			o.pinned, st = true, proto.StatusOK
			out.Pinned++
		}
		out.Results = append(out.Results, st)
	}
	return proto.AppendPinReply(nil, &out)
}

func (s *fakeServer) remove(k fakeKey, o *fakeObject) {
	delete(s.objects, k)
	if o.gone = true; o.holds == 0 {
		s.pool.free(o.slot)
	}
}

// listTransfers answers with one transfer a page, so that paging is used.
func (c *fakeConn) listTransfers(body []byte) []byte {
	var x proto.Transfers
	require.NoError(c.s.t, proto.ParseTransfers(body, &x))
	var out proto.TransfersReply
	for h := x.Cursor + 1; h <= c.s.next; h++ {
		t := c.s.transfers[h]
		if t == nil {
			continue
		}
		if len(out.Transfers) > 0 {
			out.Next = h - 1
			break
		}
		state := proto.TransferOpen
		if t.expired {
			state = proto.TransferExpired
		}
		out.Transfers = append(out.Transfers, TransferInfo{Handle: h, Kind: t.kind, State: state, Instance: t.instance, Keys: uint32(len(t.objects))})
	}
	return proto.AppendTransfersReply(nil, &out)
}

func (c *fakeConn) listInstances(body []byte) []byte {
	var x proto.Instances
	require.NoError(c.s.t, proto.ParseInstances(body, &x))
	var out proto.InstancesReply
	for _, life := range c.s.lives {
		out.Instances = append(out.Instances, *life)
	}
	return proto.AppendInstancesReply(nil, &out)
}
