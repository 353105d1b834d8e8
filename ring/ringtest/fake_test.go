package ringtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
)

func TestFakePassesTheSuite(t *testing.T) {
	ringtest.Run(t, func(t *testing.T) ring.Interface {
		f, err := ringtest.NewFake(ring.Config{})
		require.NoError(t, err)
		return f
	})
}

func TestFakeOfFewBuffersPassesTheSuite(t *testing.T) {
	ringtest.Run(t, func(t *testing.T) ring.Interface {
		f, err := ringtest.NewFake(ring.Config{Ops: 16, Control: 64, RecvBuffers: 4, RecvBufferSize: 4096})
		require.NoError(t, err)
		return f
	})
}
