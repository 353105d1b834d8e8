package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
)

// hold opens connections that do nothing.
func (w *worker) hold(j *Job) error {
	for len(w.held) < j.Count {
		s, err := Greet(j.Socket)
		if err != nil {
			return fmt.Errorf("connection %d: %w", len(w.held), err)
		}
		s.in = nil // a megabyte each, and nothing is to come
		w.held = append(w.held, s.Link)
	}
	return nil
}

// fill stores objects and waits until none of them is only in memory.
func fill(j *Job) (r Result, err error) {
	s, err := Open(j.Socket, proto.TransportShared)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	begin := now()
	if _, err := store(s, j.Count, j.Size, nil); err != nil {
		return r, err
	}
	r.Ops, r.Took = int64(j.Count), time.Duration(now()-begin)
	return r, nil
}

// stallKeys is how many objects the keys of a long lookup are.
const stallKeys = 4096

// A staller sends PINGs on one connection, one after another, while another connection has
// the server look keys up: all on one thread, so that what it does for one costs the other
// no switch.
type staller struct {
	ring  ring.Interface
	turn  []ring.Completion
	ping  *Session
	look  *Session
	begun int64  // of the PING under way
	owed  int    // replies to lookups that are to come
	part  []byte // of the reply under way
	last  uint32 // keys of the last request
}

// Tags of a staller's two connections.
const (
	tagPing = 1
	tagLook = 2
)

// stall measures PINGs while Count keys are looked up, in frames as large as they may be and
// all sent at once, again and again; and as many without it. Each of its operations is one
// such lookup, of which the longest PING counts.
func stall(j *Job) (r Result, err error) {
	opened, err := ring.Open(ring.EngineAuto, ring.Config{Ops: 8, Control: 16})
	if err != nil {
		return r, fmt.Errorf("load: %w", err)
	}
	s := &staller{ring: opened.Ring, turn: make([]ring.Completion, 0, 64)}
	defer func() { err = errors.Join(err, s.ring.Close()) }()
	for _, into := range []**Session{&s.ping, &s.look} {
		if *into, err = Open(j.Socket, proto.TransportShared); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, (*into).Close()) }()
	}
	if err = s.look.Clear(); err != nil {
		return r, err
	}
	keys, err := store(s.look, stallKeys, j.Size, nil)
	if err != nil {
		return r, err
	}
	list := make([]proto.Key, stallKeys)
	for i := range list {
		list[i] = keys.At(uint64(i))
	}
	var request []byte
	for left := j.Count; left > 0; left -= stallKeys {
		request = append(request, lookupFrame(s.look, 0, list[:min(left, stallKeys)], 0)...)
		s.owed++
		s.last = uint32(min(left, stallKeys))
	}
	frames := s.owed
	worst, idle := NewTimes(), NewTimes()
	s.ring.Recv(ring.NewTag(tagPing, 0), s.ping.fd)
	s.ring.Recv(ring.NewTag(tagLook, 0), s.look.fd)
	begin := now()
	s.sendPing(begin)
	for end := begin + int64(j.Span.Measure); now() < end || worst.TotalCount() == 0; {
		s.owed = frames
		at := now()
		if err := s.round(worst, request, func() bool { return s.owed == 0 }); err != nil {
			return r, err
		}
		quiet := now() + (now() - at) // as long again
		if err := s.round(idle, nil, func() bool { return now() >= quiet }); err != nil {
			return r, err
		}
	}
	r.Ops, r.Took = worst.TotalCount(), time.Duration(now()-begin)
	if r.Times, err = encode(worst); err == nil {
		r.Idle, err = encode(idle)
	}
	return r, err
}

func (s *staller) sendPing(at int64) {
	s.begun = at
	frame := NewPing(s.ping, 0).(*fixed).frame
	s.ring.SendNow(ring.NewTag(tagPing, 1), s.ping.fd, frame)
}

// round pings until over says so, and records the longest time of a PING.
func (s *staller) round(into *hdrhistogram.Histogram, request []byte, over func() bool) error {
	if request != nil {
		s.ring.Send(ring.NewTag(tagLook, 1), s.look.fd, request)
	}
	longest := int64(0)
	for ended := false; !ended; {
		var err error
		if s.turn, err = s.ring.Wait(s.turn[:0]); err != nil {
			return fmt.Errorf("load: %w", err)
		}
		for i := range s.turn {
			x := &s.turn[i]
			if x.Res < 0 && x.Res != -int32(unix.ENOBUFS) {
				return fmt.Errorf("load: %v: %w", x.Kind, syscall.Errno(-x.Res))
			}
			if x.Kind != ring.KindRecv {
				continue
			}
			if !x.More {
				return fmt.Errorf("load: receiving ended (%d)", x.Res)
			}
			if x.Tag.Index() == tagLook {
				if err := s.looked(x.Data); err != nil {
					return err
				}
				continue
			}
			at := now()
			longest = max(longest, at-s.begun)
			ended = over() // only between two PINGs
			s.sendPing(at)
		}
	}
	record(into, longest)
	return nil
}

// lookedSize is the length of a lookup's reply without bitmap and slots.
const lookedSize = proto.HeaderSize + 4 + 4 + 4 + 8 + 4 + 4

// looked takes replies to lookups.
func (s *staller) looked(data []byte) error {
	s.part = append(s.part, data...)
	for len(s.part) >= proto.HeaderSize && len(s.part) >= frameSize(s.part) {
		body, err := done(s.part[:frameSize(s.part)])
		if err != nil {
			return err
		}
		if hits := binary.LittleEndian.Uint32(body); hits != stallKeys && hits != s.last {
			return fmt.Errorf("load: %d keys are found", hits)
		}
		s.owed--
		s.part = append(s.part[:0], s.part[lookedSize:]...)
	}
	return nil
}
