package ring

// An opQueue is a queue of operations with room for all there are.
type opQueue struct {
	ops        []uint32
	mask       uint32
	head, tail uint32
}

func newOpQueue(n int) opQueue {
	size := 1
	for size < n {
		size <<= 1
	}
	return opQueue{ops: make([]uint32, size), mask: uint32(size - 1)}
}

func (q *opQueue) len() int    { return int(q.tail - q.head) }
func (q *opQueue) empty() bool { return q.tail == q.head }

// push adds an operation behind the others.
func (q *opQueue) push(i uint32) {
	if q.len() == len(q.ops) {
		panic("ring: more operations than there are")
	}
	q.ops[q.tail&q.mask] = i
	q.tail++
}

// pop takes the first operation, which must be there.
func (q *opQueue) pop() uint32 {
	i := q.ops[q.head&q.mask]
	q.head++
	return i
}
