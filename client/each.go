package client

import (
	"context"
	"fmt"
	"time"

	"github.com/slotcache/slotcache/proto"
)

const (
	// eachGroup is how many bytes of objects one transfer of a StoreEach has, if it has more
	// than one object.
	eachGroup = 8 << 20
	// eachAhead is how many transfers are prepared ahead of the one that is written, and
	// eachAheadBytes how many bytes of them, beside the first.
	eachAhead      = 4
	eachAheadBytes = 16 << 20
	// eachCommits is how many commits may be under way.
	eachCommits = 8
)

// StoreEach stores many objects one after another, without waiting for a round trip for
// each: the slots of some more are asked for ahead, and each commit goes together with a
// prepare. It calls fill, in the order of the keys and from this goroutine, for each object
// that is not there yet, with its index and where to write it; when fill has returned, the
// object is published soon. sizes are in bytes, one a key; wait is how long each waits for memory at
// most. The result is a status a key: ok, or why it was not stored: exists, busy,
// no_space, too_large, or stale if it was deleted meanwhile.
//
// After an error of fill or another one some objects are stored, and nothing is left open; the
// status of those that are not known to be stored is reserved. When the connection is lost or the
// server stops it begins again, once, with these: fill may be called a second time for an object.
func (w *Worker) StoreEach(ctx context.Context, layout int, keys []Key, sizes []uint64, wait time.Duration, fill func(i int, slot []byte) error) ([]proto.Status, error) {
	index, err := w.storable(layout, keys, sizes)
	if err != nil {
		return nil, err
	}
	// What is reserved stands for: not known yet.
	status := make([]proto.Status, len(keys))
	for i := range status {
		status[i] = proto.StatusReserved
	}
	err = w.attempt(ctx, func(s *session) error {
		e := each{s: s, ctx: ctx, layout: index, keys: keys, sizes: sizes, wait: wait, fill: fill, status: status}
		return e.run()
	})
	return status, err
}

// each is a StoreEach in one session.
type each struct {
	s      *session
	ctx    context.Context //nolint:containedctx // it lives as long as one call
	layout uint16
	keys   []Key
	sizes  []uint64
	wait   time.Duration
	fill   func(i int, slot []byte) error
	status []proto.Status
	open   []*eachTransfer // prepared, the first of which is written next
	ending []*eachTransfer // whose commits are under way
	ahead  uint64          // bytes of open
}

// An eachTransfer is some objects of a StoreEach, with the request that is under way.
type eachTransfer struct {
	keys  []int // their indices
	bytes uint64
	call  *call // nil: none
	st    Store // what was reserved
}

// run stores what is not stored yet, and then tries once more what there was no room for: that
// may have been because of what was prepared ahead.
func (e *each) run() error {
	var first []int
	for i, st := range e.status {
		switch {
		case st != proto.StatusReserved:
		case e.s.inline() && e.sizes[i] > e.s.maxPayload():
			e.status[i] = proto.StatusTooLarge
		default:
			first = append(first, i)
		}
	}
	if err := e.pass(first, eachAhead); err != nil {
		return err
	}
	var again []int
	for _, i := range first {
		if e.status[i] == proto.StatusBusy || e.status[i] == proto.StatusNoSpace {
			again = append(again, i)
		}
	}
	if len(again) == 0 || len(again) == len(first) {
		return nil
	}
	return e.pass(again, 0)
}

// pass stores objects with some transfers prepared ahead.
func (e *each) pass(list []int, ahead int) (err error) {
	defer func() {
		if err != nil {
			e.abandon()
		}
	}()
	for len(list) > 0 || len(e.open) > 0 {
		for len(list) > 0 && (len(e.open) == 0 || len(e.open) <= ahead && e.ahead < eachAheadBytes) {
			t := e.group(&list)
			if err := e.prepare(t); err != nil {
				return err
			}
		}
		e.s.link.out.flushLate() // a commit that no prepare went with
		if err := e.write(); err != nil {
			return err
		}
		keep := eachCommits
		if ahead == 0 {
			keep = 0 // their bytes may be all there are
		}
		if err := e.settled(keep); err != nil {
			return err
		}
	}
	return e.settled(0)
}

