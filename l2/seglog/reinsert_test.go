package seglog

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// bigger makes segments of 4 MiB, in which the blocks that hold no values count for little.
func bigger(c *Config) {
	c.Size, c.SegmentSize = c.Size/c.SegmentSize*1024*BlockSize, 1024*BlockSize
	c.MaxEntries = 5000
}

// hotSize is the size of the values of hotRig.
var hotSize int64 = 40000

// hotRig has stored keys 0 to n-1 of hotSize bytes, of which those below hot have been read, and begun to evict the segment of the first.
// It stops when use is about to go out, whose I/O it returns.
func hotRig(t *testing.T, hot int, stop use) (*rig, IO) {
	r := newRig(t, 5, bigger)
	r.run()
	for n := 0; ; n++ {
		r.put(n, hotSize)
		if n < hot {
			r.run()
			r.sees(n, hotSize)
		}
		for {
			r.l.Flush()
			io, ok := r.l.NextIO()
			if !ok {
				break
			}
			if r.l.ops[uint32(io.ID)].task.use == stop {
				return r, *io
			}
			r.done(*io)
		}
		r.drain()
		require.Less(t, n, 2000, "no %d", stop)
	}
}

func TestAnEvictionReinsertsWhatWasReadAndDropsTheRest(t *testing.T) {
	r := newRig(t, 5, bigger)
	hot := []int{3, 5, 7}
	for n := range 800 {
		r.store(n, hotSize)
		for _, h := range hot {
			if h <= n {
				r.sees(h, hotSize)
			}
		}
	}
	s := r.l.Stats()
	require.Positive(t, s.Reinserted)
	require.Equal(t, s.Reinserted*uint64(hotSize), s.ReinsertedBytes)
	require.LessOrEqual(t, s.ReinsertedBytes*4, s.EvictedSegments*uint64(r.cfg.SegmentSize))
	for _, h := range hot {
		require.True(t, r.has(h))
	}
	require.False(t, r.has(4))
	r.restart()
	for _, h := range hot {
		r.sees(h, hotSize)
	}
}

func TestTheHottestAreReinsertedFirst(t *testing.T) {
	r := newRig(t, 5, bigger)
	var reads [90]int // 30 of each
	for n := range reads {
		r.store(n, hotSize)
		reads[n] = 1 + n*7%3
		for range reads[n] {
			r.sees(n, hotSize)
		}
	}
	for n := 1000; r.l.Stats().EvictedSegments == 0; n++ {
		r.store(n, hotSize)
	}
	kept := 0
	for n := range reads {
		if r.has(n) {
			kept++
			require.Equal(t, 3, reads[n], "key %d", n)
		}
	}
	require.Greater(t, kept, 15)
}

func TestADeleteWinsOverAReinsertionInFlight(t *testing.T) {
	for _, stop := range []use{useCopyRead, useCopyWrite, useHeader} {
		deleteWins(t, stop, 40000)
	}
	for _, stop := range []use{useCopyRead, usePack, useHeader} {
		deleteWins(t, stop, 8192)
	}
}

func deleteWins(t *testing.T, stop use, size int64) {
	hotSize = size
	defer func() { hotSize = 40000 }()
	{
		r, io := hotRig(t, 3, useCopyRead)
		if stop != useCopyRead {
			for r.l.ops[uint32(io.ID)].task.use != stop || stop == useHeader && r.l.copies == 0 {
				r.done(io)
				next, ok := r.l.NextIO()
				require.True(t, ok)
				io = *next
			}
		}
		require.Positive(t, r.l.copies)
		r.check()
		tok := r.delete(0, 1, 2)
		require.NotZero(t, tok)
		r.drain()
		require.NotContains(t, r.ended, tok, "puts of the key are in flight")
		require.False(t, r.has(0) || r.has(1) || r.has(2))
		r.check()
		r.done(io)
		r.run()
		require.Equal(t, ResultOK, r.ended[tok].Result)
		require.False(t, r.has(0) || r.has(1) || r.has(2))
		for range 3 {
			r.restart()
			require.False(t, r.has(0) || r.has(1) || r.has(2), "back after a restart (stopped at %d)", stop)
			for n := range 250 { // the tombstones' segments are never gone before what they stand against
				r.store(1000+n, hotSize)
			}
		}
	}
}

func TestAClearWinsOverAReinsertionInFlight(t *testing.T) {
	r, io := hotRig(t, 3, useCopyWrite)
	r.tok++
	require.True(t, r.l.Clear(0, r.tok))
	tok := r.tok
	r.done(io)
	r.run()
	require.Equal(t, ResultOK, r.ended[tok].Result)
	for range 2 {
		require.False(t, r.has(0) || r.has(1) || r.has(2))
		r.restart()
	}
}

func TestANewerPutWinsOverAReinsertionInFlight(t *testing.T) {
	r, io := hotRig(t, 1, useCopyWrite)
	k := key(0)
	simFill(r.pool[:100], 4711)
	require.True(t, r.l.Put(&k, Mem{Len: rigSlot}, 100, 90000))
	r.l.Flush()
	for { // all of the put first, then what was held up
		next, ok := r.l.NextIO()
		if !ok {
			break
		}
		r.done(*next)
	}
	r.done(io)
	r.run()
	require.Equal(t, ResultOK, r.ended[90000].Result)
	for range 2 {
		require.Equal(t, value(4711, 100), r.load(0))
		r.restart()
	}
	for n := range 700 {
		r.store(100+n, hotSize)
		if p := r.load(0); p != nil {
			require.Equal(t, value(4711, 100), p)
		}
	}
}

