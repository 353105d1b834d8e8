package seglog

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// populated is a rig with keys 0 to 9, of which 3 is deleted and 4 put twice, the first segments sealed and the last not.
func populated(t *testing.T) *rig {
	r := newRig(t, 6, func(c *Config) { c.SegmentSize, c.Size = 24*BlockSize, 6*24*BlockSize })
	for n := range 10 {
		r.store(n, int64(9000+n))
	}
	r.delete(3)
	r.run()
	r.store(4, 777)
	return r
}

func (r *rig) file(id SegmentID) []byte { return r.disk.files[id].now }

// verify demands that every key reads right or is a miss, and says how many read right. Key 3 may be back: where its tombstone was
// destroyed, nobody can know of it.
func (r *rig) verify() (hits int) {
	r.t.Helper()
	for n := range 10 {
		if p := r.load(n); p != nil {
			r.right(n, p)
			hits++
		}
	}
	return hits
}

// right demands that p is a value that key n had.
func (r *rig) right(n int, p []byte) {
	r.t.Helper()
	if n == 4 && len(p) == 777 {
		require.True(r.t, bytes.Equal(value(4, 777), p))
		return
	}
	require.True(r.t, bytes.Equal(value(n, int64(9000+n)), p), "key %d has wrong bytes", n)
}

// peek is verify without a read's I/Os, so that the disk stays as it is.
func (r *rig) peek() (hits int) {
	r.t.Helper()
	for n := range 10 {
		i := r.l.visible(ptr(key(n)))
		if i == 0 {
			continue
		}
		e := &r.l.index.entries[i]
		p := r.file(r.l.segs[e.segment].id)[int64(e.at)*unit:][:e.size()]
		if xxh3.Hash(p) == e.sum {
			r.right(n, p)
			hits++
		}
	}
	return hits
}

func TestAFileThatWasNeverWrittenIsReusedWithoutAReport(t *testing.T) {
	r := populated(t)
	r.cfg.StoreID = r.l.cfg.StoreID
	f := r.disk.files[0]
	clear(f.now)
	f.safe = slices.Clone(f.now)
	r.restart()
	require.Empty(t, r.report.Ignored)
	require.GreaterOrEqual(t, r.verify(), 5)
	for n := 20; n < 60; n++ {
		r.store(n, 40000)
	}
	require.Equal(t, r.cfg.Size, int64(r.l.Stats().DiskBytes))
}

func TestFilesThatAreNoneOfOursAreReportedAndReused(t *testing.T) {
	garbage := make([]byte, 64*BlockSize)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range garbage {
		garbage[i] = byte(rng.Uint32())
	}
	for name, change := range map[string]func(p []byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"a few bytes":   func(p []byte) []byte { return p[:100] },
		"half":          func(p []byte) []byte { return p[:len(p)/2] },
		"too long":      func(p []byte) []byte { return append(p, make([]byte, BlockSize)...) },
		"random":        func([]byte) []byte { return slices.Clone(garbage) },
		"no head":       func(p []byte) []byte { clear(p[:BlockSize]); return p },
		"first block":   func(p []byte) []byte { p[33]++; return p },
		"older version": func(p []byte) []byte { p[8] = 1; return p },
		"other store": func(p []byte) []byte {
			h, _ := parseSegmentHead(p)
			h.storeID[3]++
			putSegmentHead(p, &h)
			return p
		},
		"other number": func(p []byte) []byte {
			h, _ := parseSegmentHead(p)
			h.id++
			putSegmentHead(p, &h)
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := populated(t)
			r.cfg.StoreID = r.l.cfg.StoreID
			f := r.disk.files[0]
			f.now = change(f.now)
			f.safe = slices.Clone(f.now)
			r.restart()
			require.Len(t, r.report.Ignored, 1, "%v", r.report.Ignored)
			require.GreaterOrEqual(t, r.verify(), 5)
			for n := 20; n < 60; n++ {
				r.store(n, 40000) // all of the cap can be used again
			}
			require.Equal(t, r.cfg.Size, int64(r.l.Stats().DiskBytes))
		})
	}
}

