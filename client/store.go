package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// A StoreResult is the answer to one key of a PrepareStore.
type StoreResult struct {
	Status proto.Status // reserved, exists, busy, no_space or too_large
	Slot   []byte       // to be written to before the commit, if reserved; else nil
}

// A Store is objects about to be written. It must be ended by Commit or Abort: until then
// the server keeps the memory. Abort after a commit does nothing, so that it may be
// deferred.
type Store struct {
	handle
	results   []StoreResult
	parts     []storePart
	reserved  int
	published int
}

// A storePart is what one request has reserved.
type storePart struct {
	transfer uint64
	slots    [][]byte // in order, of the reserved keys
}

// PrepareStore reserves a slot for each key that can have one, waiting at most wait for
// memory. sizes are in bytes, one a key. More than fits into a request is asked for in
// several ones. The slots are in the server's memory; with inline transport they are
// buffers that the commit sends.
func (w *Worker) PrepareStore(ctx context.Context, layout int, keys []Key, sizes []uint64, wait time.Duration) (*Store, error) {
	index, err := w.storable(layout, keys, sizes)
	if err != nil {
		return nil, err
	}
	var st *Store
	err = w.attempt(ctx, func(s *session) error {
		st = &Store{handle: handle{s: s.retain()}, results: make([]StoreResult, 0, len(keys))}
		if err := st.prepare(ctx, index, keys, sizes, newBudget(wait)); err != nil {
			st.drop()
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// storable checks what is to be stored, and gives the server's number of the layout.
func (w *Worker) storable(layout int, keys []Key, sizes []uint64) (uint16, error) {
	index, err := w.layout(proto.OpPrepareStore, layout)
	if err != nil {
		return 0, err
	}
	if len(keys) != len(sizes) {
		return 0, fmt.Errorf("client: prepare_store: %d sizes for %d keys", len(sizes), len(keys))
	}
	if w.reg.ReadOnly {
		return 0, &StatusError{Op: proto.OpPrepareStore, Status: proto.StatusDenied}
	}
	return index, nil
}

// prepare asks in steps that fit into a request and, inline, whose values fit into the
// payload of their commit.
func (st *Store) prepare(ctx context.Context, layout uint16, keys []Key, sizes []uint64, wait budget) error {
	most := st.s.maxPayload()
	for first := 0; first < len(keys); first = len(st.results) {
		var n int
		var sum uint64
		for n < min(len(keys)-first, st.s.maxKeys()) {
			size := sizes[first+n]
			if st.s.inline() && (size > most || sum+size > most) {
				break
			}
			sum += size
			n++
		}
		if n == 0 {
			st.results = append(st.results, StoreResult{Status: proto.StatusTooLarge})
			continue
		}
		q := proto.PrepareStore{Layout: layout, WaitMs: wait.left(ctx), Keys: keys[first : first+n], Sizes: sizes[first : first+n]}
		if err := st.prepareStep(ctx, &q); err != nil {
			return err
		}
	}
	return nil
}

// prepareStep makes one request.
func (st *Store) prepareStep(ctx context.Context, q *proto.PrepareStore) error {
	c := st.s.prepareCall(q)
	if err := st.s.roundTrip(ctx, c); err != nil {
		return err
	}
	return st.granted(c, q.Sizes)
}

// prepareCall asks for slots.
func (s *session) prepareCall(q *proto.PrepareStore) *call {
	c := newCall(proto.OpPrepareStore)
	if s.inline() {
		c.flags = proto.FlagInline
	}
	c.frame = proto.AppendPrepareStore(c.frame, q)
	return c
}

// granted takes the reply to a prepare of objects of these sizes.
func (st *Store) granted(c *call, sizes []uint64) error {
	link := st.s.link
	var x proto.PrepareStoreReply
	if err := proto.ParsePrepareStoreReply(c.body, &x); err != nil {
		return link.broken(c.op, "%v", err)
	}
	c.free()
	if len(x.Results) != len(sizes) {
		return link.broken(proto.OpPrepareStore, "%d results for %d keys", len(x.Results), len(sizes))
	}
	part := storePart{transfer: x.Transfer}
	for i := range x.Results {
		r := &x.Results[i]
		if r.Status != proto.StatusReserved {
			st.results = append(st.results, StoreResult{Status: r.Status})
			continue
		}
		slot, err := st.slot(r.Slot, sizes[i])
		if err != nil {
			return err
		}
		part.slots = append(part.slots, slot)
		st.results = append(st.results, StoreResult{Status: r.Status, Slot: slot})
	}
	if (x.Transfer != 0) != (len(part.slots) > 0) {
		return link.broken(proto.OpPrepareStore, "transfer %d with %d slots", x.Transfer, len(part.slots))
	}
	if x.Transfer != 0 {
		st.parts = append(st.parts, part)
		st.reserved += len(part.slots)
	}
	return nil
}

// slot returns the bytes to write an object of the given size to.
func (st *Store) slot(slot proto.Slot, size uint64) ([]byte, error) {
	if st.s.inline() {
		return make([]byte, size), nil
	}
	if slot.Len != size {
		return nil, st.s.link.broken(proto.OpPrepareStore, "slot of %d bytes for %d", slot.Len, size)
	}
	return st.s.slot(proto.OpPrepareStore, slot)
}

// Results returns the answer to each key, in order.
func (st *Store) Results() []StoreResult { return st.results }

// Status returns the answer to the key with index i.
func (st *Store) Status(i int) proto.Status { return st.results[i].Status }

// Slot returns where to write the object of the key with index i, or nil if nothing was
// reserved for it: it is there already, or somebody else is storing it, or there is no room.
// Status tells which.
func (st *Store) Slot(i int) []byte { return st.results[i].Slot }

// Reserved returns how many slots there are to write to.
func (st *Store) Reserved() int { return st.reserved }

// Published returns how many objects have become readable. It is smaller than Reserved
// after a commit if some were deleted meanwhile. A commit of nothing succeeds, so this, or
// the Status of each key, says whether all was stored.
func (st *Store) Published() int { return st.published }

// Commit publishes the objects whose slots were reserved; they must have been written,
// and must not be written to any more. sums are the xxh3-64 checksums of these objects in
// order, or nothing. If nothing was reserved it does nothing and succeeds.
//
// After a [StatusError] or [ErrStale] not all is published: objects that were deleted
// meanwhile are not, or nothing is because the store came too late. After [ErrDisconnected]
// or the end of ctx what is published is not known. In each case the store is ended, except
// if the number of checksums is wrong.
func (st *Store) Commit(ctx context.Context, sums ...uint64) error {
	if len(sums) != 0 && len(sums) != st.reserved {
		return fmt.Errorf("client: commit_store: %d checksums for %d objects", len(sums), st.reserved)
	}
	if !st.finish() {
		return ErrStale
	}
	defer st.s.leave()
	var first error
	for i := range st.parts {
		p := &st.parts[i]
		var own []uint64
		if len(sums) > 0 {
			own, sums = sums[:len(p.slots)], sums[len(p.slots):]
		}
		err := st.commitPart(ctx, p, own)
		if err == nil {
			continue
		}
		if first == nil {
			first = err
		}
		if statusOf(err) == proto.StatusOK { // the rest would end in the same way
			for _, rest := range st.parts[i+1:] {
				st.s.settle(proto.OpAbortStore, rest.transfer)
			}
			break
		}
	}
	return first
}

// commitPart commits one transfer. Where that fails the transfer is aborted, by which the
// server knows that nothing more is written there.
func (st *Store) commitPart(ctx context.Context, p *storePart, sums []uint64) error {
	if !st.s.live() {
		st.s.settle(proto.OpAbortStore, p.transfer)
		return st.s.gone()
	}
	c := st.s.commitCall(p, sums)
	return st.committed(p, c, st.s.roundTrip(ctx, c))
}

// commitCall commits one transfer, inline with what is to be stored.
func (s *session) commitCall(p *storePart, sums []uint64) *call {
	c := newCall(proto.OpCommitStore)
	c.handle = p.transfer
	c.frame = proto.AppendCommitStore(c.frame, &proto.CommitStore{Transfer: p.transfer, Sums: sums})
	if s.inline() {
		c.flags = proto.FlagInline
		c.payload = p.slots
	}
	return c
}

// committed takes the reply to a commit, or the error that there is instead.
func (st *Store) committed(p *storePart, c *call, err error) error {
	link := st.s.link
	if err != nil {
		if unsent(err) || errors.Is(err, ErrDisconnected) || statusOf(err) != proto.StatusOK {
			retryable(link, err)
			st.s.settle(proto.OpAbortStore, p.transfer)
		} else {
			link.forget(p.transfer) // the reader sees to the rest
		}
		return err
	}
	link.forget(p.transfer)
	var x proto.CommitStoreReply
	if err := proto.ParseCommitStoreReply(c.body, &x); err != nil {
		return link.broken(c.op, "%v", err)
	}
	c.free()
	if int(x.Published) > len(p.slots) {
		return link.broken(proto.OpCommitStore, "%d published of %d", x.Published, len(p.slots))
	}
	st.published += int(x.Published)
	return nil
}

// Abort frees what was reserved. It sends and does not wait for the server. After a
// Commit or Abort it does nothing.
func (st *Store) Abort(context.Context) error {
	if !st.finish() {
		return nil
	}
	defer st.s.leave()
	live := st.s.live()
	st.post()
	if !live && len(st.parts) > 0 {
		return st.s.gone()
	}
	return nil
}

// drop ends a store that nobody will see.
func (st *Store) drop() {
	if st.finish() {
		st.post()
		st.s.leave()
	}
}

// post sends the aborts.
func (st *Store) post() {
	for i := range st.parts {
		st.s.settle(proto.OpAbortStore, st.parts[i].transfer)
	}
}
