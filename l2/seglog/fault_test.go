package seglog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// away makes every write fail as if the device were full.
func away(io *IO) int64 {
	switch io.Kind {
	case IOWrite, IOCreate, IORemove:
		return -28
	case IORead, IOSum, IOCopy, IOSync, IOSpace:
	}
	return 0
}

func TestAFullDiskDegradesAndComesBackByItself(t *testing.T) {
	r := newRig(t, 6, nil)
	r.store(1, 50000)
	r.broken = away
	a, b := r.put(2, 50000), r.put(3, 50000)
	r.run()
	require.Equal(t, ResultIO, r.ended[a].Result)
	require.Equal(t, ResultIO, r.ended[b].Result)
	require.Equal(t, StateDegraded, r.l.State())
	require.False(t, r.has(2) || r.has(3))
	k := key(4)
	require.False(t, r.l.Put(&k, Mem{Len: rigSlot}, 100, 1000), "refused")
	r.sees(1, 50000)

	writes := r.l.Stats().IOErrors
	r.run()
	require.Equal(t, writes, r.l.Stats().IOErrors, "nothing is tried without a tick")
	for range 100 {
		r.tick(time.Second)
	}
	tries := r.l.Stats().IOErrors - writes
	require.Positive(t, tries)
	require.Less(t, tries, uint64(20), "the retries back off")

	r.broken = nil
	for range 31 {
		r.tick(time.Second)
	}
	require.Equal(t, StateOK, r.l.State())
	r.store(4, 50000)
	r.sees(4, 50000)
	r.sees(1, 50000)
}

func TestADeleteWhileTheDiskIsAwayIsOwedAndNothingIsServedUntilItIsWritten(t *testing.T) {
	r := newRig(t, 6, nil)
	r.store(1, 100)
	r.store(2, 100)
	r.broken = away
	r.put(3, 100)
	r.run()
	tok := r.delete(1)
	require.NotZero(t, tok)
	r.drain()
	require.Equal(t, Outcome{Token: tok, Kind: OutcomeFence, Result: ResultNotDurable}, r.ended[tok])
	require.False(t, r.has(1) || r.has(2), "nothing is served")
	again := r.delete(1)
	require.NotZero(t, again, "it is still not durable")
	r.drain()
	require.Equal(t, ResultNotDurable, r.ended[again].Result)
	require.EqualValues(t, 1, r.l.Stats().FencesOwed, "and owed once")
	require.Zero(t, r.delete(77), "of a key that never was there is nothing to write")

	r.broken = nil
	r.tick(2 * time.Second)
	require.Equal(t, StateOK, r.l.State())
	require.True(t, r.has(2))
	require.False(t, r.has(1))
	r.restart()
	require.True(t, r.has(2))
	require.False(t, r.has(1))
}

func TestADeleteInFlightWhenTheDiskGoesIsAnsweredNotDurable(t *testing.T) {
	r := newRig(t, 6, nil)
	r.store(1, 100)
	tok := r.delete(1)
	r.broken = away
	r.run()
	require.Equal(t, ResultNotDurable, r.ended[tok].Result)
	r.broken = nil
	r.tick(2 * time.Second)
	r.restart()
	require.False(t, r.has(1))
}

func TestDeletesWithoutEndWhileTheDiskIsAwayBecomeOneThatClearsAll(t *testing.T) {
	r := newRig(t, 6, func(c *Config) { c.MaxFences = 10 })
	for n := range 40 {
		r.store(n, 100)
	}
	r.broken = away
	r.put(99, 100)
	r.run()
	for n := range 15 {
		require.NotZero(t, r.delete(n))
		require.LessOrEqual(t, r.l.Stats().FencesOwed, uint64(11))
		r.check()
	}
	r.broken = nil
	r.tick(2 * time.Second)
	require.Equal(t, StateOK, r.l.State())
	for n := range 40 {
		require.False(t, r.has(n))
	}
	r.store(50, 100)
	r.restart()
	for n := range 40 {
		require.False(t, r.has(n))
	}
	require.True(t, r.has(50))
}

func TestADeleteAfterAPutWithUnknownEndWritesATombstone(t *testing.T) {
	r := newRig(t, 6, nil)
	r.run()
	header := false
	r.broken = func(io *IO) int64 {
		if r.l.ops[uint32(io.ID)].task.use != useHeader || header {
			return 0
		}
		header = true // it does reach the disk
		r.disk.write(io.Addr.Segment, r.cfg.Arena[io.Mem.Off:][:io.Mem.Len], io.Addr.Off, func() bool { return true })
		return -5
	}
	tok := r.put(1, 100)
	r.run()
	require.Equal(t, ResultIO, r.ended[tok].Result)
	require.False(t, r.has(1))
	r.tick(2 * time.Second)
	require.Equal(t, StateOK, r.l.State())
	require.NotZero(t, r.delete(1), "the disk may hold a record")
	r.run()
	r.restart()
	require.False(t, r.has(1))
}