func TestEveryCutLeavesHitsOrMisses(t *testing.T) {
	r := populated(t)
	disk := r.save()
	cuts := 0
	for id := range disk {
		for cut := 0; cut < len(disk[id]); cut += simSector {
			// The file keeps its size and ends in what a file that was never written holds.
			clear(r.file(id)[cut:])
			r.restart()
			require.GreaterOrEqual(t, r.peek(), 4)
			cuts++
			copy(r.file(id), disk[id])
		}
		r.disk.files[id].now = r.file(id)[:len(disk[id])-1]
		r.restart()
		require.GreaterOrEqual(t, r.verify(), 4)
		r.recall(disk)
	}
	t.Logf("%d cuts", cuts)
	r.restart()
	require.Equal(t, 9, r.verify())
	require.False(t, r.has(3))
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	r := populated(t)
	disk := r.save()
	rng := rand.New(rand.NewPCG(3, 3))
	flips := 0
	for id := range disk {
		flip := func(at int) {
			r.file(id)[at] ^= 1 << rng.IntN(8)
			r.restart()
			require.GreaterOrEqual(t, r.peek(), 4)
			flips++
			r.file(id)[at] = disk[id][at]
		}
		for b := 0; b < len(disk[id]); b += BlockSize {
			p := disk[id][b : b+BlockSize]
			switch {
			case isZero(p):
			case string(p[:4]) == "SLOT": // ours
				for at := 0; at < headSize+4*recordSize; at += 1 + rng.IntN(6) {
					flip(b + at)
				}
			default:
				flip(b + rng.IntN(BlockSize))
			}
		}
	}
	t.Logf("%d flips", flips)
	require.Greater(t, flips, 1000)
	r.restart()
	require.Equal(t, 9, r.verify())
	require.False(t, r.has(3))
}

// save copies what is on the disk.
func (r *rig) save() map[SegmentID][]byte {
	disk := make(map[SegmentID][]byte)
	for id, f := range r.disk.files {
		disk[id] = slices.Clone(f.now)
	}
	return disk
}

// recall brings it back.
func (r *rig) recall(disk map[SegmentID][]byte) {
	clear(r.disk.files)
	for id, p := range disk {
		r.disk.files[id] = &simFile{now: slices.Clone(p), safe: slices.Clone(p), dirty: make(map[int]bool)}
	}
}

func isZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

func TestAPayloadMadeOfHeadersIsNeverARecord(t *testing.T) {
	r := newRig(t, 4, nil)
	r.store(1, 100)
	// The value of key 2 is the segment so far, header blocks and all, moved by nothing and by one block.
	active := r.l.segs[r.l.active]
	image := slices.Clone(r.file(active.id)[:16*BlockSize])
	k := key(2)
	copy(r.pool, image)
	require.True(t, r.l.Put(&k, Mem{Len: rigSlot}, int64(len(image)), 500))
	r.run()
	require.Equal(t, ResultOK, r.ended[500].Result)
	// A forger who knows all but the nonce seals a header for the very place where it will lie.
	at := r.l.segs[r.l.active].tail + 1
	forged := record{key: key(66), seq: 1 << 40, size: 10, at: (at + 1) * blockUnits, kind: recordPut}
	h := blockHead{magic: groupMagic, count: 1, position: at, length: 2}
	putRecord(r.pool[rigSlot:], 0, &forged)
	sealBlock(r.pool[rigSlot:], &h, &life{generation: active.generation})
	k = key(3)
	require.True(t, r.l.Put(&k, Mem{Off: rigSlot, Len: rigSlot}, 2*BlockSize, 501))
	r.run()
	require.Equal(t, at*blockUnits, r.l.index.entries[r.l.index.find(r.l.index.digest(&k))].at)
	// Without its header, all of it is looked at block by block.
	clear(r.file(active.id)[int64(at-1)*BlockSize:][:BlockSize])
	r.restart()
	require.Equal(t, 2, r.report.Records)
	require.False(t, r.has(66))
}

