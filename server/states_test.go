package server

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// walk tries every move between the states of a machine, and that no other is legal.
func walk[S ~uint8](t *testing.T, names []string, moves map[string]string, move func(from, to S)) {
	t.Helper()
	for from := range names {
		for to := range names {
			legal := false
			for _, name := range strings.Fields(moves[names[from]]) {
				legal = legal || name == names[to]
			}
			f := func() { move(S(from), S(to)) }
			if legal {
				require.NotPanics(t, f, "%s to %s", names[from], names[to])
			} else {
				require.Panics(t, f, "%s to %s", names[from], names[to])
			}
		}
	}
}

func TestConnectionsMoveAsDrawn(t *testing.T) {
	walk(t, connNames[:], map[string]string{
		"free": "open", "open": "ended draining closing", "ended": "draining closing", "draining": "closing", "closing": "free",
	}, func(from, to connState) { c := conn{state: from}; c.moveTo(to); require.Equal(t, to, c.state) })
}

func TestReceivesMoveAsDrawn(t *testing.T) {
	walk(t, recvNames[:], map[string]string{
		"off": "armed", "armed": "off pausing ended broken", "pausing": "off ended broken",
	}, func(from, to recvState) { c := conn{recv: from}; c.recvTo(to); require.Equal(t, to, c.recv) })
}

func TestSendsMoveAsDrawn(t *testing.T) {
	walk(t, sendNames[:], map[string]string{
		"idle": "tried busy", "tried": "idle full", "full": "busy", "busy": "idle",
	}, func(from, to sendState) { o := output{state: from}; o.moveTo(to); require.Equal(t, to, o.state) })
}

func TestWatchesMoveAsDrawn(t *testing.T) {
	walk(t, watchNames[:], map[string]string{
		"free": "armed", "armed": "free pausing refused", "pausing": "free", "refused": "armed free",
	}, func(from, to watchState) { w := watch{state: from}; w.moveTo(to); require.Equal(t, to, w.state) })
}

func TestListenersMoveAsDrawn(t *testing.T) {
	walk(t, listenNames[:], map[string]string{
		"off": "armed closed", "armed": "off resting pausing", "resting": "off closed", "pausing": "closed",
	}, func(from, to listenState) { l := listener{state: from}; l.moveTo(to); require.Equal(t, to, l.state) })
}

func TestTheLoopMovesAsDrawn(t *testing.T) {
	walk(t, lifeNames[:], map[string]string{
		"running": "stopping over", "stopping": "over", "over": "over",
	}, func(from, to lifeState) { r := reactor{life: from}; r.lifeTo(to); require.Equal(t, to, r.life) })
}

func TestStatesHaveNames(t *testing.T) {
	require.Equal(t, "draining", connDraining.String())
	require.Equal(t, "broken", recvBroken.String())
	require.Equal(t, "tried", sendTried.String())
	require.Equal(t, "refused", watchRefused.String())
	require.Equal(t, "resting", listenResting.String())
	require.Equal(t, "over", lifeOver.String())
	require.Equal(t, "connState(9)", connState(9).String())
	require.Equal(t, "recvState(9)", recvState(9).String())
	require.Equal(t, "sendState(9)", sendState(9).String())
	require.Equal(t, "watchState(9)", watchState(9).String())
	require.Equal(t, "listenState(9)", listenState(9).String())
	require.Equal(t, "lifeState(9)", lifeState(9).String())
}

func TestBuffersAreReusedAndGivenBack(t *testing.T) {
	var b buffers
	for _, n := range []int{1, bufferMin, bufferMin + 1, 64 << 10, 64<<10 + 1, bufferSpare} {
		p, err := b.take(n)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(p), n)
		require.Less(t, len(p), max(2*n, bufferMin+1))
		require.EqualValues(t, len(p), b.held)
		p[0], p[len(p)-1] = 1, 1
		b.give(p)
		require.Zero(t, b.held)
		again, err := b.take(n)
		require.NoError(t, err)
		require.Same(t, &p[0], &again[0])
		b.give(again)
	}
	var taken [][]byte
	const size, kept = 64 << 10, bufferSpare / (64 << 10)
	for range 2 * kept {
		p, err := b.take(size)
		require.NoError(t, err)
		taken = append(taken, p)
	}
	mapped := len(b.mapped)
	for _, p := range taken {
		b.give(p)
	}
	require.Equal(t, mapped-kept, len(b.mapped))
	large, err := b.take(3 * bufferSpare)
	require.NoError(t, err)
	b.give(large) // one alone is too much to keep
	require.Equal(t, mapped-kept, len(b.mapped))
	require.Panics(t, func() { b.give(make([]byte, 5000)) })
	b.close()
	require.Empty(t, b.mapped)
}

func TestSmallBuffersDoNotOverlap(t *testing.T) {
	var b buffers
	seen := make(map[*byte]bool)
	for range 2 * bufferChunk / bufferMin {
		p, err := b.take(10)
		require.NoError(t, err)
		require.Equal(t, bufferMin, cap(p))
		require.False(t, seen[&p[0]])
		seen[&p[0]] = true
	}
	require.Len(t, b.mapped, 2)
	b.close()
}
