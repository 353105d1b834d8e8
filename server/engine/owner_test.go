package engine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// One process registers without end and keeps everybody out: it gets half of the places at most once three quarters are
// taken, and others still come in. What it has stays its own, and is free for others as it goes.
func TestOneProcessLeavesPlacesToOthers(t *testing.T) {
	const conns, instances = 64, 32
	for name, c := range map[string]struct {
		most, other int // of the greedy one's registrations, and what others have meanwhile
		register    func(w *world, n int) (*client, proto.Status)
	}{
		"instances": {24, 0, func(w *world, n int) (*client, proto.Status) {
			c := w.connect(7)
			return c, c.register(uint64(n+1), "space", proto.TransportShared).h.Status
		}},
		"instances beside others": {16, 8, func(w *world, n int) (*client, proto.Status) {
			c := w.connect(7)
			return c, c.register(uint64(n+1), "space", proto.TransportShared).h.Status
		}},
		"connections of one": {48, 0, func(w *world, _ int) (*client, proto.Status) {
			c := w.connect(7)
			return c, c.register(1, "space", proto.TransportShared).h.Status
		}},
		"by a token from another host": {24, 0, func(w *world, n int) (*client, proto.Status) {
			w.token = "greedy"
			c := w.connect(0)
			w.token = ""
			return c, c.register(uint64(n+1), "space", proto.TransportInline).h.Status
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{slots: 8, cfg: Config{Conns: conns, Instances: instances}})
			for n := range c.other {
				w.worker(uint64(1000+n), int32(100+n))
			}
			var mine []*client
			for n := range instances + conns {
				a, st := c.register(w, n)
				if st == proto.StatusBusy {
					a.close()
					break
				}
				require.Equal(t, proto.StatusOK, st)
				mine = append(mine, a)
			}
			require.Len(t, mine, c.most)
			_, st := c.register(w, 5000)
			require.Equal(t, proto.StatusBusy, st, "again")
			for n := range 4 {
				w.worker(uint64(2000+n), int32(200+n))
			}
			require.EqualValues(t, 2, w.e.counters.Crowded)
			require.Zero(t, mine[len(mine)-1].hits("a"), "what it has goes on")
			for _, a := range mine {
				a.close()
			}
			for n := range 8 {
				w.worker(uint64(3000+n), 9)
			}
			require.NoError(t, w.e.CheckInvariants())
		})
	}
}

// Thousands of namespaces push others out: those that never held anything go first, then those left longest ago; one
// with an instance never does.
func TestNamespacesThatCameAndWentPushNobodyOut(t *testing.T) {
	w := newWorld(t, setup{slots: spacesMax + 64, quiet: true, cfg: Config{Objects: 2 * spacesMax}})
	comes := func(pid int32, space string, key string) {
		w.now++
		c := w.workerIn(uint64(pid), pid, space)
		if key != "" {
			c.store(slotSize, key)
		}
		require.Equal(t, proto.StatusOK, c.call(proto.OpUnregister, 0, nil, nil).h.Status)
		c.close()
	}
	has := func(space, key string) int {
		c := w.workerIn(99, 99, space)
		defer c.close()
		return c.hits(key)
	}
	stays := w.workerIn(1, 1, "stays")
	stays.store(slotSize, "s")
	comes(2, "older", "o")
	comes(3, "newer", "n")
	for n := range 2*spacesMax + 10 {
		comes(4, fmt.Sprint("nothing ", n), "")
	}
	require.Len(t, w.e.spaces, spacesMax)
	require.Equal(t, 1, has("older", "o"))
	require.Equal(t, 1, has("newer", "n"))
	comes(5, "older", "") // used once more, and so left later than the other
	for n := range spacesMax - 3 + 1 {
		comes(6, fmt.Sprint("something ", n), "x")
	}
	require.Equal(t, 1, has("older", "o"))
	require.Equal(t, 0, has("newer", "n"))
	require.Equal(t, 1, stays.hits("s"))
	require.NoError(t, w.e.CheckInvariants())
}
