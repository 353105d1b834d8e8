package load

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/slotcache/slotcache/proto"
)

// valuesBytes is how much memory the values that are read in turn have together, so that none
// is in the processor's cache when its turn comes.
const valuesBytes = 96 << 20

// values is how many different values of a size, in bytes, are set or got in turn, by peers
// and by ours alike.
func values(size int64) int { return int(min(max(valuesBytes/max(size, 1), 2), 4096)) }

// share is how many of them a worker has that is one of several.
func share(j *Job) int { return max(values(j.Size)/max(j.Among, 1), 1) }

// buffer returns n bytes that stay this worker's. Those of the first have content of their own.
func (w *worker) buffer(which int, n int64) ([]byte, error) {
	if int64(len(w.buffers[which])) < n {
		if p := w.buffers[which]; p != nil {
			FreeBuffer(p)
		}
		p, err := NewBuffer(n)
		if err != nil {
			return nil, err
		}
		if which == 0 {
			var seed [32]byte
			noise := rand.NewChaCha8(seed)
			_, _ = noise.Read(p) // it cannot fail
		}
		w.buffers[which] = p
	}
	return w.buffers[which][:n], nil
}

// A way is how a kind of jobs is done. Each has the functions that it needs.
type way struct {
	transport proto.Transport // of a cache server's; 0: the server is something else, or there is none

	ours    func(w *worker, j *Job, s *Session) (Op, error)       // on one connection to a cache server
	foreign func(w *worker, j *Job, l *Link) (Op, error)          // on one connection to another
	alone   func(w *worker, j *Job) (Op, error)                   // without a server
	script  func(j *Job, s *Session, id uint64, keys Keys) Script // on each of many connections
	stored  bool                                                  // the scripts need objects, the same for all
	setup   func(j *Job, s *Session) (Keys, error)                // each connection needs objects of its own
	special func(w *worker, j *Job) (Result, error)               // all of it
	check   func(w *worker, j *Job, op Op) error                  // looks at bytes at the end
}

// ways has one for every kind.
var ways = map[Kind]way{
	KindEcho: {
		foreign: func(_ *worker, _ *Job, l *Link) (Op, error) { return NewScripted(l, NewEcho(0)), nil },
		script:  func(_ *Job, _ *Session, id uint64, _ Keys) Script { return NewEcho(id) },
	},
	KindSpin: {foreign: func(_ *worker, _ *Job, l *Link) (Op, error) { return NewPingpong(l), nil }},
	KindPing: {
		transport: proto.TransportShared,
		ours:      func(_ *worker, _ *Job, s *Session) (Op, error) { return NewScripted(s.Link, NewPing(s, 0)), nil },
		script:    func(_ *Job, s *Session, id uint64, _ Keys) Script { return NewPing(s, id) },
	},
	KindLookup: {
		transport: proto.TransportShared, ours: lookupOp, stored: true,
		script: func(j *Job, s *Session, id uint64, keys Keys) Script {
			return NewLookup(s, id, keys, j.Count, lookupTotal(j))
		},
	},
	KindStore: {
		transport: proto.TransportShared, ours: storeOp(StorePlain, false),
		script: func(j *Job, s *Session, id uint64, _ Keys) Script { return NewStore(s, id, max(j.Count, 1), j.Size) },
	},
	KindRetrieve: {
		transport: proto.TransportShared, ours: hitOp, stored: true,
		script: func(j *Job, s *Session, id uint64, keys Keys) Script { return NewRetrieve(s, id, keys, lookupTotal(j)) },
	},
	KindCopy:      {alone: copyOp},
	KindTouch:     {alone: func(_ *worker, j *Job) (Op, error) { return Touch(j.Size), nil }},
	KindSet:       {transport: proto.TransportShared, ours: storeOp(StorePlain, true), check: checkStored},
	KindSetStream: {transport: proto.TransportShared, ours: storeOp(StoreStream, true), check: checkStored},
	KindSetAhead:  {transport: proto.TransportShared, ours: storeOp(StoreAhead, true), check: checkStored},
	KindPut: {transport: proto.TransportShared, ours: func(w *worker, j *Job, s *Session) (Op, error) {
		source, err := w.buffer(0, j.Size)
		return NewPut(s, source), err
	}},
	KindGet:        {transport: proto.TransportShared, ours: retrieveOp(true), check: checkCopied},
	KindGetInPlace: {transport: proto.TransportShared, ours: retrieveOp(false), check: checkInPlace},
	KindSetInline:  {transport: proto.TransportInline, ours: inlineStoreOp},
	KindGetInline:  {transport: proto.TransportInline, ours: inlineRetrieveOp, check: checkCopied},
	KindRedisSet: {foreign: func(w *worker, j *Job, l *Link) (Op, error) {
		w.overwrites(j)
		value, err := w.buffer(0, j.Size)
		return NewRedisSet(l, value), err
	}},
	KindMemcachedSet: {foreign: func(w *worker, j *Job, l *Link) (Op, error) {
		w.overwrites(j)
		value, err := w.buffer(0, j.Size)
		return NewMemcachedSet(l, value), err
	}},
	KindRedisGet: {check: checkCopied, foreign: func(w *worker, j *Job, l *Link) (Op, error) {
		value, into, err := w.both(j.Size)
		if err == nil {
			err = w.prefill(j, NewRedisSet(l, value))
		}
		return NewRedisGet(l, into), err
	}},
	KindMemcachedGet: {check: checkCopied, foreign: func(w *worker, j *Job, l *Link) (Op, error) {
		value, into, err := w.both(j.Size)
		if err == nil {
			err = w.prefill(j, NewMemcachedSet(l, value))
		}
		return NewMemcachedGet(l, into), err
	}},
	KindRawSet: {foreign: func(w *worker, j *Job, l *Link) (Op, error) {
		value, err := w.buffer(0, j.Size)
		return NewRaw(l, value, true), err
	}},
	KindRawGet: {foreign: func(w *worker, j *Job, l *Link) (Op, error) {
		into, err := w.buffer(1, j.Size)
		return NewRaw(l, into, false), err
	}},
	KindChurn: {
		transport: proto.TransportShared,
		setup:     func(j *Job, s *Session) (Keys, error) { return store(s, churnLag(j), j.Size, nil) },
		script: func(j *Job, s *Session, id uint64, keys Keys) Script {
			return NewChurn(s, id, keys, churnLag(j), j.Size)
		},
	},
	KindFetch: {transport: proto.TransportShared, ours: fetchOp},
	KindStall: {special: func(_ *worker, j *Job) (Result, error) { return stall(j) }},
	KindHold:  {special: func(w *worker, j *Job) (Result, error) { return Result{}, w.hold(j) }},
	KindFill:  {special: func(_ *worker, j *Job) (Result, error) { return fill(j) }},
}

