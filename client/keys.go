package client

import (
	"context"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// keyRequest is a request about a list of keys whose reply is a count.
type keyRequest struct {
	op     proto.Op
	layout int
	keys   []Key
	encode func(dst []byte, layout uint16, keys []Key) []byte
	decode func(body []byte) (uint32, error)
}

// count makes the request, in several steps if the keys are too many for one, and adds up
// the counts.
func (w *Worker) count(ctx context.Context, req keyRequest) (int, error) {
	layout, err := w.layout(req.op, req.layout)
	if err != nil {
		return 0, err
	}
	total := 0
	err = w.attempt(ctx, func(s *session) error {
		total = 0
		step := s.maxKeys()
		for first := 0; first < len(req.keys); first += step {
			c := newCall(req.op)
			c.frame = req.encode(c.frame, layout, req.keys[first:min(first+step, len(req.keys))])
			if err := s.roundTrip(ctx, c); err != nil {
				return err
			}
			n, err := req.decode(c.body)
			if err != nil {
				return s.link.broken(c.op, "%v", err)
			}
			c.free()
			total += int(n)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}

// Delete removes objects from the server's memory and disk and returns how many were
// there. Objects that are held vanish at once and are freed when the last hold ends; a
// store under way will not be published.
func (w *Worker) Delete(ctx context.Context, layout int, keys []Key) (int, error) {
	return w.count(ctx, keyRequest{
		op: proto.OpDelete, layout: layout, keys: keys,
		encode: func(dst []byte, layout uint16, keys []Key) []byte {
			return proto.AppendDelete(dst, &proto.Delete{Layout: layout, Keys: keys})
		},
		decode: func(body []byte) (uint32, error) {
			var x proto.DeleteReply
			err := proto.ParseDeleteReply(body, &x)
			return x.Deleted, err
		},
	})
}

// Touch marks objects as recently used and returns how many were in memory.
func (w *Worker) Touch(ctx context.Context, layout int, keys []Key) (int, error) {
	return w.count(ctx, keyRequest{
		op: proto.OpTouch, layout: layout, keys: keys,
		encode: func(dst []byte, layout uint16, keys []Key) []byte {
			return proto.AppendTouch(dst, &proto.Touch{Layout: layout, Keys: keys})
		},
		decode: func(body []byte) (uint32, error) {
			var x proto.TouchReply
			err := proto.ParseTouchReply(body, &x)
			return x.Touched, err
		},
	})
}

// A PinRequest asks that objects stay in memory for a time.
type PinRequest struct {
	Layout int
	Keys   []Key
	TTL    time.Duration // how long; 0: as long as the server sees fit, which has a greatest time too
	Hard   bool          // they stay though memory is short; else they are the last to go
	Load   bool          // read from disk first what is only there
	Wait   time.Duration // how long to wait for that; 0: for as long as ctx allows, a minute at most
}

// A PinResult says which objects are pinned now.
type PinResult struct {
	Pinned  int
	TTL     time.Duration  // of these pins: what was asked for, or the most that the server grants
	Results []proto.Status // one for each key: ok, miss (not in memory), busy (being written or loaded), no_space (no budget is left), too_large
}

// Pin pins objects that are in memory. A pin belongs to the object: it does not end with the
// worker but by its time, by [Worker.Unpin] of any worker of the namespace, or with the
// object. One that is pinned already stays pinned at least as strongly and as long. Reading
// an object does not prolong its pin, nor does a restart of the server keep it.
func (w *Worker) Pin(ctx context.Context, req PinRequest) (*PinResult, error) {
	layout, err := w.layout(proto.OpPin, req.Layout)
	if err != nil {
		return nil, err
	}
	if req.Load {
		if req.Wait <= 0 {
			req.Wait = time.Minute
		}
		held, err := w.Lookup(ctx, LookupRequest{
			Layout: req.Layout, Keys: req.Keys, Mode: proto.ModeAny, Hold: true, Load: true, Wait: req.Wait,
		})
		if err != nil {
			return nil, err
		}
		defer held.Lease.drop()
	}
	var out *PinResult
	err = w.attempt(ctx, func(s *session) (err error) {
		out, err = s.pin(ctx, layout, &req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// pin pins in as many steps as the keys take.
func (s *session) pin(ctx context.Context, layout uint16, req *PinRequest) (*PinResult, error) {
	// Less than a millisecond is not nothing, which would be the server's default.
	ms := (req.TTL + time.Millisecond - 1).Milliseconds()
	in := proto.Pin{Layout: layout, Hard: req.Hard, TTLMs: uint32(min(max(ms, 0), 1<<32-1))}
	out := &PinResult{Results: make([]proto.Status, 0, len(req.Keys))}
	step := s.maxKeys()
	for first := 0; first < len(req.Keys); first += step {
		in.Keys = req.Keys[first:min(first+step, len(req.Keys))]
		c := newCall(proto.OpPin)
		c.frame = proto.AppendPin(c.frame, &in)
		if err := s.roundTrip(ctx, c); err != nil {
			return nil, err
		}
		var x proto.PinReply
		if err := proto.ParsePinReply(c.body, &x); err != nil {
			return nil, s.link.broken(c.op, "%v", err)
		}
		if len(x.Results) != len(in.Keys) {
			return nil, s.link.broken(c.op, "%d results for %d keys", len(x.Results), len(in.Keys))
		}
		c.free()
		out.Pinned += int(x.Pinned)
		out.TTL = time.Duration(x.TTLMs) * time.Millisecond
		out.Results = append(out.Results, x.Results...)
	}
	return out, nil
}

// Unpin ends pins, whoever asked for them, and returns how many there were.
func (w *Worker) Unpin(ctx context.Context, layout int, keys []Key) (int, error) {
	return w.count(ctx, keyRequest{
		op: proto.OpUnpin, layout: layout, keys: keys,
		encode: func(dst []byte, layout uint16, keys []Key) []byte {
			return proto.AppendUnpin(dst, &proto.Unpin{Layout: layout, Keys: keys})
		},
		decode: func(body []byte) (uint32, error) {
			var x proto.UnpinReply
			err := proto.ParseUnpinReply(body, &x)
			return x.Unpinned, err
		},
	})
}

// Clear removes all objects of the worker's namespace and returns how many of them were
// in memory.
func (w *Worker) Clear(ctx context.Context) (int64, error) {
	var n int64
	err := w.attempt(ctx, func(s *session) (err error) {
		n, err = s.link.clear(ctx, w.base.Done(), "")
		return err
	})
	return n, err
}
