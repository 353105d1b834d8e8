package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

const (
	// socketPathMax is the longest path of a socket that the kernel takes, in bytes.
	socketPathMax = 107
	// socketMode is the mode of a socket file, unless another is given.
	socketMode = 0o600
	// listenBacklog is how many connections may wait to be accepted; the kernel cuts it to
	// net.core.somaxconn.
	listenBacklog = 4096
	// listenRest is how long nothing is accepted after the process ran out of descriptors.
	listenRest = 200 * time.Millisecond
	// keepAlive is how long a TCP peer may be silent until it is asked for a sign of life; it
	// is gone when three are missing.
	keepAlive = 15 * time.Second
	// lockTries is how often the lock on a socket's directory is tried, lockPause apart.
	lockTries = 100
	lockPause = 10 * time.Millisecond
)

// listenState is where a listener is in its life.
//
//	         listen                stop
//	off -------------> armed ---------------> pausing
//	 ^ ^                |  |                     |
//	 | |  it ended      |  | no descriptors      | the ring's last completion
//	 | +----------------+  v                     v
//	 +------ time ----- resting ---- stop --> closed
//	 +-------------------------------- stop ----^
type listenState uint8

const (
	listenOff     listenState = iota // nothing is in the ring; is armed in this turn
	listenArmed                      // connections are accepted
	listenResting                    // nothing is in the ring until there is hope for descriptors
	listenPausing                    // asked to end
	listenClosed                     // the descriptor is closed and the file removed
)

var listenNames = [...]string{"off", "armed", "resting", "pausing", "closed"}

// String names the state.
func (s listenState) String() string {
	if int(s) < len(listenNames) {
		return listenNames[s]
	}
	return fmt.Sprintf("listenState(%d)", uint8(s))
}

var listenMoves = [...]uint8{
	listenOff:     1<<listenArmed | 1<<listenClosed,
	listenArmed:   1<<listenOff | 1<<listenResting | 1<<listenPausing,
	listenResting: 1<<listenOff | 1<<listenClosed,
	listenPausing: 1 << listenClosed,
	listenClosed:  0,
}

// A listener is one address connections come from.
type listener struct {
	addr  string // unix:PATH or tcp:HOST:PORT, with the port that was given
	path  string // of the socket file; empty for TCP
	file  os.FileInfo
	open  bool // other machines may reach it
	fd    int
	state listenState
	until time.Duration // of the state resting
}

// moveTo changes the state.
func (l *listener) moveTo(s listenState) {
	if listenMoves[l.state]&(1<<s) == 0 {
		panic(fmt.Sprintf("server: listener moves from %v to %v", l.state, s))
	}
	l.state = s
}

// openListener listens on unix:PATH or tcp:HOST:PORT. Without a file of tokens it is not for
// other machines.
func openListener(addr string, a *Access) (listener, error) {
	kind, rest, _ := strings.Cut(addr, ":")
	switch {
	case kind == "unix" && rest != "":
		return openUnix(rest, a)
	case kind == "tcp" && rest != "":
		l, err := openTCP(rest)
		if err == nil && l.open && a.TokenFile == "" {
			l.release()
			err = fmt.Errorf("server: listen on %s: other machines reach it: give a --token-file, or listen on 127.0.0.1", addr)
		}
		return l, err
	}
	return listener{}, fmt.Errorf("server: listen on %q: not an address: give unix:PATH or tcp:HOST:PORT", addr)
}

// openTCP listens on HOST:PORT.
func openTCP(addr string) (listener, error) {
	addr = orLoopback(addr)
	network := tcpNetwork(addr)
	l, err := net.Listen(network, addr)
	for n := 0; n < lockTries && errors.Is(err, unix.EADDRINUSE); n++ {
		time.Sleep(lockPause) // see stale.go: it may be a dead server's
		l, err = net.Listen(network, addr)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without the address, which is named already
	}
	if err != nil {
		return listener{}, fmt.Errorf("server: listen on tcp:%s: %w: give another --listen", addr, err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		panic("server: net.Listen(tcp) has not made a TCP listener")
	}
	defer func() { _ = tcp.Close() }() // the copy of its descriptor stays
	file, err := tcp.File()
	if err != nil {
		return listener{}, fmt.Errorf("server: listen on tcp:%s: %w", addr, err)
	}
	defer func() { _ = file.Close() }()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return listener{}, fmt.Errorf("server: listen on tcp:%s: %w", addr, err)
	}
	tuneTCP(fd)
	at, ok := l.Addr().(*net.TCPAddr)
	return listener{addr: "tcp:" + l.Addr().String(), fd: fd, open: !ok || !at.IP.IsLoopback()}, nil
}

// tuneTCP has replies go at once, and a peer noticed whose machine is gone, on all connections that come by a listening socket: they
// inherit it, all but what limitTCP sets. Without it they still work.
func tuneTCP(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlive/time.Second))
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAlive/time.Second))
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3)
}

// limitTCP bounds for how long a connection's peer may not acknowledge what it is sent.
func limitTCP(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(4*keepAlive/time.Millisecond))
}

