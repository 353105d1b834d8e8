package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/slotcache/slotcache/benchmarks/observe"
	"github.com/slotcache/slotcache/benchmarks/sched"
	"github.com/slotcache/slotcache/proto"
)

// A worker does jobs. What is dear to make it keeps from job to job.
type worker struct {
	buffers [2][]byte // source of sets, target of gets
	copied  *Copy
	filled  filled // of the peer that has the last values
	held    []*Link
}

func (w *worker) close() error {
	var failures []error
	for _, l := range w.held {
		failures = append(failures, l.Close())
	}
	if w.copied != nil {
		failures = append(failures, w.copied.Close())
	}
	return errors.Join(append(failures, Forget())...)
}

// do does one job, on one thread.
func (w *worker) do(j *Job) (Result, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC() // not while it measures
	if j.Last {
		if err := sched.Last(); err != nil {
			return Result{}, err
		}
		defer func() { _ = sched.Fair() }() // or its next job is slow
	}
	way := ways[j.Kind]
	if way.special != nil {
		return way.special(w, j)
	}
	if j.Conns > 0 {
		return w.crowd(j, &way)
	}
	op, closing, err := w.op(j, &way)
	if err != nil {
		return Result{}, errors.Join(err, closing())
	}
	span := j.Span
	if j.Start != 0 {
		span.Warm = max(span.Warm, time.Until(time.Unix(0, j.Start)))
	}
	r, err := measured(j, func(enter, leave func() error) (Tally, error) { return Closed(op, span, enter, leave) })
	if err == nil && way.check != nil {
		err = way.check(w, j, op)
	}
	return r, errors.Join(err, closing())
}

// measured runs f and looks at the server around its measured part.
func measured(j *Job, f func(enter, leave func() error) (Tally, error)) (r Result, err error) {
	var calls *observe.Syscalls
	if j.Traced {
		if calls, err = observe.CountSyscalls(j.PID); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, calls.Close()) }()
	}
	var told []map[string]float64
	look := func(sign int64) func() error {
		return func() error {
			if j.PID == 0 {
				return nil
			}
			// What telling the heap objects costs is not counted: it comes before all else, or after it.
			if j.Allocs != "" && sign < 0 {
				if err := tell(j.Allocs, sign, &told); err != nil {
					return err
				}
			}
			if calls != nil {
				n, err := calls.Total()
				if err != nil {
					return err
				}
				r.Syscalls += uint64(sign) * n
			}
			used, err := observe.CPU(j.PID)
			r.CPU += used * time.Duration(sign)
			if err == nil && j.Allocs != "" && sign > 0 {
				err = tell(j.Allocs, sign, &told)
			}
			return err
		}
	}
	t, err := f(look(-1), look(1))
	if err != nil {
		return r, err
	}
	r.Ops, r.Took = t.Ops, t.Took
	if len(told) == 3 {
		of := func(i int, name string) float64 { return told[i][name] - told[i-1][name] }
		r.Mallocs, r.Frames = of(2, observe.Mallocs)-of(1, observe.Mallocs), of(2, observe.Frames)
	}
	r.Times, err = encode(t.Times)
	return r, err
}

// tell reads a server's metrics: twice at the start, so that what reading them takes is known.
func tell(addr string, sign int64, told *[]map[string]float64) error {
	for range 2 {
		m, err := observe.Scrape(context.Background(), addr)
		if err != nil {
			return err
		}
		*told = append(*told, m)
		if sign > 0 {
			break
		}
	}
	return nil
}

func encode(h *hdrhistogram.Histogram) ([]byte, error) {
	p, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("load: times: %w", err)
	}
	return p, nil
}

// lookupTotal is how many objects the lookups of a job go over.
func lookupTotal(j *Job) int { return max(min(j.Count*lookupSets, 2*proto.MaxKeys), 64) }

// crowd does a job on many connections.
func (w *worker) crowd(j *Job, way *way) (r Result, err error) {
	if way.script == nil {
		return r, fmt.Errorf("load: %q is nothing for many connections", j.Kind)
	}
	depth := max(j.Depth, 1)
	c, err := NewCrowd(j.Conns)
	if err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, c.Close())
		if way.transport != 0 {
			err = errors.Join(err, End(j.Socket, proto.TransportShared))
		}
	}()
	var keys Keys
	for i := range j.Conns {
		s := &Session{}
		if way.transport == 0 {
			s.Link, err = Dial(j.Socket)
		} else {
			s, err = Open(j.Socket, proto.TransportShared)
		}
		if err != nil {
			return r, err
		}
		if i == 0 && way.transport != 0 && j.Among <= 1 {
			if err = s.Clear(); err != nil {
				return r, errors.Join(err, s.Link.Close())
			}
		}
		if i == 0 && way.stored {
			if keys, err = store(s, lookupTotal(j), j.Size, nil); err != nil {
				return r, errors.Join(err, s.Link.Close())
			}
		}
		if way.setup != nil {
			if keys, err = way.setup(j, s); err != nil {
				return r, errors.Join(err, s.Link.Close())
			}
		}
		scripts := make([]Script, depth)
		for d := range scripts {
			if i > 0 {
				scripts[d] = again(c.members[0].scripts[d])
			}
			if scripts[d] == nil {
				scripts[d] = way.script(j, s, uint64(d), keys)
			}
		}
		c.Add(s.Link, scripts)
	}
	return measured(j, func(enter, leave func() error) (Tally, error) { return c.Run(j.Span, enter, leave) })
}

// store stores count new objects of a size, which may be filled from source, in batches.
func store(s *Session, count int, size int64, source []byte) (Keys, error) {
	batch := min(count, 512)
	if int64(batch)*size > 32<<20 {
		batch = max(int(32<<20/max(size, 1)), 1)
	}
	st := NewStore(s, 0, batch, size)
	st.Source = source
	op := NewScripted(s.Link, st)
	for st.Next < uint64(count+batch) { // the next batch is prepared already

		if err := op.Do(); err != nil {
			return st.Keys, err
		}
	}
	return st.Keys, nil
}
