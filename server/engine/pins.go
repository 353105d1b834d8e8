package engine

import (
	"time"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/proto"
)

// A pin is an object's, not an instance's: it outlives the one that asked for it, anybody
// of the namespace may strengthen or end it, and its time bounds it. PIN never makes a pin
// weaker or shorter, so that those who pin the same object need not know of each other,
// and a PIN that is sent again does no harm.

// PinTimeMax is the longest that PIN's milliseconds can say.
const PinTimeMax = (1<<32 - 1) * time.Millisecond

const (
	// pinTimeDefault is how long a pin lasts when PIN does not say.
	pinTimeDefault = 10 * time.Minute
	// pinPart bounds the pinned objects, of whatever size, to this part of the table, as the
	// default budget does the bytes.
	pinPart = 4
	// lapseStep is how many pins that are over are ended before an event is handled.
	lapseStep = 1024
)

// onPin keeps objects in memory for a time. What is not in memory is not loaded, so that
// the answer never waits.
func (e *Engine) onPin(c *conn, r *request, body []byte) {
	in := &e.in.pin
	if proto.ParsePin(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	x := e.liveInstance(c)
	l, st := e.layoutToChange(c, x, in.Layout)
	if st == proto.StatusOK && e.cfg.PinBudget < 0 {
		st = proto.StatusUnsupported
	}
	if st != proto.StatusOK {
		e.refuse(r, st)
		return
	}
	kind, ttl := table.PinSoft, e.pinTime(in.TTLMs)
	if in.Hard {
		kind = table.PinHard
	}
	out := &e.rep.pin
	out.Pinned, out.TTLMs, out.Results = 0, uint32(ttl.Milliseconds()), out.Results[:0]
	key := e.keyIn(x, l)
	e.refs = e.refs[:0]
	for i := range in.Keys {
		key.Hash = in.Keys[i]
		// Of those that end together the tail of a prefix ends before its head, and so is
		// evicted before it.
		ref, st := e.pin(&key, kind, e.now+ttl-time.Duration(i))
		if st == proto.StatusOK {
			out.Pinned++
			e.refs = append(e.refs, ref)
		}
		out.Results = append(out.Results, st)
	}
	e.table.Chain() // else these uses would count as the end of the chain before
	for i := len(e.refs); i > 0; i-- {
		e.touch(e.refs[i-1])
	}
	e.counters.Pins += uint64(out.Pinned)
	e.counters.PinsRefused += uint64(len(in.Keys)) - uint64(out.Pinned)
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendPinReply(e.out, out)
	e.send(r)
}

// pinTime is how long a pin lasts for which so much was asked.
func (e *Engine) pinTime(ms uint32) time.Duration {
	if ms == 0 {
		return min(pinTimeDefault, e.cfg.PinTime)
	}
	return min(time.Duration(ms)*time.Millisecond, e.cfg.PinTime)
}

// pin pins one object until a time, at least as strongly and as long as it is already.
func (e *Engine) pin(k *table.Key, kind table.Pin, until time.Duration) (table.Ref, proto.Status) {
	ref, st, ok := e.table.Find(k)
	switch {
	case !ok:
		return 0, proto.StatusMiss
	case st != table.StateReady:
		return 0, proto.StatusBusy // somebody writes it, or the disk
	}
	e.lapseIfOver(ref)
	switch e.table.PinOf(ref) {
	case table.PinNone, table.PinLapsed:
		if st := e.mayPin(table.Footprint(e.table.Extent(ref).Len)); st != proto.StatusOK {
			return 0, st
		}
	case table.PinHard:
		kind = table.PinHard
		fallthrough
	case table.PinSoft:
		until = max(until, e.pins.at[ref.Entry()])
	}
	e.table.Pin(ref, kind)
	e.pins.set(ref.Entry(), until)
	return ref, proto.StatusOK
}

// mayPin says whether the budget has room for one more object, of so many bytes of memory.
func (e *Engine) mayPin(size int64) proto.Status {
	u := e.table.Usage()
	switch {
	case size > e.cfg.PinBudget:
		return proto.StatusTooLarge
	case u.PinnedSoft+u.PinnedHard+size > e.cfg.PinBudget, u.Pinned >= max(e.cfg.Objects/pinPart, 1):
		return proto.StatusNoSpace
	}
	return proto.StatusOK
}

// onUnpin ends pins before their time, whoever asked for them.
func (e *Engine) onUnpin(c *conn, r *request, body []byte) {
	in := &e.in.unpin
	if proto.ParseUnpin(body, in) != nil {
		e.refuse(r, proto.StatusBadRequest)
		return
	}
	x := e.liveInstance(c)
	l, st := e.layoutToChange(c, x, in.Layout)
	if st != proto.StatusOK {
		e.refuse(r, st)
		return
	}
	key := e.keyIn(x, l)
	var unpinned uint32
	for i := len(in.Keys); i > 0; i-- { // tail first: it is to be evicted before the head
		key.Hash = in.Keys[i-1]
		ref, _, ok := e.table.Find(&key)
		if !ok {
			continue
		}
		e.lapseIfOver(ref)
		if e.table.Unpin(ref) {
			e.pins.clear(ref.Entry())
			unpinned++
		}
	}
	e.memoryFreed = e.memoryFreed || unpinned > 0
	e.counters.Unpins += uint64(unpinned)
	e.begin(r, proto.StatusOK)
	e.out = proto.AppendUnpinReply(e.out, &proto.UnpinReply{Unpinned: unpinned})
	e.send(r)
}

// lapse ends pins whose time is over, so many at most. An object that went before its pin
// was over, by a delete or because memory was short, leaves its deadline behind: that of an
// entry which is not pinned, or was pinned again and has another.
func (e *Engine) lapse(most int) {
	for range most {
		i, ok := e.pins.due(e.now)
		if !ok {
			return
		}
		e.lapseOne(i)
	}
}

func (e *Engine) lapseOne(entry uint32) {
	e.settleUses()
	if e.table.Lapse(entry) {
		e.counters.PinsExpired++
		e.memoryFreed = true
	}
	if !e.lapsing() {
		e.memoryFreed = true // who waits may have waited for this, though it gave nothing
	}
}

// lapseIfOver ends the pin of an object if its time is over: where many end at the same time, lapse may not have come to it.
func (e *Engine) lapseIfOver(ref table.Ref) {
	if i := ref.Entry(); e.pins.at[i] <= e.now {
		e.lapseOne(i)
	}
}

// lapsing says that the time of some pin is over, and the next turn ends it.
func (e *Engine) lapsing() bool {
	at, ok := e.pins.next()
	return ok && at <= e.now
}
