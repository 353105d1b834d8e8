package proto

import "fmt"

const (
	// bufferMin is the smallest reassembly buffer: most frames fit, in bytes.
	bufferMin = 4 << 10
	// bufferKeep is the largest one that outlives the frame it was made for.
	bufferKeep = 64 << 10
)

// A Frame is one frame of a stream, without its payload. Its Body aliases the
// piece it was cut from or the splitter's own buffer, and is valid until the next
// Feed, Trim or Reset.
type Frame struct {
	Header
	Body []byte
}

// A Splitter cuts a stream of bytes, which comes in pieces of any length, into
// frames. The zero Splitter is ready for use. It has one user at a time.
//
//	s.Feed(piece)
//	for {
//		f, ok, err := s.Next()
//		if err != nil {
//			// close the connection
//		}
//		if !ok {
//			break
//		}
//		// handle f; if it has a payload, Take it until Payload is 0
//	}
//
// A frame that lies whole in a piece is not copied. Of one that straddles pieces
// the beginning is kept in the splitter's own buffer, which grows with the bytes
// that arrived, at most to twice their number, and never beyond what the checked
// header announced: a header alone costs its sender's connection 4 KiB here. Large
// buffers may be shared with other splitters, see [Spares], and then have the next
// power of two.
type Splitter struct {
	base    []byte // the buffer that Init gave; what is kept when a larger one is let go
	spares  *Spares
	left    [2][]byte // buffers before buf, while a frame may still alias them
	buf     []byte    // own bytes; buf[read:] come before those of the piece
	read    int
	piece   []byte // the caller's bytes that are not consumed yet
	head    Header // of the frame under way, if known
	known   bool
	payload uint32 // bytes of the last frame's payload still to come
	err     error  // sticky
}

// Init makes s ready for a new stream, with buf, which may be nil, as its first
// reassembly buffer. Large buffers come from spares and return there; nil: they are
// allocated.
func (s *Splitter) Init(buf []byte, spares *Spares) {
	*s = Splitter{base: buf[:0], buf: buf[:0], spares: spares}
}

// Reset makes s ready for a new stream. A large buffer, or one of the spares, is let go.
func (s *Splitter) Reset() {
	s.release()
	keep := s.buf[:0]
	if cap(keep) > s.keep() || s.spared() {
		s.spares.put(keep)
		keep = s.base
	}
	*s = Splitter{base: s.base, buf: keep, spares: s.spares}
}

// Feed gives s the next piece of the stream. It is aliased, so it must not change
// until it is consumed: until Next returned false with no payload outstanding, or
// until Hold. What is left of the former piece is kept. Feed ends the validity of
// the frames returned so far.
func (s *Splitter) Feed(p []byte) {
	if s.err != nil {
		return // nothing more is read from this stream
	}
	s.Trim()
	s.Hold()
	s.piece = p
}

// Hold copies what is left of the piece into the splitter's own buffer, so that
// its memory can be used for something else before everything was consumed.
// Frames returned so far stay valid.
func (s *Splitter) Hold() {
	s.keepBytes(len(s.piece))
	s.piece = nil
}

// Next returns the next frame. It returns false when it needs more of the stream,
// and then has copied the rest of the piece; or when the last frame's payload is
// not consumed yet, and then has not. Its errors are [ErrFrame], and remain.
func (s *Splitter) Next() (Frame, bool, error) {
	if s.err != nil {
		return Frame{}, false, s.err
	}
	if s.payload > 0 {
		return Frame{}, false, nil
	}
	if s.read == len(s.buf) {
		return s.fromPiece()
	}
	return s.fromBuffer()
}

// fromPiece cuts a frame from the piece, without copying if it is whole.
func (s *Splitter) fromPiece() (Frame, bool, error) {
	if len(s.piece) >= HeaderSize {
		if err := s.header(s.piece); err != nil {
			return Frame{}, false, err
		}
		if need := s.need(); len(s.piece) >= need {
			body := s.piece[HeaderSize:need:need]
			s.piece = s.piece[need:]
			return s.frame(body), true, nil
		}
	}
	s.Hold()
	return Frame{}, false, nil
}

// fromBuffer cuts a frame whose beginning is in the buffer, moving there what it
// lacks from the piece, and not a byte more.
func (s *Splitter) fromBuffer() (Frame, bool, error) {
	for {
		need := s.need()
		if lack := need - (len(s.buf) - s.read); lack > 0 {
			n := min(lack, len(s.piece))
			s.keepBytes(n)
			s.piece = s.piece[n:]
			if n < lack {
				return Frame{}, false, nil
			}
		}
		if s.known {
			body := s.buf[s.read+HeaderSize : s.read+need : s.read+need]
			s.read += need
			return s.frame(body), true, nil
		}
		if err := s.header(s.buf[s.read:]); err != nil {
			return Frame{}, false, err
		}
	}
}

