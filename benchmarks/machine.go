package benchmarks

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A Machine is where numbers were measured; numbers of two machines are never compared.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Model  string `json:"cpu_model"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// ThisMachine describes the machine the program runs on.
func ThisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	m.Model = procField("/proc/cpuinfo", "model name")
	m.Memory = kib(procField("/proc/meminfo", "MemTotal"))
	return m
}

// procField is the first value of the named field in a file of "name: value" lines.
func procField(path, field string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(name) == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// fileSystems are the names of some file systems by the kernel's numbers.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
}

// FileSystem names the kind of file system that a directory is on.
func FileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown file system"
	}
	if name, ok := fileSystems[st.Type]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", st.Type)
}
