// Package sched chooses how the processes of a measurement share a processor: who is measured goes first, who only makes
// others work takes what is left.
package sched

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// First lets all threads of this process, and those they make, run whenever they can, before any other process.
func First() error { return set(unix.SCHED_FIFO, 1) }

// Last lets them run only when nobody else wants to.
func Last() error { return set(unix.SCHED_IDLE, 0) }

// Fair lets them have their share again, as processes have that say nothing.
func Fair() error { return set(unix.SCHED_NORMAL, 0) }

func set(policy, priority uint32) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("sched: %w", err)
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil {
			return fmt.Errorf("sched: thread %d: %w", tid, err)
		}
	}
	return nil
}
