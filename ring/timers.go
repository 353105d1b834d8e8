package ring

import (
	"math"
	"time"
)

// timerHeap holds the timers of an Epoll, the first due on top.
type timerHeap struct {
	heap []uint32        // operations
	due  []time.Duration // by operation
	at   []int32         // where it is in heap, by operation
}

func newTimerHeap(ops int) timerHeap {
	return timerHeap{heap: make([]uint32, 0, ops), due: make([]time.Duration, ops), at: make([]int32, ops)}
}

// never is longer than any machine runs, and to be added without a look at the largest number.
const never = 1 << 62

// push adds operation i, which is due when d has passed from now.
func (t *timerHeap) push(i uint32, now, d time.Duration) {
	t.due[i] = now + min(max(d, 0), never)
	t.heap = append(t.heap, i)
	t.up(len(t.heap) - 1)
}

// remove takes operation i out.
func (t *timerHeap) remove(i uint32) {
	at, last := int(t.at[i]), len(t.heap)-1
	moved := t.heap[last]
	t.heap = t.heap[:last]
	if at == last {
		return
	}
	t.put(at, moved)
	t.up(at)
	t.down(int(t.at[moved]))
}

// put has operation i at a place.
func (t *timerHeap) put(at int, i uint32) {
	t.heap[at], t.at[i] = i, int32(at)
}

// up moves what is at a place to the top as far as it belongs.
func (t *timerHeap) up(at int) {
	i := t.heap[at]
	for at > 0 {
		parent := (at - 1) / 2
		if t.due[t.heap[parent]] <= t.due[i] {
			break
		}
		t.put(at, t.heap[parent])
		at = parent
	}
	t.put(at, i)
}

// down moves what is at a place away from the top as far as it belongs.
func (t *timerHeap) down(at int) {
	i := t.heap[at]
	for {
		child := 2*at + 1
		if child >= len(t.heap) {
			break
		}
		if child+1 < len(t.heap) && t.due[t.heap[child+1]] < t.due[t.heap[child]] {
			child++
		}
		if t.due[i] <= t.due[t.heap[child]] {
			break
		}
		t.put(at, t.heap[child])
		at = child
	}
	t.put(at, i)
}

// wait is for how many milliseconds nothing is due, rounded up; negative if there are no timers.
func (t *timerHeap) wait(e *Epoll) int {
	if len(t.heap) == 0 {
		return -1
	}
	left := max(t.due[t.heap[0]]-e.now(), 0)
	return int(min((left+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
}

// expire ends the timers that are due, in the order of their times.
func (t *timerHeap) expire(e *Epoll) {
	if len(t.heap) == 0 {
		return
	}
	for now := e.now(); len(t.heap) > 0 && t.due[t.heap[0]] <= now; {
		i := t.heap[0]
		t.remove(i)
		e.settle(i, 0)
	}
}
