package ring

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// looks tells for how many of 1,000 waits that bring so many completions each a lookout looks, with what comes of each look.
func looks(l *lookout, completions int, found bool) (sum int) {
	for range 1000 {
		if l.time() > 0 {
			sum++
			l.looked(found)
		}
		l.brought(completions)
	}
	return sum
}

// slept tells how many waits in a row a lookout has no look for.
func slept(l *lookout) (sum int) {
	for l.brought(3); l.time() == 0; l.brought(3) {
		sum++
	}
	return sum
}

func TestALoopLooksBeforeItSleepsWhileThatPays(t *testing.T) {
	const d = 50 * time.Microsecond
	l := lookout{pays: d}
	require.Zero(t, looks(&l, 1, true), "one completion at a time")
	require.Equal(t, 1000/probeEvery, looks(&l, 3, false), "nothing is found: probes only")
	require.GreaterOrEqual(t, looks(&l, 3, true), 1000-probeEvery, "something is found")
	require.Equal(t, d, l.time())
	require.Equal(t, trustMax+(1000-trustMax)/probeEvery, looks(&l, 3, false), "it ends")
	require.GreaterOrEqual(t, looks(&l, 3, true), 1000-probeEvery)
	require.LessOrEqual(t, looks(&l, 1, true), severalFor, "a single peer is left")

	single := lookout{pays: d}
	for range 2 * probeEvery {
		single.expected = true
		if single.time() > 0 {
			single.looked(true)
		}
		single.brought(1)
	}
	single.expected = true
	require.Equal(t, d, single.time(), "more is expected")
	require.Zero(t, single.time(), "but that was before")

	off := lookout{expected: true}
	require.Zero(t, looks(&off, 3, true))
	shared := lookout{pays: d}
	require.GreaterOrEqual(t, looks(&shared, 3, true), 1000-probeEvery)
	shared.contended(499)
	require.Equal(t, d, shared.time(), "others want the processor now and then")
	for shared.waits = 1; !shared.looked(true); shared.waits++ {
	}
	require.EqualValues(t, sampleEvery, shared.waits)
	shared.contended(499 + sampleEvery/2)
	require.Equal(t, restFor+probeEvery-1, slept(&shared), "in every other wait")
	require.GreaterOrEqual(t, looks(&shared, 3, true), 1000-probeEvery)

	always := lookout{always: d, pays: 1}
	require.Equal(t, 1000, looks(&always, 1, false))
	require.Equal(t, d, always.time())
}

// A loop that was told of a request that others follow finds the next one without having slept.
func TestARingLooksForWhatIsExpected(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u, err := New(Config{Ops: 8, Control: 8, Look: time.Minute})
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, u.Close()) }()
	u.look.trust = trustMax
	for i, expected := range []bool{false, true, false, true} {
		before := u.Stats()
		if expected {
			u.Expect()
		}
		u.Timer(NewTag(uint32(i), 1), 2*time.Millisecond) // it cannot have fired when the wait begins to look
		got, err := u.Wait(make([]Completion, 0, 8))
		require.NoError(t, err)
		require.Equal(t, []Completion{{Kind: KindTimer, Tag: NewTag(uint32(i), 1)}}, got)
		after := u.Stats()
		if !expected {
			require.Equal(t, before.Looks, after.Looks)
		} else if after.Looks > before.Looks { // unless this thread was held up until the timer had fired
			require.Equal(t, before.Looks+1, after.Looks)
			require.Equal(t, before.Found+1, after.Found)
			require.Equal(t, before.Enters+2, after.Enters, "one submits, and one takes what was found")
		}
	}
	require.Positive(t, u.Stats().Looks)
}
