// Package observe looks at a server process from outside: its processor time, system calls,
// memory and metrics.
package observe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Names of some of a server's metrics.
const (
	Mallocs = "go_memstats_mallocs_total"
	Frames  = "slotcache_frames_total"
	Enters  = "slotcache_ring_enters_total"
)

// CPU is the processor time that a living process has used, by the scheduler's own
// nanoseconds; threads that have ended are left out.
func CPU(pid int) (time.Duration, error) {
	var sum int64
	err := eachThread(pid, func(dir string, _ int) error {
		text, err := os.ReadFile(filepath.Join(dir, "schedstat"))
		if err != nil {
			return err
		}
		ran, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(ran, 10, 64)
		sum += n
		return err
	})
	return time.Duration(sum), err
}

// eachThread calls f with the directory and number of every thread of a process. Those that
// end meanwhile are passed over.
func eachThread(pid int, f func(dir string, tid int) error) error {
	root := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err == nil {
			err = f(filepath.Join(root, e.Name()), tid)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("observe: thread %s of %d: %w", e.Name(), pid, err)
		}
	}
	return nil
}

// Memory is what a process has resident apart from shared memory, in bytes.
func Memory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("observe: %w", err)
	}
	var sum int64
	found := 0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "RssAnon" && name != "RssFile" {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("observe: memory of %d: %w", pid, err)
		}
		sum += n << 10
		found++
	}
	if found != 2 {
		return 0, fmt.Errorf("observe: memory of %d: not told", pid)
	}
	return sum, nil
}

const (
	// busyTime is for how long a server that is too busy to tell its metrics is asked again, every pollTime.
	busyTime = time.Minute
	pollTime = 10 * time.Millisecond
	// replyTime is what one reply may take.
	replyTime = 10 * time.Second
)

// Scrape reads a server's metrics, at HOST:PORT. A server that is too busy to tell is asked again, for a minute.
func Scrape(ctx context.Context, addr string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, busyTime)
	defer cancel()
	for {
		values, busy, err := scrape(ctx, addr)
		if !busy {
			return values, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pollTime):
		}
	}
}

func scrape(ctx context.Context, addr string) (values map[string]float64, busy bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, false, fmt.Errorf("observe: %w", err)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, errors.Is(err, context.DeadlineExceeded), fmt.Errorf("observe: %w", err)
	}
	defer reply.Body.Close() //nolint:errcheck // only read
	if reply.StatusCode != http.StatusOK {
		return nil, reply.StatusCode == http.StatusServiceUnavailable, fmt.Errorf("observe: metrics of %s: %s", addr, reply.Status)
	}
	values = make(map[string]float64)
	lines := bufio.NewScanner(reply.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			values[name] = v
		}
	}
	if err := lines.Err(); err != nil {
		return nil, errors.Is(err, context.DeadlineExceeded), fmt.Errorf("observe: metrics of %s: %w", addr, err)
	}
	return values, false, nil
}
