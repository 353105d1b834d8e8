package seglog

import (
	"errors"
	"fmt"
	"slices"
)

// sequenceGap is left between the highest sequence or generation seen and the first given: a file that could not be read this
// time, and can be the next, shall not hold records that are younger than what is written from now on.
const (
	sequenceGap   = 1 << 32
	generationGap = 1 << 16
)

// A found is a segment file as recovery sees it.
type found struct {
	head   segmentHead
	id     SegmentID
	size   int64
	valid  bool  // the first block is one of this store
	unread bool  // something could not be read: another time it may be
	why    error // why it is not valid
}

// recovery is the work of [Recover].
type recovery struct {
	l          *Log
	dev        Reader
	report     Report
	tombstones map[digest]uint64 // the highest sequence of each
	spare      []record          // memory for the records of the next segment
}

// Recover reads what dev holds and returns the log that continues it. A file that is garbage, torn, half or of another version or
// store is listed in the Report and reused; it is an error only if the files cannot be listed, or of cfg ([ErrConfig]).
func Recover(cfg Config, dev Reader) (*Log, Report, error) {
	if _, err := cfg.withDefaults(0); err != nil {
		return nil, Report{}, err
	}
	rec := &recovery{dev: dev, tombstones: make(map[digest]uint64)}
	files, err := rec.survey(&cfg)
	if err != nil {
		return nil, Report{}, err
	}
	segmentSize := int64(0)
	for i := range files {
		if files[i].valid {
			segmentSize = files[i].head.size // of the newest
			break
		}
	}
	cfg, err = cfg.withDefaults(segmentSize)
	if err != nil {
		return nil, Report{}, err
	}
	if cfg.StoreID == [16]byte{} {
		cfg.StoreID = cfg.Nonce()
	}
	count := int(cfg.Size / cfg.SegmentSize)
	rec.l = newLog(cfg, max(count, len(files)))
	rec.adopt(files, count)
	rec.finish()
	return rec.l, rec.report, nil
}

