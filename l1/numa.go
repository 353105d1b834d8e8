package l1

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// nodesMax is how many NUMA nodes a [nodeMask] can tell of.
const nodesMax = 1024

// A nodeMask has a bit for each NUMA node, as the kernel takes it.
type nodeMask [nodesMax / 64]uint64

// A Policy says on which NUMA nodes a pool's pages lie.
type Policy uint8

// The policies of a [Placement].
const (
	// PlaceAny: as the server's process has it, which is near its processor.
	PlaceAny Policy = iota
	// PlaceInterleave: page after page over all nodes.
	PlaceInterleave
	// PlaceBind: all on one node.
	PlaceBind
)

// A Placement says where a pool's memory is to lie. Its zero value leaves that
// to the system.
type Placement struct {
	Policy Policy
	Node   int // of PlaceBind
}

// String returns what [ParsePlacement] takes.
func (pl Placement) String() string {
	switch pl.Policy {
	case PlaceAny:
		return ""
	case PlaceInterleave:
		return "interleave"
	case PlaceBind:
		return "bind:" + strconv.Itoa(pl.Node)
	}
	return "unknown"
}

// ParsePlacement reads "", "interleave" or "bind:N".
func ParsePlacement(s string) (Placement, error) {
	switch s {
	case "":
		return Placement{}, nil
	case "interleave":
		return Placement{Policy: PlaceInterleave}, nil
	}
	number, ok := strings.CutPrefix(s, "bind:")
	node, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil || node >= nodesMax {
		return Placement{}, fmt.Errorf("l1: placement %q: give interleave or bind:N, N being a NUMA node", s)
	}
	return Placement{Policy: PlaceBind, Node: int(node)}, nil
}

// A placer puts memory where a [Placement] wants it. Its zero value does nothing.
type placer struct {
	mode int // of the kernel's; 0: nothing is to be done
	mask nodeMask
	node int // the only one, or -1
}

// newPlacer returns what a placement comes to on this machine. Without NUMA in
// the kernel all memory is node 0, and nothing has to be done; none tells that.
// Root is "/" outside tests.
func newPlacer(root string, pl Placement) (w placer, none bool, err error) {
	if pl.Policy == PlaceAny {
		return placer{}, false, nil
	}
	nodes, text := memoryNodes(root)
	if len(nodes) == 0 {
		if pl.Policy == PlaceBind && pl.Node != 0 {
			return placer{}, false, fmt.Errorf("l1: place the pool on node %d: the kernel knows no NUMA nodes", pl.Node)
		}
		return placer{}, true, nil
	}
	if pl.Policy == PlaceBind {
		if !slices.Contains(nodes, pl.Node) {
			return placer{}, false, fmt.Errorf("l1: place the pool on node %d: the nodes with memory that this process may use are %s", pl.Node, text)
		}
		nodes = []int{pl.Node}
	}
	w = placer{mode: unix.MPOL_INTERLEAVE, node: -1}
	if pl.Policy == PlaceBind {
		w.mode, w.node = unix.MPOL_BIND, pl.Node
	}
	for _, n := range nodes {
		w.mask[n/64] |= 1 << (n % 64)
	}
	return w, false, nil
}

// memoryNodes lists the nodes that have memory and that the process's cpuset
// allows, and says them for people.
func memoryNodes(root string) ([]int, string) {
	text, err := os.ReadFile(filepath.Join(root, "sys/devices/system/node/has_memory"))
	if err != nil {
		return nil, ""
	}
	nodes := parseNodes(string(text))
	status, err := os.ReadFile(filepath.Join(root, "proc/self/status"))
	if err == nil {
		for line := range strings.Lines(string(status)) {
			if list, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
				allowed := parseNodes(list)
				nodes = slices.DeleteFunc(nodes, func(n int) bool { return !slices.Contains(allowed, n) })
			}
		}
	}
	var words []string
	for _, n := range nodes {
		words = append(words, strconv.Itoa(n))
	}
	return nodes, strings.Join(words, ", ")
}

// parseNodes reads a list as the kernel writes it, "0-2,5".
func parseNodes(s string) []int {
	var nodes []int
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || a < 0 || b >= nodesMax {
			continue
		}
		for n := a; n <= b; n++ {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// place sets the policy of mapped memory that has no pages yet, and looks
// whether it is set.
func (w *placer) place(mem []byte) error {
	if w.mode == 0 {
		return nil
	}
	if err := mbind(mem, w.mode, &w.mask); err != nil {
		return placeError(err)
	}
	mode, mask, err := mempolicyOf(mem)
	if err != nil {
		return placeError(err)
	}
	if mode != w.mode || mask != w.mask {
		return fmt.Errorf("l1: place the pool: asked for policy %d of nodes %x, got %d of %x", w.mode, w.mask[0], mode, mask[0])
	}
	return nil
}

// during does f with the policy on the thread: huge pages that were set aside
// are reserved by it, not by that of the memory.
func (w *placer) during(f func() error) error {
	if w.mode == 0 {
		return f()
	}
	runtime.LockOSThread()
	mode, mask, err := mempolicy()
	if err == nil {
		err = setMempolicy(w.mode, &w.mask)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return placeError(err)
	}
	done := f()
	if err := setMempolicy(mode, &mask); err != nil {
		return errors.Join(done, placeError(err)) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return done
}

func placeError(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("l1: place the pool: %w: in a container allow mbind, set_mempolicy and get_mempolicy (CAP_SYS_NICE)", err)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("l1: place the pool: %w: the kernel has no NUMA", err)
	}
	return fmt.Errorf("l1: place the pool: %w", err)
}

// free is how many bytes the only node has free, if there is an only node; pages
// of files that are not used count as free.
func (w *placer) free(root string) (int64, bool) {
	if w.mode != unix.MPOL_BIND {
		return 0, false
	}
	text, err := os.ReadFile(filepath.Join(root, fmt.Sprintf("sys/devices/system/node/node%d/meminfo", w.node)))
	if err != nil {
		return 0, false
	}
	var sum int64
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // Node 0 MemFree: 1024 kB
		if len(f) < 4 || !slices.Contains([]string{"MemFree:", "Active(file):", "Inactive(file):"}, f[2]) {
			continue
		}
		kib, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil {
			return 0, false
		}
		sum += kib << 10
	}
	return sum, true
}