func TestDeletingTwiceWaitsForTheFirstTombstone(t *testing.T) {
	r := newRig(t, 6, nil)
	r.store(1, 100)
	require.NotZero(t, r.delete(1))
	tok := r.delete(1)
	require.NotZero(t, tok, "the first is not on disk yet")
	r.run()
	require.Equal(t, ResultOK, r.ended[tok].Result)
	require.Zero(t, r.delete(1))
	require.Positive(t, r.l.Stats().Tombstones)
}

func TestAClearWaitsForPutsItOvertook(t *testing.T) {
	for _, size := range []int64{100, 100000} {
		clearWaits(t, size)
	}
}

func clearWaits(t *testing.T, size int64) {
	r := newRig(t, 6, nil)
	r.run()
	put := r.put(1, size)
	r.l.Flush()
	var held []IO // the put's I/Os
	for {
		io, ok := r.l.NextIO()
		if !ok {
			break
		}
		if u := r.l.ops[uint32(io.ID)].task.use; u == usePayload || u == usePutSum || u == usePutCopy {
			held = append(held, *io)
			continue
		}
		r.done(*io)
	}
	require.NotEmpty(t, held)
	r.tok++
	clear := r.tok
	require.True(t, r.l.Clear(0, clear))
	r.run()
	require.NotContains(t, r.ended, clear)
	for _, io := range held {
		r.done(io)
	}
	r.run()
	require.Equal(t, ResultSuperseded, r.ended[put].Result)
	require.Equal(t, ResultOK, r.ended[clear].Result)
	r.restart()
	require.False(t, r.has(1))
}

func TestAClearTakesItsNamespaceOnly(t *testing.T) {
	r := newRig(t, 6, nil)
	require.False(t, r.l.Clear(0, 900), "there is nothing")
	for n := range 30 {
		r.store(n, 100)
		r.store(1<<16|n, 100)
	}
	r.tok++
	require.True(t, r.l.Clear(0, r.tok))
	require.False(t, r.has(3))
	require.True(t, r.has(1<<16|3))
	r.store(3, 100)
	look := func() {
		for n := range 30 {
			require.Equal(t, n == 3, r.has(n))
			require.True(t, r.has(1<<16|n))
		}
	}
	look()
	r.restart()
	look()
	require.Len(t, r.l.cleared, 0)
}

func TestAFailedReadIsAMissFromThenOn(t *testing.T) {
	for name, res := range map[string]int64{"error": -5, "short": 512, "nothing": -61} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 6, func(c *Config) { c.IOSize = BlockSize })
			r.store(1, 40000)
			r.store(2, 30000)
			n := 0
			r.broken = func(io *IO) int64 {
				if n++; io.Kind == IORead && n == 3 {
					return res
				}
				return 0
			}
			require.Nil(t, r.load(1))
			require.False(t, r.has(1))
			require.EqualValues(t, 1, r.l.Stats().BadRecords)
			r.sees(2, 30000)
			require.Equal(t, StateOK, r.l.State(), "reads do not degrade")
			r.broken = nil
			require.NotZero(t, r.delete(1), "the record is still on disk")
			r.run()
			r.restart()
			require.False(t, r.has(1))
		})
	}
}

func TestMemoryThatCannotBeReadIsNotTheRecordsFault(t *testing.T) {
	for _, size := range []int64{100, 100000} {
		r := newRig(t, 6, nil)
		r.store(1, size)
		r.broken = func(io *IO) int64 {
			if io.Kind == IOSum || io.Kind == IOCopy {
				return -14
			}
			return 0
		}
		tok := r.put(2, size)
		r.run()
		require.Equal(t, ResultIO, r.ended[tok].Result)
		require.Nil(t, r.load(1))
		r.broken = nil
		r.sees(1, size)
		require.Equal(t, StateOK, r.l.State())
		require.Zero(t, r.l.Stats().BadRecords)
	}
}

func TestAFileThatCannotBeCreatedLeavesASmallerStore(t *testing.T) {
	r := newRig(t, 6, nil)
	created := 0
	r.broken = func(io *IO) int64 {
		if io.Kind == IOCreate {
			if created++; created > 2 {
				return -28
			}
		}
		return 0
	}
	for n := range 50 {
		r.store(n, 50000)
	}
	require.Equal(t, StateOK, r.l.State())
	require.EqualValues(t, 2*r.cfg.SegmentSize, r.l.Stats().DiskBytes)
	r.broken = nil
	r.tick(fileRetry + time.Second)
	for n := range 50 {
		r.store(n, 50000)
	}
	require.EqualValues(t, 6*r.cfg.SegmentSize, r.l.Stats().DiskBytes)
}

