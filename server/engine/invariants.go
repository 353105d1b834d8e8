package engine

import (
	"fmt"
	"maps"

	"github.com/slotcache/slotcache/l1/table"
)

// CheckInvariants walks all the engine has and returns the first thing that is wrong. It
// costs time in proportion to all the tables: it is for tests.
func (e *Engine) CheckInvariants() error {
	if err := e.table.CheckInvariants(); err != nil {
		return err
	}
	if e.log != nil {
		if err := e.log.CheckInvariants(); err != nil {
			return err
		}
	}
	holds := map[table.Ref]uint32{}
	for _, check := range []func(map[table.Ref]uint32) error{
		e.checkInstances, e.checkEntries, e.checkHeld, e.checkOps, e.checkParked, e.checkPins,
	} {
		if err := check(holds); err != nil {
			return err
		}
	}
	for ref, n := range holds {
		if got := e.table.Holds(ref); got != n {
			return fmt.Errorf("engine: object %#x has %d holds, %d are accounted for", uint64(ref), got, n)
		}
	}
	return nil
}

// checkHeld compares what instances hold with what the table says.
func (e *Engine) checkHeld(holds map[table.Ref]uint32) error {
	var held int64
	for ref := range holds {
		held += table.Footprint(e.table.Extent(ref).Len)
	}
	if u := e.table.Usage(); u.Held != held {
		return fmt.Errorf("engine: %d bytes are held, instances hold %d", u.Held, held)
	}
	return nil
}

// checkOps counts the holds of spills.
func (e *Engine) checkOps(holds map[table.Ref]uint32) error {
	busy, free := 0, 0
	var of [opKinds]int
	fences := map[uint32]fencing{}
	var spillingBytes int64
	for i := range e.ops {
		o := &e.ops[i]
		switch o.kind {
		case opFree:
			continue
		case opSpill:
			holds[o.ref]++
			spillingBytes += o.size
		case opLoad:
			if s := e.table.State(o.ref); s != table.StateLoading && s != table.StateAbandoned {
				return fmt.Errorf("engine: op %d loads an object that is %v", i, s)
			}
		case opReceive, opSend:
			if s := e.transfers[o.transfer].state; s != transferMoving && s != transferAbandoned {
				return fmt.Errorf("engine: op %d moves the bytes of a transfer that is %v", i, s)
			}
		case opFence:
			f := fences[o.inst]
			fences[o.inst] = fencing{f.requests + 1, f.keys + o.keys}
		}
		of[o.kind]++
		busy++
	}
	for o := e.opFree; o != none; o = e.ops[o].next {
		free++
	}
	for x := range e.insts {
		if i := &e.insts[x]; i.fencing != fences[uint32(x)] {
			return fmt.Errorf("engine: instance %d counts deletes and clears %v, it has %v", i.id, i.fencing, fences[uint32(x)])
		}
	}
	if e.fencing != fences[none] {
		return fmt.Errorf("engine: deletes and clears of no instance: %v counted, %v under way", e.fencing, fences[none])
	}
	if busy != e.opsBusy || busy+free != len(e.ops) || of != e.opsOf || of[opSpill] != e.spilling || spillingBytes != e.spillingBytes {
		return fmt.Errorf("engine: %d ops are busy (%d counted), %d free of %d, by kind %v (%v counted), %d spills of %d bytes (%d counted)",
			busy, e.opsBusy, free, len(e.ops), of, e.opsOf, e.spilling, e.spillingBytes, spillingBytes)
	}
	return nil
}

// checkClaims counts what owners have.
func (e *Engine) checkClaims() error {
	real, all := make(map[owner]claim), claim{}
	add := func(o owner, d claim) {
		c := real[o]
		c.add(d)
		real[o] = c
		all.add(d)
	}
	for n := range e.conns {
		if c := &e.conns[n]; c.inst != none {
			add(c.owner(), claim{conns: 1})
		}
	}
	for x := range e.insts {
		if i := &e.insts[x]; i.state != instFree {
			add(i.owner, claim{
				insts: 1, transfers: i.open, entries: i.entries, parked: i.parked, fences: i.fencing.requests,
				written: i.written, held: i.owned() - i.written,
			})
			if at, ok := e.claims.of[i.owner]; !ok || at != i.claim {
				return fmt.Errorf("engine: instance %d counts for owner %d, and its owner is %d", i.id, i.claim, at)
			}
		}
	}
	counted := make(map[owner]claim)
	for o := range e.claims.of {
		counted[o] = e.claims.claimOf(o)
	}
	if all != e.claims.sum || !maps.Equal(real, counted) {
		return fmt.Errorf("engine: owners have %v, and %v is counted", real, counted)
	}
	return nil
}