func TestTheHighestSequenceWinsWhereverItLies(t *testing.T) {
	r := newRig(t, 4, nil)
	r.run()
	r.put(0, 10)
	r.run()
	s, base := &r.l.segs[r.l.active], r.l.seq
	write := func(block uint32, recs ...record) {
		p := make([]byte, BlockSize)
		for i := range recs {
			putRecord(p, i, &recs[i])
		}
		h := blockHead{magic: groupMagic, count: uint32(len(recs)), position: block, length: 2}
		sealBlock(p, &h, &s.life)
		copy(r.file(s.id)[int64(block)*BlockSize:], p)
	}
	put := func(n int, seq uint64, block uint32) record {
		return record{key: key(n), seq: seq, at: block * blockUnits, kind: recordPut, sum: emptySum}
	}
	write(20, put(1, base+1000, 20), put(2, base+1000, 20), put(3, base+1000, 20), record{key: key(4), seq: base + 1000, kind: recordTombstone})
	write(30, put(1, base+900, 30), record{key: key(2), seq: base + 900, kind: recordTombstone},
		record{key: key(3), seq: base + 1100, kind: recordTombstone}, put(4, base+900, 30))
	write(40, record{seq: base + 500, key: Key{Namespace: 0}, kind: recordClear})
	r.restart()
	require.True(t, r.has(1))
	require.Equal(t, base+1000, r.l.index.entries[r.l.index.find(r.l.index.digest(ptr(key(1))))].seq)
	require.True(t, r.has(2), "a tombstone of a lower sequence behind it")
	require.False(t, r.has(3))
	require.False(t, r.has(4), "a put of a lower sequence behind its tombstone")
	require.False(t, r.has(0), "cleared")
	require.Greater(t, r.l.seq, base+1100)
}

func ptr(k Key) *Key { return &k }

func TestAnIndexTooSmallForTheDiskDropsTheOldestWholly(t *testing.T) {
	r := newRig(t, 8, func(c *Config) { c.MaxEntries = 400 })
	for n := range 300 {
		r.store(n, 1)
	}
	r.cfg.MaxEntries = 120
	r.restart()
	require.Positive(t, r.report.Dropped)
	require.LessOrEqual(t, r.report.Records, 120)
	require.True(t, r.has(299))
	require.False(t, r.has(0))
	// What is dropped and still on disk must not come back after a delete.
	require.NotZero(t, r.delete(0))
	r.run()
	r.cfg.MaxEntries = 400
	r.restart()
	require.False(t, r.has(0))
	require.True(t, r.has(299))
}

func TestASmallerStoreKeepsTheNewestSegments(t *testing.T) {
	r := newRig(t, 8, nil)
	for n := range 30 {
		r.store(n, 60000)
	}
	r.cfg.Size /= 2
	r.restart()
	r.disk.limit = r.cfg.Size + 4*r.cfg.SegmentSize // until the old ones are gone
	require.True(t, r.has(29))
	r.run()
	require.LessOrEqual(t, int64(r.l.Stats().DiskBytes), r.cfg.Size)
	r.disk.limit = r.cfg.Size
	for n := 30; n < 60; n++ {
		r.store(n, 60000)
	}
	require.True(t, r.has(59))
}

// A flaky disk cannot read one segment.
type flaky struct {
	*simDisk
	id   SegmentID
	from int64
}

func (f flaky) ReadAt(id SegmentID, p []byte, off int64) (int, error) {
	if id == f.id && off+int64(len(p)) > f.from {
		n := max(f.from-off, 0)
		copy(p[:n], f.files[id].now[off:])
		return int(n), errRead
	}
	return f.simDisk.ReadAt(id, p, off)
}

func TestWhatCannotBeReadThisTimeBringsNothingBackTheNext(t *testing.T) {
	tried := 0
	for i, from := range []int64{0, BlockSize, 3 * BlockSize, BlockSize, 3 * BlockSize} {
		r := populated(t)
		newest := r.l.segs[r.l.active].id
		l, report, err := Recover(r.cfg, flaky{r.disk, newest, from})
		require.NoError(t, err)
		require.NotEmpty(t, report.Ignored)
		r.l = l
		clear(r.ended)
		r.check()
		if i >= 3 { // what else the index does not know is reused
			r.run()
			require.Equal(t, 1, r.l.stale)
		}
		// The keys in the part that was not read are deleted, and it is readable the next time.
		for n := range 10 {
			require.NotZero(t, r.delete(n), "it may be there")
		}
		r.l.Flush()
		for { // as far as the tombstones, but the unread segment keeps its bytes
			io, ok := r.l.NextIO()
			if !ok {
				break
			}
			if io.Addr.Segment == newest && io.Kind != IOSync {
				continue
			}
			r.done(*io)
		}
		r.drain()
		if len(r.ended) < 10 {
			continue // the unread one stood in the way: not acknowledged
		}
		tried++
		r.restart()
		for n := range 10 {
			require.False(t, r.has(n), "key %d", n)
		}
	}
	require.Positive(t, tried)
}

