package seglog

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatIsPutIsFoundAndReadAlsoAfterARestart(t *testing.T) {
	r := newRig(t, 8, nil)
	sizes := []int64{0, 1, 511, 512, 513, 4095, 4096, 4097, 65536, 100001}
	for n, size := range sizes {
		r.store(n, size)
	}
	look := func() {
		t.Helper()
		for n, size := range sizes {
			r.sees(n, size)
		}
		require.False(t, r.has(len(sizes)))
	}
	look()
	r.restart()
	require.Positive(t, r.report.Scanned)
	look()
	r.run()
	r.close()
	r.restart()
	require.Zero(t, r.report.Scanned-r.report.Segments+r.report.Sealed, "what was closed has a footer")
	require.Empty(t, r.report.Ignored)
	require.Equal(t, len(sizes), r.report.Records)
	look()
}

func TestTwoRestartsInARowFindTheSame(t *testing.T) {
	r := newRig(t, 4, nil)
	for n := range 60 { // eviction has begun
		r.store(n, 20000)
	}
	found := func() (ns []int) {
		for n := range 60 {
			if r.has(n) {
				ns = append(ns, n)
			}
		}
		return ns
	}
	first := found()
	require.NotEmpty(t, first)
	require.Less(t, len(first), 60)
	for range 3 {
		r.restart()
		require.Equal(t, first, found())
		r.run()
	}
}

func TestValuesTooLargeForASegmentAreRefused(t *testing.T) {
	r := newRig(t, 4, nil)
	most := r.cfg.SegmentSize - 4*BlockSize
	require.True(t, r.l.Fits(most))
	require.False(t, r.l.Fits(most+1))
	require.False(t, r.l.Fits(-1))
	r.store(1, most)
	r.sees(1, most)
	k := key(2)
	require.False(t, r.l.Put(&k, Mem{Len: 1 << 30}, most+1, 99))
}

func TestUnusableMemoryPanics(t *testing.T) {
	r := newRig(t, 4, nil)
	k := key(1)
	for _, m := range []Mem{{Off: 1, Len: 8192}, {Off: 0, Len: 4096}, {Off: -4096, Len: 8192}, {Len: 8192, Own: true}} {
		require.Panics(t, func() { r.l.Put(&k, m, 5000, 1) }, "%+v", m)
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	r := newRig(t, 4, func(c *Config) { c.MaxQueue = 3 })
	for n := range 3 {
		r.put(n, 100)
	}
	k := key(9)
	require.False(t, r.l.Put(&k, Mem{Len: 4096}, 100, 9))
	r.run()
	require.True(t, r.l.Put(&k, Mem{Len: 4096}, 100, 9))
}

func TestPutsAreVisibleOnlyWithHeaderAndValue(t *testing.T) {
	const size = 40000
	for _, c := range []struct {
		name string
		old  bool  // there is a record of one of the keys
		size int64 // of the one put second
		late bool
	}{
		{"new keys", false, size, false},
		{"one that is there", true, size, true},
		{"one that is packed", false, 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 4, nil)
			r.run() // the first segment becomes ready
			if c.old {
				r.store(2, size)
			}
			r.putSummed(1, size)
			r.putSummed(2, c.size)
			r.l.Flush()
			values, headers := 0, 0
			for {
				io, ok := r.l.NextIO()
				if !ok {
					break
				}
				require.False(t, r.has(1) && (headers == 0 || values == 0))
				if u := r.l.ops[uint32(io.ID)].task.use; u == useHeader {
					require.Equal(t, c.late, values == 2, "the header is the last to be written, or the first")
					headers++
				} else if u == usePayload || u == usePack {
					require.Equal(t, !c.late, headers == 1)
					values++
				}
				r.done(*io)
				r.check()
			}
			require.True(t, r.has(1) && r.has(2))
		})
	}
}

// stored returns the record on the disk that counts for key n, and whether its segment has a footer.
func (r *rig) stored(n int) (found StoredRecord, sealed bool) {
	r.t.Helper()
	segs, err := Walk(r.disk, make([]byte, ArenaMin))
	require.NoError(r.t, err)
	for i := range segs {
		for _, rec := range segs[i].Records {
			if rec.Key == key(n) && rec.Visible {
				found, sealed = rec, segs[i].Sealed
			}
		}
	}
	require.True(r.t, found.Put, "key %d", n)
	return found, sealed
}

// Tools can tell a value that a killed process had not finished from one that decayed: also when a later start has written the footer,
// and never in one that the process wrote itself, for then the values were there.
func TestTheDiskSaysWhichValuesMayNotBeWhole(t *testing.T) {
	const size = 40000
	check := func(r *rig, n int, early, footer bool) {
		t.Helper()
		found, sealed := r.stored(n)
		require.Equal(t, early, found.Early, "key %d", n)
		require.Equal(t, footer, sealed, "key %d", n)
	}
	r := newRig(t, 6, nil)
	r.run()
	r.putSummed(1, size)
	r.run()
	r.store(2, size)
	r.store(2, size) // which has something older, so that its header waits
	r.store(3, 100)  // packed
	check(r, 1, true, false)
	check(r, 2, false, false)
	check(r, 3, false, false)
	r.restart() // after a death: recovery seals
	r.run()
	for range 2 {
		check(r, 1, true, true)
		check(r, 2, false, true)
		check(r, 3, false, true)
		r.restart()
		r.run()
	}
	r.sees(1, size)
	r.putSummed(4, size)
	r.close()
	check(r, 4, false, true)
}

