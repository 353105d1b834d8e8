package ring_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

// One peer has sent far more than its share of a turn: it is taken a share at a time, so that somebody may look at it, or have it
// pause, before the rest is in memory; and nothing of it is lost.
func TestATurnTakesABoundedShareOfAPeer(t *testing.T) {
	for _, engine := range []ring.Engine{ring.EngineUring, ring.EngineEpoll} {
		t.Run(engine.String(), func(t *testing.T) {
			const size, share = 4096, 8 * 4096
			r := openEngine(t, engine, ring.Config{Ops: 1, Control: 8, RecvBuffers: 64, RecvBufferSize: size})
			ours, peer := pair(t)
			sent := bytes.Repeat([]byte("slotcache"), 5*share/9)
			n, err := unix.Write(peer, sent)
			require.NoError(t, err)
			require.Greater(t, n, 4*share, "the socket takes too little for this test")
			sent = sent[:n]

			tag, got := ring.NewTag(1, 1), []byte(nil)
			turn := func() (more bool) {
				done, err := r.Wait(make([]ring.Completion, 0, 128))
				require.NoError(t, err)
				before := len(got)
				for _, c := range done {
					require.True(t, c.Res > 0 || !c.More, "%+v", c)
					got, more = append(got, c.Data...), c.More
				}
				if u, ok := r.(*ring.Uring); !ok || u.BoundsReceives() {
					require.LessOrEqual(t, len(got)-before, share, "of one peer in a turn")
				}
				return more
			}
			r.Recv(tag, ours)
			require.True(t, turn())
			require.NotEmpty(t, got)
			r.Pause(tag)
			for turn() {
			}
			if u, ok := r.(*ring.Uring); !ok || u.BoundsReceives() {
				require.LessOrEqual(t, len(got), 2*share, "of one that was paused after a turn")
			}
			r.Recv(tag, ours)
			done, err := r.Wait(make([]ring.Completion, 0, 3)) // less room than there is data
			require.NoError(t, err)
			require.LessOrEqual(t, len(done), 3)
			for _, c := range done {
				got = append(got, c.Data...)
			}
			for len(got) < len(sent) {
				require.True(t, turn())
			}
			require.Equal(t, sent, got)
			require.NoError(t, unix.Shutdown(peer, unix.SHUT_WR))
			require.False(t, turn(), "the end of the stream")
		})
	}
}
