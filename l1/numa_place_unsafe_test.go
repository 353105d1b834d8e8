package l1

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/l1test"
)

func TestPlacementsAreRead(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Placement
	}{
		{"", Placement{}},
		{"interleave", Placement{Policy: PlaceInterleave}},
		{"bind:0", Placement{Policy: PlaceBind}},
		{"bind:17", Placement{Policy: PlaceBind, Node: 17}},
	} {
		got, err := ParsePlacement(c.in)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		require.Equal(t, c.in, got.String())
	}
	for _, s := range []string{"bind", "bind:", "bind:-1", "bind:x", "bind:1024", "bind:99999999999", "0", "Interleave", "bind:0,1"} {
		_, err := ParsePlacement(s)
		require.ErrorContains(t, err, "bind:N", s)
	}
}

func TestNodesAreReadAsTheKernelWritesThem(t *testing.T) {
	require.Equal(t, []int{0, 1, 2, 5}, parseNodes("0-2,5\n"))
	require.Equal(t, []int{0}, parseNodes("0"))
	require.Empty(t, parseNodes("\n"))
	require.Empty(t, parseNodes("0-9999,x,3-"))
}

func TestANodeThatIsNotThereIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		place Placement
		mask  uint64
		none  bool
		why   string
	}{
		"nothing wanted":     {nil, Placement{}, 0, false, ""},
		"no NUMA":            {nil, Placement{Policy: PlaceInterleave}, 0, true, ""},
		"no NUMA, node 0":    {nil, Placement{Policy: PlaceBind}, 0, true, ""},
		"no NUMA, node 1":    {nil, Placement{Policy: PlaceBind, Node: 1}, 0, false, "no NUMA nodes"},
		"all nodes":          {map[string]string{"has_memory": "0-1,3\n"}, Placement{Policy: PlaceInterleave}, 0b1011, false, ""},
		"all of the cpuset":  {map[string]string{"has_memory": "0-1,3\n", "allowed": "1-3"}, Placement{Policy: PlaceInterleave}, 0b1010, false, ""},
		"one":                {map[string]string{"has_memory": "0-1,3\n"}, Placement{Policy: PlaceBind, Node: 3}, 0b1000, false, ""},
		"not there":          {map[string]string{"has_memory": "0-1,3\n"}, Placement{Policy: PlaceBind, Node: 2}, 0, false, "node 2: the nodes with memory that this process may use are 0, 1, 3"},
		"not in the cpuset":  {map[string]string{"has_memory": "0-1\n", "allowed": "1"}, Placement{Policy: PlaceBind, Node: 0}, 0, false, "may use are 1"},
		"a node without any": {map[string]string{"has_memory": "1\n"}, Placement{Policy: PlaceBind, Node: 0}, 0, false, "may use are 1"},
	} {
		files := map[string]string{}
		if s, ok := c.files["has_memory"]; ok {
			files["sys/devices/system/node/has_memory"] = s
		}
		if s, ok := c.files["allowed"]; ok {
			files["proc/self/status"] = "Name: x\nMems_allowed_list:\t" + s + "\n"
		}
		w, none, err := newPlacer(system(t, files), c.place)
		if c.why != "" {
			require.ErrorContains(t, err, c.why, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.none, none, name)
		require.Equal(t, c.mask, w.mask[0], name)
	}
	_, err := Open(Config{Size: mib, Placement: Placement{Policy: PlaceBind, Node: 1023}})
	require.ErrorContains(t, err, "place the pool on node 1023")
}

// nodesOf asks the kernel on which nodes the pages of memory are.
func nodesOf(t *testing.T, b []byte, pageSize int) []int32 {
	t.Helper()
	n := len(b) / pageSize
	pages, status := make([]unsafe.Pointer, n), make([]int32, n)
	for i := range pages {
		pages[i] = unsafe.Pointer(&b[i*pageSize])
	}
	_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(n), uintptr(unsafe.Pointer(&pages[0])), 0, uintptr(unsafe.Pointer(&status[0])), 0)
	if errno != 0 {
		t.Skipf("the kernel does not tell where pages are: %v", errno)
	}
	return status
}

func TestPagesLieWhereThePlacementWantsThem(t *testing.T) {
	nodes, text := memoryNodes("/")
	if len(nodes) == 0 {
		t.Skip("the kernel knows no NUMA nodes")
	}
	t.Logf("nodes with memory: %s", text)
	places := []Placement{{Policy: PlaceInterleave}}
	for _, n := range nodes {
		places = append(places, Placement{Policy: PlaceBind, Node: n})
	}
	for _, huge := range []HugePages{HugeOff, HugeOn} {
		t.Run(huge.String(), func(t *testing.T) {
			if huge == HugeOn {
				l1test.HugePages(t, 8*len(nodes))
			}
			for _, place := range places {
				before, beforeMask, err := mempolicy()
				require.NoError(t, err)
				p := open(t, Config{Size: 16 * mib, HugePages: huge, Placement: place})
				mode, mask, err := mempolicyOf(p.mem)
				require.NoError(t, err)
				require.Equal(t, map[Policy]int{PlaceInterleave: unix.MPOL_INTERLEAVE, PlaceBind: unix.MPOL_BIND}[place.Policy], mode)
				require.Equal(t, p.placer.mask, mask)
				use(t, p)
				seen := map[int32]int{}
				for _, n := range nodesOf(t, p.mem, int(p.PageSize())) {
					require.GreaterOrEqual(t, n, int32(0), "a page has no node")
					seen[n]++
				}
				if place.Policy == PlaceBind {
					require.Equal(t, map[int32]int{int32(place.Node): int(p.Size() / p.PageSize())}, seen)
				} else {
					require.Len(t, seen, len(nodes))
				}
				maps, err := os.ReadFile("/proc/self/numa_maps")
				if err == nil {
					require.Contains(t, string(maps), strings.Split(place.String(), ":")[0])
				}
				after, afterMask, err := mempolicy()
				require.NoError(t, err)
				require.Equal(t, before, after, "the thread's own policy is back")
				require.Equal(t, beforeMask, afterMask)
				require.NoError(t, p.Close())
			}
		})
	}
}

func TestRoomIsThatOfTheOnlyNode(t *testing.T) {
	root := system(t, map[string]string{"sys/devices/system/node/node3/meminfo": "Node 3 MemTotal: 90 kB\nNode 3 MemFree: 5 kB\nNode 3 Active(file): 2 kB\nNode 3 Active(anon): 70 kB\nNode 3 Inactive(file): 1 kB\n"})
	w := placer{mode: unix.MPOL_BIND, node: 3}
	free, ok := w.free(root)
	require.True(t, ok)
	require.Equal(t, int64(8<<10), free)
	w = placer{mode: unix.MPOL_INTERLEAVE, node: -1}
	_, ok = w.free(root)
	require.False(t, ok)
	p := open(t, Config{Size: mib})
	require.Equal(t, int64(7), p.Room(7))
}
