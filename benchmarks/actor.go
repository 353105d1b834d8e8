package benchmarks

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/slotcache/slotcache/benchmarks/load"
	"github.com/slotcache/slotcache/proto"
)

// What an actor can be told to do.
const (
	DoStore   = "store"   // store blocks
	DoFetch   = "fetch"   // fetch the leading blocks and check them
	DoPrepare = "prepare" // begin to store blocks, fill the first half, never commit
	DoHold    = "hold"    // hold the leading blocks and read them over and over
	DoLoad    = "load"    // answer first, then do as for hold
	DoSend    = "send"    // begin to send block First over a connection, and stop after Count thousandths of the frame
)

// An Order is a line an actor reads: what to do with the blocks [First, First+Count).
type Order struct {
	Do    string `json:"do"`
	First uint64 `json:"first"`
	Count int    `json:"count"`
}

func (o *Order) ids() []uint64 {
	ids := make([]uint64, o.Count)
	for i := range ids {
		ids[i] = o.First + uint64(i)
	}
	return ids
}

// An Answer is the line it writes when it has done so. Error is empty if it could.
type Answer struct {
	Fetch
	Stored
	Error string `json:"error,omitempty"`
}

// RunActor is a worker process that does what it is told, a line of JSON at a time, until
// its input ends. It writes one answer when it is registered, then one an order.
func RunActor(ctx context.Context, addr, name string, block int, in io.Reader, out io.Writer) error {
	m, err := openMover(ctx, addr, name, block)
	if err != nil {
		return err
	}
	answers := json.NewEncoder(out)
	if err := answers.Encode(&Answer{}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var order Order
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			return fmt.Errorf("actor: order %q: %w", lines.Text(), err)
		}
		if err := m.obey(ctx, &order, answers); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), m.w.Close())
}

// obey does one order and answers it. The error is that of the answer: what the order met
// is in it.
func (m *mover) obey(ctx context.Context, order *Order, answers *json.Encoder) error {
	var a Answer
	var err error
	switch order.Do {
	case DoStore:
		a.Stored, err = m.store(ctx, order.ids())
	case DoFetch:
		a.Fetch, _, err = m.fetch(ctx, order.ids())
	case DoPrepare:
		a.Stored.Stored, err = m.begin(ctx, order.ids())
	case DoSend:
		err = m.part(order.First, order.Count)
	case DoHold, DoLoad:
		return m.hold(ctx, order, answers)
	default:
		err = fmt.Errorf("actor: no order %q", order.Do)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return answers.Encode(&a)
}

// begin prepares a store, fills half of what it was granted, and leaves it open. It tells
// how many blocks were granted.
func (m *mover) begin(ctx context.Context, ids []uint64) (int, error) {
	open, err := m.prepare(ctx, ids)
	if err != nil {
		return 0, err
	}
	granted := 0
	for i := range ids {
		if open.Status(i) == proto.StatusReserved {
			granted++
			slot := open.Slot(i)
			Fill(&m.keys[i], slot[:len(slot)/2])
		}
	}
	return granted, nil
}

// part sends a part of a block's commit, inline, over a connection of its own, which stays open.
func (m *mover) part(id uint64, thousandths int) error {
	path, ok := strings.CutPrefix(m.addr, "unix:")
	if !ok {
		return fmt.Errorf("actor: %s is no Unix socket", m.addr)
	}
	s, err := load.Open(path, proto.TransportInline)
	if err != nil {
		return err
	}
	transfer, err := s.Prepare(BlockKey(id), uint64(m.size))
	if err != nil {
		return err
	}
	header := proto.Header{Op: proto.OpCommitStore, Flags: proto.FlagInline, Request: id, Boot: s.Boot}
	frame := proto.AppendFrame(nil, header, proto.AppendCommitStore(nil, &proto.CommitStore{Transfer: transfer}), uint32(m.size))
	frame = append(frame, make([]byte, m.size)...)
	m.parts = append(m.parts, s)
	return s.Send(frame[:max(1, len(frame)*thousandths/1000)])
}

// hold takes a lease on the leading blocks and reads them until the process is killed. It
// answers after the first reading, and again only if a byte is wrong.
func (m *mover) hold(ctx context.Context, order *Order, answers *json.Encoder) error {
	if order.Do == DoLoad {
		if err := answers.Encode(&Answer{}); err != nil {
			return err
		}
	}
	found, err := m.lease(ctx, order.ids())
	if err != nil {
		return answers.Encode(&Answer{Error: err.Error()})
	}
	var values [][]byte
	if found.Lease != nil {
		values = found.Lease.Values()
	}
	a := Answer{Fetch: Fetch{Hits: found.Hits, Memory: found.FromMemory, Disk: found.FromDisk}}
	for first := true; ctx.Err() == nil; first = false {
		a.Wrong = m.check(values)
		if !first && a.Wrong == 0 {
			continue
		}
		if err := answers.Encode(&a); err != nil {
			return err
		}
	}
	return ctx.Err()
}
