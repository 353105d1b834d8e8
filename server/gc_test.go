package server_test

import (
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pauses counts the collector's pauses by their length, since the process started.
func pauses(t *testing.T) *metrics.Float64Histogram {
	t.Helper()
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	require.Equal(t, metrics.KindFloat64Histogram, s[0].Value.Kind())
	return s[0].Value.Float64Histogram()
}

// longestSince is what the longest of the pauses that were counted after before took at most.
func longestSince(before, now *metrics.Float64Histogram) time.Duration {
	longest := 0.0
	for i := range now.Counts {
		if now.Counts[i] > before.Counts[i] {
			longest = now.Buckets[i+1]
		}
	}
	return time.Duration(longest * float64(time.Second))
}

// lateness is by how much a thread that only sleeps, for a millisecond at a time, is woken too late
// at most, until stop: what the machine alone does to a thread, the collector or not.
func lateness(stop *atomic.Bool) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	worst := time.Duration(0)
	for pause := unix.NsecToTimespec(int64(time.Millisecond)); !stop.Load(); {
		began := time.Now()
		_ = unix.Nanosleep(&pause, nil) // a signal ends it early
		worst = max(worst, time.Since(began)-time.Millisecond)
	}
	return worst
}

// TestTheCollectorIsNeverHeldUp: raw system calls block Go's scheduler and its collector, for the loop
// waits in the kernel without telling anybody. The collector runs in a loop while the server sleeps and
// while it works: every collection ends, and so does every request. How long they take is told beside
// the same without collections, and beside a thread that only sleeps.
func TestTheCollectorIsNeverHeldUp(t *testing.T) {
	r := start(t, nil)
	p := greet(t, r)
	p.register(1 << 20)
	value, stored := valueOf(1, 64<<10), 0
	store := func() {
		p.put(keyOf(stored), value)
		stored++
	}
	for _, c := range []struct {
		what      string
		collect   bool
		does      func()
		everyTime time.Duration
	}{
		{"sleeps", true, func() {}, 50 * time.Millisecond},
		{"answers", false, p.ping, 0},
		{"answers", true, p.ping, 0},
		{"stores", false, store, 0},
		{"stores", true, store, 0},
	} {
		var stop atomic.Bool
		collections, late := make(chan int, 1), make(chan time.Duration, 1)
		before := pauses(t)
		go func() {
			n := 0
			for ; c.collect && !stop.Load(); n++ {
				runtime.GC()
			}
			collections <- n
		}()
		go func() { late <- lateness(&stop) }()
		longest, requests := time.Duration(0), 0
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); requests++ {
			began := time.Now()
			c.does()
			longest = max(longest, time.Since(began))
			time.Sleep(c.everyTime)
		}
		stop.Store(true)
		select {
		case n := <-collections:
			require.Equal(t, c.collect, n > 0)
			t.Logf("the server %s %d times, %v at most; %d collections, longest pause %v; a thread that sleeps is late by %v",
				c.what, requests, longest, n, longestSince(before, pauses(t)), <-late)
		case <-time.After(patience):
			t.Fatalf("a collection does not end while the server %s", c.what)
		}
	}
}
