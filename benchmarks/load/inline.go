package load

import (
	"fmt"

	"github.com/slotcache/slotcache/proto"
)

// An InlineStore stores one new object after another, its bytes in the commit's payload. Two
// round trips each.
type InlineStore struct {
	store *Store
	link  *Link
	value []byte
	out   []byte
}

// NewInlineStore makes it, on an inline session.
func NewInlineStore(s *Session, value []byte) *InlineStore {
	return &InlineStore{store: NewStore(s, 0, 1, int64(len(value))), link: s.Link, value: value}
}

// Keys are those of the objects stored, the first Next of them.
func (i *InlineStore) Keys() (Keys, uint64) { return i.store.Keys, i.store.Next }

// Do implements [Op].
func (i *InlineStore) Do() error {
	i.out = i.store.appendPrepare(i.out[:0])
	if err := i.link.Send(i.out); err != nil {
		return err
	}
	frame, err := i.link.Frame()
	if err != nil {
		return err
	}
	body, err := done(frame)
	if err != nil {
		return err
	}
	if err := i.store.write(body); err != nil {
		return err
	}
	i.out = proto.BeginFrame(i.out[:0], proto.Header{Op: proto.OpCommitStore, Boot: i.store.boot})
	i.out = proto.AppendCommitStore(i.out, &proto.CommitStore{Transfer: i.store.reply.Transfer})
	i.out = proto.EndFrame(i.out, 0, uint32(len(i.value)))
	if err := i.link.Send(i.out); err != nil {
		return err
	}
	if err := i.link.Send(i.value); err != nil {
		return err
	}
	if frame, err = i.link.Frame(); err != nil {
		return err
	}
	_, err = done(frame)
	return err
}

// A Put stores one new object after another in one round trip each, its bytes in the request.
type Put struct {
	s     *Session
	keys  Keys
	next  uint64
	value []byte
	out   []byte
}

// NewPut makes it.
func NewPut(s *Session, value []byte) *Put { return &Put{s: s, keys: NewKeys(), value: value} }

// Do implements [Op].
func (p *Put) Do() error {
	p.out = proto.BeginFrame(p.out[:0], proto.Header{Op: proto.OpPut, Flags: proto.FlagInline, Boot: p.s.Boot})
	p.out = proto.AppendPut(p.out, &proto.Put{Key: p.keys.At(p.next)})
	p.out = proto.EndFrame(p.out, 0, uint32(len(p.value)))
	p.next++
	if err := sendParts(p.s.fd, p.out, p.value, nil); err != nil {
		return err
	}
	frame, err := p.s.Frame()
	if err == nil {
		_, err = done(frame)
	}
	return err
}

// An InlineRetrieve retrieves one object after another in one round trip each, its bytes in
// the reply's payload.
type InlineRetrieve struct {
	s     *Session
	keys  Keys
	total uint64
	next  uint64
	into  []byte
	out   []byte
	frame proto.PrepareRetrieve
}

// NewInlineRetrieve makes it, for objects [0, total) of keys whose length is that of into.
func NewInlineRetrieve(s *Session, keys Keys, total int, into []byte) *InlineRetrieve {
	return &InlineRetrieve{s: s, keys: keys, total: uint64(total), into: into, frame: proto.PrepareRetrieve{Keys: make([]proto.Key, 1)}}
}

// Do implements [Op].
func (i *InlineRetrieve) Do() error {
	i.frame.Keys[0] = i.keys.At(i.next)
	i.next = (i.next + 1) % i.total
	i.out = proto.BeginFrame(i.out[:0], proto.Header{Op: proto.OpPrepareRetrieve, Flags: proto.FlagInline, Boot: i.s.Boot})
	i.out = proto.AppendPrepareRetrieve(i.out, &i.frame)
	i.out = proto.EndFrame(i.out, 0, 0)
	if err := i.s.Send(i.out); err != nil {
		return err
	}
	frame, err := i.s.Frame()
	if err != nil {
		return err
	}
	if _, err := done(frame); err != nil {
		return fmt.Errorf("object %d: %w", i.next, err)
	}
	return i.s.Payload(i.into)
}
