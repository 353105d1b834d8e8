package engine

import "github.com/slotcache/slotcache/proto"

// onPut stores one object whose bytes follow: a prepare and an inline commit in one request.
// It never waits for memory, for the connection's next frame lies behind the bytes.
func (e *Engine) onPut(c *conn, r *request, payload uint32, body []byte) {
	in := &e.in.put
	if proto.ParsePut(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	x := e.liveInstance(c)
	l, t := e.beginStore(c, r, x, in.Layout)
	if t == none {
		return
	}
	p := &e.transfers[t]
	p.inline = true
	if st := e.stagePut(t, l, uint64(payload), in); st != proto.StatusReserved {
		e.endTransfer(t)
		e.refuse(r, st)
		return
	}
	p.moveTo(transferOpen)
	if payload == 0 {
		e.publishTransfer(r, t, nil)
		return
	}
	if !e.receive(c, r, t) {
		e.endTransfer(t)
		e.refuse(r, proto.StatusBusy)
	}
}

// stagePut reserves the slot of a put. Where a prepare would wait, for dirty objects to be
// spilled, there is no space: a put takes no memory that a prepare would not have taken.
func (e *Engine) stagePut(t uint32, l layout, size uint64, in *proto.Put) proto.Status {
	q, out := &e.in.prepare, &e.rep.prepare
	q.Keys = append(q.Keys[:0], in.Key)
	q.Sizes = append(q.Sizes[:0], size)
	out.Results = out.Results[:0]
	if e.reserve(t, l, q, out, patience{wait: true, behind: true}) > 0 {
		return proto.StatusNoSpace
	}
	return out.Results[0].Status
}
