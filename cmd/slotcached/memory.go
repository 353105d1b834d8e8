package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// freeMemory is how many bytes this process may still take: what the kernel calls
// available, or less where a control group above the process leaves less. Root is "/"
// outside tests.
func freeMemory(root string) (int64, error) {
	free, err := memoryField(root, "MemAvailable:")
	if err != nil {
		return 0, fmt.Errorf("free memory: %w", err)
	}
	for _, dir := range groups(root) {
		if left, ok := groupFree(dir); ok {
			free = min(free, left)
		}
	}
	return free, nil
}

// totalMemory is how many bytes this process could ever have, and whether that is known:
// the machine's memory, or the least limit of the control groups above the process.
func totalMemory(root string) (int64, bool) {
	total, err := memoryField(root, "MemTotal:")
	ok := err == nil
	for _, dir := range groups(root) {
		if limit, limited := groupNumber(dir, "memory.max", "memory.limit_in_bytes"); limited && (!ok || limit < total) {
			total, ok = limit, true
		}
	}
	return total, ok
}

// memoryField is a line of /proc/meminfo, in bytes.
func memoryField(root, name string) (int64, error) {
	path := filepath.Join(root, "proc/meminfo")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == name {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in %s", strings.TrimSuffix(name, ":"), path)
}

// groups lists the directories of the control groups above this process, of both
// versions. A container sees its own group as the root, so the roots are among them.
func groups(root string) []string {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	var dirs []string
	scan := bufio.NewScanner(bytes.NewReader(text))
	for scan.Scan() {
		parts := strings.SplitN(scan.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		mount := "sys/fs/cgroup"
		if parts[1] != "" {
			if !containsWord(parts[1], "memory") {
				continue
			}
			mount = "sys/fs/cgroup/memory"
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			dirs = append(dirs, filepath.Join(root, mount, path))
			if path == "/" {
				break
			}
		}
	}
	return dirs
}

func containsWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// groupFree is what a group's limit leaves, and whether it has a limit. Pages of files
// that nobody used lately count as free, as the kernel gives them up first.
func groupFree(dir string) (int64, bool) {
	limit, ok := groupNumber(dir, "memory.max", "memory.limit_in_bytes")
	if !ok {
		return 0, false
	}
	used, ok := groupNumber(dir, "memory.current", "memory.usage_in_bytes")
	if !ok {
		return 0, false
	}
	return max(limit-used+groupInactive(dir), 0), true
}

// groupNumber reads the first of the named files that is there and holds a number.
func groupNumber(dir string, names ...string) (int64, bool) {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil { // "max" is no limit
			return n, true
		}
	}
	return 0, false
}

func groupInactive(dir string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && (fields[0] == "inactive_file" || fields[0] == "total_inactive_file") {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}
