package proto

import (
	"encoding/binary"
	"fmt"
)

// Flags modify a frame. Bits without a name are reserved and must be 0.
type Flags uint16

// The flags.
const (
	FlagReply   Flags = 1 << iota // the frame is a reply
	FlagNoReply                   // the requester wants no reply
	FlagInline                    // the objects' bytes travel in the payload, not through shared memory

	flagsKnown = FlagReply | FlagNoReply | FlagInline
)

// A Header is the first 32 bytes of a frame:
//
//	 0 size    u32  of the whole frame: header, body and payload, in bytes
//	 4 version u8   1
//	 5 op      u8
//	 6 flags   u16
//	 8 status  u16  0 in requests
//	10         u16  reserved, 0
//	12 body    u32  length of the body in bytes; what is left of size is payload
//	16 request u64  chosen by the requester, echoed by the reply
//	24 boot    u64  the server's boot id
type Header struct {
	Size    uint32
	Version uint8
	Op      Op
	Flags   Flags
	Status  Status
	Body    uint32
	Request uint64
	Boot    uint64
}

// Payload returns the length in bytes of the payload that follows the body.
func (h Header) Payload() uint32 {
	if uint64(h.Size) < HeaderSize+uint64(h.Body) {
		return 0
	}
	return h.Size - HeaderSize - h.Body
}

// Reply reports whether the frame is a reply.
func (h Header) Reply() bool { return h.Flags&FlagReply != 0 }

// AppendHeader appends h as it is, without checking it. To write a whole frame
// use [BeginFrame] and [EndFrame], which fill in what follows from the rest.
func AppendHeader(dst []byte, h Header) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, h.Size)
	dst = append(dst, h.Version, byte(h.Op))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.Flags))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.Status))
	dst = append(dst, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, h.Body)
	dst = binary.LittleEndian.AppendUint64(dst, h.Request)
	return binary.LittleEndian.AppendUint64(dst, h.Boot)
}

// ParseHeader decodes and checks the header at the start of p; what follows it
// is not looked at. All its errors are [ErrFrame]. An unknown operation is not an
// error here: the frame around it is sound, and can be answered.
func ParseHeader(p []byte) (Header, error) {
	if len(p) < HeaderSize {
		return Header{}, fmt.Errorf("%w: header of %d bytes, want %d", ErrFrame, len(p), HeaderSize)
	}
	h := Header{
		Size:    binary.LittleEndian.Uint32(p),
		Version: p[4],
		Op:      Op(p[5]),
		Flags:   Flags(binary.LittleEndian.Uint16(p[6:])),
		Status:  Status(binary.LittleEndian.Uint16(p[8:])),
		Body:    binary.LittleEndian.Uint32(p[12:]),
		Request: binary.LittleEndian.Uint64(p[16:]),
		Boot:    binary.LittleEndian.Uint64(p[24:]),
	}
	reserved := binary.LittleEndian.Uint16(p[10:])
	switch {
	case h.Version != Version:
		return h, fmt.Errorf("%w: version %d, want %d", ErrFrame, h.Version, Version)
	case h.Flags&^flagsKnown != 0:
		return h, fmt.Errorf("%w: unknown flags %#x", ErrFrame, uint16(h.Flags&^flagsKnown))
	case reserved != 0:
		return h, fmt.Errorf("%w: reserved field is %d", ErrFrame, reserved)
	case !h.Reply() && h.Status != 0:
		return h, fmt.Errorf("%w: request with status %d", ErrFrame, uint16(h.Status))
	case h.Body > MaxBody:
		return h, fmt.Errorf("%w: body of %d bytes, most %d", ErrFrame, h.Body, MaxBody)
	case h.Size < HeaderSize+h.Body:
		return h, fmt.Errorf("%w: size %d with a body of %d", ErrFrame, h.Size, h.Body)
	case h.Payload() > MaxPayload:
		return h, fmt.Errorf("%w: payload of %d bytes, most %d", ErrFrame, h.Payload(), MaxPayload)
	case h.Payload() > 0 && h.Flags&FlagInline == 0:
		return h, fmt.Errorf("%w: payload of %d bytes without the inline flag", ErrFrame, h.Payload())
	}
	return h, nil
}

// AppendFrame appends the header and body of a frame whose payload, of the given
// length in bytes, the caller sends after it. Of h it sets Size, Version and Body,
// and [FlagInline] if there is a payload.
func AppendFrame(dst []byte, h Header, body []byte, payload uint32) []byte {
	start := len(dst)
	dst = BeginFrame(dst, h)
	dst = append(dst, body...)
	return EndFrame(dst, start, payload)
}

// BeginFrame appends the header of a frame whose body the caller appends next.
// [EndFrame] then completes it. Between the two nothing is allocated as long as
// dst has room.
func BeginFrame(dst []byte, h Header) []byte {
	h.Version = Version
	h.Size, h.Body = HeaderSize, 0
	return AppendHeader(dst, h)
}

// EndFrame completes the frame that [BeginFrame] began at dst[start:] and whose
// body reaches to the end of dst. The payload's length, in bytes, is announced;
// its bytes are for the caller to send. A frame over the limits is a panic.
func EndFrame(dst []byte, start int, payload uint32) []byte {
	size := len(dst) - start
	if start < 0 || size < HeaderSize || size > MaxFrame || payload > MaxPayload {
		panic(fmt.Sprintf("proto: frame of %d bytes with a payload of %d", size, payload))
	}
	h := dst[start:]
	binary.LittleEndian.PutUint32(h, uint32(size)+payload)
	binary.LittleEndian.PutUint32(h[12:], uint32(size-HeaderSize))
	if payload > 0 {
		h[6] |= byte(FlagInline)
	}
	return dst
}