// op makes what a job on one blocking connection does, and what ends it.
func (w *worker) op(j *Job, way *way) (op Op, closing func() error, err error) {
	closing = func() error { return nil }
	switch {
	case way.alone != nil:
		op, err = way.alone(w, j)
		return op, closing, err
	case way.foreign != nil:
		l, err := Dial(j.Socket)
		if err != nil {
			return nil, closing, err
		}
		op, err = way.foreign(w, j, l)
		return op, l.Close, err
	case way.ours == nil:
		return nil, closing, fmt.Errorf("load: no kind %q", j.Kind)
	}
	if j.Cold {
		if err := Forget(); err != nil {
			return nil, closing, err
		}
		cold = true
		defer func() { cold = false }()
	}
	s, err := Open(j.Socket, way.transport)
	if err != nil {
		return nil, closing, err
	}
	if j.Among <= 1 {
		err = s.Clear()
	}
	if err == nil {
		op, err = way.ours(w, j, s)
	}
	return op, s.Close, err
}

// churnLag is how many objects lie between those that a connection of a churn stores and loads.
func churnLag(j *Job) int { return max(int(j.Arena/j.Size)/j.Conns, 1) }

// both are the buffers for a set and a get.
func (w *worker) both(n int64) (value, into []byte, err error) {
	if value, err = w.buffer(0, n); err == nil {
		into, err = w.buffer(1, n)
	}
	return value, into, err
}

// copyOp makes a floor of copying, whose memory is kept.
func copyOp(w *worker, j *Job) (Op, error) {
	source, err := w.buffer(0, j.Size)
	if err != nil {
		return nil, err
	}
	if w.copied == nil {
		if w.copied, err = NewCopy(j.Arena); err != nil {
			return nil, err
		}
	}
	w.copied.source, w.copied.count = source, max(j.Count, 1)
	return w.copied, nil
}

// A filled says what values a peer has.
type filled struct {
	socket string
	size   int64
}

// prefill sets the values of a peer that are to be got, if they are not the last it was given.
func (w *worker) prefill(j *Job, set Op) error {
	what := filled{j.Socket, j.Size}
	if w.filled == what {
		return nil
	}
	for range values(j.Size) {
		if err := set.Do(); err != nil {
			return err
		}
	}
	w.filled = what
	return nil
}

// overwrites is for sets of a peer's values, after which those that are to be got may have another size.
func (w *worker) overwrites(j *Job) {
	if w.filled != (filled{j.Socket, j.Size}) {
		w.filled = filled{}
	}
}

