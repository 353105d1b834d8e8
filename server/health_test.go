package server

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1"
)

func TestDescriptorsAreSharedOut(t *testing.T) {
	for _, c := range []struct{ room, conns, instances, wantConns, wantInstances int }{
		{10_000, 1024, 1024, 1024, 1024},
		{12_000, 10_000, 1024, 10_000, 1024},
		{10_000, 10_000, 100, 9900, 100},
		{2 * 1024, 1024, 1024, 1024, 1024},
		{2*1024 - 1, 1024, 1024, 1024, 1023},
		{300, 1024, 1024, 150, 150},
		{300, 10, 1024, 10, 290},
		{300, 1024, 20, 280, 20},
		{8, 1024, 1024, 4, 4},
	} {
		conns, instances := shareFiles(c.room, c.conns, c.instances)
		require.Equal(t, c.wantConns, conns, "%+v", c)
		require.Equal(t, c.wantInstances, instances, "%+v", c)
		require.LessOrEqual(t, filesPerConn*conns+filesPerInstance*instances, c.room, "%+v", c)
	}
}

func TestThePoolsErrorsSayWhatToDo(t *testing.T) {
	require.Contains(t, poolHint(l1.ErrInUse), "another name")
	require.Contains(t, poolHint(l1.ErrRefused), "another name")
	require.Contains(t, poolHint(l1.ErrNoSpace{Need: 2, Have: 1}), "less")
	require.Contains(t, poolHint(unix.ENOMEM), "memory")
	require.Empty(t, poolHint(unix.EPERM))
}
