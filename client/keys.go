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
	TTL    time.Duration
	Hard   bool // not even to go when memory is short
}

// Pin pins objects and returns how many are pinned now.
func (w *Worker) Pin(ctx context.Context, req PinRequest) (int, error) {
	ttl := uint32(min(max(req.TTL.Milliseconds(), 0), 1<<32-1))
	return w.count(ctx, keyRequest{
		op: proto.OpPin, layout: req.Layout, keys: req.Keys,
		encode: func(dst []byte, layout uint16, keys []Key) []byte {
			return proto.AppendPin(dst, &proto.Pin{Layout: layout, Hard: req.Hard, TTLMs: ttl, Keys: keys})
		},
		decode: func(body []byte) (uint32, error) {
			var x proto.PinReply
			err := proto.ParsePinReply(body, &x)
			return x.Pinned, err
		},
	})
}

// Unpin ends pins and returns how many there were.
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
