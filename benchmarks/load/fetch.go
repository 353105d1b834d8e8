package load

import (
	"fmt"

	"github.com/slotcache/slotcache/proto"
)

// A Fetch is a script that loads objects from disk, one after the other. Those that are found in memory it passes by.
type Fetch struct {
	boot  uint64
	keys  Keys
	next  uint64
	count uint64
	frame []byte
	reply proto.LookupReply
	lease [1]uint64
}

// NewFetch makes it, for the first objects of keys, so many.
func NewFetch(s *Session, keys Keys, count int) *Fetch {
	return &Fetch{boot: s.Boot, keys: keys, count: uint64(count), frame: loadFrame(s, 0)}
}

// Step implements [Script].
func (f *Fetch) Step(dst, reply []byte) ([]byte, bool, error) {
	loaded := false
	if reply != nil {
		body, err := done(reply)
		if err != nil {
			return dst, false, err
		}
		if err := proto.ParseLookupReply(body, &f.reply); err != nil {
			return dst, false, fmt.Errorf("load: %w", err)
		}
		if f.reply.Hits != 1 {
			return dst, false, errGone
		}
		loaded = f.reply.FromDisk == 1
		f.lease[0] = f.reply.Lease
		start := len(dst)
		dst = proto.BeginFrame(dst, proto.Header{Op: proto.OpRelease, Flags: proto.FlagNoReply, Boot: f.boot})
		dst = proto.AppendRelease(dst, &proto.Release{Leases: f.lease[:]})
		dst = proto.EndFrame(dst, start, 0)
	}
	key := f.keys.At(f.next % f.count)
	f.next++
	at := len(dst)
	dst = append(dst, f.frame...)
	copy(dst[at+keyOffset:], key[:])
	return dst, loaded, nil
}

// fetchOp stores what is loaded later: more than fits in memory.
func fetchOp(_ *worker, j *Job, s *Session) (Op, error) {
	keys, err := store(s, j.Count, j.Size, nil)
	return NewScripted(s.Link, NewFetch(s, keys, j.Count)), err
}
