package ring

import (
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

	off := lookout{}
	require.Zero(t, looks(&off, 3, true))
	always := lookout{always: d, pays: 1}
	require.Equal(t, 1000, looks(&always, 1, false))
	require.Equal(t, d, always.time())
}
