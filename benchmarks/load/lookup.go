package load

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/slotcache/slotcache/proto"
)

// lookupSets is how many requests with different keys a script of lookups has, which it
// sends in turn.
const lookupSets = 8

// lookup asks for keys that are all there.
type lookup struct {
	frames [][]byte
	count  uint32
	next   int
}

// NewLookup is a script of lookups of count keys each, in turn over the objects [0, total) of
// keys, without options.
func NewLookup(s *Session, id uint64, keys Keys, count, total int) Script {
	l := &lookup{count: uint32(count)}
	list := make([]proto.Key, count)
	for set := range lookupSets {
		for i := range list {
			list[i] = keys.At(uint64((set*count + i) % total))
		}
		l.frames = append(l.frames, lookupFrame(s, id, list, 0))
	}
	return l
}

// again returns another script like s, for a script whose frames are the same on all connections; else nil.
func again(s Script) Script {
	if l, ok := s.(*lookup); ok {
		return &lookup{frames: l.frames, count: l.count}
	}
	return nil
}

func lookupFrame(s *Session, id uint64, keys []proto.Key, options proto.LookupOptions) []byte {
	body := proto.AppendLookup(nil, &proto.Lookup{Group: 1, Options: options, Keys: keys})
	return proto.AppendFrame(nil, proto.Header{Op: proto.OpLookup, Request: id, Boot: s.Boot}, body, 0)
}

func (l *lookup) Step(_, reply []byte) ([]byte, bool, error) {
	if reply != nil {
		body, err := done(reply)
		if err != nil {
			return nil, false, err
		}
		if hits := binary.LittleEndian.Uint32(body); hits != l.count {
			return nil, false, fmt.Errorf("load: %d of %d keys are found", hits, l.count)
		}
	}
	l.next = (l.next + 1) % len(l.frames)
	return l.frames[l.next], reply != nil, nil
}

// A Retrieve is a script that retrieves one object after another in one round trip each: a
// lookup with hold and slots. The release wants no reply, and goes together with the next
// lookup.
type Retrieve struct {
	Keys  Keys
	Total uint64 // it goes over the objects [0, Total) in turn
	Into  []byte // each value is copied there; nil: it is used in place
	Last  uint64 // number of the object retrieved last

	next  uint64
	id    uint64
	boot  uint64
	pool  []byte
	frame []byte // of the lookup
	reply proto.LookupReply
	lease [1]uint64
}

// NewRetrieve makes a script of retrieves.
func NewRetrieve(s *Session, id uint64, keys Keys, total int) *Retrieve {
	return &Retrieve{
		Keys: keys, Total: uint64(total), id: id, boot: s.Boot, pool: s.Pool,
		frame: lookupFrame(s, id, make([]proto.Key, 1), proto.LookupHold|proto.LookupSlots),
	}
}

// Step implements [Script].
func (r *Retrieve) Step(dst, reply []byte) ([]byte, bool, error) {
	if reply != nil {
		body, err := done(reply)
		if err != nil {
			return dst, false, err
		}
		if err := r.read(body); err != nil {
			return dst, false, err
		}
		start := len(dst)
		dst = proto.BeginFrame(dst, proto.Header{Op: proto.OpRelease, Flags: proto.FlagNoReply, Request: r.id, Boot: r.boot})
		r.lease[0] = r.reply.Lease
		dst = proto.AppendRelease(dst, &proto.Release{Leases: r.lease[:]})
		dst = proto.EndFrame(dst, start, 0)
	}
	r.Last = r.next
	key := r.Keys.At(r.next)
	r.next = (r.next + 1) % r.Total
	start := len(dst)
	dst = append(dst, r.frame...)
	copy(dst[start+keyOffset:], key[:])
	return dst, reply != nil, nil
}

// errNone says that an object is not there.
var errNone = errors.New("load: an object is not in memory")

// keyOffset is where the first key of a lookup lies in its frame.
const keyOffset = proto.HeaderSize + 2 + 1 + 1 + 2 + 4 + 4

// read takes the value.
func (r *Retrieve) read(body []byte) error {
	if err := proto.ParseLookupReply(body, &r.reply); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if len(r.reply.Slots) != 1 {
		return fmt.Errorf("%w (object %d)", errNone, r.Last)
	}
	slot := r.reply.Slots[0]
	if slot.Off > uint64(len(r.pool)) || slot.Len > uint64(len(r.pool))-slot.Off {
		return fmt.Errorf("load: a slot [%d, +%d) of a pool of %d", slot.Off, slot.Len, len(r.pool))
	}
	if r.Into != nil {
		copy(r.Into[:slot.Len], r.pool[slot.Off:])
	}
	return nil
}
