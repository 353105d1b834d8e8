package seglog

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestARecordTakes64BytesOfMemory(t *testing.T) {
	const n = 1 << 19
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x := newIndex(&Config{MaxEntries: n, HashMask: ^uint64(0)}, 32)
	for i := range n {
		k := key(i)
		x.insert(x.digest(&k), &record{key: k, seq: 1, at: 1, kind: recordPut}, uint32(i%32))
	}
	runtime.ReadMemStats(&after)
	each := float64(after.TotalAlloc-before.TotalAlloc) / n
	t.Logf("%.2f bytes a record, all that was ever allocated", each)
	require.Less(t, each, 64.1)
	for i := range n {
		k := key(i)
		x.remove(x.find(x.digest(&k)))
	}
	for i := range n {
		k := key(n + i)
		x.insert(x.digest(&k), &record{key: k, seq: 1, at: 1, kind: recordPut}, 0)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, float64(after.TotalAlloc-before.TotalAlloc)/n, 64.2, "what is free again costs nothing")
	require.Equal(t, n, x.used())
}

func TestAKeyOfTheSameDigestIsAMissAndHarmsNobody(t *testing.T) {
	for _, size := range []int64{0, 100, 100000} {
		r := newRig(t, 6, func(c *Config) { c.foldDigest = true })
		other := -1
		one := key(0)
		for n := 1; other < 0; n++ {
			if k := key(n); r.l.index.digest(&k) == r.l.index.digest(&one) {
				other = n
			}
		}
		r.store(0, size)
		r.sees(0, size)
		require.True(t, r.has(other), "the digest is all that memory knows")
		require.Nil(t, r.load(other))
		r.sees(0, size)
		require.Zero(t, r.l.Stats().BadRecords)
		r.store(other, size) // takes the place of the other
		r.sees(other, size)
		require.Nil(t, r.load(0))
		r.restart()
		r.sees(other, size)
		require.Nil(t, r.load(0))
	}
}

func TestAHeaderThatRottedIsAMiss(t *testing.T) {
	for _, size := range []int64{0, 100, 100000} {
		r := newRig(t, 6, nil)
		r.store(0, size)
		r.store(1, size)
		r.close()
		r.restart() // from the footer
		e := r.l.index.entries[r.l.index.find(r.l.index.digest(ptr(key(0))))]
		head := r.l.headAddr(uint32(e.segment), e.at, e.head)
		r.file(head.Segment)[head.Off+100] ^= 1
		require.Nil(t, r.load(0))
		require.False(t, r.has(0))
		require.EqualValues(t, 1, r.l.Stats().BadRecords)
		r.sees(1, size)
	}
}

// million is a store of a million records of no bytes, on a disk in memory.
func million(b *testing.B, stop bool) (*rig, *flatDisk) {
	t := &testing.T{}
	r := newRig(t, 1, func(c *Config) {
		c.Size, c.SegmentSize, c.MaxEntries = 32*2048*BlockSize, 2048*BlockSize, 1<<20
	})
	d := &flatDisk{r: r, bytes: make([]byte, r.cfg.Size)}
	for n := range 1000000 {
		k := key(n)
		if !r.l.Put(&k, Mem{}, 0, 1) {
			b.Fatal("refused")
		}
		if n%50 == 49 {
			d.turn()
		}
	}
	d.turn()
	if stop {
		r.l.BeginClose()
		for !r.l.Idle() {
			d.turn()
		}
	}
	return r, d
}

// Segments, ReadAt and Size make it a Reader.
func (d *flatDisk) Segments() ([]SegmentID, error) {
	ids := make([]SegmentID, d.r.cfg.Size/d.r.cfg.SegmentSize)
	for i := range ids {
		ids[i] = SegmentID(i)
	}
	return ids, nil
}

func (d *flatDisk) ReadAt(id SegmentID, p []byte, off int64) (int, error) {
	return copy(p, d.bytes[int64(id)*d.r.cfg.SegmentSize+off:]), nil
}

func (d *flatDisk) Size(SegmentID) (int64, error) { return d.r.cfg.SegmentSize, nil }

func benchmarkRecovery(b *testing.B, stop bool) {
	r, d := million(b, stop)
	for b.Loop() {
		from := time.Now()
		l, report, err := Recover(r.cfg, d)
		if err != nil || report.Records != 1000000 || l.index.used() != 1000000 {
			b.Fatal(report, err)
		}
		b.ReportMetric(time.Since(from).Seconds(), "s/recovery")
		b.ReportMetric(float64(report.Scanned), "scanned")
	}
}

func BenchmarkRecoveryOfAMillionAfterACleanStop(b *testing.B) { benchmarkRecovery(b, true) }

func BenchmarkRecoveryOfAMillionAfterADeath(b *testing.B) { benchmarkRecovery(b, false) }
