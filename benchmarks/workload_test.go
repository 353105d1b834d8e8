package benchmarks

import (
	"math"
	"math/rand/v2"
	"sort"
)

// A workload makes requests of one kind, the same for the same seed.
type workload struct {
	name string
	make func(r *rand.Rand) []Request
}

// zipf draws ranks of n with probability 1/rank^s.
type zipf struct{ sum []float64 }

func newZipf(n int, s float64) *zipf {
	z := &zipf{sum: make([]float64, n)}
	total := 0.0
	for i := range z.sum {
		total += math.Pow(float64(i+1), -s)
		z.sum[i] = total
	}
	return z
}

func (z *zipf) draw(r *rand.Rand) int {
	return sort.SearchFloat64s(z.sum, r.Float64()*z.sum[len(z.sum)-1])
}

// document is the chain of n blocks of a document.
func document(id, n int) []uint64 {
	blocks := make([]uint64, n)
	for i := range blocks {
		blocks[i] = uint64(id)<<20 + uint64(i)
	}
	return blocks
}

const fresh = 1 << 30 // ids of documents from here on are used once

var workloads = []workload{
	{"sliding sessions", func(r *rand.Rand) (q []Request) {
		// 64 sessions at a time, each grows turn by turn and ends.
		type session struct{ id, n, turns int }
		live := make([]session, 64)
		id := 0
		for range 8000 {
			s := &live[r.IntN(len(live))]
			if s.turns == 0 {
				id++
				*s = session{id: id, n: 1 + r.IntN(6), turns: 2 + r.IntN(8)}
			}
			s.n += 1 + r.IntN(4)
			s.turns--
			q = append(q, Request{document(s.id, s.n)})
		}
		return q
	}},
	{"static zipf", func(r *rand.Rand) (q []Request) {
		z := newZipf(4000, 0.9)
		for range 12000 {
			d := z.draw(r)
			q = append(q, Request{document(d, 4+d%9)})
		}
		return q
	}},
	{"zipf and once", func(r *rand.Rand) (q []Request) {
		z := newZipf(1000, 1)
		for i := range 12000 {
			d := z.draw(r)
			if r.IntN(2) == 0 {
				d = fresh + i
			}
			q = append(q, Request{document(d, 8)})
		}
		return q
	}},
	{"scan and hot set", func(r *rand.Rand) (q []Request) {
		for i := range 12000 {
			if i/100%3 == 2 {
				q = append(q, Request{document(fresh+i, 10)})
			} else {
				q = append(q, Request{document(r.IntN(200), 10)})
			}
		}
		return q
	}},
	{"loop", func(*rand.Rand) (q []Request) {
		for i := range 10000 {
			q = append(q, Request{document(i%500, 8)})
		}
		return q
	}},
	{"loop and recency", func(r *rand.Rand) (q []Request) {
		for i := range 12000 {
			if i/3000%2 == 0 {
				q = append(q, Request{document(i%400, 8)})
			} else {
				q = append(q, Request{document(1000+i/8-r.IntN(20), 8)})
			}
		}
		return q
	}},
	{"popularity shifts", func(r *rand.Rand) (q []Request) {
		z := newZipf(800, 1.1)
		for i := range 12000 {
			q = append(q, Request{document(i/2000*1000+z.draw(r), 8)})
		}
		return q
	}},
	{"drifting popularity", func(r *rand.Rand) (q []Request) {
		z := newZipf(800, 1)
		for i := range 12000 {
			q = append(q, Request{document(i/4+z.draw(r), 6)})
		}
		return q
	}},
	{"branching prefixes", func(r *rand.Rand) (q []Request) {
		// A tree: 4 roots of 6 blocks, 8 children of 6 each, then 30 of 5, then a
		// tail that is used once.
		z := newZipf(30, 0.8)
		for i := range 10000 {
			a, b, c := r.IntN(4), r.IntN(8), z.draw(r)
			blocks := document(a, 6)
			blocks = append(blocks, document(100+a*8+b, 6)...)
			blocks = append(blocks, document(1000+(a*8+b)*30+c, 5)...)
			blocks = append(blocks, document(fresh+i, 3)...)
			q = append(q, Request{blocks})
		}
		return q
	}},
	{"chats with system prompts", func(r *rand.Rand) (q []Request) {
		type chat struct {
			blocks []uint64
			turns  int
		}
		live := make([]chat, 200)
		z := newZipf(30, 1)
		id := 0
		for range 10000 {
			c := &live[r.IntN(len(live))]
			if c.turns == 0 {
				*c = chat{blocks: document(z.draw(r), 8), turns: 1 + int(r.ExpFloat64()*4)}
			}
			id++
			c.blocks = append(c.blocks[:len(c.blocks):len(c.blocks)], document(fresh+id, 1+r.IntN(5))...)
			c.turns--
			q = append(q, Request{c.blocks})
		}
		return q
	}},
}

// decayed is a frequency that halves every so many requests, for ever remembered, as a
// reference: the block with the least goes, of equals the one that was not used longest.
type decayed struct {
	capacity int
	half     float64
	score    []float64 // the logarithm of the frequency at request 0
	heap     []scored
	cached   int
	in       []bool
}

type scored struct {
	score float64
	order int
	block uint32
}

func newDecayed(p *plan, capacity int, half float64) *decayed {
	d := &decayed{capacity: capacity, half: half, score: make([]float64, p.distinct), in: make([]bool, p.distinct)}
	for i := range d.score {
		d.score[i] = math.Inf(-1)
	}
	return d
}

func (d *decayed) request(i int, blocks []uint32) (hits int) {
	for hits < len(blocks) && d.in[blocks[hits]] {
		hits++
	}
	at := float64(i) / d.half
	for j := len(blocks) - 1; j >= 0; j-- {
		b := blocks[j]
		d.score[b] = at + math.Log2(1+math.Exp2(d.score[b]-at))
		if !d.in[b] {
			d.in[b] = true
			d.cached++
		}
		d.push(scored{score: d.score[b], order: i<<12 - j, block: b})
	}
	for d.cached > d.capacity {
		if s := d.pop(); d.in[s.block] && s.score == d.score[s.block] {
			d.in[s.block] = false
			d.cached--
		}
	}
	return hits
}

func (d *decayed) less(a, b int) bool {
	x, y := &d.heap[a], &d.heap[b]
	return x.score < y.score || x.score == y.score && x.order < y.order
}

func (d *decayed) push(s scored) {
	d.heap = append(d.heap, s)
	for i := len(d.heap) - 1; i > 0 && d.less(i, (i-1)/2); i = (i - 1) / 2 {
		d.heap[i], d.heap[(i-1)/2] = d.heap[(i-1)/2], d.heap[i]
	}
}

func (d *decayed) pop() scored {
	top, n := d.heap[0], len(d.heap)-1
	d.heap[0] = d.heap[n]
	d.heap = d.heap[:n]
	for i := 0; ; {
		at := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < n && d.less(down, at) {
				at = down
			}
		}
		if at == i {
			return top
		}
		d.heap[i], d.heap[at] = d.heap[at], d.heap[i]
		i = at
	}
}
