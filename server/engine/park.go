package engine

import (
	"time"

	"github.com/slotcache/slotcache/proto"
)

// A parked request waits for memory that work under way will free: spills, loads, or the
// population of the pool, never other clients. Loads are served before stores, and each first
// come, first served: what a load takes can be evicted when its reader is done with it, what
// a store takes has to be written first. A prepare keeps what it was granted so far; a lookup or retrieval holds nothing.
//
//	free --park--> waiting --granted, time over, cancelled--> free
type parked struct {
	waiting  bool
	req      request
	inst     uint32
	transfer uint32 // of a prepare, else none
	layout   layout // as registered when the request came
	until    time.Duration
	need     int64               // bytes it cannot go on without, those it gave back while it waits included
	enough   int64               // bytes to be had at which it is worth another try
	tries    int                 // of a lookup or retrieval
	body     []byte              // of the request
	results  []proto.StoreResult // of a prepare, so far
	from     origins             // of a lookup or retrieval
	prev     uint32
	next     uint32
}

// triesMax is how often a lookup or retrieval is tried before it takes what there is. As it holds nothing meanwhile, what
// one try loads the next may have to evict for another of its keys, when they do not fit in memory together.
const triesMax = 16 * retryParts

// parkedBodyKept is how large a request buffer a free place keeps for the next.
const parkedBodyKept = 64 << 10

// park has a request wait until a time and returns its place, or none when it cannot: its
// time is over, or too many wait already.
func (e *Engine) park(r *request, x, t uint32, l layout, until time.Duration, body []byte) uint32 {
	n := e.parkedFree
	if until <= e.now || n == none || e.insts[x].parked >= uint32(e.cfg.ParkedCap) || e.crowdsParked(&e.insts[x]) {
		return none
	}
	p := &e.parked[n]
	e.parkedFree = p.next
	prev, next := e.parkedLast, none
	if t == none { // a load goes before the stores
		prev, next = e.parkedLoad, e.parkedFirst
		if prev != none {
			next = e.parked[prev].next
		}
		e.parkedLoad = n
	}
	*p = parked{
		waiting: true, req: *r, inst: x, transfer: t, layout: l, until: until,
		body:    append(p.body[:0], body...),
		results: p.results[:0],
		prev:    prev, next: next,
	}
	if prev == none {
		e.parkedFirst = n
	} else {
		e.parked[prev].next = n
	}
	if next == none {
		e.parkedLast = n
	} else {
		e.parked[next].prev = n
	}
	e.insts[x].parked++
	e.claims.change(e.insts[x].claim, claim{parked: 1})
	e.timers.set(uint32(len(e.transfers))+n, until)
	e.counters.Parked++
	return n
}

// unpark frees a place. What the request was granted stays with its transfer.
func (e *Engine) unpark(n uint32) {
	p := &e.parked[n]
	e.timers.clear(uint32(len(e.transfers)) + n)
	if e.parkedLoad == n {
		e.parkedLoad = p.prev // loads have only loads before them
	}
	if p.prev == none {
		e.parkedFirst = p.next
		e.memoryFreed = true // the next is not held up any more
	} else {
		e.parked[p.prev].next = p.next
	}
	if p.next == none {
		e.parkedLast = p.prev
	} else {
		e.parked[p.next].prev = p.prev
	}
	i := &e.insts[p.inst]
	i.parked--
	e.claims.change(i.claim, claim{parked: ^uint32(0)})
	p.waiting = false
	if cap(p.body) > parkedBodyKept {
		p.body = nil
	}
	p.next = e.parkedFree
	e.parkedFree = n
}

// cancelParked ends a waiting request without an answer.
func (e *Engine) cancelParked(n uint32) {
	t := e.parked[n].transfer
	e.unpark(n)
	if t != none {
		e.endTransfer(t)
	}
}

