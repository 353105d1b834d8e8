package benchmarks

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server"
)

// serve runs a server in this process and registers a worker with it.
func serve(b *testing.B, block int) (context.Context, *mover) {
	b.Helper()
	dir, err := os.MkdirTemp("", "sb-") // short enough for a socket
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
	addr := "unix:" + filepath.Join(dir, "s.sock")
	s, err := server.New(server.Config{Listen: []string{addr}, L1Size: 64 << 20, Engine: ringtest.Engine(b)})
	require.NoError(b, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Run() }()
	<-s.Ready()
	m, err := openMover(b.Context(), addr, "benchmark", block)
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, m.w.Close())
		s.Shutdown()
		require.NoError(b, <-ended)
	})
	return b.Context(), m
}

// seven are the blocks a request of these benchmarks is about.
var seven = []uint64{1, 2, 3, 4, 5, 6, 7}

func BenchmarkPing(b *testing.B) {
	ctx, m := serve(b, 4096)
	for b.Loop() {
		_, err := m.w.Ping(ctx)
		require.NoError(b, err)
	}
}

func BenchmarkLookupOfSevenMisses(b *testing.B) {
	ctx, m := serve(b, 4096)
	req := client.LookupRequest{Keys: m.name(seven), Mode: proto.ModePrefix, Group: 1}
	for b.Loop() {
		found, err := m.w.Lookup(ctx, req)
		require.NoError(b, err)
		require.Zero(b, found.Hits)
	}
}

func BenchmarkRetrieveOfSevenBlocks(b *testing.B) {
	const block = 64 << 10
	ctx, m := serve(b, block)
	_, err := m.store(ctx, seven)
	require.NoError(b, err)
	b.SetBytes(int64(block * len(seven)))
	for b.Loop() {
		f, _, err := m.fetch(ctx, seven)
		require.NoError(b, err)
		require.Equal(b, Fetch{Hits: len(seven), Memory: len(seven)}, f)
	}
}

func BenchmarkStoreOfSevenBlocks(b *testing.B) {
	const block = 64 << 10
	ctx, m := serve(b, block)
	b.SetBytes(int64(block * len(seven)))
	ids := make([]uint64, len(seven))
	var next uint64
	for b.Loop() {
		for i := range ids {
			ids[i] = next
			next++
		}
		s, err := m.store(ctx, ids)
		require.NoError(b, err)
		require.Equal(b, Stored{Stored: len(ids)}, s)
	}
}
