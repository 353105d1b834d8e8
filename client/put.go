package client

import (
	"context"
	"errors"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// Put stores one object, waiting at most a second for memory. It takes one round trip for a
// value of up to 64 KiB, else two. The status is ok, or why it
// was not stored: exists, busy, no_space, too_large, or stale if it was deleted meanwhile.
func (w *Worker) Put(ctx context.Context, layout int, key Key, value []byte) (proto.Status, error) {
	for again := false; ; again = true {
		status, err := w.put(ctx, layout, key, value)
		lost := errors.Is(err, ErrDisconnected) || errors.Is(err, ErrStale)
		if again || !lost || w.base.Err() != nil {
			return status, err
		}
	}
}

// putMax is the longest value that goes in one request, in bytes: copying it through the
// connection takes less than a second round trip.
const putMax = 64 << 10

func (w *Worker) put(ctx context.Context, layout int, key Key, value []byte) (proto.Status, error) {
	if len(value) <= putMax && !w.reg.ReadOnly {
		status, err := w.putWhole(ctx, layout, key, value)
		if err != nil || status != proto.StatusNoSpace && status != proto.StatusUnsupported {
			return status, err
		}
		// It may be worth waiting for memory, or the server does not know PUT yet.
	}
	st, err := w.PrepareStore(ctx, layout, []Key{key}, []uint64{uint64(len(value))}, time.Second)
	if err != nil {
		return 0, err
	}
	if st.reserved == 0 {
		status := st.Status(0)
		return status, st.Abort(ctx)
	}
	copy(st.Slot(0), value)
	switch err := st.Commit(ctx); {
	case statusOf(err) == proto.StatusStale:
		return proto.StatusStale, nil
	case err != nil:
		return 0, err
	case st.published == 0:
		return proto.StatusStale, nil
	}
	return proto.StatusOK, nil
}

// putWhole sends a value with the request to store it.
func (w *Worker) putWhole(ctx context.Context, layout int, key Key, value []byte) (status proto.Status, err error) {
	index, err := w.layout(proto.OpPut, layout)
	if err != nil {
		return 0, err
	}
	err = w.attempt(ctx, func(s *session) error {
		if uint64(len(value)) > s.maxPayload() {
			return &StatusError{Op: proto.OpPut, Status: proto.StatusUnsupported}
		}
		c := newCall(proto.OpPut)
		c.flags = proto.FlagInline
		c.frame = proto.AppendPut(c.frame, &proto.Put{Layout: index, Key: key})
		c.payload = append(c.payload, value)
		err := s.roundTrip(ctx, c)
		if err != nil {
			return err
		}
		if len(c.body) > 0 {
			return s.link.broken(proto.OpPut, "a body")
		}
		c.free()
		return nil
	})
	switch status = statusOf(err); status { //nolint:exhaustive // the others are errors
	case proto.StatusExists, proto.StatusBusy, proto.StatusNoSpace, proto.StatusTooLarge, proto.StatusStale, proto.StatusUnsupported:
		return status, nil
	}
	return proto.StatusOK, err
}