func TestAReinsertionThatCannotBeReadIsDropped(t *testing.T) {
	r, io := hotRig(t, 3, useCopyRead)
	r.l.Done(io.ID, -5, 0)
	r.run()
	require.Equal(t, StateOK, r.l.State())
	require.EqualValues(t, 1, r.l.Stats().BadRecords)
	gone := 0
	for n := range 3 {
		if !r.has(n) {
			gone++
		}
	}
	require.Equal(t, 1, gone)
}

func TestAReinsertionThatCannotBeWrittenIsDroppedAndTheDiskDegraded(t *testing.T) {
	r, io := hotRig(t, 3, useCopyWrite)
	r.l.Done(io.ID, -28, 0)
	r.broken = away
	r.run()
	require.Equal(t, StateDegraded, r.l.State())
	require.False(t, r.has(0) || r.has(1) || r.has(2))
	r.broken = nil
	r.tick(5e9)
	require.Equal(t, StateOK, r.l.State())
	r.store(3000, hotSize)
	r.check()
}

func TestReinsertionsMultiplyTheWritesByNoMoreThanAThird(t *testing.T) {
	r := newRig(t, 8, bigger)
	seed := uint64(7)
	t.Logf("seed %d", seed)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(seed, 1)), 1.1, 4, 2000)
	hits, asked := 0, 0
	for range 6000 { // a cache in front of a skewed load: what is missed is put
		n := int(zipf.Uint64())
		asked++
		if r.has(n) {
			hits++
			k := key(n)
			r.tok++
			require.True(t, r.l.Read(&k, Mem{Off: 8 * rigSlot, Len: rigSlot}, r.tok))
		} else {
			r.put(n, 65536)
		}
		r.turn()
	}
	r.run()
	s := r.l.Stats()
	t.Logf("hit rate %.3f, %d segments evicted, %.1f %% of their bytes reinserted, write amplification %.4f",
		float64(hits)/float64(asked), s.EvictedSegments,
		100*float64(s.ReinsertedBytes)/float64(int64(s.EvictedSegments)*r.cfg.SegmentSize), s.WriteAmplification())
	require.Greater(t, s.EvictedSegments, uint64(20))
	require.Greater(t, s.ReinsertedBytes*10, s.EvictedSegments*uint64(r.cfg.SegmentSize), "much is reinserted")
	require.LessOrEqual(t, s.ReinsertedBytes*4, s.EvictedSegments*uint64(r.cfg.SegmentSize))
	require.LessOrEqual(t, s.WriteAmplification(), 1.34)
}

// turn is one turn of a driver whose disk is fast.
func (r *rig) turn() {
	r.l.Flush()
	for {
		io, ok := r.l.NextIO()
		if !ok {
			break
		}
		r.done(*io)
	}
	r.drain()
}

func TestAHotKeyRewrittenWithoutEndNeverGoesBackInTime(t *testing.T) {
	r := newRig(t, 5, nil)
	const rewrites = 100000
	k := key(0)
	last := -1 // the newest that was acknowledged
	seen := func(p []byte) {
		for n := max(last, 0); n <= last+16; n++ {
			if string(value(n, 64)) == string(p) {
				return
			}
		}
		require.Fail(t, "gone back in time", "the last acknowledged was %d", last)
	}
	rng := rand.New(rand.NewPCG(3, 1))
	for n := range rewrites {
		slot := int64(n%8) * rigSlot
		simFill(r.pool[slot:slot+64], n)
		require.True(t, r.l.Put(&k, Mem{Off: slot, Len: rigSlot}, 64, Token(n+1)))
		if n%8 == 6 { // others, so that segments fill and are evicted
			other := key(1 + n/8%50)
			require.True(t, r.l.Put(&other, Mem{Off: 8 * rigSlot, Len: rigSlot}, hotSize, Token(2*rewrites+n)))
		}
		if n%8 < 7 {
			continue
		}
		r.turn()
		for k := n - 7; k <= n; k++ {
			if o, ok := r.ended[Token(k+1)]; ok && o.Result == ResultOK {
				last = k
			}
		}
		if rng.IntN(3) == 0 {
			if _, ok := r.l.Find(&k); ok {
				tok := Token(10*rewrites + n)
				require.True(t, r.l.Read(&k, Mem{Off: 15 * rigSlot, Len: rigSlot}, tok))
				r.turn()
				if r.ended[tok].Result == ResultOK {
					seen(r.pool[15*rigSlot:][:64])
				}
			}
		}
		if n%8000 == 7999 {
			r.run()
			r.restart()
			if p := r.load(0); p != nil {
				seen(p)
			}
		}
		if len(r.ended) > 1000 {
			clear(r.ended)
		}
	}
	r.run()
	seen(r.load(0))
}

// A deleted value is copied for good because the segment with its tombstone could not be read.
func TestNothingIsReinsertedWhileATombstoneMayBeUnread(t *testing.T) {
	r := newRig(t, 5, bigger)
	for n := range 150 { // more than a segment
		r.store(n, hotSize)
	}
	require.NotEqual(t, r.l.oldest(), r.l.active)
	require.NotZero(t, r.delete(1))
	r.run()
	l, report, err := Recover(r.cfg, flaky{r.disk, r.l.segs[r.l.active].id, BlockSize})
	require.NoError(t, err)
	require.NotEmpty(t, report.Ignored)
	r.l = l
	clear(r.ended)
	for n := 1000; n < 1600; n++ { // all segments are used anew
		if r.has(1) {
			r.sees(1, hotSize) // nobody can know
		}
		if r.has(2) {
			r.sees(2, hotSize)
		}
		r.store(n, hotSize)
	}
	require.False(t, r.has(1), "it outlived its tombstone")
	require.False(t, r.has(2), "nobody can know which")
	r.restart()
	require.False(t, r.has(1))
	r.sees(1599, hotSize)
}
