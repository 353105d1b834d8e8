package seglog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A file that cannot be read at one start, nor removed, can be read at the next one, when the tombstone of a key in it was reclaimed with
// all that lay before it: the deleted value returns.
func TestAFileThatCanBeReadAgainLaterBringsNothingBack(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  bool // the key was deleted before its file became unreadable
		between bool // its file is not the oldest
		died    bool // and the store is not closed in the end
	}{
		{name: "deleted after it was lost"},
		{name: "deleted before", before: true},
		{name: "among others", between: true},
		{name: "among others, deleted before", before: true, between: true, died: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			const victim = 1000
			r := newRig(t, 6, nil)
			n := 0
			more := func(segments uint64) {
				t.Helper()
				for at := r.l.generation; r.l.generation < at+segments; n++ {
					require.Less(t, n, 900)
					r.store(n, 50000)
				}
			}
			if c.between {
				more(1)
			}
			r.store(victim, 50000)
			lost := r.l.segs[r.l.active].id
			more(1)
			require.NotEqual(t, lost, r.l.segs[r.l.active].id)
			if c.before {
				require.NotZero(t, r.delete(victim))
				r.run()
			}
			r.close()

			var err error
			r.l, r.report, err = Recover(r.cfg, unsized{r.disk, lost})
			require.NoError(t, err)
			require.Len(t, r.report.Ignored, 1)
			r.broken = func(io *IO) int64 {
				if io.Addr.Segment == lost && io.Kind != IOSum && io.Kind != IOCopy && io.Kind != IOSpace {
					require.Equal(t, IORemove, io.Kind)
					return -5
				}
				return 0
			}
			if !c.before {
				require.NotZero(t, r.delete(victim), "it may be there")
				r.run()
			}
			require.False(t, r.has(victim))
			more(12) // all that was there before is gone, the tombstone, too
			require.Equal(t, 1, r.l.stale, "but for the one file")
			r.broken = nil
			if !c.died {
				r.close()
			}

			r.restart()
			require.False(t, r.has(victim))
			require.Contains(t, r.report.Ignored[0], "reclaimed since")
			r.run()
			for k := n - 3; k < n; k++ {
				r.sees(k, 50000)
			}
			more(6)
			require.Zero(t, r.l.stale, "its space is used again")
			r.restart()
			require.Empty(t, r.report.Ignored)
		})
	}
}

// unsized is a disk one of whose files cannot be looked at.
type unsized struct {
	*simDisk
	id SegmentID
}

func (u unsized) Size(id SegmentID) (int64, error) {
	if id == u.id {
		return 0, errRead
	}
	return u.simDisk.Size(id)
}
