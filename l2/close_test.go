package l2

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/ring/ringtest"
)

// A program that closes its store while it holds the store's memory would wait for ever, for those of its calls that want some.
func TestACloseEndsCallsThatWaitForMemoryTheCallerHolds(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	opts := Options{Size: 64 << 20, Memory: MinMemory, Engine: ringtest.Engine(t)}
	s, err := Open(dir, opts)
	require.NoError(t, err)
	stored := make([]byte, 100_000)
	require.NoError(t, s.Put(ctx, []byte("stored"), stored))
	held, err := s.Buffer(ctx, MinMemory)
	require.NoError(t, err)
	calls := []func() error{
		func() error { return s.Put(ctx, []byte("waits"), stored) },
		func() error { _, err := s.Buffer(ctx, 1); return err },
		func() error { _, err := s.GetBuffer(ctx, []byte("stored")); return err },
		func() error { _, err := s.Get(ctx, []byte("stored"), stored); return err },
	}
	ended := make(chan error, len(calls))
	for n, call := range calls {
		go func() { ended <- call() }()
		queued(s.memory, n+1)
	}
	require.NoError(t, s.Close())
	for range calls {
		require.ErrorIs(t, <-ended, ErrClosed)
	}
	held.Bytes()[MinMemory-1] = 1 // it is the caller's until it is released
	held.Release()

	s, err = Open(dir, opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Size(ctx, []byte("waits"))
	require.ErrorIs(t, err, ErrNotFound)
	n, err := s.Get(ctx, []byte("stored"), stored)
	require.NoError(t, err)
	require.Len(t, stored, n)
}
