package attack

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// schedule gives all threads of this process, and those they make, another way of getting the processor.
func schedule(policy, priority uint32) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("attack: %w", err)
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil {
			return fmt.Errorf("attack: schedule thread %d: %w", tid, err)
		}
	}
	return nil
}
