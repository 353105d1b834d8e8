package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFloodOfLinesIsDroppedAndCounted(t *testing.T) {
	var now time.Duration
	var text bytes.Buffer
	l := newLimiter()
	l.now = func() time.Duration { return now }
	l.allow("often", 100, time.Millisecond)
	log := slog.New(&limited{slog.NewTextHandler(&text, nil), l}).With("with", 1).WithGroup("g")
	for range 1000 {
		log.Warn("flood", "n", 1)
		log.Info("often")
	}
	log.Warn("other")
	require.Equal(t, linesBurst, strings.Count(text.String(), "msg=flood"))
	require.Equal(t, 100, strings.Count(text.String(), "msg=often"))
	require.Equal(t, 1, strings.Count(text.String(), "msg=other"))
	require.True(t, l.shut("flood"))
	require.False(t, l.shut("other"))

	text.Reset()
	now += linesPause
	for range 3 {
		log.Warn("flood", "n", 1)
	}
	require.Equal(t, 1, strings.Count(text.String(), "msg=flood"))
	require.Contains(t, text.String(), fmt.Sprintf("g.dropped=%d", 1000-linesBurst+1))

	text.Reset()
	now += time.Hour
	for range 1000 {
		log.Warn("flood")
	}
	require.Equal(t, linesBurst, strings.Count(text.String(), "msg=flood"), "a long silence earns no more than a burst")
}

func TestTextsWithoutEndTakeNoMemory(t *testing.T) {
	l := newLimiter()
	for i := range 10 * textsMax {
		_, _ = l.take(fmt.Sprint(i))
	}
	require.LessOrEqual(t, len(l.texts), textsMax+1)
	require.True(t, l.shut("one more"))
}
