package l2

import (
	"fmt"

	"github.com/slotcache/slotcache/l2/seglog"
)

// take begins a caller's request.
func (l *loop) take(r *request) {
	if r.state.Load() == abandoned {
		l.finish(r, nil) // nobody waits: as if it never came
		return
	}
	switch r.kind {
	case requestPut:
		l.put(r)
	case requestGet:
		l.get(r)
	case requestSize:
		size, ok := l.log.Find(&r.key)
		r.size = size
		l.finish(r, found(ok))
	case requestDelete:
		token := l.expect(r)
		if !l.log.Delete([]seglog.Key{r.key}, token) {
			l.finish(l.answered(token), nil)
		}
	case requestClear:
		token := l.expect(r)
		if !l.log.Clear(r.key.Namespace, token) {
			l.finish(l.answered(token), nil)
		}
	case requestScan:
		for i := range r.keys {
			size, ok := l.log.Find(&r.keys[i])
			if !ok {
				size = -1
			}
			r.sizes[i] = size
		}
		l.finish(r, nil)
	case requestStats:
		r.stats = l.stats()
		l.finish(r, nil)
	}
}

// found turns a yes or no into an error.
func found(ok bool) error {
	if ok {
		return nil
	}
	return ErrNotFound
}

// put gives a value to the log, or parks it while the log's queue is full.
func (l *loop) put(r *request) {
	token := l.expect(r)
	if l.write(r, token) {
		return
	}
	l.answered(token)
	switch {
	case !l.log.Fits(r.size):
		l.finish(r, fmt.Errorf("%w: %d bytes", ErrTooLarge, r.size))
	case l.log.State() == seglog.StateOK:
		l.parked = append(l.parked, r)
	default:
		l.finish(r, l.degraded())
	}
}

// write gives a value to the log, if that takes it.
func (l *loop) write(r *request, token seglog.Token) bool {
	switch owed := r.owed; {
	case owed == nil:
		return l.log.PutSummed(&r.key, place(r.mem), r.size, r.sum, token)
	case owed.paid:
		return l.log.PutSummed(&r.key, place(r.mem), r.size, owed.sum, token)
	case !l.log.Put(&r.key, place(r.mem), r.size, token):
		return false
	}
	l.owing[r.mem.off] = r.owed
	return true
}

// owedSum says whether a caller computes, or has computed, the checksum that the log asks for.
func (l *loop) owedSum(io *seglog.IO) bool {
	owed := l.owing[io.Mem.Off]
	if io.Mem.Own || owed == nil {
		return false
	}
	if owed.paid {
		l.finishIO(result{id: io.ID, res: io.Mem.Len, sum: owed.sum})
	} else {
		owed.io, owed.size = io.ID, io.Mem.Len
	}
	return true
}

// pay takes a caller's checksum.
func (l *loop) pay(owed *debt, sum uint64) {
	owed.sum, owed.paid = sum, true
	if owed.io != 0 {
		l.finishIO(result{id: owed.io, res: owed.size, sum: sum})
	}
}

// unpark tries the parked puts again, in their order.
func (l *loop) unpark() {
	parked := l.parked
	l.parked = nil
	for i, r := range parked {
		if len(l.parked) > 0 { // still no room
			l.parked = append(l.parked, parked[i:]...)
			break
		}
		l.take(r)
	}
}

// get reads a value into memory, if there is some.
func (l *loop) get(r *request) {
	room := r.size
	size, ok := l.log.Find(&r.key)
	r.size = size
	if err := l.readable(r, room, ok); err != nil {
		l.finish(r, err)
		return
	}
	token := l.expect(r)
	if !l.log.Read(&r.key, place(r.mem), token) {
		l.answered(token)
		r.size = 0
		l.finish(r, ErrNotFound)
	}
}

// readable says why a value, of r.size bytes if it was found, can't be read now. If
// it can, r has memory for it.
func (l *loop) readable(r *request, room int64, ok bool) error {
	need := seglog.AlignUp(r.size)
	switch total := int64(len(l.memory.bytes)); {
	case !ok:
		return ErrNotFound
	case r.size > room:
		return fmt.Errorf("%w: %d bytes, the value has %d", ErrShortBuffer, room, r.size)
	case need > total:
		return fmt.Errorf("%w: %d bytes, Options.Memory is %d", ErrTooLarge, r.size, total)
	case need <= r.mem.len:
		return nil
	case r.mem.len > 0: // replaced by a longer one since the caller asked
		return errNoMemory
	}
	if r.mem, ok = l.memory.try(need); !ok {
		return errNoMemory
	}
	return nil
}

// place is an extent of the memory as the log knows it.
func place(e extent) seglog.Mem { return seglog.Mem{Off: e.off, Len: e.len} }

// degraded is what callers get for what the disk refused.
func (l *loop) degraded() error {
	if l.lastErr == nil {
		return ErrDegraded
	}
	return fmt.Errorf("%w: %w", ErrDegraded, l.lastErr)
}

// drain answers the requests whose outcome the log has.
func (l *loop) drain() {
	for {
		o, ok := l.log.Outcome()
		if !ok {
			return
		}
		l.finish(l.answered(o.Token), l.outcome(o))
	}
}

// outcome turns what the log says into an error.
func (l *loop) outcome(o seglog.Outcome) error {
	switch o.Result {
	case seglog.ResultOK, seglog.ResultSuperseded:
		return nil
	case seglog.ResultMiss:
		return ErrNotFound
	case seglog.ResultFull:
		return ErrFull
	case seglog.ResultIO, seglog.ResultNotDurable:
		if o.Kind == seglog.OutcomeRead {
			return ErrNotFound // what can't be read is not kept either
		}
		return l.degraded()
	}
	panic("l2: unknown result " + o.Result.String())
}

// expect enters r among those that wait for an outcome, and returns its token.
func (l *loop) expect(r *request) seglog.Token {
	if n := len(l.vacant); n > 0 {
		token := l.vacant[n-1]
		l.vacant = l.vacant[:n-1]
		l.waiting[token] = r
		return token
	}
	l.waiting = append(l.waiting, r)
	return seglog.Token(len(l.waiting) - 1)
}

// answered takes the request of a token out of those that wait.
func (l *loop) answered(token seglog.Token) *request {
	r := l.waiting[token]
	if r == nil {
		panic(fmt.Sprintf("l2: second outcome for token %d", token))
	}
	l.waiting[token] = nil
	l.vacant = append(l.vacant, token)
	if r.owed != nil {
		delete(l.owing, r.mem.off)
	}
	return r
}

// outstanding is how many requests the loop has.
func (l *loop) outstanding() int {
	return len(l.waiting) - len(l.vacant) + len(l.parked)
}

// finish answers a request, or cleans up behind one whose caller left.
func (l *loop) finish(r *request, err error) {
	r.err = err
	if r.state.CompareAndSwap(pending, finished) {
		r.done <- struct{}{}
		return
	}
	l.memory.release(r.mem)
}
