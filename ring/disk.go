package ring

import (
	"sync"
	"sync/atomic"
	"syscall"
)

// disk carries out operations of an Epoll on files, by system calls of goroutines that start as they are needed. Between
// add and hand, and after collect, an operation is the loop's, else a goroutine's; the mutex is held for a few words' copies.
type disk struct {
	epoll  *Epoll
	table  *opTable
	queued []uint32 // of this turn; the loop's
	taken  []uint32 // collect's

	finished atomic.Bool // done is not empty

	mutex    sync.Mutex
	work     sync.Cond
	queue    opQueue
	done     []uint32
	stats    Stats // of the operations in done
	idle     int   // goroutines that wait and that nobody has called
	workers  int
	most     int // workers there may be
	stopping bool
	group    sync.WaitGroup
}

// init makes room for ops operations.
func (d *disk) init(e *Epoll, ops, most int) {
	d.epoll, d.table, d.most = e, &e.table, most
	d.work.L = &d.mutex
	d.queue = newOpQueue(ops)
	d.queued, d.done, d.taken = make([]uint32, 0, ops), make([]uint32, 0, ops), make([]uint32, 0, ops)
}

// add keeps operation i until hand.
func (d *disk) add(i uint32) { d.queued = append(d.queued, i) }

// hand gives what was added to the goroutines.
func (d *disk) hand() {
	if len(d.queued) == 0 {
		return
	}
	d.mutex.Lock()
	for _, i := range d.queued {
		d.queue.push(i)
		switch {
		case d.idle > 0:
			d.idle--
			d.work.Signal()
		case d.workers < d.most:
			d.workers++
			d.group.Go(d.run)
		}
	}
	d.mutex.Unlock()
	d.queued = d.queued[:0]
}

// collect takes the operations that are done.
func (d *disk) collect() {
	if !d.finished.Load() {
		return
	}
	d.mutex.Lock()
	d.finished.Store(false)
	d.taken, d.done = d.done, d.taken[:0]
	s := &d.epoll.stats
	s.PlainIO += d.stats.PlainIO
	s.ShortIO += d.stats.ShortIO
	s.Retries += d.stats.Retries
	d.stats = Stats{}
	d.mutex.Unlock()
	for _, i := range d.taken {
		d.epoll.settle(i, d.table.ops[i].res)
	}
}

// run carries out operations until close.
func (d *disk) run() {
	var a account
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for {
		for d.queue.empty() && !d.stopping {
			d.idle++
			d.work.Wait()
		}
		if d.stopping {
			return
		}
		i := d.queue.pop()
		d.mutex.Unlock()
		o := &d.table.ops[i]
		o.res = a.carryOut(o)
		d.mutex.Lock()
		d.done = append(d.done, i)
		d.stats.PlainIO += a.stats.PlainIO
		d.stats.ShortIO += a.stats.ShortIO
		d.stats.Retries += a.stats.Retries
		a.stats = Stats{}
		if !d.finished.Swap(true) {
			d.mutex.Unlock()
			d.epoll.rouse()
			d.mutex.Lock()
		}
	}
}

// carryOut does all of an operation and returns its result.
func (a *account) carryOut(o *op) int32 {
	for {
		var n int
		var errno syscall.Errno
		switch o.code {
		case codeRead, codeWrite:
			a.stats.PlainIO++
			n, errno = fileIO(o.code == codeWrite, int(o.fd), o.rest(), o.off+int64(o.done))
		case codeSync:
			errno = syncFile(int(o.fd))
		case codeAccept, codeRecv, codeSendNow, codeSend, codeSendFD, codePoll, codeTimer, opCodes:
			panic("ring: an operation on no file")
		}
		res := outcome(n, errno)
		if o.code == codeSync {
			if !a.again(o, res) {
				return res
			}
		} else if res, over := a.continueFile(o, res); over {
			return res
		}
	}
}

// close ends the goroutines and waits for what they are in the middle of. What none has begun is dropped.
func (d *disk) close() {
	d.mutex.Lock()
	d.stopping = true
	d.mutex.Unlock()
	d.work.Broadcast()
	d.group.Wait()
}