func TestADiskThatCannotListIsAnError(t *testing.T) {
	r := newRig(t, 4, nil)
	_, _, err := Recover(r.cfg, unlisted{})
	require.ErrorIs(t, err, errRead)
}

type unlisted struct{}

func (unlisted) Segments() ([]SegmentID, error)               { return nil, errRead }
func (unlisted) ReadAt(SegmentID, []byte, int64) (int, error) { return 0, errRead }
func (unlisted) Size(SegmentID) (int64, error)                { return 0, errRead }

func TestConfigsThatCannotWorkAreErrors(t *testing.T) {
	r := newRig(t, 4, nil)
	for name, change := range map[string]func(*Config){
		"no size":         func(c *Config) { c.Size = 0 },
		"too small":       func(c *Config) { c.Size, c.SegmentSize = 4*BlockSize, 0 },
		"odd segments":    func(c *Config) { c.SegmentSize++ },
		"few segments":    func(c *Config) { c.SegmentSize = c.Size / 2 },
		"no arena":        func(c *Config) { c.Arena = nil },
		"odd arena":       func(c *Config) { c.Arena = c.Arena[1:] },
		"no nonce":        func(c *Config) { c.Nonce = nil },
		"odd I/O":         func(c *Config) { c.IOSize = 100 },
		"negative queue":  func(c *Config) { c.MaxQueue = -1 },
		"segments of TiB": func(c *Config) { c.SegmentSize, c.Size = 1<<40, 1<<45 },
	} {
		cfg := r.cfg
		change(&cfg)
		_, _, err := Recover(cfg, r.disk)
		require.ErrorIs(t, err, ErrConfig, name)
	}
	require.False(t, errors.Is(nil, ErrConfig))
}

func TestAFlippedBitOfAValueIsAMissThenGoneAndCounted(t *testing.T) {
	r := populated(t)
	e := r.l.index.entries[r.l.index.find(r.l.index.digest(ptr(key(5))))]
	r.file(r.l.segs[e.segment].id)[int64(e.at)*unit+4000] ^= 4
	require.Nil(t, r.load(5))
	require.False(t, r.has(5))
	require.EqualValues(t, 1, r.l.Stats().BadRecords)
	require.Equal(t, Damage{1, Addr{r.l.segs[e.segment].id, int64(e.at) * unit}, 9005}, r.l.Damage())
	require.Equal(t, 8, r.verify())
	r.store(5, 9005)
	r.sees(5, 9005)
}

func TestARecoveryTellsHowFarItHasCome(t *testing.T) {
	r := newRig(t, 6, nil)
	for n := range 30 {
		r.store(n, 9000)
	}
	files, records := 0, -1
	r.cfg.Progress = func(done, of, found int) {
		files++
		require.Equal(t, files, done)
		require.Equal(t, len(r.disk.files), of)
		require.GreaterOrEqual(t, found, records)
		records = found
	}
	r.restart()
	require.Equal(t, len(r.disk.files), files)
	require.Equal(t, r.report.Records, records)
	require.Equal(t, 30, records)
}

func TestADeleteBetweenTheProcessesDeathAndThePowersHolds(t *testing.T) {
	r := populated(t)
	e := r.l.index.entries[r.l.index.find(r.l.index.digest(ptr(key(0))))]
	old := r.l.segs[e.segment]
	// The process died when the next life of that segment was written and not synced.
	f := r.disk.files[old.id]
	before := bytes.Clone(f.now)
	putSegmentHead(f.now, &segmentHead{
		storeID: r.l.cfg.StoreID, nonce: [16]byte{99}, generation: old.generation + 1000, size: r.cfg.SegmentSize, id: old.id,
	})
	clear(f.now[len(f.now)-BlockSize:])
	r.restart()
	require.False(t, r.has(0))
	tok := r.delete(0)
	require.NotZero(t, tok, "its record comes back if the first block did not reach the platter")
	r.l.Flush()
	for r.ended[tok].Kind != OutcomeFence { // until it is acknowledged
		for _, io := range r.handed() {
			if r.done(io); io.Addr.Segment == old.id && io.Kind == IOSync {
				return // the next life is safe before: as good
			}
		}
		r.l.Flush()
		r.drain()
	}
	copy(f.now, before)
	r.restart()
	require.False(t, r.has(0))
}