// A group's header may be there and one of its values not: because that could not be written, or because the process died before.
func TestAHeaderWithoutItsValueIsAMiss(t *testing.T) {
	const size = 40000
	for _, c := range []struct{ died, headerLast bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		t.Run(fmt.Sprintf("died %t, header last %t", c.died, c.headerLast), func(t *testing.T) {
			r := newRig(t, 6, nil)
			r.run()
			a, b := r.putSummed(1, size), r.putSummed(2, size)
			k := key(2)
			value := int64(0) // of key 2, where it lies
			r.broken = func(io *IO) int64 {
				if io.Kind != IOWrite || r.l.ops[uint32(io.ID)].task.use != usePayload || r.l.puts.at(r.l.ops[uint32(io.ID)].task.owner).rec.key != k {
					return 0
				}
				value = io.Addr.Off
				return -5
			}
			r.l.Flush()
			ios := r.handed()
			if c.headerLast {
				slices.Reverse(ios)
			}
			for _, io := range ios {
				r.done(io)
				r.check()
			}
			r.run()
			require.NotZero(t, value)
			require.Equal(t, ResultOK, r.ended[a].Result)
			require.Equal(t, ResultIO, r.ended[b].Result)
			require.False(t, r.has(2))
			r.sees(1, size)
			r.broken = nil
			if c.died {
				r.restart()
				require.True(t, r.has(2), "the header is there")
				require.Nil(t, r.load(2))
				require.EqualValues(t, 1, r.l.Stats().BadRecords)
			} else {
				r.tick(2 * time.Second)
				require.NotZero(t, r.delete(2), "the header may be there: a tombstone is due")
				r.run()
			}
			require.False(t, r.has(2))
			r.store(2, size)
			r.restart()
			r.sees(1, size)
			r.sees(2, size)
		})
	}
}

func TestTheLastPutWinsWhateverOrderItsIOsEnd(t *testing.T) {
	r := newRig(t, 4, nil)
	r.run()
	k := key(1)
	for i := range 2 {
		simFill(r.pool[i*rigSlot:][:100], i)
		require.True(t, r.l.Put(&k, Mem{Off: int64(i) * rigSlot, Len: rigSlot}, 100, Token(i+101)))
		r.l.Flush() // each in its own group
	}
	var ios []IO
	for range 20 {
		for {
			io, ok := r.l.NextIO()
			if !ok {
				break
			}
			ios = append(ios, *io)
		}
		if len(ios) == 0 {
			break
		}
		last := ios[len(ios)-1] // the newest first
		ios = ios[:len(ios)-1]
		r.done(last)
	}
	r.drain()
	require.Equal(t, ResultSuperseded, r.ended[101].Result)
	require.Equal(t, ResultOK, r.ended[102].Result)
	require.Equal(t, value(1, 100), r.load(1))
	r.restart()
	require.Equal(t, value(1, 100), r.load(1))
}

func TestTheDiskNeverHoldsMoreThanTheCap(t *testing.T) {
	r := newRig(t, 5, nil) // the simulated disk fails the test beyond it
	for n := range 300 {
		r.store(n, int64(n*37%60000))
	}
	s := r.l.Stats()
	require.Positive(t, s.EvictedSegments)
	require.LessOrEqual(t, int64(s.DiskBytes), r.cfg.Size)
	require.True(t, r.has(299))
	require.False(t, r.has(0), "the oldest went first")
}

func TestAnEvictionTakesAtMostItsStepATurn(t *testing.T) {
	r := newRig(t, 4, func(c *Config) {
		c.SegmentSize = 1024 * BlockSize
		c.Size = 4 * c.SegmentSize
		c.MaxEntries = 5000
	})
	most, before := uint64(0), uint64(0)
	for n := 0; r.l.Stats().EvictedRecords < 2000; n++ {
		r.put(n, 1)
		r.l.Flush()
		for range 4 { // a turn that leaves some in flight
			if io, ok := r.l.NextIO(); ok {
				r.done(*io)
			}
		}
		r.drain()
		now := r.l.Stats().EvictedRecords
		most, before = max(most, now-before), now
	}
	require.EqualValues(t, evictStep, most)
}

func TestTheIndexMakesRoomByEviction(t *testing.T) {
	r := newRig(t, 8, func(c *Config) { c.MaxEntries = 100 })
	for n := range 400 {
		r.store(n, 1)
		require.LessOrEqual(t, r.l.Stats().Records, uint64(100))
	}
	require.True(t, r.has(399))
}

