package load

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
)

// A frame of several pieces arrives as it was sent, and the reply to it is waited for with a poll, once.
func TestALongFrameGoesInPiecesAndItsReplyIsPolledFor(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0) // which keeps the pieces apart
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(ends[1])) }()
	l := &Link{fd: ends[0], in: make([]byte, 2*proto.MaxFrame)}
	defer func() { require.NoError(t, l.Close()) }()
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{proto.HeaderSize, proto.PieceSize, proto.PieceSize + 1, 5 * proto.PieceSize, 64 << 10} {
		body := make([]byte, size-proto.HeaderSize)
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		frame := proto.AppendFrame(nil, proto.Header{Op: proto.OpPing}, body, 0)
		require.NoError(t, l.Send(frame))
		require.Equal(t, size > proto.SendSize(size), l.long)
		var got []byte
		piece := make([]byte, proto.MaxFrame)
		for len(got) < size {
			n, err := unix.Read(ends[1], piece)
			require.NoError(t, err)
			require.LessOrEqual(t, n, proto.SendSize(size))
			got = append(got, piece[:n]...)
		}
		require.Equal(t, frame, got)
		_, err = unix.Write(ends[1], frame[:proto.HeaderSize-4])
		require.NoError(t, err)
		_, err = unix.Write(ends[1], frame[proto.HeaderSize-4:])
		require.NoError(t, err)
		reply, err := l.Frame()
		require.NoError(t, err)
		require.Equal(t, frame, reply)
		require.False(t, l.long)
	}
}