// cancelParkedOf ends all waiting requests of an instance.
func (e *Engine) cancelParkedOf(x uint32) {
	for n := e.parkedFirst; n != none; {
		next := e.parked[n].next
		if e.parked[n].inst == x {
			r := e.parked[n].req
			e.cancelParked(n)
			e.refuse(&r, proto.StatusNotRegistered)
		}
		n = next
	}
}

// retryParked serves waiting requests, in order, up to the first that still cannot be.
func (e *Engine) retryParked() {
	if !e.memoryFreed {
		return
	}
	budget := keysATurn
	for n := e.parkedFirst; n != none && budget > 0 && e.worthATry(n); n = e.parkedFirst {
		e.settleUses()
		budget -= 1 + e.parked[n].keys()
		if !e.tryParked(n, true) {
			break
		}
	}
	e.memoryFreed = e.parkedFirst != none && (budget <= 0 || e.evicting)
	e.again = e.again || e.memoryFreed
}

// keys is about how many keys a request has.
func (p *parked) keys() int { return len(p.body) / proto.KeySize }

// parkedTimeout answers a waiting request with what can be had now.
func (e *Engine) parkedTimeout(n uint32) {
	e.tryParked(n, false)
}

// tryParked carries out a waiting request. It returns false, and the request goes on
// waiting, when wait is set and memory is still short and may be freed.
func (e *Engine) tryParked(n uint32, wait bool) bool {
	p := &e.parked[n]
	c := e.connOf(p.req.conn)
	if c == nil {
		panic("engine: a request of a closed connection waits")
	}
	op := p.req.op
	if op == proto.OpPrepareStore {
		return e.tryPrepare(n, wait)
	}
	if op == proto.OpLookup {
		return e.tryLookup(c, n, wait)
	}
	if op != proto.OpPrepareRetrieve {
		panic("engine: a request waits that never does: " + op.String())
	}
	return e.tryRetrieve(c, n, wait)
}

// mustParse is for a body that was parsed before it was parked.
func mustParse(err error) {
	if err != nil {
		panic("engine: a parked request does not parse: " + err.Error())
	}
}

func (e *Engine) tryPrepare(n uint32, wait bool) bool {
	p := &e.parked[n]
	in, out := &e.in.prepare, &e.rep.prepare
	mustParse(proto.ParsePrepareStore(p.body, in))
	out.Results = append(out.Results[:0], p.results...)
	if short := e.reserve(p.transfer, p.layout, in, out, patience{wait: wait}); short > 0 {
		p.results = append(p.results[:0], out.Results...)
		e.mustFree(n, 0, short)
		return false
	}
	r, t := p.req, p.transfer
	e.unpark(n)
	e.granted(&r, t, out)
	return true
}

func (e *Engine) tryLookup(c *conn, n uint32, wait bool) bool {
	p := &e.parked[n]
	in := &e.in.lookup
	mustParse(proto.ParseLookup(p.body, in))
	a := e.lookupAcquisition(c, &p.req, p.layout, in)
	a.inst, a.until = p.inst, p.until
	return e.tryAcquire(&a, n, wait)
}

func (e *Engine) tryRetrieve(c *conn, n uint32, wait bool) bool {
	p := &e.parked[n]
	in := &e.in.retrieve
	mustParse(proto.ParsePrepareRetrieve(p.body, in))
	a := e.retrieveAcquisition(c, &p.req, p.layout, in)
	a.inst, a.until = p.inst, p.until
	return e.tryAcquire(&a, n, wait)
}

func (e *Engine) tryAcquire(a *acquisition, n uint32, wait bool) bool {
	t := e.beginTransfer(a.inst, a.kind)
	if t == none {
		e.unpark(n)
		e.refuse(&a.wait.req, proto.StatusBusy)
		return true
	}
	e.parked[n].tries++
	a.from = &e.parked[n].from
	wait = wait && e.parked[n].tries < triesMax
	if short := e.acquire(t, a, patience{wait: wait}); short > 0 {
		had := e.handBack(t)
		e.endTransfer(t)
		e.mustFree(n, had, short)
		return false
	}
	e.unpark(n)
	e.acquired(t, a)
	return true
}
