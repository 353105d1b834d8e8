package load

import "encoding/binary"

// RawHead is the length of the head of a request of a [Raw]: the direction, and the length of
// the value at offset 8.
const RawHead = 16

func putRawHead(p []byte, set bool, size int) {
	p[0] = 'g'
	if set {
		p[0] = 's'
	}
	binary.LittleEndian.PutUint64(p[8:], uint64(size))
}

// ParseRawHead reads a head.
func ParseRawHead(p []byte) (set bool, size int) {
	return p[0] == 's', int(binary.LittleEndian.Uint64(p[8:]))
}

// A Raw moves values through a socket with nothing else done to them: the ceiling of every
// protocol that carries bytes in a stream.
type Raw struct {
	link  *Link
	value []byte
	set   bool
	head  [RawHead]byte
	ok    [1]byte
}

// NewRaw makes it, for a server that takes the values it is sent (set) or sends some.
func NewRaw(l *Link, value []byte, set bool) *Raw {
	r := &Raw{link: l, value: value, set: set}
	putRawHead(r.head[:], set, len(value))
	return r
}

// Do implements [Op].
func (r *Raw) Do() error {
	if r.set {
		if err := sendParts(r.link.fd, r.head[:], r.value, nil); err != nil {
			return err
		}
		r.link.rest = len(r.ok)
		return r.link.Payload(r.ok[:])
	}
	if err := r.link.Send(r.head[:]); err != nil {
		return err
	}
	r.link.rest = len(r.value)
	return r.link.Payload(r.value)
}
