package seglog

import (
	"math"
	"time"
)

// A bucket holds bytes that may be written: Config.WriteLimit of them come in a second, and no more than that are kept. A write
// goes out if there are any, and may take more than there are, which the next ones wait for.
type bucket struct {
	rate   int64 // bytes a second; 0: no limit
	tokens int64
	at     time.Duration // filled up to this time
}

// fill adds what has come until now.
func (b *bucket) fill(now time.Duration) {
	if b.rate == 0 || now <= b.at {
		return
	}
	if now-b.at >= time.Second {
		b.at = now
		b.tokens = min(b.tokens+b.rate, b.rate)
		return
	}
	n := int64(float64(b.rate) * (now - b.at).Seconds())
	if n == 0 {
		return // together with what comes later
	}
	b.at = now
	b.tokens = min(b.tokens+n, b.rate)
}

// take counts a write of n bytes.
func (b *bucket) take(n int64) {
	if b.rate != 0 {
		b.tokens -= n
	}
}

// dry says that writes must wait.
func (b *bucket) dry() bool { return b.rate != 0 && b.tokens <= 0 }

// limited says whether values may not be written now because of Config.WriteLimit. Headers, footers and deletes always may, and
// count. A log that is closing writes as fast as it can.
func (l *Log) limited() bool { return l.phase == phaseOpen && l.limit.dry() }

// Throttled says that values wait to be written only because of Config.WriteLimit: a Tick lets them go on. The driver should not
// wait much longer with that than a second, or the limit is not made use of.
func (l *Log) Throttled() bool { return l.limited() && l.work.n+l.copyWork.n > 0 }

// freeUnknown stands for free space that nobody told of.
const freeUnknown = math.MaxInt64

// SetFree tells how many bytes the file system has free, for what the log does from now on: a segment file is created only if
// Config.FreeMin bytes stay free. Else the store makes do with the files it has and evicts, or, if it has none, is degraded. The
// driver calls it after [Recover] and whenever it knows better, at least before the Done of each IOCreate, IORemove and IOSpace.
func (l *Log) SetFree(n int64) {
	l.free = max(n, 0)
	l.freeAt = l.now + fileRetry
}

// askFree asks the driver what the file system has free, where it had no room for a file when somebody looked last, which was a
// while ago. It says whether there is an answer to wait for.
func (l *Log) askFree() bool {
	if !l.asking && l.now >= l.freeAt {
		l.asking = true
		l.freeAt = l.now + fileRetry
		l.control.push(task{use: useSpace})
	}
	return l.asking
}

// freeTold takes the end of askFree. Where the driver could not tell, it is asked again later.
func (l *Log) freeTold() { l.asking = false }

// Cramped says that the store is smaller than Config.Size for want of free space: when it last wanted another file there was none.
func (l *Log) Cramped() bool { return l.cramped }

// roomInSize says whether Config.Size has room for another segment file.
func (l *Log) roomInSize() bool { return l.diskBytes+l.cfg.SegmentSize <= l.cfg.Size }

// freeForFile says whether the file system has.
func (l *Log) freeForFile() bool {
	return l.free == freeUnknown || l.free-l.cfg.SegmentSize >= l.cfg.FreeMin
}
