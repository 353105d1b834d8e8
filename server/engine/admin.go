package engine

import "github.com/slotcache/slotcache/proto"

// pageSize bounds the entries of one page of INSTANCES or TRANSFERS.
const pageSize = 256

func (e *Engine) onStats(c *conn, r *request, body []byte) {
	if proto.ParseEmpty(body) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	out := &e.rep.stats
	out.Counters = out.Counters[:0]
	tell := func(name string, value uint64) {
		out.Counters = append(out.Counters, proto.Counter{Name: name, Value: value})
	}
	if c.grant.Whole() {
		var m Metrics
		e.Metrics(&m)
		m.Each(tell)
	} else {
		e.eachOf(c.grant, tell)
	}
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendStatsReply(e.out, out)
	e.send(r)
}

func (e *Engine) onInstances(c *conn, r *request, body []byte) {
	var in proto.Instances
	if proto.ParseInstances(body, &in) != nil || in.Cursor > uint64(len(e.insts)) {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	out := &e.rep.instances
	out.Next, out.Instances = 0, out.Instances[:0]
	for x := uint32(in.Cursor); x < e.instUsed; x++ {
		i := &e.insts[x]
		if i.state == instFree || !c.grant.Sees(e.spaces[i.space].name) {
			continue
		}
		if len(out.Instances) == pageSize {
			out.Next = uint64(x)
			break
		}
		out.Instances = append(out.Instances, proto.InstanceInfo{
			ID: i.id, Incarnation: i.incarnation, State: i.state.told(), Transport: i.transport, PID: i.pid,
			Staged: uint64(i.staged), Held: uint64(i.held), Quarantined: uint64(i.quarantined),
			AgeMs: uint64((e.now - i.created).Milliseconds()),
			Name:  i.name, Namespace: e.spaces[i.space].name,
		})
	}
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendInstancesReply(e.out, out)
	e.send(r)
}

func (e *Engine) onTransfers(c *conn, r *request, body []byte) {
	var in proto.Transfers
	if proto.ParseTransfers(body, &in) != nil || in.Cursor > uint64(len(e.transfers)) {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	out := &e.rep.transfers
	out.Next, out.Transfers = 0, out.Transfers[:0]
	for t := uint32(in.Cursor); t < uint32(len(e.transfers)); t++ {
		p := &e.transfers[t]
		if p.state == transferFree || !e.seesTransfer(c, t) {
			continue
		}
		if len(out.Transfers) == pageSize {
			out.Next = uint64(t)
			break
		}
		i := &e.insts[p.inst]
		out.Transfers = append(out.Transfers, proto.TransferInfo{
			Handle: e.handle(t), Kind: proto.TransferKind(p.kind), State: p.state.told(),
			Instance: i.id, Incarnation: i.incarnation,
			Keys: p.count, Bytes: uint64(p.bytes), AgeMs: uint64((e.now - p.created).Milliseconds()),
		})
	}
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendTransfersReply(e.out, out)
	e.send(r)
}

// told is the state as INSTANCES tells it.
func (s instState) told() uint8 {
	switch s {
	case instLive:
		return proto.InstanceLive
	case instDetached:
		return proto.InstanceDetached
	case instDraining:
		return proto.InstanceDraining
	case instFree:
	}
	panic("engine: an instance is told of that is " + s.String())
}

// told is the state as TRANSFERS tells it.
func (s transferState) told() uint8 {
	switch s {
	case transferBuilding:
		return proto.TransferWaiting
	case transferLoading:
		return proto.TransferLoading
	case transferOpen:
		return proto.TransferOpen
	case transferMoving:
		return proto.TransferMoving
	case transferAbandoned:
		return proto.TransferEnding
	case transferQuarantined:
		return proto.TransferExpired
	case transferFree:
	}
	panic("engine: a transfer is told of that is " + s.String())
}
