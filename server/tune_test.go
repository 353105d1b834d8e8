package server

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What is set on a listening socket once holds for each connection that comes by it, without a system call of its own, but for the one that is not inherited.
func TestConnectionsInheritWhatTheirListenerIsTunedTo(t *testing.T) {
	l, err := openTCP("127.0.0.1:0")
	require.NoError(t, err)
	defer l.release()
	c, err := net.Dial("tcp", strings.TrimPrefix(l.addr, "tcp:"))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	var fd int
	require.Eventually(t, func() bool { fd, _, err = unix.Accept(l.fd); return err == nil }, 20*time.Second, time.Millisecond)
	defer closeFd(fd)
	limitTCP(fd)
	for _, o := range []struct{ level, option, want int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 60_000},
	} {
		got, err := unix.GetsockoptInt(fd, o.level, o.option)
		require.NoError(t, err)
		require.Equal(t, o.want, got, "option %d", o.option)
	}
}