func lookupOp(_ *worker, j *Job, s *Session) (Op, error) {
	keys, err := store(s, lookupTotal(j), j.Size, nil)
	return NewScripted(s.Link, NewLookup(s, 0, keys, j.Count, lookupTotal(j))), err
}

func storeOp(mode StoreMode, bytes bool) func(*worker, *Job, *Session) (Op, error) {
	return func(w *worker, j *Job, s *Session) (Op, error) {
		st := NewStore(s, 0, max(j.Count, 1), j.Size)
		st.Mode = mode
		st.Ahead = aheadOf(int64(len(s.Pool)), j.Size*int64(max(j.Count, 1)), j.Among)
		var err error
		if bytes {
			st.Source, err = w.buffer(0, j.Size)
		}
		return NewScripted(s.Link, st), err
	}
}

// hitOp retrieves a few objects, of which a lease is taken, so that nothing that goes on beside
// it drives them out of memory.
func hitOp(_ *worker, j *Job, s *Session) (Op, error) {
	keys, err := store(s, lookupTotal(j), j.Size, nil)
	if err != nil {
		return nil, err
	}
	list := make([]proto.Key, lookupTotal(j))
	for i := range list {
		list[i] = keys.At(uint64(i))
	}
	if err := s.Send(lookupFrame(s, 0, list, proto.LookupHold|proto.LookupSlots)); err != nil {
		return nil, err
	}
	frame, err := s.Frame()
	if err == nil {
		_, err = done(frame)
	}
	return NewScripted(s.Link, NewRetrieve(s, 0, keys, lookupTotal(j))), err
}

func retrieveOp(copied bool) func(*worker, *Job, *Session) (Op, error) {
	return func(w *worker, j *Job, s *Session) (Op, error) {
		source, into, err := w.both(j.Size)
		if err != nil {
			return nil, err
		}
		keys, err := store(s, share(j), j.Size, source)
		r := NewRetrieve(s, 0, keys, share(j))
		if copied {
			r.Into = into
		}
		return NewScripted(s.Link, r), err
	}
}

func inlineStoreOp(w *worker, j *Job, s *Session) (Op, error) {
	source, err := w.buffer(0, j.Size)
	return NewInlineStore(s, source), err
}

func inlineRetrieveOp(w *worker, j *Job, s *Session) (Op, error) {
	source, into, err := w.both(j.Size)
	if err != nil {
		return nil, err
	}
	keys, err := storeInline(s, share(j), source)
	return NewInlineRetrieve(s, keys, share(j), into), err
}

// storeInline stores count objects on an inline session.
func storeInline(s *Session, count int, source []byte) (Keys, error) {
	op := NewInlineStore(s, source)
	for range count {
		if err := op.Do(); err != nil {
			return Keys{}, err
		}
	}
	keys, _ := op.Keys()
	return keys, nil
}

// errWrong says that a value is not what was stored.
var errWrong = errors.New("load: wrong bytes")

// checkCopied compares what was copied out last.
func checkCopied(w *worker, j *Job, _ Op) error {
	if !bytes.Equal(w.buffers[0][:j.Size], w.buffers[1][:j.Size]) {
		return errWrong
	}
	return nil
}

// checkInPlace compares the value that was retrieved last.
func checkInPlace(w *worker, j *Job, op Op) error {
	return compare(op.(*Scripted).script.(*Retrieve), w.buffers[0][:j.Size])
}

// compare compares the value that a retrieve holds.
func compare(r *Retrieve, want []byte) error {
	slot := r.reply.Slots[0]
	if slot.Len != uint64(len(want)) || !bytes.Equal(want, r.pool[slot.Off:][:slot.Len]) {
		return errWrong
	}
	return nil
}

// checkStored retrieves the last object that was published and is in memory still, and
// compares it.
func checkStored(w *worker, j *Job, last Op) error {
	st := last.(*Scripted).script.(*Store)
	s, err := Open(j.Socket, proto.TransportShared)
	if err != nil {
		return err
	}
	r := NewRetrieve(s, 0, st.Keys, 1)
	op := NewScripted(s.Link, r)
	err = errNone
	for i := st.Next; i > 0 && errors.Is(err, errNone); i-- {
		r.next = i - 1
		op.begun = false
		err = op.Do()
	}
	switch {
	case err == nil:
		err = compare(r, w.buffers[0][:j.Size])
	case j.Among > 1 && errors.Is(err, errNone):
		err = nil // other workers have driven out all of it since
	}
	return errors.Join(err, s.Close())
}
