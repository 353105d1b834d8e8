package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/server"
)

func TestALateEndIsAFailureUnlessTheLoopHasStopped(t *testing.T) {
	s, err := server.New(server.Config{Listen: []string{"unix:" + filepath.Join(cmdtest.Dir(t), "s")}, L1Size: 1 << 20})
	require.NoError(t, err)
	require.ErrorContains(t, overdue(s, true, 2), "is the disk stuck?")
	err = overdue(s, false, 2)
	require.ErrorContains(t, err, "has not ended in time")
	require.NotContains(t, err.Error(), "disk")

	s.Shutdown()
	require.NoError(t, s.Run())
	require.NoError(t, overdue(s, false, 1))
	require.NoError(t, overdue(s, false, 2))
	require.NoError(t, overdue(s, true, 2), "what a second signal gives up was said")
	require.Error(t, overdue(s, true, 1), "the disk was to be written")
}
