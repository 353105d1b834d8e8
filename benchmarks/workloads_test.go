package benchmarks

import "math/rand/v2"

// turns are sessions, so many at a time, that grow turn by turn and end.
func turns(live, requests, turnsMax int) func(r *rand.Rand) []Request {
	return func(r *rand.Rand) (q []Request) {
		type session struct{ id, n, turns int }
		s := make([]session, live)
		id := 0
		for range requests {
			s := &s[r.IntN(live)]
			if s.turns == 0 {
				id++
				*s = session{id: id, n: 1 + r.IntN(6), turns: 1 + r.IntN(turnsMax)}
			}
			s.n += 1 + r.IntN(4)
			s.turns--
			q = append(q, Request{document(s.id, s.n)})
		}
		return q
	}
}

// zipfs are documents of one length; every shift requests others are popular, if it is not 0.
func zipfs(docs int, s float64, requests, length, shift int) func(r *rand.Rand) []Request {
	return func(r *rand.Rand) (q []Request) {
		z := newZipf(docs, s)
		for i := range requests {
			base := 0
			if shift > 0 {
				base = i / shift * docs
			}
			q = append(q, Request{document(base+z.draw(r), length)})
		}
		return q
	}
}

// loopAndRecency are a loop and a window that slides, in turn.
func loopAndRecency(phase, requests int) func(r *rand.Rand) []Request {
	return func(r *rand.Rand) (q []Request) {
		for i := range requests {
			if i/phase%2 == 0 {
				q = append(q, Request{document(i%400, 8)})
			} else {
				q = append(q, Request{document(1000+i/8-r.IntN(20), 8)})
			}
		}
		return q
	}
}

// alternate are two kinds of requests in turn, of different documents.
func alternate(phase, requests int, a, b func(r *rand.Rand) []Request) func(r *rand.Rand) []Request {
	return func(r *rand.Rand) (q []Request) {
		x, y := a(r), b(r)
		for i := range y {
			y[i] = Request{append([]uint64{}, y[i].Blocks...)}
			for j := range y[i].Blocks {
				y[i].Blocks[j] |= 1 << 62
			}
		}
		for i := range requests {
			src := &x
			if i/phase%2 == 1 {
				src = &y
			}
			q = append(q, (*src)[0])
			*src = (*src)[1:]
		}
		return q
	}
}

// otherWorkloads are short ones, long ones, and some whose kind changes.
var otherWorkloads = []workload{
	{"short zipf", zipfs(600, 0.9, 2000, 6, 0)},
	{"short sessions", turns(30, 2000, 8)},
	{"short chats", turns(100, 2000, 20)},
	{"short mix", alternate(100, 2000, zipfs(300, 1, 2000, 5, 0), turns(20, 2000, 5))},
	{"long zipf", zipfs(20000, 0.8, 40000, 5, 0)},
	{"long steep zipf", zipfs(20000, 1.2, 40000, 4, 0)},
	{"long sessions", turns(400, 12000, 20)},
	{"zipf shifts fast", zipfs(500, 1.0, 12000, 8, 500)},
	{"zipf shifts slow", zipfs(2000, 1.0, 24000, 5, 8000)},
	{"phases long", alternate(8000, 32000, zipfs(3000, 0.9, 32000, 5, 0), turns(64, 32000, 8))},
	{"phases short", alternate(500, 12000, zipfs(1000, 0.9, 12000, 6, 0), turns(64, 12000, 8))},
	{"loop and recency long", loopAndRecency(12000, 36000)},
	{"small loop", func(r *rand.Rand) (q []Request) {
		for i := range 6000 {
			q = append(q, Request{document(i%60, 4)})
		}
		return q
	}},
	{"loop with noise", func(r *rand.Rand) (q []Request) {
		for i := range 12000 {
			d := i % 500
			if r.IntN(3) == 0 {
				d = fresh + i
			}
			q = append(q, Request{document(d, 6)})
		}
		return q
	}},
	{"uniform", func(r *rand.Rand) (q []Request) {
		for range 12000 {
			q = append(q, Request{document(r.IntN(1500), 6)})
		}
		return q
	}},
	{"recency zipf", func(r *rand.Rand) (q []Request) {
		// The number of others that were used since the last use follows a zipf.
		z := newZipf(3000, 1.1)
		stack := make([]int, 3000)
		for i := range stack {
			stack[i] = i
		}
		for range 12000 {
			k := z.draw(r)
			d := stack[k]
			copy(stack[1:k+1], stack[:k])
			stack[0] = d
			q = append(q, Request{document(d, 5)})
		}
		return q
	}},
	{"scan through a working set", func(r *rand.Rand) (q []Request) {
		z := newZipf(600, 0.7)
		for i := range 16000 {
			if i/1000%4 == 3 {
				q = append(q, Request{document(fresh+i, 12)})
			} else {
				q = append(q, Request{document(z.draw(r), 6)})
			}
		}
		return q
	}},
	{"single blocks zipf", zipfs(8000, 0.9, 60000, 1, 0)},
	{"templates and long tails", func(r *rand.Rand) (q []Request) {
		z := newZipf(100, 1.2)
		for i := range 8000 {
			q = append(q, Request{append(document(z.draw(r), 10), document(fresh+i, 1+int(r.ExpFloat64()*20))...)})
		}
		return q
	}},
}
