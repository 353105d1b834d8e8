package benchmarks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fio is the reference of what a disk can do.
type fio struct {
	path string // of the program
	name string // with its version and settings, for reports
	file string
	size int64

	fixed bool // its buffers are the kernel's to know, as ours are
}

// newFio makes the file that fio will work on, written once. Without fio there is none.
func newFio(file string, size int64) (*fio, error) {
	path, err := exec.LookPath("fio")
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil //nolint:nilnil // absent is no failure, and says so
	}
	if err != nil {
		return nil, fmt.Errorf("fio: %w", err)
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("fio: %w", err)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("fio: %w", err)
	}
	defer f.Close() //nolint:errcheck // fio opens it itself
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return nil, fmt.Errorf("fio: allocate %d bytes: %w", size, err)
	}
	r := &fio{path: path, name: strings.TrimSpace(string(version)) + " io_uring O_DIRECT fixedbufs registerfiles, huge pages", file: file, size: size, fixed: true}
	warm := func() error { return r.sample(context.Background(), &l2Sample{}, true, 1<<20, 8) }
	if err := warm(); err == nil {
		return r, nil
	}
	// Who may not lock so much memory may not have such buffers.
	r.name, r.fixed = strings.Replace(r.name, "fixedbufs", "without fixedbufs", 1), false
	return r, warm()
}

// A fioReport is the part of its report that counts.
type fioReport struct {
	Jobs []struct {
		Read, Write fioSide
		User        float64 `json:"usr_cpu"` // percent of the run's time
		System      float64 `json:"sys_cpu"`
	} `json:"jobs"`
}

type fioSide struct {
	Bytes   int64   `json:"io_bytes"`
	Rate    float64 `json:"bw_bytes"` // bytes a second
	Runtime float64 `json:"runtime"`  // milliseconds
}

// sample writes or reads the file once.
func (f *fio) sample(ctx context.Context, into *l2Sample, write bool, block int64, depth int) error {
	if f == nil {
		return nil
	}
	rw := "read"
	if write {
		rw = "write"
	}
	fixed := "0"
	if f.fixed {
		fixed = "1"
	}
	cmd := exec.CommandContext(ctx, f.path, "--name=slotbench", "--filename="+f.file, "--rw="+rw,
		"--bs="+strconv.FormatInt(block, 10), "--iodepth="+strconv.Itoa(depth), "--size="+strconv.FormatInt(f.size/block*block, 10),
		"--ioengine=io_uring", "--direct=1", "--fixedbufs="+fixed, "--registerfiles=1", "--thread", "--output-format=json")
	cmd.Stderr = os.Stderr
	// Its buffers come from malloc: this gives them the huge pages that ours have.
	cmd.Env = append(os.Environ(), "GLIBC_TUNABLES=glibc.malloc.hugetlb=1")
	out, err := cmd.Output()
	if err != nil {
		said, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("fio: %w: %.200s", err, said)
	}
	var report fioReport
	if err := json.Unmarshal(out, &report); err != nil {
		return fmt.Errorf("fio: its report: %w", err)
	}
	if len(report.Jobs) != 1 {
		return fmt.Errorf("fio: %d jobs in its report", len(report.Jobs))
	}
	j := &report.Jobs[0]
	side := &j.Read
	if write {
		side = &j.Write
	}
	if side.Bytes == 0 || side.Rate == 0 {
		return errors.New("fio: its report tells of no I/O")
	}
	into.refRate = side.Rate
	into.refCPU = (j.User + j.System) / 100 * side.Runtime / 1000 / (float64(side.Bytes) / 1e9)
	return nil
}