// survey reads all first blocks. It returns the files, valid ones first and the newest of them first.
func (rec *recovery) survey(cfg *Config) ([]found, error) {
	ids, err := rec.dev.Segments()
	if err != nil {
		return nil, fmt.Errorf("l2/seglog: list segments: %w", err)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	rec.report.Segments = len(ids)
	files := make([]found, 0, len(ids))
	for _, id := range ids {
		files = append(files, rec.look(id, cfg.Arena[:BlockSize]))
	}
	slices.SortStableFunc(files, func(a, b found) int {
		switch {
		case a.valid != b.valid:
			if a.valid {
				return -1
			}
			return 1
		case a.head.generation > b.head.generation:
			return -1
		case a.head.generation < b.head.generation:
			return 1
		}
		return 0
	})
	if cfg.StoreID == [16]byte{} && len(files) > 0 && files[0].valid {
		cfg.StoreID = files[0].head.storeID
	}
	kept, oldest := 0, uint64(0)
	for i := range files {
		f := &files[i]
		switch {
		case !f.valid:
		case f.head.storeID != cfg.StoreID:
			f.valid, f.why = false, errors.New("of another store")
		case kept > 0 && files[kept-1].head.generation == f.head.generation:
			f.valid, f.why = false, fmt.Errorf("the same generation as segment %d", files[kept-1].id)
		case f.head.generation < oldest:
			// It could not be read when a life began, and all that could was younger: what stood against its records may be gone.
			f.valid, f.why = false, errors.New("from before what was reclaimed since")
		default:
			oldest = max(oldest, f.head.oldest)
			files[i], files[kept] = files[kept], files[i]
			kept++
		}
	}
	return files, nil
}

// look reads a file's size and first block.
func (rec *recovery) look(id SegmentID, p []byte) found {
	f := found{id: id}
	if f.size, f.why = rec.dev.Size(id); f.why != nil {
		f.unread = true
		return f
	}
	if f.size < BlockSize {
		f.why = fmt.Errorf("%d bytes are less than a block", f.size)
		return f
	}
	n, err := rec.dev.ReadAt(id, p, 0)
	rec.report.BytesScanned += int64(n)
	if n < BlockSize {
		f.unread, f.why = true, fmt.Errorf("read the first block: %w", orShort(err))
		return f
	}
	f.head, f.why = parseSegmentHead(p)
	if errors.Is(f.why, errBlank) && rec.used(id, f.size, p) {
		f.why = errMagic
	}
	switch {
	case f.why != nil:
	case f.head.id != id:
		f.why = fmt.Errorf("says it is segment %d", f.head.id)
	case f.head.size != f.size:
		f.why = fmt.Errorf("%d bytes, says it has %d", f.size, f.head.size)
	default:
		f.valid = true
	}
	return f
}

// used reports whether a file whose first block is blank has something in the second one, where the first group lies: then it has
// lost a head, and is not one that was never written.
func (rec *recovery) used(id SegmentID, size int64, p []byte) bool {
	if size < 2*BlockSize {
		return false
	}
	n, _ := rec.dev.ReadAt(id, p, BlockSize) // what cannot be read is not known to be blank
	rec.report.BytesScanned += int64(n)
	return n < BlockSize || !blank(p)
}

// errShort stands for a read that ended early without saying why.
var errShort = errors.New("short read")

func orShort(err error) error {
	if err == nil {
		return errShort
	}
	return err
}

// adopt gives every file its segment and loads those that count, the newest first.
func (rec *recovery) adopt(files []found, count int) {
	l := rec.l
	full, kept := false, 0
	for i := range files {
		f, s := &files[i], &l.segs[i]
		s.id, s.bytes = f.id, f.size
		l.diskBytes += f.size
		if f.valid {
			l.generation = max(l.generation, f.head.generation)
			l.seq = max(l.seq, f.head.seq)
		}
		switch {
		case f.valid && f.size == l.cfg.SegmentSize && kept < count && !full:
			s.generation, s.nonce = f.head.generation, f.head.nonce
			full = !rec.load(uint32(i))
			kept++
		case f.valid && f.size == l.cfg.SegmentSize && kept < count:
			// Older than one that was left out: so must this be, lest eviction lose its order.
			s.generation = f.head.generation
			rec.drop(uint32(i))
			kept++
		case f.valid:
			// What it says of older ones, which were deleted, is not looked at: these must go too.
			full = true
			s.generation = f.head.generation
			s.state = segmentAlien
			l.setStale(uint32(i), true)
			rec.ignore(f.id, fmt.Errorf("%d bytes: the store has %d segments of %d", f.size, count, l.cfg.SegmentSize))
		default:
			s.state = segmentAlien
			if f.size == l.cfg.SegmentSize && !f.unread && kept < count {
				s.state = segmentFree
				kept++
			}
			l.setStale(uint32(i), true)
			rec.ignore(f.id, f.why)
		}
		if l.cfg.Progress != nil {
			l.cfg.Progress(i+1, len(files), l.index.used())
		}
	}
	// The rest have no file, and take the lowest numbers that are left.
	taken := make(map[SegmentID]bool, len(files))
	for i := range files {
		taken[files[i].id] = true
	}
	next := SegmentID(0)
	for i := len(files); i < len(l.segs); i++ {
		for taken[next] {
			next++
		}
		l.segs[i].id = next
		next++
	}
}

// ignore lists a file in the report.
func (rec *recovery) ignore(id SegmentID, why error) {
	if errors.Is(why, errBlank) {
		return // a file that was made and not needed yet: nothing is amiss
	}
	rec.report.Ignored = append(rec.report.Ignored, fmt.Sprintf("segment %d: %v", id, why))
}

// drop leaves segment i out of the index.
func (rec *recovery) drop(i uint32) {
	rec.l.segs[i].state = segmentFree
	rec.l.setStale(i, true)
	rec.report.Dropped++
}

// load enters segment i's records. False: the index is too small for them, and the segment is dropped.
func (rec *recovery) load(i uint32) bool {
	l := rec.l
	s := &l.segs[i]
	sc := scanner{dev: rec.dev, l: l, s: s, report: &rec.report}
	s.log, rec.spare = rec.spare, nil
	defer func() {
		if s.state != segmentSealing { // which needs them for its footer
			s.log, rec.spare = nil, s.log[:0]
		}
	}()
	sealed := sc.footer()
	if !sealed {
		s.log = s.log[:0]
		sc.groups()
	}
	for k := range s.log {
		r := &s.log[k]
		l.seq = max(l.seq, r.seq)
		switch r.kind {
		case recordPut:
		case recordTombstone:
			rec.report.Tombstones++
			d := l.index.digest(&r.key)
			rec.tombstones[d] = max(rec.tombstones[d], r.seq)
		case recordClear:
			rec.report.Tombstones++
			l.cleared[r.key.Namespace] = max(l.cleared[r.key.Namespace], r.seq)
		case recordClearAll:
			rec.report.Tombstones++
			l.clearedAll = max(l.clearedAll, r.seq)
		}
	}
	l.setUnsynced(i, len(s.log) > 0)
	for k := range s.log {
		s.values += units(s.log[k].size)
		if s.log[k].kind == recordPut && !rec.enter(&s.log[k], i) {
			for l.index.heads[i] != 0 {
				l.index.remove(l.index.heads[i])
			}
			rec.drop(i)
			return false
		}
	}
	l.foundEarly(i)
	l.setStale(i, sc.unread)
	switch {
	case sc.unread:
		rec.ignore(s.id, fmt.Errorf("in part: %w", sc.err))
		s.state = segmentSealed
	case len(s.log) == 0:
		// If its first block was not synced, a cut of the power brings the former life back.
		s.state = segmentFree
		l.setStale(i, true)
	case sealed, sc.end+footerBlocks(uint32(len(s.log)))+1 > l.segBlocks:
		s.state = segmentSealed
	default:
		// A tail: it gets its footer now. Nothing is appended to it, because what its last writes left there is unknown.
		s.tail, s.planned, s.state = sc.end, uint32(len(s.log)), segmentSealing
	}
	if sealed {
		rec.report.Sealed++
	} else {
		rec.report.Scanned++
	}
	return true
}

// enter puts a record into the index unless it is known not to count. False: the index is full.
func (rec *recovery) enter(r *record, segment uint32) bool {
	l := rec.l
	d := l.index.digest(&r.key)
	e := l.index.find(d)
	switch {
	case rec.dead(d, r.key.Namespace, r.seq):
		rec.report.Superseded++
	case e == 0:
		if l.index.used() >= l.cfg.MaxEntries {
			return false
		}
		l.index.insert(d, r, segment)
	case l.index.entries[e].seq < r.seq:
		l.index.replace(e, r, segment)
		rec.report.Superseded++
	default:
		rec.report.Superseded++
	}
	return true
}

// dead says whether a tombstone or clear seen so far overtook the record.
func (rec *recovery) dead(d digest, namespace, seq uint64) bool {
	return seq < rec.l.clearedAll || len(rec.l.cleared) > 0 && seq < rec.l.cleared[namespace] ||
		len(rec.tombstones) > 0 && seq < rec.tombstones[d]
}

// finish removes what tombstones and clears found later overtook, and leaves the log ready.
func (rec *recovery) finish() {
	l := rec.l
	for i := uint32(1); i < l.index.high; i++ {
		if e := &l.index.entries[i]; e.used() && rec.dead(e.digest, l.index.namespace(e), e.seq) {
			l.index.remove(i)
			rec.report.Superseded++
		}
	}
	clear(l.cleared)
	l.clearedAll = 0
	l.seq += sequenceGap
	l.generation += generationGap
	for i := range l.segs {
		l.segs[i].unknown = l.segs[i].stale
	}
	rec.report.Records = l.index.used()
	l.sealSome()
	l.reclaim()
}
