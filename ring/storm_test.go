package ring_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

// Completions held back when the completion queue overflows, so that requests never finish: ten thousand reads, submitted as fast as
// there is room for, complete once each, and no queue overflows.
func TestManyReadsNeverOverflowASmallQueue(t *testing.T) {
	for _, engine := range both {
		t.Run(engine.String(), func(t *testing.T) { manyReads(t, openEngine(t, engine, ring.Config{Ops: 32, Control: 16})) })
	}
}

// manyReads reads ten thousand single bytes.
func manyReads(t *testing.T, u ring.Interface) {
	const reads = 10_000
	content := make([]byte, reads)
	for i := range content {
		content[i] = byte(i * 31)
	}
	fd := file(t, 0)
	_, err := unix.Pwrite(fd, content, 0)
	require.NoError(t, err)
	buf := make([]byte, reads)
	count := make([]int, reads)
	dst := make([]ring.Completion, 0, 5) // less than completes at once
	for queued, done := 0, 0; done < reads; {
		for ; queued < reads && u.Room() > 0; queued++ {
			u.Read(ring.NewTag(uint32(queued), 0), fd, int64(queued), buf[queued:queued+1])
		}
		got, err := u.Wait(dst)
		require.NoError(t, err)
		for _, c := range got {
			require.Equal(t, int32(1), c.Res)
			count[c.Tag.Index()]++
			done++
		}
	}
	require.True(t, bytes.Equal(content, buf))
	for i, n := range count {
		require.Equal(t, 1, n, "read %d", i)
	}
	s := u.Stats()
	require.Zero(t, s.Overflows)
	require.Equal(t, uint64(reads), s.Completions)
	require.Zero(t, s.InFlight)
}

// Submitting fails with EAGAIN, EBUSY or EINTR: it is made again, and no operation is lost or carried out twice. Storms of real signals
// are part of the suite.
func TestRefusedSubmissionsAreMadeAgain(t *testing.T) {
	u := open(t, ring.Config{Ops: 32, Control: 16})
	require.NoError(t, u.Submit()) // of its own
	refused := u.RefuseSubmissions(unix.EAGAIN, unix.EBUSY, unix.EINTR, unix.EAGAIN, unix.EAGAIN)
	manyReads(t, u)
	require.Greater(t, *refused, 100)
}
