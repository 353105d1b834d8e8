package seglog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// After a sync that failed the pages may be gone: the tombstones are written again, and are safe before the power is cut.
func TestATombstoneWhoseSyncFailedIsWrittenAgain(t *testing.T) {
	r := newRig(t, 6, nil)
	r.store(1, 9000)
	r.close() // its record is safe
	r.restart()
	r.run()
	r.store(2, 9000)
	failed := SegmentID(0)
	r.broken = func(io *IO) int64 {
		if io.Kind == IOSync && r.l.fenceSyncing.n > 0 && failed == 0 {
			failed = io.Addr.Segment + 1
			for s := range r.disk.files[io.Addr.Segment].dirty { // the kernel has dropped them
				f := r.disk.files[io.Addr.Segment]
				copy(f.now[s*simSector:][:simSector], f.safe[s*simSector:])
			}
			return -5
		}
		return 0
	}
	require.NotZero(t, r.delete(1))
	r.run()
	require.NotZero(t, failed)
	for range 5 {
		r.tick(time.Second)
	}
	require.Equal(t, StateOK, r.l.State())
	require.False(t, r.has(1))
	r.restart()
	require.False(t, r.has(1), "the tombstone was lost with the sync")
}
