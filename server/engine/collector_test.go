package engine

import (
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
)

// heap returns the bytes of the heap, and those of them that a collection looks through for pointers.
func heap(t *testing.T) (all, scanned uint64) {
	t.Helper()
	runtime.GC()
	runtime.GC() // what finalizers and pools held goes with the second
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// GC and scheduler pauses grow with the cache in a Go data server: the tables of a million objects, in memory and on disk, have nothing
// that a collection would have to look at.
func TestTheCollectorDoesNotLookThroughTheIndex(t *testing.T) {
	const objects = 1 << 20
	all, scanned := heap(t)
	log, _, err := seglog.Recover(seglog.Config{
		Size: 64 << 30, Arena: aligned(seglog.ArenaSize), MaxEntries: objects, Nonce: func() (n [16]byte) { return n },
	}, &simDisk{})
	require.NoError(t, err)
	e, err := New(Config{
		Pool: PoolInfo{Size: 8 << 30}, Boot: 1, Server: "test", Disk: log, Objects: objects, Policy: table.PolicyAdaptive, Seed: 1,
	}, &world{})
	require.NoError(t, err)
	allWith, scannedWith := heap(t)
	t.Logf("%d bytes of heap for %d objects, %d of them looked through", allWith-all, objects, scannedWith-scanned)
	require.Greater(t, allWith-all, uint64(objects*64))
	require.Less(t, scannedWith-scanned, uint64(4<<20))
	runtime.KeepAlive(e)
}
