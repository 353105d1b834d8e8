package server

import (
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// scarce is a listener that has no descriptors for its first connections.
type scarce struct {
	net.Listener
	failures atomic.Int32
}

func (s *scarce) Accept() (net.Conn, error) {
	if s.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", unix.EMFILE)}
	}
	return s.Listener.Accept() //nolint:wrapcheck // as if it were the listener itself
}

// Numbers and health are served again when there are descriptors again.
func TestHTTPGoesOnAfterAWantOfDescriptors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &scarce{Listener: l}
	s.failures.Store(3)
	ended := make(chan error, 1)
	web := http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	go func() { ended <- web.Serve(newFew(s, 1)) }()
	client := http.Client{Timeout: time.Minute}
	res, err := client.Get("http://" + l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusNotFound, res.StatusCode)
	require.NoError(t, web.Close())
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
}
