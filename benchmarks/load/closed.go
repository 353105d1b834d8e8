package load

import (
	"encoding/binary"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/slotcache/slotcache/proto"
)

// A Span is for how long something is done, first without counting it.
type Span struct{ Warm, Measure time.Duration }

// A Tally is what was done in the measured part of a span.
type Tally struct {
	Ops   int64
	Took  time.Duration
	Times *hdrhistogram.Histogram // nanoseconds an operation
}

// A Scripted is an [Op] that plays a script on a blocking connection.
type Scripted struct {
	link   *Link
	script Script
	out    []byte
	begun  bool
}

// NewScripted makes it.
func NewScripted(l *Link, s Script) *Scripted {
	return &Scripted{link: l, script: s, out: make([]byte, 0, 2*proto.MaxFrame)}
}

// Do plays until one operation has ended.
func (c *Scripted) Do() error {
	if !c.begun {
		c.begun = true
		var err error
		if c.out, _, err = c.script.Step(c.out[:0], nil); err != nil {
			return err
		}
	}
	if err := c.link.Send(c.out); err != nil {
		return err
	}
	for {
		reply, err := c.link.Frame()
		if err != nil {
			return err
		}
		out, finished, err := c.script.Step(c.out[:0], reply)
		if err != nil {
			return err
		}
		if len(out) == 0 && !finished {
			continue // another reply is to come
		}
		c.out = out
		if finished {
			return nil
		}
		if err := c.link.Send(out); err != nil {
			return err
		}
	}
}

// Closed does one operation after another. Enter and leave, which may be nil, are called
// around the measured part.
func Closed(op Op, span Span, enter, leave func() error) (Tally, error) {
	t := Tally{Times: NewTimes()}
	for end := now() + int64(span.Warm); now() < end; {
		if err := op.Do(); err != nil {
			return t, err
		}
	}
	if err := call(enter); err != nil {
		return t, err
	}
	begin := now()
	last, end := begin, begin+int64(span.Measure)
	for last < end || t.Ops == 0 {
		if err := op.Do(); err != nil {
			return t, err
		}
		at := now()
		record(t.Times, at-last)
		last = at
		t.Ops++
	}
	t.Took = time.Duration(last - begin)
	return t, call(leave)
}

// call calls f if there is one.
func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

// Pingpong exchanges frames with a server that echoes, spinning on the socket: the floor when
// nobody sleeps.
type Pingpong struct {
	link *Link
	buf  [EchoSize]byte
}

// NewPingpong makes it.
func NewPingpong(l *Link) *Pingpong {
	p := &Pingpong{link: l}
	binary.LittleEndian.PutUint32(p.buf[:], EchoSize)
	return p
}
