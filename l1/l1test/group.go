package l1test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Group is a control group of a test's own.
type Group struct {
	t   testing.TB
	dir string
	v2  bool
}

// NewGroup makes a control group with the controller, of the version that has
// it. It is removed at the end of the test, when its processes must have ended.
func NewGroup(t testing.TB, controller string) *Group {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making a control group needs root")
	}
	top, v2 := hierarchy(controller)
	if top == "" {
		t.Skipf("no control groups with %s are mounted", controller)
	}
	if v2 {
		enable(t, top, controller)
	}
	dir, err := os.MkdirTemp(top, "slotcache-test-")
	if err != nil {
		t.Skipf("making a control group: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	return &Group{t: t, dir: dir, v2: v2}
}

// hierarchy finds where the controller's groups are.
func hierarchy(controller string) (top string, v2 bool) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(g) < 3 {
			continue
		}
		if g[0] == "cgroup" && slices.Contains(strings.Split(g[2], ","), controller) {
			return f[4], false
		}
		if g[0] == "cgroup2" && has(filepath.Join(f[4], "cgroup.controllers"), controller) {
			top, v2 = f[4], true
		}
	}
	return top, v2
}

func has(path, word string) bool {
	text, err := os.ReadFile(path)
	return err == nil && slices.Contains(strings.Fields(string(text)), word)
}

// enable gives the children of a group the controller.
func enable(t testing.TB, top, controller string) {
	path := filepath.Join(top, "cgroup.subtree_control")
	if has(path, controller) {
		return
	}
	write(t, path, "+"+controller)
	t.Cleanup(func() { _ = os.WriteFile(path, []byte("-"+controller), 0o600) }) // others may use it by now
}

// Add puts a process into the group.
func (g *Group) Add(pid int) {
	g.t.Helper()
	require.NoError(g.t, os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600))
}

// Limit sets the most of what prefix names: memory, or hugetlb.2MB. Memory is
// not swapped out instead.
func (g *Group) Limit(prefix string, n int64) {
	g.t.Helper()
	write(g.t, filepath.Join(g.dir, g.file(prefix+".max", prefix+".limit_in_bytes")), strconv.FormatInt(n, 10))
	swap := filepath.Join(g.dir, g.file("memory.swap.max", "memory.memsw.limit_in_bytes"))
	if prefix != "memory" {
		return
	}
	most := n
	if g.v2 {
		most = 0
	}
	_ = os.WriteFile(swap, []byte(strconv.FormatInt(most, 10)), 0o600) // there is none without swap
}

// Usage is how many bytes the group has of what prefix names.
func (g *Group) Usage(prefix string) int64 {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.file(prefix+".current", prefix+".usage_in_bytes")))
	require.NoError(g.t, err)
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	require.NoError(g.t, err)
	return n
}

// Kills is how many processes of the group the kernel ended for want of memory.
func (g *Group) Kills() int {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.file("memory.events", "memory.oom_control")))
	require.NoError(g.t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
			n, err := strconv.Atoi(f[1])
			require.NoError(g.t, err)
			return n
		}
	}
	g.t.Skip("the kernel does not tell how many processes of a group it ended")
	return 0
}

// file chooses the name that the group's version has.
func (g *Group) file(two, one string) string {
	if g.v2 {
		return two
	}
	return one
}
