package server_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
	"github.com/slotcache/slotcache/server/engine"
)

// fetchLoaded fetches a value that may be on disk.
func (p *peer) fetchLoaded(key proto.Key) (proto.Status, []byte) {
	p.t.Helper()
	h, _, payload := p.call(proto.OpPrepareRetrieve, proto.AppendPrepareRetrieve(nil, &proto.PrepareRetrieve{
		WaitMs: uint32(patience.Milliseconds()), Keys: []proto.Key{key},
	}), nil)
	return h.Status, payload
}

// Values of 3 MiB are summed by a helper, small ones in the loop.
func TestWhatMemoryCannotHoldComesBackFromDisk(t *testing.T) {
	const small, large = 64, 6
	path := socketPath(t)
	config := func(c *server.Config) {
		c.L2Dir, c.L2Size = filepath.Join(filepath.Dir(path), "l2"), 256<<20
		c.L1Size = 16 << 20
	}
	value := func(i int) []byte {
		if i < small {
			return valueOf(i, 100_000+i)
		}
		return valueOf(i, 3<<20-i)
	}
	r := start(t, config)
	p := greet(t, r)
	p.register(8 << 20)
	for i := range small + large {
		p.put(keyOf(i), value(i))
	}
	for range 2 {
		for i := range small + large {
			status, got := p.fetchLoaded(keyOf(i))
			require.Equal(t, proto.StatusOK, status, "value %d", i)
			require.True(t, bytes.Equal(value(i), got), "value %d", i)
		}
		all := p.stats()
		require.Zero(t, all["l2_io_errors_total"])
		require.Zero(t, all["l2_bad_records_total"])
		r.stop()
		r = start(t, config) // and again, with nothing in memory
		p = greet(t, r)
		p.register(8 << 20)
	}
	require.Positive(t, p.stats()["l2_records"])
	h, _, _ := p.call(proto.OpDelete, proto.AppendDelete(nil, &proto.Delete{Keys: []proto.Key{keyOf(1)}}), nil)
	require.Equal(t, proto.StatusOK, h.Status)
	status, _ := p.fetchLoaded(keyOf(1))
	require.Equal(t, proto.StatusMiss, status)
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	path := socketPath(t)
	dir := filepath.Join(filepath.Dir(path), "l2")
	r := start(t, func(c *server.Config) { c.L2Dir, c.L2Size = dir, 64<<20 })
	require.Contains(t, refused(t, server.Config{Listen: []string{"unix:" + path}, L2Dir: dir, L2Size: 64 << 20}), "give another directory")
	greet(t, r).ping()
}

func TestAGracefulStopWritesWhatIsOnlyInMemory(t *testing.T) {
	path := socketPath(t)
	config := func(c *server.Config) {
		c.L2Dir, c.L2Size, c.Write = filepath.Join(filepath.Dir(path), "l2"), 64<<20, engine.WriteBack
	}
	r := start(t, config)
	p := greet(t, r)
	p.register(1 << 20)
	for i := range 10 {
		p.put(keyOf(i), valueOf(i, 200_000))
	}
	r.stop()
	r = start(t, config)
	p = greet(t, r)
	p.register(1 << 20)
	for i := range 10 {
		status, got := p.fetchLoaded(keyOf(i))
		require.Equal(t, proto.StatusOK, status, "value %d", i)
		require.True(t, bytes.Equal(valueOf(i, 200_000), got))
	}
}

// Many small values evict each other from a disk that is nearly empty: the index has room for as many
// as it is told to.
func TestTheDiskHoldsAsManySmallValuesAsAskedFor(t *testing.T) {
	const count, byDefault = 4500, 4096
	for records, fits := range map[int]bool{0: false, 2 * count: true} {
		r := start(t, func(c *server.Config) {
			c.L2Dir, c.L2Size, c.L2Records = filepath.Join(t.TempDir(), "l2"), 64<<20, records
			c.Limits.Objects = 1024 // what memory has no place for is on disk
		})
		p := greet(t, r)
		p.register(4096)
		value := valueOf(1, 100)
		for i := range count {
			p.put(keyOf(i), value)
		}
		eventually(t, "all is written", func() bool { return p.stats()["spilled_bytes_total"] == uint64(count*len(value)) })
		all := p.stats()
		t.Logf("%d asked for: %d of %d values on disk", records, all["l2_records"], count)
		if fits {
			require.EqualValues(t, count, all["l2_records"])
			require.Zero(t, all["l2_evicted_records_total"])
		} else {
			require.LessOrEqual(t, all["l2_records"], uint64(byDefault))
		}
		r.stop()
	}
}