func TestReadsKeepTheirSegmentFromReuse(t *testing.T) {
	r := newRig(t, 4, nil)
	r.store(0, 100000)
	k := key(0)
	require.True(t, r.l.Read(&k, Mem{Off: 15 * rigSlot, Len: rigSlot}, 1000))
	io, ok := r.l.NextIO()
	require.True(t, ok)
	require.Equal(t, IORead, io.Kind)
	held := *io
	for n := 1; n < 60; n++ { // far more than the disk holds
		r.put(n, 1000)
		r.run()
		r.put(1000+n, 60000)
		r.run()
		if r.l.queue.n > 4 {
			break
		}
	}
	require.Positive(t, r.l.queue.n, "writing waits for the read")
	r.done(held)
	r.run()
	require.Zero(t, r.l.queue.n)
	require.Contains(t, []Result{ResultOK, ResultMiss}, r.ended[1000].Result)
	if r.ended[1000].Result == ResultOK {
		require.True(t, bytes.Equal(value(0, 100000), r.pool[15*rigSlot:][:100000]))
	}
}

func TestCompletionsOfNothingPanic(t *testing.T) {
	r := newRig(t, 4, nil)
	io, ok := r.l.NextIO()
	require.True(t, ok)
	done := *io
	r.done(done)
	require.Panics(t, func() { r.l.Done(done.ID, 0, 0) }, "a second time")
	require.Panics(t, func() { r.l.Done(1<<40|uint64(len(r.l.ops)), 0, 0) })
}

func TestStatesMoveOnlyAsTheTablesSay(t *testing.T) {
	walk(t, putMoves, putOvertaken, map[[2]putState]bool{{putWriting, putListed}: true, {putDropped, putWriting}: false})
	walk(t, groupMoves, groupFailing, map[[2]groupState]bool{{groupHeader, groupFree}: true, {groupFailing, groupHeader}: false})
	walk(t, fenceMoves, fenceSyncing, map[[2]fenceState]bool{{fenceSyncing, fenceQueued}: true, {fenceWaiting, fenceFree}: false})
	walk(t, segmentMoves, segmentDraining, map[[2]segmentState]bool{{segmentReady, segmentActive}: true, {segmentDraining, segmentReady}: false})
	walk(t, readMoves, readChecking, map[[2]readState]bool{{readSumming, readChecking}: true, {readFree, readSumming}: false})
	walk(t, packMoves, packWriting, map[[2]packState]bool{{packClosed, packWriting}: true, {packFree, packClosed}: false})
	walk(t, bufferMoves, bufferWriting, map[[2]bufferState]bool{{bufferReading, bufferWriting}: true, {bufferFree, bufferWriting}: false})
	walk(t, phaseMoves, phaseClosed, map[[2]phaseState]bool{{phaseOpen, phaseClosing}: true, {phaseClosed, phaseOpen}: false})
	walk(t, healthMoves, healthStalled, map[[2]healthState]bool{{healthDegraded, healthOK}: true})
}

// walk tries every pair of states: a legal move changes the state, an illegal one panics and changes nothing.
func walk[S state](t *testing.T, m moves, last S, known map[[2]S]bool) {
	t.Helper()
	require.Len(t, m, int(last)+1)
	require.Equal(t, "unknown", (last + 1).String())
	names := make(map[string]bool)
	for from := S(0); from <= last; from++ {
		require.NotEqual(t, "unknown", from.String())
		require.False(t, names[from.String()])
		names[from.String()] = true
		reached := 0
		for next := S(0); next <= last; next++ {
			at := from
			if want, ok := known[[2]S{from, next}]; ok {
				require.Equal(t, want, m.legal(uint8(from), uint8(next)), "%v to %v", from, next)
			}
			if m.legal(uint8(from), uint8(next)) {
				reached++
				require.NotPanics(t, func() { move(m, "thing", &at, next) })
				require.Equal(t, next, at)
				continue
			}
			require.PanicsWithValue(t, fmt.Sprintf("l2/seglog: thing moves from %v to %v", from, next), func() { move(m, "thing", &at, next) })
			require.Equal(t, from, at)
		}
		if any(from) != any(phaseClosed) {
			require.Positive(t, reached, "%v is a dead end", from)
		}
	}
}

func TestNamesOfWhatTheCallerSees(t *testing.T) {
	for k := IORead; k <= IOSpace; k++ {
		require.NotEqual(t, "unknown", k.String())
	}
	for k := OutcomePut; k <= OutcomeFence; k++ {
		require.NotEqual(t, "unknown", k.String())
	}
	for k := ResultOK; k <= ResultSuperseded; k++ {
		require.NotEqual(t, "unknown", k.String())
	}
	for k := StateOK; k <= StateStalled; k++ {
		require.NotEqual(t, "unknown", k.String())
	}
	require.Equal(t, "unknown", (StateStalled + 1).String())
}