// checkInstances walks the instances and their transfers.
func (e *Engine) checkInstances(map[table.Ref]uint32) error {
	open, inQuarantine := 0, 0
	conns := map[uint32]uint32{}
	for n := range e.conns {
		if x := e.boundInstance(&e.conns[n]); x != none {
			conns[x]++
		}
	}
	for x := range e.insts {
		i := &e.insts[x]
		if i.state == instFree {
			continue
		}
		if n := conns[uint32(x)]; n != i.conns || i.state == instLive && n == 0 || i.state == instDetached && n > 0 {
			return fmt.Errorf("engine: instance %d is %v and counts %d connections; it has %d", i.id, i.state, i.conns, n)
		}
		if i.present() && e.instanceByID(i.id, i.space) != uint32(x) {
			return fmt.Errorf("engine: two instances have the id %d in one namespace", i.id)
		}
		var staged, held, quarantined, written int64
		var entries, transfers uint32
		prev := none
		for t := i.first; t != none; t = e.transfers[t].instNext {
			p := &e.transfers[t]
			if p.state == transferFree || p.inst != uint32(x) || p.instPrev != prev {
				return fmt.Errorf("engine: transfer %d (%v) hangs wrongly on instance %d", t, p.state, i.id)
			}
			switch {
			case p.state == transferQuarantined:
				quarantined += p.bytes
				inQuarantine++
			case p.kind == kindStore:
				staged += p.bytes
			default:
				held += p.bytes
			}
			if p.kind == kindStore {
				written += p.bytes
			}
			entries += p.count
			transfers++
			prev = t
			open++
		}
		if entries != i.entries || transfers != i.open {
			return fmt.Errorf("engine: instance %d counts %d transfers with %d entries; it has %d with %d", i.id, i.open, i.entries, transfers, entries)
		}
		if staged != i.staged || held != i.held || quarantined != i.quarantined || written != i.written || prev != i.last {
			return fmt.Errorf("engine: instance %d counts %d staged, %d held, %d quarantined, %d written; it has %d, %d, %d, %d",
				i.id, i.staged, i.held, i.quarantined, i.written, staged, held, quarantined, written)
		}
	}
	if err := e.checkClaims(); err != nil {
		return err
	}
	free := 0
	for t := e.transferFree; t != none; t = e.transfers[t].instNext {
		if e.transfers[t].state != transferFree {
			return fmt.Errorf("engine: transfer %d is on the free list and %v", t, e.transfers[t].state)
		}
		free++
	}
	if inQuarantine != e.quarantined {
		return fmt.Errorf("engine: %d transfers are quarantined (%d counted)", inQuarantine, e.quarantined)
	}
	if open != e.transfersOpen || open+free != len(e.transfers) {
		return fmt.Errorf("engine: %d transfers are open (%d counted), %d free of %d", open, e.transfersOpen, free, len(e.transfers))
	}
	return nil
}

// checkEntries walks the transfers' entries and counts their holds.
func (e *Engine) checkEntries(holds map[table.Ref]uint32) error {
	used := 0
	for t := range e.transfers {
		p := &e.transfers[t]
		if p.state == transferFree {
			continue
		}
		var bytes int64
		var count, waiting uint32
		prev := none
		for n := p.first; n != none; n = e.entries[n].next {
			q := &e.entries[n]
			if q.transfer != uint32(t) || q.prev != prev {
				return fmt.Errorf("engine: entry %d hangs wrongly on transfer %d", n, t)
			}
			if err := e.checkEntry(p, n, holds); err != nil {
				return err
			}
			if q.state == entryWaiting {
				waiting++
			}
			bytes += q.size
			count++
			prev = n
		}
		used += int(count)
		if bytes != p.bytes || count != p.count || prev != p.last || waiting != p.wait.waiting {
			return fmt.Errorf("engine: transfer %d (%v) counts %d entries, %d bytes, %d waiting; it has %d, %d, %d",
				t, p.state, p.count, p.bytes, p.wait.waiting, count, bytes, waiting)
		}
		if waiting > 0 && p.state != transferLoading {
			return fmt.Errorf("engine: transfer %d is %v and waits for loads", t, p.state)
		}
	}
	free := 0
	for n := e.entryFree; n != none; n = e.entries[n].next {
		free++
	}
	if used+free != len(e.entries) {
		return fmt.Errorf("engine: %d entries are used, %d free of %d", used, free, len(e.entries))
	}
	return nil
}

