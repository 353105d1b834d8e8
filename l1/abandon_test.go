package l1

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAbandonedPoolHasNoNameAndKeepsItsMemory(t *testing.T) {
	dir := t.TempDir()
	p, err := Open(Config{Size: 1 << 20, Mode: ModeNamed, Name: "x", Dir: dir, Group: -1, FileMode: 0o600})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, p.Name()))
	require.NoError(t, p.Populate(0, 1<<20))
	require.NoError(t, p.Abandon())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	p.Bytes(0, 1)[0] = 1
	require.NoError(t, p.Close())
	require.NoError(t, p.Abandon())
}
