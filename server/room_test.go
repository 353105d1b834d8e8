package server

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

// fakeMemory takes of free, as a pool does.
type fakeMemory struct {
	size int64
	free *atomic.Int64
	own  bool // it needs none
}

func (m *fakeMemory) Size() int64 { return m.size }

func (m *fakeMemory) Room(free int64) int64 {
	if m.own {
		return m.size + roomSpare
	}
	return free
}

func (m *fakeMemory) Populate(from, to int64) error {
	if m.own {
		return nil
	}
	if m.free.Add(from-to) < 0 {
		return errors.New("killed for want of memory")
	}
	return nil
}

// waitsTold counts the lines of a log that say that memory is waited for.
type waitsTold struct{ atomic.Int64 }

func (w *waitsTold) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "waits for free memory") {
		w.Add(1)
	}
	return len(p), nil
}

// reserving starts helpers that populate a pool of so many bytes.
func reserving(t *testing.T, size, free int64, own bool, patience time.Duration) (*helpers, *atomic.Int64, *waitsTold) {
	t.Helper()
	var left atomic.Int64
	left.Store(free)
	var text waitsTold
	fake, err := ringtest.NewFake(ring.Config{Ops: 8, Control: 8})
	require.NoError(t, err)
	h := &helpers{ring: fake, log: slog.New(slog.NewTextHandler(&text, nil)), patience: patience}
	h.start()
	h.populate(&fakeMemory{size, &left, own}, func() (int64, error) { return left.Load(), nil })
	return h, &left, &text
}

// outcome waits until the population has come to so many bytes, or failed.
func outcome(t *testing.T, h *helpers, ready int64) error {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		_, got, failure := h.news(nil)
		if failure != nil || got == ready {
			return failure
		}
	}
	return fmt.Errorf("%d bytes are not there", ready)
}

func TestARecoveryThatTakesLongSaysHowFarItHasCome(t *testing.T) {
	for every, want := range map[time.Duration]int{0: 3, time.Hour: 0} {
		var text strings.Builder
		told := recovering(nil, slog.New(slog.NewTextHandler(&text, nil)), every)
		for done := range 4 {
			told(done+1, 4, 100*done)
		}
		require.Equal(t, want, strings.Count(text.String(), "of=4"), "all but the last, which another line is for: %s", text.String())
	}
}

func TestReservingThePoolWaitsForFreeMemory(t *testing.T) {
	const size = 4 * populateStep
	h, left, told := reserving(t, size, 2*populateStep+roomSpare, false, time.Hour)
	waits := func(times int64) bool { return told.Load() == times }
	require.NoError(t, outcome(t, h, 2*populateStep))
	require.Eventually(t, func() bool { return waits(1) }, 20*time.Second, time.Millisecond)
	left.Add(populateStep) // a worker lets a dead server's pool go
	require.NoError(t, outcome(t, h, 3*populateStep))
	require.Eventually(t, func() bool { return waits(2) }, 20*time.Second, time.Millisecond)
	left.Add(populateStep)
	require.NoError(t, outcome(t, h, size))
	require.EqualValues(t, roomSpare, left.Load(), "some is left")
	h.stop()
	require.True(t, waits(2), "once each time")
}

func TestReservingThePoolEndsWhereMemoryDoes(t *testing.T) {
	h, _, told := reserving(t, 4*populateStep, 3*populateStep, false, time.Millisecond)
	err := outcome(t, h, 4*populateStep)
	var full l1.ErrNoSpace
	require.ErrorAs(t, err, &full)
	require.Equal(t, l1.ErrNoSpace{Need: populateStep + roomSpare, Have: populateStep}, full)
	_, ready, _ := h.news(nil)
	require.EqualValues(t, 2*populateStep, ready, "what there is is used")
	h.stop()
	require.EqualValues(t, 1, told.Load())
}

func TestReservingThePoolNeedsNoFreeMemoryForPagesSetAside(t *testing.T) {
	h, _, _ := reserving(t, 2*populateStep, 0, true, time.Millisecond)
	require.NoError(t, outcome(t, h, 2*populateStep))
	h.stop()
}

func TestReservingThePoolEndsWithTheServer(t *testing.T) {
	h, _, _ := reserving(t, populateStep, 0, false, time.Hour)
	h.stop()
	_, ready, failure := h.news(nil)
	require.Zero(t, ready)
	require.NoError(t, failure)
}
