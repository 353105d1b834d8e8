package ring

import (
	"golang.org/x/sys/unix"
)

// sector is the least unit of direct I/O: a read that ends elsewhere ended at the end of the file.
const sector = 512

// retriesMax is how often in a row an operation is tried again that the kernel interrupted or turned away.
const retriesMax = 100

// recvsMax is how many buffers a turn fills from a connection that has more: so much of a peer's is taken before its receive can be
// paused.
const recvsMax = 8

// An account judges what the kernel made of an operation's tries, and counts. It is where the rules of short, interrupted and
// refused I/O are, whatever carries it out.
type account struct {
	stats   Stats
	closing bool // nothing is tried again or continued
}

// again tells whether o is to be tried again after res.
func (a *account) again(o *op, res int32) bool {
	if res != -int32(unix.EINTR) && res != -int32(unix.EAGAIN) {
		o.retries = 0
		return false
	}
	if a.closing || o.state == opPausing || o.retries == retriesMax {
		return false
	}
	o.retries++
	a.stats.Retries++
	return true
}

// advance counts the bytes that a submission of o has moved. It returns o's result, or false if there is more to move.
func (a *account) advance(o *op, res int32) (int32, bool) {
	o.retries = 0
	o.done += int(res)
	if o.done == len(o.buf) || a.closing {
		return int32(o.done), true
	}
	if int(res) < o.chunk {
		a.stats.ShortIO++
	}
	return 0, false
}

// continueSend takes the result of a submission of o. It returns o's result, or false if there is more to send.
func (a *account) continueSend(o *op, res int32) (int32, bool) {
	switch {
	case res < 0:
		return res, !a.again(o, res)
	case res == 0 && o.chunk > 0:
		return -int32(unix.EIO), true
	}
	return a.advance(o, res)
}

// continueFile takes the result of a submission of o, a read or a write. It returns o's result, or false if there is more to do.
func (a *account) continueFile(o *op, res int32) (int32, bool) {
	read := o.code == codeRead
	switch {
	case res == -int32(unix.EINVAL) && read && o.done%sector != 0:
		return int32(o.done), true // the end of the file, and direct I/O does not start there
	case res < 0:
		return res, !a.again(o, res)
	case res == 0 && read:
		return int32(o.done), true
	case res == 0 && o.chunk > 0:
		return -int32(unix.EIO), true
	}
	return a.advance(o, res)
}
