package benchmarks

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/slotcache/slotcache/l1/table"
)

// A HitRatio is how much of a trace a cache serves. The ratio is that of prefix hits, the
// leading blocks of a request that are cached, to all blocks.
type HitRatio struct {
	Trace    string  `json:"trace"`
	Capacity float64 `json:"capacity"` // share of the trace's distinct blocks
	Policy   string  `json:"policy"`
	Ratio    float64 `json:"prefix_hit_ratio"`
}

// Optimum is the name of the policy that knows the future.
const Optimum = "optimum"

// HitRatioOptions say what [HitRatios] replays. Every policy sees every capacity.
type HitRatioOptions struct {
	Trace      string    // as it is told in the results
	Capacities []float64 // shares of the distinct blocks, above 0
	Policies   []string  // names of the table's policies, and Optimum
	BlockSize  int64     // bytes; entries of the table go by it as the server's do
	Show       func(done, total int)
}

// showEvery is how many requests pass between two calls of Show.
const showEvery = 256

// HitRatios replays a trace, request by request, through the table that the server keeps its
// objects in: the blocks that are not there are staged, and then all are used as one chain, the tail
// first: those are published, and the leading ones that were there touched. So it is when a worker
// gives back what it found once it has stored the rest. The capacity is that of the cache after each request;
// while one is carried out, the pool has room for it besides.
func HitRatios(ctx context.Context, requests []Request, opts HitRatioOptions) ([]HitRatio, error) {
	p := newPlan(requests)
	var results []HitRatio
	total := len(opts.Policies) * len(opts.Capacities) * len(requests)
	done := 0
	for _, name := range opts.Policies {
		for _, share := range opts.Capacities {
			blocks := max(int(share*float64(p.distinct)), 1)
			var c prefixCache
			if name == Optimum {
				c = newOptimum(p, blocks)
			} else {
				policy, err := table.ParsePolicy(name)
				if err != nil {
					return nil, fmt.Errorf("hit ratio: %w", err)
				}
				c = newTableCache(policy, blocks, opts.BlockSize, p)
			}
			hits := 0
			for i := range p.requests {
				if i%showEvery == 0 {
					if ctx.Err() != nil {
						return nil, ctx.Err()
					}
					if opts.Show != nil {
						opts.Show(done+i, total)
					}
				}
				hits += c.request(i, p.requests[i])
			}
			done += len(requests)
			results = append(results, HitRatio{
				Trace: opts.Trace, Capacity: share, Policy: name, Ratio: ratio(int64(hits), int64(p.blocks)),
			})
		}
	}
	if opts.Show != nil {
		opts.Show(total, total)
	}
	return results, nil
}

// A prefixCache serves requests of blocks and says how many leading ones it had.
type prefixCache interface {
	request(i int, blocks []uint32) (hits int)
}

// A plan is a trace with its blocks numbered from 0 on.
type plan struct {
	requests [][]uint32
	distinct int
	blocks   int
}

func newPlan(requests []Request) *plan {
	p := &plan{requests: make([][]uint32, len(requests))}
	numbers := make(map[uint64]uint32)
	for i := range requests {
		ids := requests[i].Blocks
		p.blocks += len(ids)
		p.requests[i] = make([]uint32, len(ids))
		for j, id := range ids {
			n, ok := numbers[id]
			if !ok {
				n = uint32(len(numbers))
				numbers[id] = n
			}
			p.requests[i][j] = n
		}
	}
	p.distinct = len(numbers)
	return p
}

// A tableCache is the server's table with a pool of so many blocks. Each is a unit of it, whatever it would be in the server's: no
// rule looks at sizes, and the pool need be no larger than any.
type tableCache struct {
	table  *table.Table
	most   int64 // bytes cached after a request
	staged []table.Ref
}

const (
	// objectBytes is how many bytes of pool the server has an entry for by default, and entriesMax how many entries at most.
	objectBytes = 8 << 10
	entriesMax  = 1 << 21
)

