package benchmarks

import (
	"os"
	"runtime"
	"strings"
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
