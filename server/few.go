package server

import (
	"net"
	"sync"
)

// httpConns is how many connections the HTTP server has at a time; filesReserved has their
// descriptors.
const httpConns = 16

// A few is a listener whose connections are limited in number, for who asks for metrics must
// not take the descriptors of the clients and of the disk tier. What comes beyond is closed
// at once: to leave it waiting would look like a server that hangs.
type few struct {
	net.Listener
	slots chan struct{} // holds one token a connection that is open
}

// newFew limits l to n connections.
func newFew(l net.Listener, n int) *few {
	return &few{Listener: l, slots: make(chan struct{}, n)}
}

// Accept implements [net.Listener].
func (f *few) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // http.Server goes on after an error that says itself that it passes
		}
		select {
		case f.slots <- struct{}{}:
			return &fewConn{Conn: c, free: sync.OnceFunc(func() { <-f.slots })}, nil
		default:
			_ = c.Close() // the peer sees it
		}
	}
}

// A fewConn gives its place free when it is closed.
type fewConn struct {
	net.Conn
	free func()
}

// Close implements [net.Conn].
func (c *fewConn) Close() error {
	err := c.Conn.Close()
	c.free()
	return err //nolint:wrapcheck // as if it were the connection itself
}
