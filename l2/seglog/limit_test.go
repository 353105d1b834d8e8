package seglog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValuesAreWrittenNoFasterThanTheLimit(t *testing.T) {
	const limit = 1 << 20
	for _, size := range []int64{200000, 20000} {
		r := newRig(t, 6, func(c *Config) { bigger(c); c.WriteLimit = limit; c.MaxEntries = 50000 })
		r.run()
		n, start := 0, r.l.Stats().WriteBytes
		for range 40 { // ten seconds
			for int64(r.l.puts.used())*size < 4*limit {
				n++
				slot := int64(n%8) * rigSlot
				k := key(n)
				require.True(t, r.l.Put(&k, Mem{Off: slot, Len: rigSlot}, size, Token(n)))
			}
			r.tick(250 * time.Millisecond)
			written := int64(r.l.Stats().WriteBytes - start)
			allowed := int64(float64(limit) * (1 + r.now.Seconds()))
			require.LessOrEqual(t, written, allowed+2<<20, "after %v", r.now)
		}
		written := int64(r.l.Stats().WriteBytes - start)
		require.Greater(t, written, int64(9*limit), "and not much slower")
		require.True(t, r.l.Throttled())

		r.tok = 1 << 20
		tok := r.delete(1) // deletes do not wait
		require.NotZero(t, tok)
		r.run()
		require.Equal(t, ResultOK, r.ended[tok].Result)
		r.close() // nor does the end
	}
}

func TestNoLimitIsNone(t *testing.T) {
	var b bucket
	b.take(1 << 40)
	require.False(t, b.dry())
	b = bucket{rate: 1000, tokens: 1000}
	b.take(1500)
	require.True(t, b.dry())
	for i := range 1000 { // steps in which less than a byte comes
		b.fill(time.Duration(i+1) * 500 * time.Microsecond)
	}
	require.InDelta(t, 0, b.tokens, 1)
	b.fill(time.Hour)
	require.EqualValues(t, 1000, b.tokens)
}

func TestNoFileIsMadeWhereTheFileSystemHasNoRoom(t *testing.T) {
	r := newRig(t, 8, func(c *Config) { c.FreeMin = 10 << 20 })
	r.l.SetFree(10<<20 + 5*r.cfg.SegmentSize)
	for n := range 100 {
		r.store(n, 50000)
	}
	s := r.l.Stats()
	// The first was created before it was told.
	require.LessOrEqual(t, int64(s.DiskBytes), 6*r.cfg.SegmentSize)
	require.Positive(t, s.EvictedSegments, "the oldest went instead")
	require.True(t, r.l.Cramped())
	require.Zero(t, s.IOErrors)
	require.Equal(t, StateOK, r.l.State())
	r.l.SetFree(1 << 40)
	for n := range 100 {
		r.store(n, 50000)
	}
	require.False(t, r.l.Cramped())
	for n := range 20 {
		r.store(n, 50000)
	}
	r.sees(19, 50000)
}

func TestAStoreWithoutRoomForOneFileIsDegradedUntilThereIs(t *testing.T) {
	r := newRig(t, 8, nil)
	r.l, _, _ = Recover(r.cfg, r.disk)
	r.space = 0
	r.l.SetFree(0)
	r.broken = func(io *IO) int64 { // the one that was queued before it was told
		if io.Kind == IOCreate {
			return -28
		}
		return 0
	}
	tok := r.put(1, 50000)
	r.run()
	require.Equal(t, ResultIO, r.ended[tok].Result)
	require.Equal(t, StateDegraded, r.l.State())
	r.broken = nil
	for range 60 {
		r.tick(time.Second)
	}
	require.Equal(t, StateDegraded, r.l.State())
	require.Zero(t, r.l.Stats().DiskBytes)
	r.space = 1 << 40 // nobody tells of it, the log asks
	for range 60 {
		r.tick(time.Second)
	}
	require.Equal(t, StateOK, r.l.State())
	r.store(2, 50000)
	r.sees(2, 50000)
}

// A file system that was full stays too full for ever, because nobody looks again: drivers look when a file was made or removed, and
// where there is no room for one none is. So the log asks for it.
func TestSpaceThatComesBackIsFoundWithoutBeingTold(t *testing.T) {
	r := newRig(t, 8, nil)
	r.l, _, _ = Recover(r.cfg, r.disk)
	free := int64(0)
	looks := 0
	mute := false
	r.broken = func(io *IO) int64 { // as a driver does: it looks after each file made or removed, and when it is asked
		switch io.Kind {
		case IOCreate, IORemove, IOSpace:
		case IORead, IOWrite, IOSum, IOSync, IOCopy:
			return 0
		}
		looks++
		if mute {
			return -5
		}
		res := int64(0)
		if free >= io.Mem.Len {
			free -= io.Mem.Len
		} else {
			res = -28
		}
		r.space = free
		r.l.SetFree(free)
		return res
	}
	r.l.SetFree(free)
	r.put(1, 50000)
	r.run()
	require.Equal(t, StateDegraded, r.l.State())
	wait := func() {
		looks = 0
		for range 100 {
			r.tick(time.Second)
		}
		require.LessOrEqual(t, looks, 100/30+1+3, "it is not asked for without end")
	}
	wait()
	require.Equal(t, StateDegraded, r.l.State())
	require.Zero(t, r.l.Stats().DiskBytes)

	free = 1 << 40
	mute = true // and a driver that cannot tell is asked again
	wait()
	require.Equal(t, StateDegraded, r.l.State())
	mute = false

	free = 4 * r.cfg.SegmentSize // room for three files and what is to stay free
	wait()
	require.Equal(t, StateOK, r.l.State())
	fill := func() {
		for n := range 40 {
			r.tick(time.Second)
			r.store(n, 50000)
		}
	}
	fill()
	require.EqualValues(t, 3*r.cfg.SegmentSize, r.l.Stats().DiskBytes)
	r.sees(39, 50000)

	free = 1 << 40
	wait()
	fill()
	require.EqualValues(t, r.cfg.Size, r.l.Stats().DiskBytes, "it grows with the room that there is")
	r.sees(39, 50000)
	r.restart()
	r.sees(39, 50000)
}