// group takes the next objects that have a transfer together.
func (e *each) group(list *[]int) *eachTransfer {
	t := &eachTransfer{}
	most := min(eachGroup, e.s.maxPayload())
	for len(*list) > 0 && len(t.keys) < e.s.maxKeys() {
		size := e.sizes[(*list)[0]]
		if len(t.keys) > 0 && (size > most || t.bytes+size > most) {
			break
		}
		t.keys = append(t.keys, (*list)[0])
		t.bytes += size
		*list = (*list)[1:]
	}
	return t
}

// prepare asks for the slots of a transfer.
func (e *each) prepare(t *eachTransfer) error {
	q := proto.PrepareStore{Layout: e.layout, WaitMs: newBudget(e.wait).left(e.ctx)}
	for _, i := range t.keys {
		q.Keys, q.Sizes = append(q.Keys, e.keys[i]), append(q.Sizes, e.sizes[i])
	}
	c := e.s.prepareCall(&q)
	c.stop = e.s.worker.base.Done()
	if err := e.s.link.begin(e.ctx, c); err != nil {
		return err
	}
	t.call = c
	e.open = append(e.open, t)
	e.ahead += t.bytes
	return nil
}

// write awaits the slots of the first open transfer, has them filled, and begins its commit.
func (e *each) write() error {
	t := e.open[0]
	t.st.s = e.s
	c := t.call
	t.call = nil
	if err := e.s.link.await(e.ctx, c); err != nil {
		return err
	}
	sizes := make([]uint64, len(t.keys))
	for k, i := range t.keys {
		sizes[k] = e.sizes[i]
	}
	if err := t.st.granted(c, sizes); err != nil {
		return err
	}
	for k, i := range t.keys {
		e.status[i] = t.st.Status(k)
		if e.status[i] != proto.StatusReserved {
			continue
		}
		if err := e.ctx.Err(); err != nil {
			return fmt.Errorf("client: store: %w", err)
		}
		if err := e.fill(i, t.st.Slot(k)); err != nil {
			return err
		}
	}
	if t.st.reserved > 0 {
		if err := e.commit(t); err != nil {
			return err
		}
		e.ending = append(e.ending, t)
	}
	e.open = e.open[1:]
	e.ahead -= t.bytes
	return nil
}

// commit sends a transfer's commit: with shared memory together with what comes next.
func (e *each) commit(t *eachTransfer) error {
	c := e.s.commitCall(&t.st.parts[0], nil)
	c.stop = e.s.worker.base.Done()
	var err error
	if e.s.inline() {
		err = e.s.link.begin(e.ctx, c)
	} else {
		err = e.s.link.beginLate(c)
	}
	if err == nil {
		t.call = c
	}
	return err
}

// settled awaits the oldest commits until at most so many are under way.
func (e *each) settled(most int) error {
	if len(e.ending) > most {
		e.s.link.out.flushLate()
	}
	for len(e.ending) > most {
		t := e.ending[0]
		e.ending = e.ending[1:]
		p := &t.st.parts[0]
		err := t.st.committed(p, t.call, e.s.link.await(e.ctx, t.call))
		t.call = nil
		if err != nil && statusOf(err) != proto.StatusStale {
			return err
		}
		for k, i := range t.keys {
			if t.st.Status(k) == proto.StatusReserved {
				e.status[i] = statusOf(err)
			}
		}
	}
	return nil
}

// abandon ends what is open after an error. What has a request under way is ended by the
// reader of its reply.
func (e *each) abandon() {
	e.s.link.out.flushLate()
	for _, t := range append(e.ending, e.open...) {
		if c := t.call; c != nil && !e.s.link.abandon(c) {
			<-c.done
			if c.op == proto.OpPrepareStore {
				e.s.settle(proto.OpAbortStore, grantOf(c))
			}
			c.free()
		}
		for i := range t.st.parts { // a commit that was carried out has left nothing to abort
			e.s.settle(proto.OpAbortStore, t.st.parts[i].transfer)
		}
	}
	e.open, e.ending, e.ahead = nil, nil, 0
}