func newTableCache(policy table.Policy, blocks int, size int64, p *plan) *tableCache {
	longest := 0
	for i := range p.requests {
		longest = max(longest, len(p.requests[i]))
	}
	most := int64(blocks) * table.Unit
	pool := most + int64(longest)*table.Unit
	entries := min(max(int64(blocks)*table.Footprint(size)/objectBytes, 1024), entriesMax)
	c := &tableCache{most: most, staged: make([]table.Ref, 0, longest), table: table.New(table.Config{
		Size: pool, MaxObjects: max(int(entries), blocks) + longest, Policy: policy, Seed: 1,
	})}
	c.table.Grow(pool)
	return c
}

func blockKey(block uint32) (k table.Key) {
	binary.LittleEndian.PutUint64(k.Hash[:], uint64(block))
	return k
}

func (c *tableCache) request(_ int, blocks []uint32) (hits int) {
	c.staged = c.staged[:0]
	for _, b := range blocks {
		k := blockKey(b)
		ref, state, ok := c.table.Find(&k)
		if !ok || state != table.StateReady {
			break
		}
		c.staged = append(c.staged, ref)
	}
	hits = len(c.staged)
	for _, b := range blocks[hits:] {
		k := blockKey(b)
		ref, _, res := c.table.Stage(&k, table.Unit)
		for res == table.Again {
			ref, _, res = c.table.Stage(&k, table.Unit)
		}
		switch res {
		case table.Staged, table.ExistsReady:
			c.staged = append(c.staged, ref)
		case table.ExistsBusy, table.NoSpace, table.TooLarge, table.Again:
		}
	}
	c.table.Chain()
	for i := len(c.staged) - 1; i >= 0; i-- {
		if ref := c.staged[i]; c.table.State(ref) == table.StateReady {
			c.table.Touch(ref)
		} else {
			c.table.Publish(ref, false)
		}
	}
	for before := uint64(0); !c.table.Trim(c.most); {
		if now := c.table.Usage().Evictions; now == before {
			panic("benchmarks: nothing may be evicted")
		} else {
			before = now
		}
	}
	return hits
}

// An optimum evicts what is used next the furthest in the future, the tail of a prefix
// before its head (Belady). Nothing serves more of requests in which a block always has the same
// blocks before it, as it has if its id stands for a prefix.
type optimum struct {
	capacity int
	next     [][]uint32 // for each block of each request, the request that uses it next
	until    []uint32   // for each block, when it is used next; 0: it is not cached
	heap     []use
	cached   int
}

// A use is a block that was cached when its next use was at a request.
type use struct {
	at, depth, block uint32
}

func (u *use) before(v *use) bool { return u.at > v.at || u.at == v.at && u.depth > v.depth }

func newOptimum(p *plan, capacity int) *optimum {
	o := &optimum{capacity: capacity, next: make([][]uint32, len(p.requests)), until: make([]uint32, p.distinct)}
	at := make([]uint32, p.distinct)
	for i := range at {
		at[i] = math.MaxUint32
	}
	for i := len(p.requests) - 1; i >= 0; i-- {
		o.next[i] = make([]uint32, len(p.requests[i]))
		for j, b := range p.requests[i] {
			o.next[i][j] = at[b]
		}
		for _, b := range p.requests[i] { // a block may be there twice, and is used next by another request all the same
			at[b] = uint32(i)
		}
	}
	return o
}

func (o *optimum) request(i int, blocks []uint32) (hits int) {
	for hits < len(blocks) && o.until[blocks[hits]] != 0 {
		hits++
	}
	for depth, b := range blocks {
		if o.until[b] == 0 {
			o.cached++
		}
		o.until[b] = o.next[i][depth]
		o.push(use{at: o.next[i][depth], depth: uint32(depth), block: b})
	}
	for o.cached > o.capacity {
		u := o.pop()
		if o.until[u.block] == u.at { // not used again since
			o.until[u.block] = 0
			o.cached--
		}
	}
	return hits
}

func (o *optimum) push(u use) {
	o.heap = append(o.heap, u)
	h := o.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (o *optimum) pop() use {
	h := o.heap
	top, n := h[0], len(h)-1
	h[0] = h[n]
	o.heap = h[:n]
	for i := 0; ; {
		at := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < n && h[down].before(&h[at]) {
				at = down
			}
		}
		if at == i {
			return top
		}
		h[i], h[at] = h[at], h[i]
		i = at
	}
}
