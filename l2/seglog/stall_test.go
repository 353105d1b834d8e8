package seglog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hang hands out all that the log gives and carries none of it out.
func (r *rig) hang() []IO {
	var held []IO
	for {
		r.l.Flush()
		n := len(held)
		for {
			io, ok := r.l.NextIO()
			if !ok {
				break
			}
			if io.Kind == IOSum || io.Kind == IOCopy { // not the disk's
				r.done(*io)
				continue
			}
			held = append(held, *io)
		}
		r.drain()
		r.check()
		if n == len(held) {
			return held
		}
	}
}

// wait lets time pass as a driver does, with ticks when the log wants them.
func (r *rig) wait(d time.Duration) {
	for end := r.now + d; r.now < end; {
		at, ok := r.l.Overdue()
		if !ok || at > end {
			at = end
		}
		r.now = max(at, r.now+time.Millisecond)
		r.l.Tick(r.now)
		r.drain()
		r.check()
	}
}

// A write that hangs without an error holds nobody up for longer than the deadline: deletes are answered, loads and
// stores that the disk does not work on end, and those it works on keep their memory until it lets go of it.
func TestADiskThatHangsHoldsUpWhatItWorksOnAndNothingElse(t *testing.T) {
	r := newRig(t, 8, func(c *Config) { bigger(c); c.StallTime = 5 * time.Second; c.MaxInFlight = 4; c.IOSize = BlockSize })
	r.store(1, 50000)
	r.store(2, 50000)
	under := r.put(3, 50000) // some pieces of it are given to the disk
	behind := r.put(4, 50000)
	held := r.hang()
	require.NotEmpty(t, held)
	del := r.delete(1)
	require.NotZero(t, del)
	k := key(2)
	r.tok++
	load := r.tok
	require.True(t, r.l.Read(&k, Mem{Off: 9 * rigSlot, Len: rigSlot}, load))
	held = append(held, r.hang()...) // the tombstone and some of the load

	r.wait(4900 * time.Millisecond)
	require.Equal(t, StateOK, r.l.State())
	for _, tok := range []Token{under, behind, del, load} {
		require.NotContains(t, r.ended, tok)
	}
	r.wait(200 * time.Millisecond)
	require.Equal(t, StateStalled, r.l.State())
	require.EqualValues(t, 1, r.l.Stats().Stalls)
	require.NotContains(t, r.ended, under, "the disk may still read its bytes")
	require.Equal(t, ResultIO, r.ended[behind].Result)
	require.Equal(t, ResultNotDurable, r.ended[del].Result)
	require.Equal(t, ResultIO, r.ended[load].Result)
	require.False(t, r.has(2), "nothing is read")
	require.Empty(t, r.hang(), "nothing is written")
	del2 := r.delete(2)
	r.drain()
	require.Equal(t, ResultNotDurable, r.ended[del2].Result, "at once")
	require.False(t, r.l.Put(&k, Mem{Len: rigSlot}, 100, 1000))

	for i, io := range held { // it goes on
		require.Equal(t, StateStalled, r.l.State(), "%d", i)
		r.done(io)
		r.drain()
		r.check()
	}
	require.Equal(t, ResultIO, r.ended[under].Result)
	require.Equal(t, StateDegraded, r.l.State())
	require.False(t, r.has(2), "a delete is owed")
	r.tick(time.Millisecond)
	require.Equal(t, StateOK, r.l.State())
	require.Zero(t, r.l.Stats().FencesOwed)
	require.False(t, r.has(1))
	require.False(t, r.has(2))
	r.store(5, 50000)
	r.sees(5, 50000)
	r.restart()
	require.False(t, r.has(1), "the deletes are on disk now")
	require.False(t, r.has(2))
	r.sees(5, 50000)
}

// A read that hangs ends well when the disk comes back, and its record is none the worse for it.
func TestAReadThatHangsIsNoBadRecord(t *testing.T) {
	r := newRig(t, 8, func(c *Config) { bigger(c); c.MaxInFlight = 4; c.IOSize = BlockSize })
	r.store(1, 50000)
	k := key(1)
	r.tok++
	load := r.tok
	require.True(t, r.l.Read(&k, Mem{Off: 9 * rigSlot, Len: rigSlot}, load))
	held := r.hang()
	require.NotEmpty(t, held)
	r.wait(6 * time.Second)
	require.Equal(t, StateStalled, r.l.State(), "five seconds are the default")
	require.NotContains(t, r.ended, load)
	for _, io := range held {
		r.done(io)
	}
	r.drain()
	require.Equal(t, ResultIO, r.ended[load].Result)
	require.Zero(t, r.l.Stats().BadRecords)
	r.tick(time.Second)
	r.sees(1, 50000)
}

// A value that did not arrive cannot be read once more from a disk that hangs: its record stays until it can.
func TestAValueThatDidNotArriveIsNoBadRecordWhileTheDiskHangs(t *testing.T) {
	const size = 50000
	r := newRig(t, 8, func(c *Config) { bigger(c); c.MaxInFlight = 4 })
	r.store(1, size)
	k := key(1)
	r.tok++
	load := r.tok
	require.True(t, r.l.Read(&k, Mem{Off: 9 * rigSlot, Len: rigSlot}, load))
	for _, io := range r.handed() {
		r.done(io)
	}
	sum := r.handed()
	require.Len(t, sum, 1)
	require.Equal(t, IOSum, sum[0].Kind)
	r.put(2, size)
	held := r.hang()
	require.NotEmpty(t, held)
	r.wait(6 * time.Second)
	require.Equal(t, StateStalled, r.l.State())
	clear(r.pool[9*rigSlot:][:size]) // it went to pages that are not there any more
	r.done(sum[0])
	r.drain()
	require.Equal(t, ResultIO, r.ended[load].Result)
	require.Zero(t, r.l.Stats().BadRecords)
	for _, io := range held {
		r.done(io)
	}
	r.tick(time.Second)
	r.sees(1, size)
}

// A process that was stopped for an hour has no disk that took an hour.
func TestAStoppedClockIsNoStalledDisk(t *testing.T) {
	r := newRig(t, 8, nil)
	tok := r.put(1, 50000)
	held := r.hang()
	require.NotEmpty(t, held)
	r.now += time.Hour
	r.l.Tick(r.now)
	require.Equal(t, StateOK, r.l.State())
	for _, io := range held {
		r.done(io)
	}
	r.run()
	require.Equal(t, ResultOK, r.ended[tok].Result)
	_, ok := r.l.Overdue()
	require.False(t, ok, "nothing is in flight")
}
