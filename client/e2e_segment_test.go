package client_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/l1/l1test"
	"github.com/slotcache/slotcache/proto"
)

// Somebody unlinks the server's segment, as Python's resource tracker does when a process ends
// that attached by its name: who is attached goes on, who comes later goes on inline, and
// without a name there is nothing to unlink.
func TestANameThatVanishedCostsOnlySharedMemory(t *testing.T) {
	dir := l1test.Mount(t, "tmpfs", "size=64m")
	name := "vanishes"
	s := startChild(t, func(c *childConfig) { c.ShmName, c.ShmDir = &name, dir })
	open := func() *client.Worker {
		w, err := client.Open(within(t), s.addr(), client.Options{Logger: slog.New(slog.DiscardHandler), ShmDir: dir},
			client.Registration{Layouts: []client.Layout{chunk}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, w.Close()) })
		return w
	}
	first := open()
	require.Equal(t, proto.TransportShared, first.Transport())
	store(t, first, 3)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Remove(files[0]))
	second := open()
	require.Equal(t, proto.TransportInline, second.Transport())
	for _, w := range []*client.Worker{first, second} {
		r, err := w.Retrieve(within(t), 0, keys(0, 3), client.RetrieveOptions{})
		require.NoError(t, err)
		requireValues(t, 0, r.Values())
		require.NoError(t, r.Release(within(t)))
	}
}

// A worker is attached to the pool of a server whose successor has a smaller or larger one: it
// maps that, and what it still writes to the old one goes nowhere.
func TestARestartWithAnotherPoolSizeIsMappedAnew(t *testing.T) {
	s := startChild(t, nil)
	w := worker(t, s.addr(), client.Registration{})
	ctx := within(t)
	for _, size := range []int64{s.cfg.Size * 2, s.cfg.Size / 2, s.cfg.Size + 4096} {
		st, err := w.PrepareStore(ctx, 0, keys(10, 1), []uint64{uint64(len(value(10)))}, 0)
		require.NoError(t, err)
		s.kill()
		s.cfg.Size = size
		s.start()
		store(t, w, 3)
		require.Equal(t, size, w.PoolSize())
		old := st.Slot(0)
		for i := range old {
			old[i] = 0xaa
		}
		require.ErrorIs(t, st.Commit(ctx), client.ErrStale)
		r, err := w.Retrieve(ctx, 0, keys(0, 3), client.RetrieveOptions{})
		require.NoError(t, err)
		requireValues(t, 0, r.Values())
		require.NoError(t, r.Release(ctx))
		found, err := w.Lookup(ctx, client.LookupRequest{Keys: keys(10, 1)})
		require.NoError(t, err)
		require.Zero(t, found.Hits)
	}
}

// With an empty name nobody gets the memory, whoever asks for it: the same calls carry the bytes.
func TestWithoutSharedMemoryEverybodyIsInline(t *testing.T) {
	none := ""
	s := startChild(t, func(c *childConfig) { c.ShmName = &none })
	for n := range 2 {
		w := worker(t, s.addr(), client.Registration{})
		require.Equal(t, proto.TransportInline, w.Transport())
		if n == 0 {
			store(t, w, 3)
		}
		r, err := w.Retrieve(within(t), 0, keys(0, 3), client.RetrieveOptions{})
		require.NoError(t, err)
		requireValues(t, 0, r.Values())
		require.NoError(t, r.Release(within(t)))
	}
}
