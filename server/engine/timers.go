package engine

import "time"

// timers is a binary heap of deadlines, one for each of a fixed set of things known by
// index. Setting, moving and clearing cost O(log n) and allocate nothing.
type timers struct {
	at   []time.Duration // by thing
	pos  []int32         // by thing: its place in heap, or -1
	heap []uint32        // things, earliest first
}

func newTimers(n int) timers {
	t := timers{
		at:   make([]time.Duration, n),
		pos:  make([]int32, n),
		heap: make([]uint32, 0, n),
	}
	for i := range t.pos {
		t.pos[i] = -1
	}
	return t
}

// set gives thing i the deadline at, whether or not it had one.
func (t *timers) set(i uint32, at time.Duration) {
	t.at[i] = at
	if t.pos[i] < 0 {
		t.pos[i] = int32(len(t.heap))
		t.heap = append(t.heap, i)
	}
	t.down(t.up(int(t.pos[i])))
}

// clear takes thing i's deadline away, if it has one.
func (t *timers) clear(i uint32) {
	p := int(t.pos[i])
	if p < 0 {
		return
	}
	t.pos[i] = -1
	last := len(t.heap) - 1
	moved := t.heap[last]
	t.heap = t.heap[:last]
	if p == last {
		return
	}
	t.heap[p] = moved
	t.pos[moved] = int32(p)
	t.down(t.up(p))
}

// next is the earliest deadline.
func (t *timers) next() (time.Duration, bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.at[t.heap[0]], true
}

// due takes one thing whose deadline is not after now.
func (t *timers) due(now time.Duration) (uint32, bool) {
	if len(t.heap) == 0 || t.at[t.heap[0]] > now {
		return 0, false
	}
	i := t.heap[0]
	t.clear(i)
	return i, true
}

func (t *timers) up(p int) int {
	for p > 0 {
		q := (p - 1) / 2
		if t.at[t.heap[q]] <= t.at[t.heap[p]] {
			break
		}
		t.swap(p, q)
		p = q
	}
	return p
}

func (t *timers) down(p int) {
	for {
		q := 2*p + 1
		if q >= len(t.heap) {
			return
		}
		if q+1 < len(t.heap) && t.at[t.heap[q+1]] < t.at[t.heap[q]] {
			q++
		}
		if t.at[t.heap[p]] <= t.at[t.heap[q]] {
			return
		}
		t.swap(p, q)
		p = q
	}
}

func (t *timers) swap(p, q int) {
	t.heap[p], t.heap[q] = t.heap[q], t.heap[p]
	t.pos[t.heap[p]], t.pos[t.heap[q]] = int32(p), int32(q)
}
