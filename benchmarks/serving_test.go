package benchmarks

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// A timeline collects requests of many that go on at the same time.
type timeline struct {
	r       *rand.Rand
	id      int
	at      []float64 // seconds
	request []Request
}

func (l *timeline) ask(at float64, blocks []uint64) {
	l.at = append(l.at, at)
	l.request = append(l.request, Request{blocks})
}

// own appends n blocks that nobody else has.
func (l *timeline) own(blocks []uint64, n int) []uint64 {
	l.id++
	return append(slices.Clip(blocks), document(fresh+l.id, n)...)
}

// pause is a random time with this median, now and then ten times as long.
func (l *timeline) pause(median float64) float64 { return median * math.Exp(l.r.NormFloat64()) }

func (l *timeline) ordered() []Request {
	order := make([]int, len(l.at))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(l.at[a], l.at[b]) })
	requests := make([]Request, len(order))
	for i, j := range order {
		requests[i] = l.request[j]
	}
	return requests
}

func serving(make func(l *timeline)) func(r *rand.Rand) []Request {
	return func(r *rand.Rand) []Request {
		l := &timeline{r: r}
		make(l)
		return l.ordered()
	}
}

// chats begin after one another, grow while their users think in between, and are given up.
func (l *timeline) chats(n int, every, think, drop float64, prompts *zipf) {
	at := 0.0
	for range n {
		at += every * l.r.ExpFloat64()
		blocks := document(prompts.draw(l.r), 5)
		for now := at; ; now += l.pause(think) {
			blocks = l.own(blocks, 1+l.r.IntN(5))
			l.ask(now, blocks)
			if l.r.Float64() < drop {
				break
			}
		}
	}
}

// agents call a tool after another: the same prefix comes back quickly, longer each time, dozens of
// times, and then never.
func (l *timeline) agents(n int, every, gap float64, steps, grow int, tools *zipf) {
	at := 0.0
	for range n {
		at += every * l.r.ExpFloat64()
		blocks := l.own(document(1<<20+tools.draw(l.r), 20), 1+l.r.IntN(4))
		now := at
		for range 1 + int(l.r.ExpFloat64()*float64(steps)) {
			l.ask(now, blocks)
			now += l.pause(gap)
			blocks = l.own(blocks, l.r.IntN(grow+1))
		}
	}
}

// completions are of users who type into one of their files at a time: what is before the cursor is asked for, and a
// change makes all blocks behind it others.
func (l *timeline) completions(users, requests int) {
	type user struct {
		files  [][]int // versions of the blocks
		file   int
		cursor int
		now    float64
	}
	all := make([]user, users)
	for i := range all {
		all[i] = user{files: make([][]int, 4), cursor: 1}
		for j := range all[i].files {
			all[i].files[j] = make([]int, 4+l.r.IntN(30))
		}
	}
	chains := make(map[[3]uint64]uint64) // user and file, the chain so far, the next version: the chain
	for range requests {
		n := l.r.IntN(users)
		u := &all[n]
		switch x := l.r.Float64(); {
		case x < 0.05:
			u.file = l.r.IntN(len(u.files))
			u.cursor = 1 + l.r.IntN(len(u.files[u.file]))
		case x < 0.12:
			u.cursor = 1 + l.r.IntN(len(u.files[u.file]))
		case x < 0.4:
			l.id++
			u.files[u.file][u.cursor-1] = l.id
		}
		blocks := document(1<<21, 2)
		chain := uint64(0)
		for _, version := range u.files[u.file][:u.cursor] {
			k := [3]uint64{uint64(n*len(u.files) + u.file), chain, uint64(version)}
			if chains[k] == 0 {
				chains[k] = uint64(fresh)<<20 + uint64(len(chains)+1)
			}
			chain = chains[k]
			blocks = append(blocks, chain)
		}
		u.now += l.pause(2)
		l.ask(u.now, blocks)
	}
}

// servingWorkloads are made after what language models are asked, of blocks of prompts.
var servingWorkloads = []workload{
	{"agents with few tools", serving(func(l *timeline) { l.agents(70, 20, 30, 20, 4, newZipf(2, 1)) })},
	{"agents and chats", serving(func(l *timeline) {
		l.chats(500, 4, 60, 0.3, newZipf(10, 1))
		l.agents(30, 70, 6, 15, 3, newZipf(5, 1))
	})},
	{"one-offs among chats", serving(func(l *timeline) {
		l.chats(450, 5, 60, 0.2, newZipf(10, 1))
		for i := range 1500 {
			l.ask(1.5*float64(i), l.own(nil, 1+l.r.IntN(32)))
		}
	})},
	{"code completion", serving(func(l *timeline) { l.completions(60, 5000) })},
	{"tenants with long prompts", func(r *rand.Rand) (q []Request) {
		z := newZipf(40, 0.7)
		for i := range 1500 {
			d := z.draw(r)
			q = append(q, Request{append(document(d, 25+d*37%50), document(fresh+i, 1+r.IntN(8))...)})
		}
		return q
	}},
	{"tasks of a batch in turn", func(r *rand.Rand) (q []Request) {
		for task := range 8 {
			n := 200 + r.IntN(400)
			for i := range 2 * n {
				q = append(q, Request{append(document(task, 10), document(1000*(task+1)+i%n, 4)...)})
			}
		}
		return q
	}},
	{"long documents asked again", serving(func(l *timeline) {
		for d := range 100 {
			blocks := append(document(1<<20, 3), document(d, 30+l.r.IntN(50))...)
			now := 10 * float64(d)
			for range 1 + int(l.r.ExpFloat64()*6) {
				l.ask(now, l.own(blocks, 1))
				now += l.pause(1000)
			}
		}
	})},
	{"samples of one prompt", serving(func(l *timeline) {
		now := 0.0
		for range 500 {
			now += 10 * l.r.ExpFloat64()
			blocks := l.own(document(l.r.IntN(3), 5), 2+l.r.IntN(12))
			for range 1 + l.r.IntN(14) {
				l.ask(now+8*l.r.Float64(), l.own(blocks, l.r.IntN(2)))
			}
		}
	})},
}
