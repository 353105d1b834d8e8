package load

import (
	"errors"
	"fmt"

	"github.com/slotcache/slotcache/proto"
)

// A Churn is a script that keeps a server's disk busy: in turn it stores a new object, which
// goes to disk, and retrieves one that was stored so many objects ago that it is on disk only.
// No byte is touched by the client.
type Churn struct {
	store *Store
	boot  uint64
	id    uint64
	lag   uint64 // objects between the one stored and the one loaded
	loads bool   // a load is under way, not a store
	frame []byte
	reply proto.LookupReply
	lease [1]uint64
}

// NewChurn makes it, for objects of a size; the first ones of keys, lag of them, are stored.
func NewChurn(s *Session, id uint64, keys Keys, lag int, size int64) *Churn {
	c := &Churn{store: NewStore(s, id, 1, size), boot: s.Boot, id: id, lag: uint64(lag), frame: loadFrame(s, id)}
	c.store.Keys, c.store.Next = keys, uint64(lag)
	return c
}

// loadFrame is a lookup of one key that waits for the disk.
func loadFrame(s *Session, id uint64) []byte {
	body := proto.AppendLookup(nil, &proto.Lookup{
		Group: 1, Options: proto.LookupHold | proto.LookupLoad | proto.LookupSlots, WaitMs: 10_000, Keys: make([]proto.Key, 1),
	})
	return proto.AppendFrame(nil, proto.Header{Op: proto.OpLookup, Request: id, Boot: s.Boot}, body, 0)
}

// errGone says that an object is neither in memory nor on disk.
var errGone = errors.New("load: an object is gone")

// Step implements [Script].
func (c *Churn) Step(dst, reply []byte) ([]byte, bool, error) {
	if reply == nil || !c.loads {
		out, finished, err := c.store.Step(dst, reply)
		if err != nil || !finished {
			return out, false, err
		}
		// What the store would prepare next waits its turn.
		c.store.Next--
		c.loads = true
		key := c.store.Keys.At(c.store.Next - c.lag)
		out = append(out[:0], c.frame...)
		copy(out[keyOffset:], key[:])
		return out, true, nil
	}
	body, err := done(reply)
	if err != nil {
		return dst, false, err
	}
	if err := proto.ParseLookupReply(body, &c.reply); err != nil {
		return dst, false, fmt.Errorf("load: %w", err)
	}
	if c.reply.Hits != 1 {
		return dst, false, errGone
	}
	c.lease[0] = c.reply.Lease
	start := len(dst)
	dst = proto.BeginFrame(dst, proto.Header{Op: proto.OpRelease, Flags: proto.FlagNoReply, Request: c.id, Boot: c.boot})
	dst = proto.AppendRelease(dst, &proto.Release{Leases: c.lease[:]})
	dst = proto.EndFrame(dst, start, 0)
	c.loads = false
	out, _, err := c.store.Step(dst, nil)
	return out, true, err
}
