package seglog

// ReadClasses is how many classes of readers there are: see [Log.ReadFor].
const ReadClasses = 16

// A readQueue has the reads with pieces to hand out: a list for each class, which take turns, piece by piece. So one who reads
// little does not wait behind all that another one wants.
type readQueue struct {
	classes [ReadClasses]list
	n       int
	turn    uint8 // the class whose turn it is, if it has a read
}

// push appends read i.
func (q *readQueue) push(p *pool[read], i uint32) {
	q.classes[p.at(i).class].push(p.links, i)
	q.n++
}

// remove takes read i out; it must be in the queue.
func (q *readQueue) remove(p *pool[read], i uint32) {
	q.classes[p.at(i).class].remove(p.links, i)
	q.n--
}

// head is the read whose turn it is, or 0.
func (q *readQueue) head() uint32 {
	if q.n == 0 {
		return 0
	}
	for q.classes[q.turn].n == 0 {
		q.turn = (q.turn + 1) % ReadClasses
	}
	return q.classes[q.turn].head
}

// pass gives the turn on.
func (q *readQueue) pass() { q.turn = (q.turn + 1) % ReadClasses }
