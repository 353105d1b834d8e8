package l2

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2/l2test"
	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
)

func TestAHelperTellsWhatTheFileSystemHasFree(t *testing.T) {
	disk := l2test.Disk(t, 20<<20)
	dir, err := segdir.Open(filepath.Join(disk, "store"), segdir.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	h := helpers{dir: dir}
	ask := func() result { return h.do(seglog.IO{ID: 7, Kind: seglog.IOSpace}) }

	empty := ask()
	require.True(t, empty.freeKnown)
	require.Equal(t, result{id: 7, free: empty.free, freeKnown: true}, empty)
	require.Positive(t, empty.free)

	ballast := l2test.Fill(t, disk)
	require.Less(t, ask().free, empty.free/2)
	require.NoError(t, os.Remove(ballast))
	require.Equal(t, empty, ask())

	require.NoError(t, dir.Close())
	r := ask()
	require.ErrorIs(t, r.err, segdir.ErrClosed)
	require.False(t, r.freeKnown)
	require.Negative(t, r.res)
}
