package l1

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A mount is a line of /proc/self/mountinfo.
type mount struct {
	dev     string // major:minor
	root    string // what of the file system is mounted
	path    string // where
	kind    string // tmpfs, cgroup2
	options []string
}

// option returns the value of name=value among the file system's options, or "".
func (m *mount) option(name string) string {
	for _, o := range m.options {
		if value, ok := strings.CutPrefix(o, name+"="); ok {
			return value
		}
	}
	return ""
}

// mounts lists what is mounted, earliest first.
func mounts(root string) []mount {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	var list []mount
	for line := range strings.Lines(string(text)) {
		// 31 23 0:28 / /dev/shm rw,relatime shared:5 - tmpfs tmpfs rw,huge=always
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		list = append(list, mount{dev: f[2], root: f[3], path: f[4], kind: g[0], options: strings.Split(g[2], ",")})
	}
	return list
}

// mountOf returns the mount of the file system with that device number.
func mountOf(root string, dev uint64) (mount, bool) {
	name := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	for _, m := range mounts(root) {
		if m.dev == name {
			return m, true
		}
	}
	return mount{}, false
}

// groupDirs lists the directories, below root, of the control groups above this
// process that may have the controller, of both versions, the process's own first.
func groupDirs(root, controller string) []string {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	var two, one string // paths of the process's groups
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case f[0] == "0" && f[1] == "":
			two = f[2]
		case slices.Contains(strings.Split(f[1], ","), controller):
			one = f[2]
		}
	}
	var dirs []string
	for _, m := range mounts(root) {
		path := ""
		switch {
		case m.kind == "cgroup2":
			path = two
		case m.kind == "cgroup" && slices.Contains(m.options, controller):
			path = one
		}
		if path == "" {
			continue
		}
		if m.root != "/" { // a container sees its own part only
			path = "/" + strings.TrimPrefix(path, m.root)
		}
		for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
			dirs = append(dirs, filepath.Join(m.path, path))
			if path == "/" {
				break
			}
		}
	}
	return dirs
}
