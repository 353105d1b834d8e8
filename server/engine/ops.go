package engine

import (
	"fmt"

	"github.com/slotcache/slotcache/l1/table"
)

// opKind is what the host does under an op. A free op has none.
//
//	free --new--> spill, load, fence, receive or send --its event--> free
type opKind uint8

const (
	opFree    opKind = iota
	opSpill          // the log writes an object
	opLoad           // the log reads an object
	opFence          // the log writes the tombstones of a delete or a clear record
	opReceive        // a connection's payload goes into slots
	opSend           // slots go out as a payload

	opKinds = iota
)

// opShare is which part of all ops a kind may take, as a divisor: what peers can begin
// without end (deletes, loads) leaves room for the rest.
var opShare = [opKinds]int{opFree: 1, opSpill: 4, opLoad: 2, opFence: 4, opReceive: 1, opSend: 1}

func (k opKind) String() string {
	switch k {
	case opFree:
		return "free"
	case opSpill:
		return "spill"
	case opLoad:
		return "load"
	case opFence:
		return "fence"
	case opReceive:
		return "receive"
	case opSend:
		return "send"
	}
	return fmt.Sprintf("opKind(%d)", uint8(k))
}

// An op is work the host or the log does now. It lives until the event that ends it,
// whatever becomes of those who wait for it.
type op struct {
	generation uint32
	kind       opKind
	next       uint32 // free list
	transfer   uint32 // receive, send
	inst       uint32 // fence: who asked for it; none: a peer that is no instance
	keys       uint32 // fence
	ref        table.Ref
	size       int64   // spill, load
	sum        uint64  // spill: of the bytes, if summed
	summed     bool    // spill
	req        request // fence, receive
	deleted    uint64  // fence: what the reply will say
	waits      uint8   // fence: parts that are not done yet
	notDurable bool    // fence
}

// newOp takes a free op, or returns none.
func (e *Engine) newOp(k opKind) uint32 {
	o := e.opFree
	if o == none || e.opsOf[k] >= len(e.ops)/opShare[k] {
		return none
	}
	p := &e.ops[o]
	e.opFree = p.next
	*p = op{generation: p.generation + 1, kind: k, transfer: none}
	e.opsBusy++
	e.opsOf[k]++
	return o
}

func (e *Engine) opID(o uint32) OpID {
	return OpID(uint64(e.ops[o].generation)<<32 | uint64(o))
}

// opOf finds a busy op by its id. The host and the log report each exactly once, so an
// unknown one is our mistake.
func (e *Engine) opOf(id OpID) (uint32, *op) {
	o := uint32(id)
	if uint64(o) >= uint64(len(e.ops)) {
		panic(fmt.Sprintf("engine: op %#x is not one", uint64(id)))
	}
	p := &e.ops[o]
	if p.kind == opFree || p.generation != uint32(id>>32) {
		panic(fmt.Sprintf("engine: op %d of generation %d ends, it is %v of generation %d", o, uint32(id>>32), p.kind, p.generation))
	}
	return o, p
}

// endOp frees an op of the given kind and returns what it was.
func (e *Engine) endOp(id OpID, k opKind) op {
	o, p := e.opOf(id)
	if p.kind != k {
		panic(fmt.Sprintf("engine: op %v ends as %v", p.kind, k))
	}
	was := *p
	p.kind = opFree
	p.next = e.opFree
	e.opFree = o
	e.opsBusy--
	e.opsOf[k]--
	return was
}