// header parses the header of the frame under way.
func (s *Splitter) header(p []byte) error {
	h, err := ParseHeader(p)
	if err != nil {
		s.err = err
		s.piece = nil
		return err
	}
	s.head, s.known = h, true
	return nil
}

// need returns how many bytes of the frame under way must be there for the next
// step, counted from its start: its header, and when that is known its body.
func (s *Splitter) need() int {
	if s.known {
		return HeaderSize + int(s.head.Body)
	}
	return HeaderSize
}

// frame ends the frame under way.
func (s *Splitter) frame(body []byte) Frame {
	s.known = false
	s.payload = s.head.Payload()
	return Frame{Header: s.head, Body: body}
}

// Payload returns how many bytes of the last frame's payload are still to come.
func (s *Splitter) Payload() uint32 { return s.payload }

// Take returns those bytes of the last frame's payload that are there, and
// removes them from the stream. It may have to be called more than once; it
// returns nothing when the payload is complete or the piece is used up. The bytes
// are valid as long as the piece is, and until the next Feed, Trim or Reset.
func (s *Splitter) Take() []byte {
	if s.read < len(s.buf) {
		n := min(len(s.buf)-s.read, int(s.payload))
		p := s.buf[s.read : s.read+n : s.read+n]
		s.read += n
		s.payload -= uint32(n)
		return p
	}
	n := min(len(s.piece), int(s.payload))
	p := s.piece[:n:n]
	s.piece = s.piece[n:]
	s.payload -= uint32(n)
	return p
}

// Skip says that n bytes of the payload were received elsewhere. Bytes of it that
// came through Feed must have been taken before.
func (s *Splitter) Skip(n uint32) {
	if n > s.payload || s.Unread() > 0 {
		panic(fmt.Sprintf("proto: skip of %d bytes with a payload of %d and %d bytes unread", n, s.payload, s.Unread()))
	}
	s.payload -= n
}

// Unread returns how many bytes were fed and not consumed yet.
func (s *Splitter) Unread() int { return len(s.buf) - s.read + len(s.piece) }

// Buffered returns the capacity in bytes of the splitter's own buffer.
func (s *Splitter) Buffered() int { return cap(s.buf) }

// Trim lets a large buffer go when what is in it does not need it any more, and any
// buffer of the spares when nothing is in it: a stream at rest has none. It ends the
// validity of the frames returned so far. Feed does the same; a caller whose stream may
// rest for long calls it once all frames are handled.
func (s *Splitter) Trim() {
	s.release()
	rest := s.buf[s.read:]
	need := len(rest)
	if s.known {
		need = max(need, s.need())
	}
	switch large := s.buf; {
	case cap(large) > s.keep() && need <= cap(s.base), len(rest) == 0 && s.spared():
		s.buf = append(s.base, rest...)
		s.spares.put(large)
	case cap(large) > s.keep() && need <= bufferKeep:
		s.buf = append(s.spares.get(max(need, bufferMin)), rest...)
		s.spares.put(large)
	case s.read > 0:
		s.buf = s.buf[:copy(s.buf, rest)]
	}
	s.read = 0
}

// keep returns the capacity of the largest buffer that is kept, in bytes.
func (s *Splitter) keep() int { return max(bufferKeep, cap(s.base)) }

// spared says that buf is one of the spares.
func (s *Splitter) spared() bool { return s.spares != nil && cap(s.buf) > cap(s.base) }

// keepBytes appends the first n bytes of the piece to the buffer. Bytes before
// buf[read:] may belong to a frame the caller still has: they are not moved or
// overwritten here, a buffer that is too small is left to that frame.
func (s *Splitter) keepBytes(n int) {
	if n == 0 {
		return
	}
	if len(s.buf)+n > cap(s.buf) {
		rest := s.buf[s.read:]
		size := len(rest) + n
		if len(rest) > 0 && s.known && size < s.need() {
			size = min(2*size, s.need()) // so that what comes byte by byte is not copied each time
		} else if len(rest) > 0 && !s.known {
			size *= 2
		}
		was := s.buf
		s.buf = append(s.spares.get(max(size, bufferMin)), rest...)
		s.leave(was)
		s.read = 0
	}
	s.buf = append(s.buf, s.piece[:n]...)
}

// leave gives up a buffer that a frame of the caller's may alias: it returns to the spares
// with the next Feed, Trim or Reset, unless more are left before.
func (s *Splitter) leave(p []byte) {
	if cap(p) == cap(s.base) {
		return // Init's
	}
	for i := range s.left {
		if s.left[i] == nil {
			s.left[i] = p
			return
		}
	}
}

// release ends the validity of the frames that alias what was left.
func (s *Splitter) release() {
	for i, p := range s.left {
		s.spares.put(p)
		s.left[i] = nil
	}
}
