package seglog

// A StoredSegment is a segment file as it lies in a directory, for tools.
type StoredSegment struct {
	ID         SegmentID
	Size       int64  // of the file, in bytes
	Generation uint64 // of its life; 0 if it is ignored
	Sealed     bool   // it has a valid footer
	Ignored    string // why it, or a part of it, is not used; empty if it is
	Records    []StoredRecord
}

// A StoredRecord is a record as it lies in a segment file.
type StoredRecord struct {
	Key     Key
	Seq     uint64
	Sum     uint64 // xxh3-64 of the value's bytes
	Size    int64  // of the value, in bytes
	Addr    Addr   // of the value
	Put     bool   // it is a value, not a tombstone or clear
	Visible bool   // it is the one that counts for its key
	Early   bool   // it was listed before the value was written: if a process was killed then, that may never have been there
}

// A storeWalk is the work of [Walk].
type storeWalk struct {
	segments   []StoredSegment
	newest     map[Key]*StoredRecord // the put of the highest sequence
	tombstones map[Key]uint64
	cleared    map[uint64]uint64
	clearedAll uint64
}

// Walk reads the records of all segment files, newest segment first and those that are ignored last, by the rules of [Recover]
// but without its limits (Config.Size, Config.MaxEntries), and changes nothing. What it returns is exact if nobody writes to the
// files meanwhile. The arena is memory as in [Config]. The error is of listing the files.
func Walk(dev Reader, arena []byte) ([]StoredSegment, error) {
	cfg := Config{Arena: arena}
	rec := &recovery{dev: dev}
	files, err := rec.survey(&cfg)
	if err != nil {
		return nil, err
	}
	w := &storeWalk{newest: make(map[Key]*StoredRecord), tombstones: make(map[Key]uint64), cleared: make(map[uint64]uint64)}
	size := int64(0)
	for i := range files {
		f := &files[i]
		seg := StoredSegment{ID: f.id, Size: f.size}
		if f.valid && size == 0 {
			size = f.size
		}
		switch {
		case !f.valid:
			seg.Ignored = f.why.Error()
		case f.size != size:
			seg.Ignored = "of another size than the newest segment"
		default:
			w.load(&seg, f, rec, arena)
		}
		w.segments = append(w.segments, seg)
	}
	w.judge()
	return w.segments, nil
}

// load reads the records of one file.
func (w *storeWalk) load(seg *StoredSegment, f *found, rec *recovery, arena []byte) {
	seg.Generation = f.head.generation
	l := &Log{cfg: Config{Arena: arena, SegmentSize: f.size}, segBlocks: uint32(f.size / BlockSize)}
	s := &segment{id: f.id, life: life{nonce: f.head.nonce, generation: f.head.generation}}
	sc := scanner{dev: rec.dev, l: l, s: s, report: &rec.report}
	seg.Sealed = sc.footer()
	if !seg.Sealed {
		s.log = nil
		sc.groups()
	}
	if sc.unread {
		seg.Ignored = "in part: " + sc.err.Error()
	}
	seg.Records = make([]StoredRecord, 0, len(s.log))
	for i := range s.log {
		r := &s.log[i]
		seg.Records = append(seg.Records, StoredRecord{
			Key: r.key, Seq: r.seq, Sum: r.sum, Size: r.size, Put: r.kind == recordPut, Early: r.early,
			Addr: Addr{Segment: f.id, Off: int64(r.at) * unit},
		})
		w.note(&seg.Records[i], r.kind)
	}
}

// note takes a record into account.
func (w *storeWalk) note(r *StoredRecord, kind recordKind) {
	switch kind {
	case recordPut:
		if n := w.newest[r.Key]; n == nil || n.Seq < r.Seq {
			w.newest[r.Key] = r
		}
	case recordTombstone:
		w.tombstones[r.Key] = max(w.tombstones[r.Key], r.Seq)
	case recordClear:
		w.cleared[r.Key.Namespace] = max(w.cleared[r.Key.Namespace], r.Seq)
	case recordClearAll:
		w.clearedAll = max(w.clearedAll, r.Seq)
	}
}

// judge marks the records that count.
func (w *storeWalk) judge() {
	for k, r := range w.newest {
		r.Visible = r.Seq >= w.clearedAll && r.Seq >= w.cleared[k.Namespace] && r.Seq >= w.tombstones[k]
	}
}
