package server

import (
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// sliced counts the threads of this process that have a slice. The kernel's workers for a ring count not: they are forked from
// the loop's thread with what it had, and outlive their ring for some seconds.
func sliced(t *testing.T, d time.Duration) (n int) {
	entries, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, e := range entries {
		if name, err := os.ReadFile("/proc/self/task/" + e.Name() + "/comm"); err != nil || strings.HasPrefix(string(name), "iou-") {
			continue // it has ended, or is the kernel's
		}
		tid, err := strconv.Atoi(e.Name())
		require.NoError(t, err)
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && time.Duration(attr.Runtime) == d {
			n++
		}
	}
	return n
}

// The loop's thread alone runs for short, and is as it was when the loop has ended.
func TestTheLoopsThreadRunsForShort(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const other = 123 * time.Microsecond
	before, err := setSlice(other)
	require.NoError(t, err)
	defer func() { _, _ = setSlice(before) }()
	if sliced(t, other) == 0 {
		t.Skip("this kernel has no slices of one's own")
	}
	nice, err := unix.SchedGetAttr(0, 0)
	require.NoError(t, err)
	end := (&reactor{log: slog.New(slog.DiscardHandler)}).hurry()
	require.Equal(t, 1, sliced(t, loopSlice))
	require.Zero(t, sliced(t, other))
	end()
	require.Zero(t, sliced(t, loopSlice))
	after, err := unix.SchedGetAttr(0, 0)
	require.NoError(t, err)
	require.Equal(t, nice, after)
}
