package load

import (
	"encoding/binary"
	"fmt"

	"github.com/slotcache/slotcache/proto"
)

// StoreMode says how a script of stores uses its round trips.
type StoreMode uint8

// The modes.
const (
	StorePlain  StoreMode = iota // prepare, then commit: two round trips
	StoreStream                  // each commit goes together with the next prepare: one
	StoreAhead                   // the same, and a slot is always ready: none is waited for
)

// aheadMost is how many prepares are under way or granted at most in [StoreAhead].
const aheadMost = 4

// aheadOf is how many there are where so many workers share a pool: what is staged, of which a
// worker may have half of the pool, is a quarter of it for all together.
func aheadOf(pool, batch int64, workers int) int {
	return int(min(max(pool/4/int64(max(workers, 1))/max(batch, 1), 1), aheadMost))
}

// A Store is a script that stores one batch of new objects after another. Where it has bytes
// to put into them it copies them into the slots.
type Store struct {
	Mode   StoreMode
	Keys   Keys
	Next   uint64 // number of the next key
	Source []byte // copied into every slot; nil: nothing is
	Ahead  int    // of [StoreAhead]: prepares under way or granted

	id      uint64
	boot    uint64
	pool    []byte
	prepare proto.PrepareStore
	reply   proto.PrepareStoreReply
}

// NewStore makes a script of stores of count objects of a size each.
func NewStore(s *Session, id uint64, count int, size int64) *Store {
	st := &Store{Keys: NewKeys(), id: id, boot: s.Boot, pool: s.Pool}
	st.prepare = proto.PrepareStore{WaitMs: 1000, Keys: make([]proto.Key, count), Sizes: make([]uint64, count)}
	for i := range st.prepare.Sizes {
		st.prepare.Sizes[i] = uint64(size)
	}
	return st
}

// Step implements [Script].
func (s *Store) Step(dst, reply []byte) (out []byte, finished bool, err error) {
	if reply == nil {
		dst = s.appendPrepare(dst)
		for i := 1; s.Mode == StoreAhead && i < s.Ahead; i++ {
			dst = s.appendPrepare(dst)
		}
		return dst, false, nil
	}
	op := proto.Op(reply[5])
	body, err := done(reply)
	if err != nil {
		return dst, false, err
	}
	if op == proto.OpPrepareStore {
		// In the stream an operation ends when its commit and the next prepare are answered.
		finished = s.Mode == StoreStream && s.Next > uint64(len(s.prepare.Keys))
		if err := s.write(body); err != nil {
			return dst, false, err
		}
		dst = s.appendCommit(dst)
		if s.Mode != StorePlain {
			dst = s.appendPrepare(dst)
		}
		return dst, finished, nil
	}
	if op == proto.OpCommitStore {
		if n := binary.LittleEndian.Uint32(body); n != uint32(len(s.prepare.Keys)) {
			return dst, false, fmt.Errorf("load: %d of %d objects were published", n, len(s.prepare.Keys))
		}
		switch s.Mode {
		case StorePlain:
			return s.appendPrepare(dst), true, nil
		case StoreStream:
			return dst, false, nil
		case StoreAhead:
			return dst, true, nil
		}
	}
	return dst, false, fmt.Errorf("load: a reply to %v during a store", op)
}

func (s *Store) appendPrepare(dst []byte) []byte {
	for i := range s.prepare.Keys {
		s.prepare.Keys[i] = s.Keys.At(s.Next)
		s.Next++
	}
	start := len(dst)
	dst = proto.BeginFrame(dst, proto.Header{Op: proto.OpPrepareStore, Request: s.id, Boot: s.boot})
	dst = proto.AppendPrepareStore(dst, &s.prepare)
	return proto.EndFrame(dst, start, 0)
}

// write fills the slots that a prepare granted.
func (s *Store) write(body []byte) error {
	if err := proto.ParsePrepareStoreReply(body, &s.reply); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for i := range s.reply.Results {
		r := &s.reply.Results[i]
		if r.Status != proto.StatusReserved {
			return fmt.Errorf("load: a key is %v", r.Status)
		}
		if s.Source == nil {
			continue
		}
		if r.Slot.Off > uint64(len(s.pool)) || r.Slot.Len > uint64(len(s.pool))-r.Slot.Off || r.Slot.Len > uint64(len(s.Source)) {
			return fmt.Errorf("load: a slot [%d, +%d) of a pool of %d", r.Slot.Off, r.Slot.Len, len(s.pool))
		}
		copy(s.pool[r.Slot.Off:][:r.Slot.Len], s.Source)
	}
	return nil
}

func (s *Store) appendCommit(dst []byte) []byte {
	start := len(dst)
	dst = proto.BeginFrame(dst, proto.Header{Op: proto.OpCommitStore, Request: s.id | commitBit, Boot: s.boot})
	dst = proto.AppendCommitStore(dst, &proto.CommitStore{Transfer: s.reply.Transfer})
	return proto.EndFrame(dst, start, 0)
}

// commitBit tells the request id of a commit from that of the prepare under way with it; the
// low 16 bits of an id name the script.
const commitBit = 1 << 32
