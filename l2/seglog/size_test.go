package seglog

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheSegmentSizeOfAStoreIsKeptUnlessAsked(t *testing.T) {
	r := populated(t)
	r.cfg.SegmentSize = 0
	r.cfg.Size = 1 << 30
	r.restart()
	require.EqualValues(t, 24*BlockSize, r.l.cfg.SegmentSize)
	require.Equal(t, 9, r.verify())
	require.False(t, r.has(3))
	r.cfg.Size = 6 * 128 * BlockSize
	r.cfg.SegmentSize = 128 * BlockSize
	r.restart()
	require.Len(t, r.report.Ignored, r.report.Segments)
	require.Zero(t, r.verify())
	r.disk.limit = r.cfg.Size
	r.run()
	r.store(70, 100)
	r.sees(70, 100)
}

// A start refuses a store because of the size of its segments: they are too many for the size that is asked for, or odd.
func TestASegmentSizeThatCannotBeKeptIsNoRefusal(t *testing.T) {
	r := newRig(t, 6, func(c *Config) { c.SegmentSize, c.Size = 8*BlockSize, 6*8*BlockSize })
	r.store(1, 9000)
	r.close()
	r.cfg.SegmentSize, r.cfg.Size = 0, 8*BlockSize*segmentsMax+100
	r.restart()
	require.EqualValues(t, 8*BlockSize, r.l.cfg.SegmentSize)
	r.sees(1, 9000)
	r.cfg.Size = 4 << 30
	r.disk.limit = r.cfg.Size
	r.restart()
	require.EqualValues(t, 128<<20, r.l.cfg.SegmentSize)
	require.Len(t, r.report.Ignored, r.report.Segments)
	require.False(t, r.has(1))

	head := make([]byte, BlockSize)
	putSegmentHead(head, &segmentHead{generation: 1, size: 8*BlockSize + 100})
	odd := append(head, make([]byte, 7*BlockSize+100)...)
	r.disk.files = map[SegmentID]*simFile{0: {now: odd, safe: bytes.Clone(odd), dirty: make(map[int]bool)}}
	r.cfg.Size = 1 << 20
	r.restart()
	require.NotEmpty(t, r.report.Ignored)
	_, err := Walk(r.disk, make([]byte, ArenaMin))
	require.NoError(t, err)
	r.store(2, 9000)
	r.sees(2, 9000)
}
