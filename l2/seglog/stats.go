package seglog

// Stats are a log's gauges and counters (since [Recover]).
type Stats struct {
	Records, LiveBytes      uint64 // visible records and the bytes of their values
	DiskBytes               uint64 // bytes of all segment files
	Puts, PutBytes          uint64 // puts that became visible
	PutErrors, Superseded   uint64 // puts that failed, and that were overtaken
	Reads, ReadBytes        uint64 // reads verified
	ReadMisses, BadRecords  uint64 // reads that ended without a value; of these, records that failed to verify or read
	Rereads                 uint64 // reads verified that were not at first, but when the bytes were read once more
	ReadIOs                 uint64 // reads of files begun for them
	ReadDepths              uint64 // sum over these of how many were in flight as it began, it included
	Tombstones, Clears      uint64 // delete and clear records written
	NotDurable              uint64 // deletes and clears answered so
	EvictedSegments         uint64
	EvictedRecords          uint64
	Reinserted              uint64 // records that an eviction wrote anew instead of dropping them
	ReinsertedBytes         uint64 // and the bytes of their values
	WriteBytes              uint64 // all bytes written
	IOErrors                uint64
	Degradations            uint64 // times the state became degraded
	Stalls                  uint64 // times an I/O took too long
	InFlight, InFlightBytes uint64 // I/Os handed out, bytes of the reads and writes among them
	Queued, FencesOwed      uint64 // puts not yet given a place; fences not yet written
}

// A Damage tells of records that could not be read, or were not what was written, and are not found any more: how many there were since
// [Recover], and where the value of the last one is.
type Damage struct {
	Count uint64
	Addr  Addr
	Size  int64 // bytes
}

// Damage tells of the records that were found to be bad.
func (l *Log) Damage() Damage { return l.damage }

// damaged notes a bad record of segment i whose value begins at unit at.
func (l *Log) damaged(i, at uint32, size int64) {
	l.stats.BadRecords++
	l.damage = Damage{l.stats.BadRecords, Addr{l.segs[i].id, int64(at) * unit}, size}
}

// Stats returns gauges and counters.
func (l *Log) Stats() Stats {
	s := l.stats
	s.Records = uint64(l.index.used() - l.index.ghosts)
	s.LiveBytes = uint64(l.index.bytes)
	s.DiskBytes = uint64(l.diskBytes)
	s.InFlight = uint64(l.loads.ops + l.stores.ops)
	s.InFlightBytes = uint64(l.loads.bytes + l.stores.bytes)
	s.Queued = uint64(l.queue.n)
	s.FencesOwed = uint64(l.fenceQueue.n + l.fencesWriting)
	return s
}

// WriteAmplification is the bytes written for each byte of a put that became visible; 0 before the first.
func (s *Stats) WriteAmplification() float64 {
	if s.PutBytes == 0 {
		return 0
	}
	return float64(s.WriteBytes) / float64(s.PutBytes)
}