// orLoopback names the host of HOST:PORT where none is given: all addresses have a name, 0.0.0.0 or ::.
func orLoopback(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// tcpNetwork is the network of package net to listen on HOST:PORT: who gives an IPv4 address,
// as 0.0.0.0, shall not be reached by IPv6.
func tcpNetwork(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if ip, bad := netip.ParseAddr(host); err == nil && bad == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// openUnix listens on a socket file that only this user can open, unless told. A file that a killed
// server left is replaced, one that somebody answers on is not, nor is any other file.
func openUnix(path string, a *Access) (listener, error) {
	l := listener{addr: "unix:" + path, path: path}
	if len(path) > socketPathMax {
		return l, fmt.Errorf("server: listen on unix:%s: the path has %d bytes, and the kernel takes %d: give a shorter one", path, len(path), socketPathMax)
	}
	dir := filepath.Dir(path)
	if err := makeDirectory(dir, a); err != nil {
		return l, fmt.Errorf("server: listen on unix:%s: make its directory: %w", path, err)
	}
	unlock := lockDirectory(dir)
	defer unlock()
	if err := clearSocket(path); err != nil {
		return l, err
	}
	var err error
	if l.fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return l, fmt.Errorf("server: listen on unix:%s: %w", path, err)
	}
	if err = unix.Bind(l.fd, &unix.SockaddrUnix{Name: path}); err != nil {
		closeFd(l.fd)
		return l, fmt.Errorf("server: listen on unix:%s: %w", path, err)
	}
	if err = a.own(path, a.socketMode()); err == nil { // nobody can connect before listen
		l.file, err = os.Lstat(path)
	}
	if err == nil {
		err = unix.Listen(l.fd, listenBacklog)
	}
	if err != nil {
		l.release()
		return l, fmt.Errorf("server: listen on unix:%s: %w", path, err)
	}
	return l, nil
}

// socketMode is the mode of a socket file: who may write to it may connect.
func (a *Access) socketMode() os.FileMode {
	if a.SocketMode == 0 {
		return socketMode
	}
	return a.SocketMode
}

// own gives a file its group and mode.
func (a *Access) own(path string, mode os.FileMode) error {
	if a.SocketGroup != nil {
		if err := os.Chown(path, -1, int(*a.SocketGroup)); err != nil {
			return fmt.Errorf("give it to group %d: %w", *a.SocketGroup, err)
		}
	}
	return os.Chmod(path, mode) //nolint:wrapcheck // the caller says what for
}

// makeDirectory makes the directory of a socket where there is none: whoever may use the
// socket may pass through it, and nobody else.
func makeDirectory(dir string, a *Access) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err //nolint:wrapcheck // the caller says what for
	}
	return a.own(dir, 0o700|a.socketMode()&0o022>>1)
}

// lockDirectory keeps two servers that start at the same time from taking each other's new
// socket for a stale one, and returns the end of it. Where it can't be had it goes without.
func lockDirectory(dir string) func() {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	for range lockTries {
		if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
			break
		}
		time.Sleep(lockPause)
	}
	return func() { closeFd(fd) } // and with it the lock
}

// release closes the descriptor and removes the socket file.
func (l *listener) release() {
	closeFd(l.fd)
	l.unlink()
}

// unlink removes the socket file, if it is still the one that was made here.
func (l *listener) unlink() {
	if l.path == "" {
		return
	}
	if info, err := os.Lstat(l.path); l.file == nil || err == nil && os.SameFile(info, l.file) {
		_ = os.Remove(l.path) // a socket that stays is replaced by the next server
	}
	l.path = ""
}

// accepted takes a completion of an accept.
func (r *reactor) accepted(done *ring.Completion) {
	l := &r.listeners[done.Tag.Index()-tagListen]
	if done.Res >= 0 {
		if l.path == "" {
			limitTCP(int(done.Res))
		}
		r.opened(int(done.Res), l.path != "")
	}
	if done.More {
		return
	}
	if l.state == listenPausing {
		r.closeListener(l)
		return
	}
	switch errno := unix.Errno(-done.Res); {
	case done.Res >= 0, errno == unix.ECANCELED, errno == unix.ECONNABORTED, errno == unix.EINTR, errno == unix.EAGAIN:
		l.moveTo(listenOff)
	default: // above all EMFILE and ENFILE: the connection waits, and would be offered again at once
		l.moveTo(listenResting)
		l.until = r.now + listenRest
		r.stats.AcceptErrors++
		r.complain("cannot accept connections for now: if there are too many open files, raise the limit (ulimit -n)", "addr", l.addr, "err", errno)
	}
}

// listen arms the listeners that are not.
func (r *reactor) listen() {
	for i := range r.listeners {
		l := &r.listeners[i]
		if l.state == listenResting && r.now >= l.until {
			l.moveTo(listenOff)
		}
		if l.state == listenOff {
			l.moveTo(listenArmed)
			r.ring.Accept(ring.NewTag(tagListen+uint32(i), 0), l.fd)
		}
	}
}

// nextListen is when the first resting listener is armed again.
func (r *reactor) nextListen() (time.Duration, bool) {
	var next earliest
	for i := range r.listeners {
		next.add(r.listeners[i].until, r.listeners[i].state == listenResting)
	}
	return next.at, next.found
}

// closeListeners ends listening. Connections that were not accepted are refused.
func (r *reactor) closeListeners() {
	for i := range r.listeners {
		l := &r.listeners[i]
		switch l.state {
		case listenArmed:
			l.moveTo(listenPausing)
			r.ring.Pause(ring.NewTag(tagListen+uint32(i), 0))
		case listenOff, listenResting:
			r.closeListener(l)
		case listenPausing, listenClosed:
		}
	}
}

// closeListener closes a listener of which nothing is in the ring.
func (r *reactor) closeListener(l *listener) {
	l.moveTo(listenClosed)
	l.release()
}
