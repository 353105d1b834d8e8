package attack

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/slotcache/slotcache/proto"
)

// peerTime is how long an attacker waits for anything.
const peerTime = 2 * time.Second

// A peer is one raw connection of an attacker.
type peer struct {
	net.Conn
	t    *Tally
	boot uint64
	last uint64 // request id
}

// dial connects without a word.
func (x *assault) dial(addr string) (*peer, error) {
	kind, rest, _ := strings.Cut(addr, ":")
	c, err := net.DialTimeout(kind, rest, peerTime)
	if err != nil {
		return nil, err
	}
	x.tally.Connections++
	return &peer{Conn: c, t: &x.tally}, nil
}

// frame is a request, with its payload.
func (p *peer) frame(op proto.Op, body, payload []byte) []byte {
	p.last++
	h := proto.Header{Op: op, Request: p.last, Boot: p.boot}
	if op == proto.OpCommitStore {
		h.Flags = proto.FlagInline
	}
	return append(proto.AppendFrame(nil, h, body, uint32(len(payload))), payload...)
}

// send writes some bytes, frames among them, and does not wait for ever.
func (p *peer) send(b []byte, frames int) error {
	_ = p.SetWriteDeadline(time.Now().Add(peerTime)) // a closed connection is noticed by the write
	n, err := p.Write(b)
	p.t.Bytes += int64(n)
	if err == nil {
		p.t.Frames += int64(frames)
	}
	return err
}

// read takes a reply and gives its body.
func (p *peer) read() ([]byte, error) {
	_ = p.SetReadDeadline(time.Now().Add(peerTime)) // a closed connection is noticed by the read
	var head [proto.HeaderSize]byte
	if _, err := io.ReadFull(p, head[:]); err != nil {
		return nil, err
	}
	h, err := proto.ParseHeader(head[:])
	if err != nil {
		return nil, fmt.Errorf("attack: %w", err)
	}
	rest := make([]byte, h.Size-proto.HeaderSize)
	_, err = io.ReadFull(p, rest)
	return rest[:h.Body], err
}

// greet says hello and takes the answer.
func (p *peer) greet() error {
	if err := p.send(helloFrame, 1); err != nil {
		return err
	}
	body, err := p.read()
	if err != nil {
		return err
	}
	var hello proto.HelloReply
	err = proto.ParseHelloReply(body, &hello)
	p.boot = hello.Boot
	return err
}

// helloFrame is a HELLO.
var helloFrame = proto.AppendFrame(nil, proto.Header{Op: proto.OpHello, Request: 1},
	proto.AppendHello(nil, &proto.Hello{VersionMin: proto.Version, VersionMax: proto.Version}), 0)

// register makes it an inline instance of a namespace of the attackers.
func (p *peer) register(id uint64) error {
	err := p.send(p.frame(proto.OpRegister, proto.AppendRegister(nil, &proto.Register{
		Instance: id, Want: proto.TransportInline, Name: "attacker", Namespace: "attack",
		Layouts: []proto.Layout{{Name: "attack", Size: halfStore}},
	}), nil), 1)
	if err == nil {
		_, err = p.read()
	}
	return err
}

// keyOf makes a key of a number.
func keyOf(n uint64) (k proto.Key) {
	binary.LittleEndian.PutUint64(k[:], n)
	return k
}
