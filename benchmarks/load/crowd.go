package load

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
)

// look is how long a crowd looks for replies before it sleeps, as long as it mostly finds some, whatever server it
// talks to. A client that sleeps between two replies measures wake-ups: its own, and those that the server pays for.
const look = 50 * time.Microsecond

// A Crowd is many connections that one thread plays scripts on, over one ring of its own. Each
// connection sends what all its replies of a turn led to at once.
type Crowd struct {
	ring    ring.Interface
	members []member
	turn    []ring.Completion
	sent    []int  // members whose try to send is not resolved
	spare   []int  // memory of the next sent
	scratch []byte // what a script appends to
	tally   Tally
	counted bool // the measured part has begun
	at      int64
}

// A member is one connection of a crowd. The low 16 bits of a frame's request id are the
// index of its script.
type member struct {
	link    *Link
	scripts []Script
	starts  []int64
	part    []byte // of a frame that is not whole yet
	out     [2][]byte
	which   int    // of out is to be filled next
	trying  bool   // a try to send is not resolved
	unsent  []byte // what is being sent
	owed    []byte // what waits for that
}

// NewCrowd makes a crowd without members. It must be used and closed on the goroutine that
// makes it, which is locked to its thread.
func NewCrowd(members int) (*Crowd, error) {
	runtime.LockOSThread()
	r, err := ring.Open(ring.EngineAuto, ring.Config{Ops: 8, Control: 2*members + 8, Look: look})
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("load: %w", err)
	}
	return &Crowd{ring: r.Ring, scratch: make([]byte, 0, proto.MaxFrame), turn: make([]ring.Completion, 0, 4*members+64)}, nil
}

// Add adds a connection. Its links are the crowd's from then on.
func (c *Crowd) Add(l *Link, scripts []Script) {
	c.members = append(c.members, member{link: l, scripts: scripts, starts: make([]int64, len(scripts))})
}

// Close closes the ring and the connections.
func (c *Crowd) Close() error {
	err := c.ring.Close()
	for i := range c.members {
		err = errors.Join(err, c.members[i].link.Close())
	}
	runtime.UnlockOSThread()
	return err
}

// Run plays all scripts. Enter and leave, which may be nil, are called around the measured
// part, between two turns.
func (c *Crowd) Run(span Span, enter, leave func() error) (Tally, error) {
	c.tally = Tally{Times: NewTimes()}
	c.at = now()
	for i := range c.members {
		if err := c.start(i); err != nil {
			return c.tally, err
		}
	}
	warm := c.at + int64(span.Warm)
	var begin, end int64
	for {
		if err := c.wait(); err != nil {
			return c.tally, err
		}
		if !c.counted && c.at >= warm {
			if err := call(enter); err != nil {
				return c.tally, err
			}
			c.counted = true
			begin = now()
			end = begin + int64(span.Measure)
		}
		if c.counted && c.at >= end && c.tally.Ops > 0 {
			c.tally.Took = time.Duration(c.at - begin)
			return c.tally, call(leave)
		}
		for i := range c.turn {
			if x := &c.turn[i]; x.Kind == ring.KindRecv {
				if err := c.receive(x); err != nil {
					return c.tally, err
				}
			}
		}
	}
}

// wait waits for completions and resolves the sends: one that was tried and of which
// nothing is heard has gone whole.
func (c *Crowd) wait() error {
	var err error
	if c.turn, err = c.ring.Wait(c.turn[:0]); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if len(c.turn) == cap(c.turn) {
		panic("load: more completions than a turn has room for")
	}
	c.at = now()
	tried := c.sent
	c.sent, c.spare = c.spare[:0], tried
	for i := range c.turn {
		if x := &c.turn[i]; x.Kind == ring.KindSend {
			c.members[x.Tag.Index()].trying = false
		}
	}
	for _, i := range tried {
		if m := &c.members[i]; m.trying {
			m.trying, m.unsent = false, nil
			c.pay(i)
		}
	}
	for i := range c.turn {
		if x := &c.turn[i]; x.Kind == ring.KindSend {
			if err := c.goOn(x); err != nil {
				return err
			}
		}
	}
	return nil
}

// goOn sends what is left, when a send has ended.
func (c *Crowd) goOn(x *ring.Completion) error {
	if x.Res < 0 && x.Res != -int32(unix.EAGAIN) {
		return fmt.Errorf("load: send: %w", syscall.Errno(-x.Res))
	}
	i := int(x.Tag.Index())
	m := &c.members[i]
	m.unsent = m.unsent[max(x.Res, 0):]
	if len(m.unsent) > 0 {
		c.ring.Send(x.Tag, m.link.fd, m.unsent)
	} else {
		c.pay(i)
	}
	return nil
}

// pay sends what waited for the end of a send.
func (c *Crowd) pay(i int) {
	m := &c.members[i]
	if len(m.owed) > 0 {
		out := append(m.out[m.which][:0], m.owed...)
		m.owed = m.owed[:0]
		c.send(i, out)
	}
}

// start sends the first request of every script of member i.
func (c *Crowd) start(i int) error {
	m := &c.members[i]
	if err := unix.SetNonblock(m.link.fd, true); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	c.ring.Recv(ring.NewTag(uint32(i), 0), m.link.fd)
	var out []byte
	for j, s := range m.scripts {
		first, _, err := s.Step(nil, nil)
		if err != nil {
			return err
		}
		m.starts[j] = c.at
		out = append(out, first...)
	}
	c.send(i, out)
	return nil
}

// receive takes data of a member, plays what the frames in it are replies to, and sends what
// that leads to.
func (c *Crowd) receive(x *ring.Completion) error {
	i := int(x.Tag.Index())
	m := &c.members[i]
	if x.Res <= 0 && x.Res != -int32(unix.ENOBUFS) {
		return fmt.Errorf("load: receive: %w", syscall.Errno(-x.Res))
	}
	if !x.More {
		c.ring.Recv(x.Tag, m.link.fd)
	}
	data := x.Data
	if len(m.part) > 0 {
		m.part = append(m.part, data...)
		data = m.part
	}
	out := m.out[m.which][:0]
	for len(data) >= proto.HeaderSize && len(data) >= frameSize(data) {
		size := frameSize(data)
		j := int(uint16(frameID(data)))
		if size < proto.HeaderSize || j >= len(m.scripts) {
			return fmt.Errorf("load: a reply of %d bytes to request %d", size, j)
		}
		next, finished, err := m.scripts[j].Step(c.scratch[:0], data[:size])
		if err != nil {
			return err
		}
		out = append(out, next...)
		if finished {
			c.finish(m, j)
		}
		data = data[size:]
	}
	m.part = append(m.part[:0], data...)
	if len(out) > 0 {
		m.out[m.which] = out
		c.send(i, out)
	}
	return nil
}

// finish counts an operation of script j.
func (c *Crowd) finish(m *member, j int) {
	if c.counted {
		record(c.tally.Times, c.at-m.starts[j])
		c.tally.Ops++
	}
	m.starts[j] = c.at
}

// send sends p, which is in the buffer to be filled next, or keeps it until what is under
// way has gone.
func (c *Crowd) send(i int, p []byte) {
	m := &c.members[i]
	if len(m.unsent) > 0 {
		m.owed = append(m.owed, p...)
		return
	}
	m.out[m.which] = p
	m.which ^= 1
	m.unsent, m.trying = p, true
	c.ring.SendNow(ring.NewTag(uint32(i), 1), m.link.fd, p)
	c.sent = append(c.sent, i)
}
