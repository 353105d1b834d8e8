package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// walk tries every pair of states and requires that exactly the legal moves are made.
func walk[S interface {
	~uint8
	fmt.Stringer
}](t *testing.T, last S, legal string, moveTo func(from, to S) S,
) {
	t.Helper()
	want := map[string]bool{}
	for _, m := range strings.Fields(legal) {
		want[m] = true
	}
	seen := 0
	for from := S(0); from <= last; from++ {
		require.NotContains(t, from.String(), "(", "a state without a name")
		for to := S(0); to <= last; to++ {
			name := from.String() + ">" + to.String()
			if !want[name] {
				require.Panics(t, func() { moveTo(from, to) }, name)
				continue
			}
			require.Equal(t, to, moveTo(from, to), name)
			seen++
		}
	}
	require.Len(t, want, seen, "a move that is to be legal has no such states")
	require.Contains(t, (last + 1).String(), "(", "one state more than are walked has a name")
}

func TestConnectionsMakeLegalMovesOnly(t *testing.T) {
	walk(t, connClosing, "free>new new>ready new>closing new>free ready>closing ready>free closing>free",
		func(from, to connState) connState {
			c := conn{state: from}
			c.moveTo(to)
			return c.state
		})
}

func TestInstancesMakeLegalMovesOnly(t *testing.T) {
	walk(t, instDraining, "free>live live>detached live>draining detached>live detached>draining draining>free",
		func(from, to instState) instState {
			i := instance{state: from}
			i.moveTo(to)
			return i.state
		})
}

func TestTransfersMakeLegalMovesOnly(t *testing.T) {
	walk(t, transferQuarantined, `free>building building>loading building>open building>free loading>open loading>free
		open>moving open>quarantined open>free moving>abandoned moving>free abandoned>free quarantined>free`,
		func(from, to transferState) transferState {
			p := transfer{state: from}
			p.moveTo(to)
			return p.state
		})
}

func TestEntriesMakeLegalMovesOnly(t *testing.T) {
	walk(t, entryFailed, `free>staged free>waiting free>held staged>free waiting>held waiting>failed waiting>free
		held>free failed>free`,
		func(from, to entryState) entryState {
			n := entry{state: from}
			n.moveTo(to)
			return n.state
		})
}
