package load

import (
	"fmt"

	"github.com/slotcache/slotcache/proto"
)

// EchoSize is the length of the frames of an echo, in bytes.
const EchoSize = 64

// echo has the same frame sent back.
type echo struct{ frame []byte }

// NewEcho is a script for a server that sends back what it gets.
func NewEcho(id uint64) Script {
	return &echo{proto.AppendFrame(nil, proto.Header{Op: proto.OpPing, Request: id}, make([]byte, EchoSize-proto.HeaderSize), 0)}
}

func (e *echo) Step(_, reply []byte) ([]byte, bool, error) {
	if reply != nil && len(reply) != EchoSize {
		return nil, false, fmt.Errorf("load: an echo of %d bytes", len(reply))
	}
	return e.frame, reply != nil, nil
}

// fixed repeats one request whose reply has no body that is looked at.
type fixed struct{ frame []byte }

// NewPing is a script of PINGs.
func NewPing(s *Session, id uint64) Script {
	return &fixed{proto.AppendFrame(nil, proto.Header{Op: proto.OpPing, Request: id, Boot: s.Boot}, nil, 0)}
}

func (f *fixed) Step(_, reply []byte) ([]byte, bool, error) {
	if reply == nil {
		return f.frame, false, nil
	}
	_, err := done(reply)
	return f.frame, true, err
}
