package seglog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Tools can tell a value that a killed process had not finished from one that decayed, though it was copied since: what nobody has
// found to be whole is copied as it is.
func TestACopyOfAnEarlyRecordIsEarlyUntilItIsKnownToBeWhole(t *testing.T) {
	const size = 40000
	r := newRig(t, 5, bigger)
	r.run()
	for n := range 3 {
		r.putSummed(n, size)
		if n == 1 { // its value is lost, its header is not
			k := key(n)
			r.broken = func(io *IO) int64 {
				if o := r.l.ops[uint32(io.ID)].task; o.use == usePayload && r.l.puts.at(o.owner).rec.key == k {
					return -5
				}
				return 0
			}
		}
		r.run()
		r.broken = nil
		require.Equal(t, n != 1, r.has(n))
		r.tick(backoffMax)
	}
	for n := range 40 { // a quarter of a segment's bytes are copied at most
		r.store(10+n, size)
	}
	r.restart()
	r.run()
	for n := range 3 {
		found, _ := r.stored(n)
		require.True(t, found.Early, "key %d", n)
	}
	r.sees(0, size)

	// Reads of the two others are under way until both are copied.
	var held []IO
	for n := 1; n < 3; n++ {
		k := key(n)
		require.True(t, r.l.Read(&k, Mem{Off: int64(8+n) * rigSlot, Len: rigSlot}, Token(1<<20+n)))
	}
	for n := 100; r.l.Stats().Reinserted < 3; n++ {
		require.Less(t, n, 1000)
		r.put(n, size)
		for {
			r.l.Flush()
			io, ok := r.l.NextIO()
			if !ok {
				break
			}
			if io.Load {
				held = append(held, *io)
				continue
			}
			r.done(*io)
		}
		r.drain()
	}
	check := func(early ...bool) {
		t.Helper()
		for n := range early {
			found, _ := r.stored(n)
			require.Equal(t, early[n], found.Early, "key %d", n)
		}
	}
	check(false, true, true)
	for _, io := range held {
		r.done(io)
	}
	r.run()
	require.Equal(t, ResultMiss, r.ended[1<<20+1].Result)
	require.Equal(t, ResultOK, r.ended[1<<20+2].Result)
	require.Nil(t, r.load(1))
	r.sees(2, size)
	check(false, true, true)
	r.restart() // the copies are in a segment that gets its footer now
	r.run()
	check(false, true, true)
	require.Nil(t, r.load(1))
	r.sees(2, size)
	r.check()
}