func TestASegmentThatCannotBeWrittenIsGivenUp(t *testing.T) {
	r := newRig(t, 6, nil)
	r.store(1, 100)
	bad := r.l.segs[r.l.active].id
	r.broken = func(io *IO) int64 {
		if io.Kind == IOWrite && io.Addr.Segment == bad {
			return -5
		}
		return 0
	}
	r.put(2, 100)
	for range 60 {
		r.tick(time.Second)
	}
	require.Equal(t, StateOK, r.l.State())
	r.store(3, 100)
	r.sees(1, 100)
}

func TestCloseWhileTheDiskIsAwayEnds(t *testing.T) {
	r := newRig(t, 6, nil)
	r.store(1, 100)
	r.broken = away
	r.put(2, 100)
	r.close()
	r.broken = nil
	r.restart()
	require.True(t, r.has(1))
}

func TestCloseWritesWhatIsQueued(t *testing.T) {
	r := newRig(t, 6, nil)
	var toks []Token
	for n := range 8 {
		toks = append(toks, r.put(n, 60000))
	}
	r.close()
	for _, tok := range toks {
		require.Equal(t, ResultOK, r.ended[tok].Result)
	}
	k := key(99)
	require.False(t, r.l.Put(&k, Mem{Len: rigSlot}, 100, 99))
	require.False(t, r.l.Read(&k, Mem{Len: rigSlot}, 99))
	r.restart()
	for n := range 8 {
		require.True(t, r.has(n))
	}
}

// A client punches holes: what is read goes to pages that nobody sees any more, and a record that is whole is taken for a bad one
// and given up. It is read once more, and only then.
func TestWhatDoesNotArriveIsReadOnceMore(t *testing.T) {
	const size = 30 * BlockSize
	lost := func(io *IO) bool { return io.Kind == IORead && io.Load && !io.Mem.Own }
	for name, c := range map[string]struct {
		again bool // the second read is lost, too
		do    func(r *rig)
		want  Result
		there bool
	}{
		"it comes":        {want: ResultOK, there: true},
		"it is bad":       {again: true, want: ResultMiss},
		"it was deleted":  {do: func(r *rig) { r.delete(1) }, want: ResultMiss},
		"it is overtaken": {do: func(r *rig) { r.put(1, size) }, want: ResultOK, there: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 6, func(c *Config) { c.IOSize = BlockSize })
			r.store(1, size)
			reads, again := 0, 0
			r.broken = func(io *IO) int64 {
				if io.Kind == IOSum && c.do != nil {
					do := c.do
					c.do = nil
					do(r)
				}
				if !lost(io) {
					return 0
				}
				reads++
				if io.Again {
					again++
				}
				if !io.Again || c.again {
					return io.Mem.Len
				}
				return 0
			}
			k := key(1)
			r.tok++
			tok := r.tok
			clear(r.pool[:size])
			require.True(t, r.l.Read(&k, Mem{Len: AlignUp(size)}, tok))
			r.run()
			require.Equal(t, c.want, r.ended[tok].Result)
			require.Equal(t, c.there, r.has(1))
			if c.want == ResultOK {
				require.Equal(t, value(1, size), r.pool[:size])
				require.EqualValues(t, 1, r.l.Stats().Rereads)
				require.Equal(t, reads/2, again, "the value once more, and not what is beside it")
			}
			r.check()
		})
	}
}

// Clears without end while the disk hangs take memory without end: with a put from before under way nothing of it is swept.
func TestClearsWhileTheDiskHangsAreBounded(t *testing.T) {
	r := newRig(t, 8, func(c *Config) { c.MaxFences = 20 })
	r.store(1, 50000)
	r.put(2, 50000)
	held := r.hang()
	require.NotEmpty(t, held)
	r.wait(6 * time.Second)
	require.Equal(t, StateStalled, r.l.State())
	for n := range uint64(1000) {
		r.tok++
		require.True(t, r.l.Clear(n%500, r.tok))
		r.drain()
		require.Equal(t, ResultNotDurable, r.ended[r.tok].Result)
		r.l.Flush()
		require.LessOrEqual(t, r.l.sweeps.n, r.cfg.MaxFences+2)
		require.LessOrEqual(t, len(r.l.cleared), r.cfg.MaxFences+2)
	}
	r.check()
	for _, io := range held {
		r.done(io)
	}
	r.tick(time.Second)
	require.Equal(t, StateOK, r.l.State())
	require.Zero(t, r.l.sweeps.n)
	require.Empty(t, r.l.cleared)
	require.False(t, r.has(1) || r.has(2))
	r.store(3, 50000)
	r.restart()
	require.False(t, r.has(1) || r.has(2))
	r.sees(3, 50000)
}
