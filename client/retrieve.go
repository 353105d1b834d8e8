package client

import (
	"context"
	"fmt"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// RetrieveOptions are how to retrieve.
type RetrieveOptions struct {
	Load   bool          // read from disk what is only there
	Wait   time.Duration // how long to wait for loads; 0: for as long as ctx allows, a minute at most
	Prefix bool          // take the leading objects that are there, not all or none
}

// A Retrieval is objects that are held for reading. Release it once; further releases do
// nothing. The release is sent with the worker's next request, or a millisecond later.
type Retrieval struct {
	handle
	transfers []uint64
	values    [][]byte
}

// Retrieve makes objects readable: all of them, or the error is [ErrMiss]; with
// opts.Prefix the leading ones that are there, which may be none. It takes one round trip,
// unless the objects are more than fit into a reply. All of more than a worker may hold (half
// of the server's memory by default) is too_large, with opts.Prefix the answer is cut there.
func (w *Worker) Retrieve(ctx context.Context, layout int, keys []Key, opts RetrieveOptions) (*Retrieval, error) {
	index, err := w.layout(proto.OpPrepareRetrieve, layout)
	if err != nil {
		return nil, err
	}
	var r *Retrieval
	err = w.attempt(ctx, func(s *session) (err error) {
		r, err = s.retrieveKeys(ctx, index, keys, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// RetrieveLease makes count objects of a lease readable, from the one with index first.
// The lease may be another worker's of the same namespace; the retrieval has its own
// holds and outlives it.
func (w *Worker) RetrieveLease(ctx context.Context, lease uint64, first, count int) (*Retrieval, error) {
	if lease == 0 || first < 0 || count < 0 || first > proto.MaxKeys || count > proto.MaxKeys {
		return nil, fmt.Errorf("client: retrieve: %d objects at %d of lease %d", count, first, lease)
	}
	var r *Retrieval
	err := w.attempt(ctx, func(s *session) error {
		step := count
		if s.inline() {
			step = s.inlineKeys(-1)
		}
		r = &Retrieval{handle: handle{s: s.retain()}}
		for at := 0; at < count; {
			n := min(step, count-at)
			q := proto.PrepareRetrieve{Lease: lease, First: uint32(first + at), Count: uint32(n)}
			err := r.add(ctx, &q, -1)
			if statusOf(err) == proto.StatusTooLarge && n > 1 { // of a layout that is not registered here, and so of any size
				step = n / 2
				continue
			}
			if err != nil {
				r.drop()
				return err
			}
			at += n
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// retrieveKeys retrieves by keys, in steps.
func (s *session) retrieveKeys(ctx context.Context, layout uint16, keys []Key, opts RetrieveOptions) (*Retrieval, error) {
	step := s.maxKeys()
	if s.inline() {
		step = s.inlineKeys(int(layout))
	}
	mode := proto.RetrieveAll
	if opts.Prefix {
		mode = proto.RetrievePrefix
	}
	r := &Retrieval{handle: handle{s: s.retain()}}
	var wait budget
	if opts.Load { // the server reads from disk what it may wait for
		if opts.Wait <= 0 {
			opts.Wait = time.Minute
		}
		wait = newBudget(opts.Wait)
	}
	for first := 0; first < len(keys); first += step {
		q := proto.PrepareRetrieve{Layout: layout, Mode: mode, WaitMs: wait.left(ctx), Keys: keys[first:min(first+step, len(keys))]}
		err := r.add(ctx, &q, int(layout))
		if opts.Prefix && statusOf(err) == proto.StatusMiss {
			break
		}
		if err != nil {
			r.drop()
			return nil, err
		}
		if len(r.values) < first+len(q.Keys) {
			break // the prefix ends here
		}
	}
	return r, nil
}

// add retrieves some objects.
func (r *Retrieval) add(ctx context.Context, q *proto.PrepareRetrieve, layout int) error {
	values, transfer, err := r.s.retrieveStep(ctx, q, layout)
	if err != nil {
		return err
	}
	r.values = append(r.values, values...)
	if transfer != 0 {
		r.transfers = append(r.transfers, transfer)
	}
	return nil
}

// retrieveStep makes one request. A negative layout stands for any.
func (s *session) retrieveStep(ctx context.Context, q *proto.PrepareRetrieve, layout int) ([][]byte, uint64, error) {
	want := int(q.Count) + len(q.Keys)
	c := newCall(proto.OpPrepareRetrieve)
	if s.inline() {
		c.flags = proto.FlagInline
		c.payloadMax = s.payloadMax(layout, want)
	}
	c.frame = proto.AppendPrepareRetrieve(c.frame, q)
	if err := s.roundTrip(ctx, c); err != nil {
		return nil, 0, err
	}
	var x proto.PrepareRetrieveReply
	if err := proto.ParsePrepareRetrieveReply(c.body, &x); err != nil {
		return nil, 0, s.link.broken(c.op, "%v", err)
	}
	payload := c.values
	c.free()
	switch {
	case len(x.Slots) > want, len(x.Slots) < want && q.Mode == proto.RetrieveAll:
		return nil, 0, s.link.broken(proto.OpPrepareRetrieve, "%d slots for %d objects", len(x.Slots), want)
	case s.inline() && x.Transfer != 0, !s.inline() && len(x.Slots) > 0 && x.Transfer == 0:
		return nil, 0, s.link.broken(proto.OpPrepareRetrieve, "transfer %d of %d objects, %s", x.Transfer, len(x.Slots), s.transport)
	}
	if !s.inline() {
		values, err := s.slots(proto.OpPrepareRetrieve, x.Slots)
		return values, x.Transfer, err
	}
	values, ok := cut(payload, x.Slots)
	if !ok {
		return nil, 0, s.link.broken(proto.OpPrepareRetrieve, "payload of %d bytes is not that of the slots", len(payload))
	}
	return values, 0, nil
}

// payloadMax is how many bytes that many objects of the layout may have. A negative layout
// stands for any, those that are not registered here included.
func (s *session) payloadMax(layout, objects int) uint32 {
	most := s.maxPayload()
	var size uint64
	if layout >= 0 && layout < len(s.layouts) {
		size = s.layouts[layout].Size
	}
	if size > 0 && size <= most/uint64(max(objects, 1)) {
		most = size * uint64(objects)
	}
	return uint32(most)
}

// cut cuts a payload into the values that it consists of.
func cut(payload []byte, slots []proto.Slot) ([][]byte, bool) {
	values := make([][]byte, len(slots))
	for i := range slots {
		n := slots[i].Len
		if n > uint64(len(payload)) {
			return nil, false
		}
		values[i] = payload[:n:n]
		payload = payload[n:]
	}
	return values, len(payload) == 0
}

// Values returns the objects' bytes, in the order of the keys. They are in the server's
// memory and valid until the retrieval is released; with inline transport they are
// copies. They must not be written to.
func (r *Retrieval) Values() [][]byte { return r.values }

// Release gives the objects back. It sends and does not wait for the server. [ErrStale]
// says that the connection was lost before; what was read is right all the same.
func (r *Retrieval) Release(context.Context) error {
	if r == nil || !r.finish() {
		return nil
	}
	defer r.s.leave()
	live := r.s.live()
	r.post()
	if !live && len(r.transfers) > 0 {
		return r.s.gone()
	}
	return nil
}

// drop ends a retrieval that nobody will see.
func (r *Retrieval) drop() {
	if r.finish() {
		r.post()
		r.s.leave()
	}
}

// post sends the commits.
func (r *Retrieval) post() {
	for _, t := range r.transfers {
		r.s.settle(proto.OpCommitRetrieve, t)
	}
}

// Fetch appends one object's bytes to dst and reports whether it was there, in memory or
// on disk. It waits for the disk for as long as ctx allows, a minute at most.
func (w *Worker) Fetch(ctx context.Context, layout int, key Key, dst []byte) ([]byte, bool, error) {
	r, err := w.Retrieve(ctx, layout, []Key{key}, RetrieveOptions{Load: true, Prefix: true})
	if err != nil {
		return dst, false, err
	}
	defer r.drop()
	if len(r.values) == 0 {
		return dst, false, nil
	}
	return append(dst, r.values[0]...), true, nil
}