func (e *Engine) checkEntry(p *transfer, n uint32, holds map[table.Ref]uint32) error {
	q := &e.entries[n]
	s := e.table.State(q.ref)
	ok := false
	switch q.state {
	case entryStaged:
		if p.state == transferQuarantined {
			ok = s == table.StateQuarantined
		} else {
			ok = s == table.StateStaged || s == table.StateFenced
		}
	case entryWaiting:
		holds[q.ref]++
		ok = s == table.StateLoading || s == table.StateAbandoned
		found := false
		for w := e.table.Data(q.ref); w != 0 && !found; {
			found = w-1 == n
			w = e.entries[w-1].waitNext + 1
		}
		if !found {
			return fmt.Errorf("engine: entry %d waits for a load that does not know it", n)
		}
	case entryHeld:
		holds[q.ref]++
		ok = s == table.StateReady || s == table.StateDoomed
	case entryFailed:
		holds[q.ref]++
		ok = s == table.StateDoomed
	case entryFree:
	}
	if !ok {
		return fmt.Errorf("engine: entry %d is %v, its object %v, its transfer %v", n, q.state, s, p.state)
	}
	return nil
}

// checkPins recounts what is pinned: each object has a deadline within the greatest time, and
// all are within the budget.
func (e *Engine) checkPins(map[table.Ref]uint32) error {
	var bytes int64
	var wrong error
	n := 0
	e.table.EachPinned(func(r table.Ref) {
		n++
		bytes += table.Footprint(e.table.Extent(r).Len)
		if i := r.Entry(); e.pins.pos[i] < 0 || e.pins.at[i] > e.now+e.cfg.PinTime {
			wrong = fmt.Errorf("engine: object %d is pinned until %v, it is %v", i, e.pins.at[i], e.now)
		}
	})
	if u := e.table.Usage(); bytes != u.PinnedSoft+u.PinnedHard || n != u.Pinned || bytes > max(e.cfg.PinBudget, 0) {
		return fmt.Errorf("engine: %d objects of %d bytes are pinned (%d of %d soft and %d hard counted), of %d that may be",
			n, bytes, u.Pinned, u.PinnedSoft, u.PinnedHard, e.cfg.PinBudget)
	}
	return wrong
}

func (e *Engine) checkParked(map[table.Ref]uint32) error {
	waiting, free := 0, 0
	prev := none
	of := make([]uint32, len(e.insts))
	for n := e.parkedFirst; n != none; n = e.parked[n].next {
		p := &e.parked[n]
		of[p.inst]++
		if !p.waiting || p.prev != prev || e.connOf(p.req.conn) == nil || e.timers.pos[uint32(len(e.transfers))+n] < 0 {
			return fmt.Errorf("engine: parked request %d hangs wrongly in its list", n)
		}
		if p.transfer != none && e.transfers[p.transfer].state != transferBuilding {
			return fmt.Errorf("engine: parked request %d has a transfer that is %v", n, e.transfers[p.transfer].state)
		}
		waiting++
		prev = n
	}
	for x := range e.insts {
		if i := &e.insts[x]; i.state != instFree && i.parked != of[x] {
			return fmt.Errorf("engine: instance %d counts %d requests parked, it has %d", i.id, i.parked, of[x])
		}
	}
	for n := e.parkedFree; n != none; n = e.parked[n].next {
		free++
	}
	last, stores := none, false
	for n := e.parkedFirst; n != none; n = e.parked[n].next {
		load := e.parked[n].transfer == none
		if load && stores {
			return fmt.Errorf("engine: load %d waits behind a store", n)
		}
		stores = stores || !load
		if load {
			last = n
		}
	}
	if last != e.parkedLoad {
		return fmt.Errorf("engine: the last load that waits is %d, %d is kept", last, e.parkedLoad)
	}
	if waiting+free != len(e.parked) || prev != e.parkedLast {
		return fmt.Errorf("engine: %d requests wait, %d places are free of %d", waiting, free, len(e.parked))
	}
	return nil
}
