package client

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pair is both ends of a stream.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		ends[i], err = net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

// A frame that the kernel did not take at once is sent after its caller has used the memory for another: the stream is out of
// step, or has another request's bytes.
func TestWhatWaitsForASlowServerIsNotTheCallersMemory(t *testing.T) {
	near, far := pair(t)
	var o outbox
	require.NoError(t, o.open(near, func(err error) { t.Error(err) }))
	var want []byte
	frame, payload := make([]byte, 100), make([]byte, copiedMax/2)
	for i := range 64 { // far more than the socket takes
		for k := range frame {
			frame[k] = byte(i)
		}
		for k := range payload {
			payload[k] = byte(i + k)
		}
		want = append(want, frame...)
		switch i % 3 {
		case 0:
			o.postLate(frame)
		case 1:
			o.post(frame)
		default:
			require.NoError(t, o.send(context.Background(), frame, [][]byte{payload[:1000], payload[1000:]}))
			want = append(want, payload...)
		}
		clear(frame)
		clear(payload)
	}
	o.flushLate()
	got := make([]byte, len(want))
	_, err := io.ReadFull(far, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}
