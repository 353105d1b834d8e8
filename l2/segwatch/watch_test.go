package segwatch

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l2/seglog"
)

// noFiles is an empty disk.
type noFiles struct{}

func (noFiles) Segments() ([]seglog.SegmentID, error)               { return nil, nil }
func (noFiles) ReadAt(seglog.SegmentID, []byte, int64) (int, error) { return 0, io.EOF }
func (noFiles) Size(seglog.SegmentID) (int64, error)                { return 0, io.EOF }

func TestADiskThatFailsAndComesBackIsToldOfOnce(t *testing.T) {
	var text bytes.Buffer
	log, _, err := seglog.Recover(seglog.Config{
		Size: 1 << 20, Arena: make([]byte, seglog.ArenaMin), Nonce: func() [16]byte { return [16]byte{1} }, StallTime: 7 * time.Second,
	}, noFiles{})
	require.NoError(t, err)
	w := New(log, slog.New(slog.NewTextHandler(&text, nil)))
	w.Look(0, nil)
	require.Empty(t, text.String())
	look := func(s seglog.State, now time.Duration) string {
		text.Reset()
		for range 3 {
			w.state(s, now, unix.ENOSPC)
		}
		require.LessOrEqual(t, strings.Count(text.String(), "\n"), 1)
		return text.String()
	}
	require.Empty(t, look(seglog.StateOK, 0))
	said := look(seglog.StateDegraded, time.Second)
	require.Contains(t, said, "level=WARN")
	require.Contains(t, said, "disk degraded")
	require.Contains(t, said, unix.ENOSPC.Error())
	said = look(seglog.StateOK, 3*time.Second)
	require.Contains(t, said, "level=INFO")
	require.Contains(t, said, "disk well again")
	require.Contains(t, said, "after=2s")
	require.Contains(t, look(seglog.StateDegraded, 4*time.Second), "disk degraded", "and again")
	said = look(seglog.StateStalled, 5*time.Second)
	require.Contains(t, said, "disk stalled")
	require.Contains(t, said, "7s")
	require.Empty(t, look(seglog.StateDegraded, 6*time.Second), "it is tried")
	require.Empty(t, look(seglog.StateStalled, 7*time.Second), "and hangs again")
	require.Contains(t, look(seglog.StateOK, 8*time.Second), "after=4s")
	require.Contains(t, look(seglog.StateStalled, 9*time.Second), "disk stalled")
	require.Empty(t, look(seglog.StateClosing, 10*time.Second), "a stop is not a recovery")
	require.Empty(t, look(seglog.StateClosed, 10*time.Second))
}

func TestAStoreThatCannotGrowSaysSoOnce(t *testing.T) {
	var text bytes.Buffer
	w := New(nil, slog.New(slog.NewTextHandler(&text, nil)))
	for _, cramped := range []bool{false, true, true, false, false, true} {
		w.room(cramped)
	}
	require.Equal(t, 2, strings.Count(text.String(), "no room for another segment"), text.String())
}

func TestBadRecordsAreCountedAndTheLastIsNamed(t *testing.T) {
	var text bytes.Buffer
	w := New(nil, slog.New(slog.NewTextHandler(&text, nil)))
	w.damage(seglog.Damage{})
	require.Empty(t, text.String())
	for range 2 {
		w.damage(seglog.Damage{Count: 3, Addr: seglog.Addr{Segment: 7, Off: 4096}, Size: 100})
	}
	require.Equal(t, 1, strings.Count(text.String(), "\n"))
	require.Contains(t, text.String(), "records=3 segment=7 offset=4096 bytes=100")
	w.damage(seglog.Damage{Count: 4, Addr: seglog.Addr{Segment: 8}, Size: 1})
	require.Contains(t, text.String(), "records=1 segment=8 offset=0 bytes=1")
}
