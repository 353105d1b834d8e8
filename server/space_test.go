package server

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

func TestAHelperTellsWhatTheFileSystemHasFree(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir, err := segdir.Open(filepath.Join(t.TempDir(), "l2"), segdir.Options{Logger: log})
	require.NoError(t, err)
	fake, err := ringtest.NewFake(ring.Config{Ops: 8, Control: 8})
	require.NoError(t, err)
	defer func() { require.NoError(t, fake.Close()) }()
	h := &helpers{ring: fake, dir: dir, log: log}
	h.start()
	defer h.stop()
	ask := func() result {
		h.queue(job{kind: jobSpace, op: 7})
		h.hand()
		var got []result
		require.Eventually(t, func() bool { got, _, _ = h.news(nil); return len(got) > 0 }, 20*time.Second, time.Millisecond)
		require.Len(t, got, 1)
		return got[0]
	}

	require.Equal(t, result{op: 7}, ask())
	free, known := h.freeSpace()
	require.True(t, known)
	require.Positive(t, free)
	_, known = h.freeSpace()
	require.False(t, known, "it is told once")

	require.NoError(t, dir.Close())
	require.Equal(t, result{op: 7, res: fileResult(segdir.ErrClosed)}, ask())
	require.Negative(t, fileResult(segdir.ErrClosed))
	_, known = h.freeSpace()
	require.False(t, known)
}
