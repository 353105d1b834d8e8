package client

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// A LookupRequest asks which objects are there.
type LookupRequest struct {
	Layout int // index into the registered layouts
	Keys   []Key
	Mode   proto.LookupMode // count the leading hits, or any
	Group  int              // keys that count only together; 0 is 1
	Hold   bool             // hold the hits in memory, as a lease
	Load   bool             // read from disk what is only there
	Slots  bool             // make the hits' bytes readable through the lease; implies Hold
	Wait   time.Duration    // how long to wait for loads
}

// A LookupResult says which objects are there.
type LookupResult struct {
	Hits       int    // in prefix mode the leading keys that are there, else all that are
	FromMemory int    // hits that were in memory when the request came
	FromDisk   int    // hits that were on disk only when the request came
	Bitmap     []byte // in any mode a bit a key, lowest bit of the first byte first; else nil
	Lease      *Lease // the holds taken, to be released by the caller; nil if none
}

// Hit reports whether the key with index i is there, in any mode.
func (r *LookupResult) Hit(i int) bool {
	return i >= 0 && i < 8*len(r.Bitmap) && r.Bitmap[i/8]>>(i%8)&1 == 1
}

// Lookup asks which of the keys are there. More keys than a request may have are asked
// for in several ones, each held by its own.
func (w *Worker) Lookup(ctx context.Context, req LookupRequest) (*LookupResult, error) {
	if _, err := w.layout(proto.OpLookup, req.Layout); err != nil {
		return nil, err
	}
	if req.Group == 0 {
		req.Group = 1
	}
	if req.Group < 0 || req.Group > 1<<16-1 {
		return nil, fmt.Errorf("client: lookup: group of %d", req.Group)
	}
	req.Hold = req.Hold || req.Slots
	var r *LookupResult
	err := w.attempt(ctx, func(s *session) (err error) {
		r, err = s.lookup(ctx, &req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// lookup asks in steps. What a failed one has taken is given back.
func (s *session) lookup(ctx context.Context, req *LookupRequest) (*LookupResult, error) {
	step, unit := s.maxKeys(), req.Group
	if req.Mode == proto.ModeAny {
		unit *= 8 // whole bytes of the bitmap
	}
	if len(req.Keys) > step {
		if step -= step % unit; step == 0 {
			return nil, fmt.Errorf("client: lookup: %d keys in groups of %d", len(req.Keys), req.Group)
		}
	}
	r := &LookupResult{}
	wait := newBudget(req.Wait)
	for first := 0; first < len(req.Keys); first += step {
		keys := req.Keys[first:min(first+step, len(req.Keys))]
		whole, err := s.lookupStep(ctx, req, keys, wait.left(ctx), r)
		if err != nil {
			r.Lease.drop()
			return nil, err
		}
		if !whole && req.Mode == proto.ModePrefix {
			break
		}
	}
	if s.inline() && req.Slots && r.Lease != nil {
		if err := r.Lease.fetch(ctx, req.Layout); err != nil {
			r.Lease.drop()
			return nil, err
		}
	}
	return r, nil
}

// lookupStep asks for some of the keys and adds the answer to r. It reports whether all
// of them are there.
func (s *session) lookupStep(ctx context.Context, req *LookupRequest, keys []Key, wait uint32, r *LookupResult) (bool, error) {
	q := proto.Lookup{Layout: uint16(req.Layout), Mode: req.Mode, Group: uint16(req.Group), WaitMs: wait, Keys: keys}
	if req.Hold {
		q.Options |= proto.LookupHold
	}
	if req.Load {
		q.Options |= proto.LookupLoad
	}
	slots := req.Slots && !s.inline()
	if slots {
		q.Options |= proto.LookupSlots
	}
	c := newCall(proto.OpLookup)
	c.frame = proto.AppendLookup(c.frame, &q)
	if err := s.roundTrip(ctx, c); err != nil {
		return false, err
	}
	var x proto.LookupReply
	if err := proto.ParseLookupReply(c.body, &x); err != nil {
		return false, s.link.broken(c.op, "%v", err)
	}
	c.free()
	if err := checkLookup(&q, &x); err != nil {
		return false, s.link.broken(proto.OpLookup, "%v", err)
	}
	r.Hits += int(x.Hits)
	r.FromMemory += int(x.FromMemory)
	r.FromDisk += int(x.FromDisk)
	r.Bitmap = append(r.Bitmap, x.Bitmap...)
	if x.Lease != 0 {
		if r.Lease == nil {
			r.Lease = &Lease{handle: handle{s: s.retain()}}
		}
		r.Lease.parts = append(r.Lease.parts, leasePart{lease: x.Lease, count: int(x.Hits)})
	}
	if slots {
		values, err := s.slots(proto.OpLookup, x.Slots)
		if err != nil {
			return false, err
		}
		if r.Lease != nil {
			r.Lease.values = append(r.Lease.values, values...)
		}
	}
	return int(x.Hits) == len(keys), nil
}

// checkLookup checks a reply against its request.
func checkLookup(q *proto.Lookup, x *proto.LookupReply) error {
	slots, bitmap := 0, 0
	if q.Options&proto.LookupSlots != 0 {
		slots = int(x.Hits)
	}
	if q.Mode == proto.ModeAny {
		bitmap = (len(q.Keys) + 7) / 8
	}
	switch {
	case int(x.Hits) > len(q.Keys):
		return fmt.Errorf("%d hits of %d keys", x.Hits, len(q.Keys))
	case len(x.Bitmap) != bitmap:
		return fmt.Errorf("bitmap of %d bytes for %d keys", len(x.Bitmap), len(q.Keys))
	case len(x.Slots) != slots:
		return fmt.Errorf("%d slots for %d hits", len(x.Slots), x.Hits)
	case len(x.Slots) > 0 && x.Lease == 0:
		return fmt.Errorf("%d slots without a lease", len(x.Slots))
	case x.Lease != 0 && q.Options&proto.LookupHold == 0:
		return fmt.Errorf("a lease that nobody asked for")
	}
	if q.Mode == proto.ModeAny {
		n := 0
		for _, b := range x.Bitmap {
			n += bits.OnesCount8(b)
		}
		if n != int(x.Hits) {
			return fmt.Errorf("%d bits set for %d hits", n, x.Hits)
		}
	}
	return nil
}

// A Lease holds the hits of a lookup in the server's memory until it is released.
// Release it once; further releases do nothing.
type Lease struct {
	handle
	parts  []leasePart
	values [][]byte
}

type leasePart struct {
	lease uint64
	count int // objects in it
}

// Handle returns the handle that other workers of the namespace may pass to
// [Worker.RetrieveLease]. A lookup of more keys than one request may have has several:
// see Handles. It is 0 for nil.
func (l *Lease) Handle() uint64 {
	if l == nil {
		return 0
	}
	return l.parts[0].lease
}

// Handles returns all handles of the lease, in the order of the keys; none for nil.
func (l *Lease) Handles() []uint64 {
	if l == nil {
		return nil
	}
	list := make([]uint64, len(l.parts))
	for i := range l.parts {
		list[i] = l.parts[i].lease
	}
	return list
}

// Values returns the bytes of the hits, in the order of the keys, if the lookup asked for
// slots. They are in the server's memory and valid until the lease is released; with
// inline transport they are copies. They must not be written to. There are none for nil.
func (l *Lease) Values() [][]byte {
	if l == nil {
		return nil
	}
	return l.values
}

// Release gives the holds back. It sends and does not wait for the server. [ErrStale]
// says that the connection was lost before; what was read is right all the same.
func (l *Lease) Release(context.Context) error {
	if l == nil || !l.finish() {
		return nil
	}
	defer l.s.leave()
	live := l.s.live()
	l.post()
	if !live {
		return l.s.gone()
	}
	return nil
}

// drop releases a lease that nobody will see, or does nothing for nil.
func (l *Lease) drop() {
	if l != nil && l.finish() {
		l.post()
		l.s.leave()
	}
}

// post sends the releases.
func (l *Lease) post() {
	for i := range l.parts {
		l.s.settle(proto.OpRelease, l.parts[i].lease)
	}
}

// fetch copies the lease's objects into l.values, inline.
func (l *Lease) fetch(ctx context.Context, layout int) error {
	step := l.s.inlineKeys(layout)
	for _, p := range l.parts {
		for first := 0; first < p.count; first += step {
			q := proto.PrepareRetrieve{Layout: uint16(layout), Lease: p.lease, First: uint32(first), Count: uint32(min(step, p.count-first))}
			values, _, err := l.s.retrieveStep(ctx, &q, layout)
			if err != nil {
				return err
			}
			l.values = append(l.values, values...)
		}
	}
	return nil
}
