package server_test

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// dialAs connects as another user of this machine, with a primary group and one more.
func dialAs(t *testing.T, r *running, uid, gid, group uint32) *peer {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	var c net.Conn
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)), 0)
		if errno == 0 {
			_, _, errno = unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid))
		}
		if errno == 0 {
			_, _, errno = unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		}
		if errno != 0 {
			done <- errno
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: r.path})
		}
		if err == nil {
			file := os.NewFile(uintptr(fd), "socket")
			c, err = net.FileConn(file)
			_ = file.Close()
		}
		done <- err
	}()
	require.NoError(t, <-done)
	t.Cleanup(func() { _ = c.Close() })
	return &peer{t: t, conn: c}
}

// greeted says HELLO and returns what came of it.
func (p *peer) greeted(token string) proto.Status {
	p.t.Helper()
	p.send(proto.OpHello, proto.AppendHello(nil, &proto.Hello{VersionMin: 1, VersionMax: 1, Token: token}), nil)
	h, body, _ := p.receive()
	if h.Status == proto.StatusOK {
		var hello proto.HelloReply
		require.NoError(p.t, proto.ParseHelloReply(body, &hello))
		p.boot = hello.Boot
	}
	return h.Status
}

// joins registers in a namespace and returns the transport, or 0.
func (p *peer) joins(namespace string) (proto.Transport, proto.Status) {
	p.t.Helper()
	h, body, _ := p.call(proto.OpRegister, proto.AppendRegister(nil, &proto.Register{
		Instance: 99, Want: proto.TransportShared, Namespace: namespace, Layouts: []proto.Layout{{Name: "bytes", Size: 4096}},
	}), nil)
	var out proto.RegisterReply
	if h.Status == proto.StatusOK {
		require.NoError(p.t, proto.ParseRegisterReply(body, &out))
	}
	return out.Transport, h.Status
}

// openSocket has a server whose socket everybody may write to.
func openSocket(t *testing.T, text *safeBuffer, a server.Access) *running {
	t.Helper()
	a.SocketMode = 0o666
	r := start(t, func(c *server.Config) {
		c.Access = a
		require.NoError(t, os.Chmod(filepath.Dir(strings.TrimPrefix(c.Listen[0], "unix:")), 0o755))
		if text != nil {
			c.Logger = slog.New(slog.NewTextHandler(text, nil))
		}
	})
	return r
}

// Workers run as other users, in other containers: whoever may not come in learns that, and
// the log says who it was and why; whom the operator lets in gets what it was let in for.
func TestAPeerOfAnotherUserIsRefusedUnlessAllowed(t *testing.T) {
	const worker, stranger, team = 1000, 1001, 2000
	var text safeBuffer
	r := openSocket(t, &text, server.Access{Users: []uint32{worker}, Groups: []uint32{team}})
	for range 20 {
		p := dialAs(t, r, stranger, stranger, stranger)
		require.Equal(t, proto.StatusDenied, p.greeted(""))
		p.closed()
	}
	said := strings.Count(text.String(), "did not come in")
	require.Positive(t, said)
	require.Less(t, said, 20, "the log is not flooded")
	require.Contains(t, text.String(), "its user is not let in")
	require.Contains(t, text.String(), "uid=1001")

	for name, p := range map[string]*peer{
		"a user":            dialAs(t, r, worker, worker, worker),
		"a primary group":   dialAs(t, r, stranger, team, stranger),
		"one group of some": dialAs(t, r, stranger, stranger, team),
	} {
		require.Equal(t, proto.StatusOK, p.greeted(""), name)
		transport, st := p.joins("any")
		require.Equal(t, proto.StatusOK, st, name)
		require.Equal(t, proto.TransportShared, transport, name)
		h, _, _ := p.call(proto.OpEvict, proto.AppendEvict(nil, &proto.Evict{Instance: 99}), nil)
		require.Equal(t, proto.StatusDenied, h.Status, "%s is no operator", name)
		require.NoError(t, p.conn.Close())
	}
	own := greet(t, r)
	h, _, _ := own.call(proto.OpEvict, proto.AppendEvict(nil, &proto.Evict{Instance: 98}), nil)
	require.Equal(t, proto.StatusStale, h.Status)
	require.Contains(t, text.String(), "it can read and write the whole pool")
}

func TestTokensAreOfAFileThatMayChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(s string) { require.NoError(t, os.WriteFile(file, []byte(s), 0o600)) }
	write("a alpha shm\nb beta\nuid:1000 gamma\n")
	r := openSocket(t, nil, server.Access{TokenFile: file})
	a, b := dial(t, r.Addrs()[0]), dial(t, r.Addrs()[0])
	require.Equal(t, proto.StatusOK, a.greeted("a"))
	require.Equal(t, proto.StatusOK, b.greeted("b"))
	for name, c := range map[string]struct {
		p         *peer
		namespace string
		want      proto.Transport
		status    proto.Status
	}{
		"with the right to memory":    {a, "alpha", proto.TransportShared, proto.StatusOK},
		"without":                     {b, "beta", proto.TransportInline, proto.StatusOK},
		"in somebody else's":          {b, "alpha", 0, proto.StatusDenied},
		"in one that nobody's is":     {b, "none", 0, proto.StatusDenied},
		"the server's user, no token": {dial(t, r.Addrs()[0]), "", 0, proto.StatusDenied},
	} {
		if c.p.boot == 0 {
			require.Equal(t, c.status, c.p.greeted(""), name)
			continue
		}
		transport, st := c.p.joins(c.namespace)
		require.Equal(t, c.status, st, name)
		require.Equal(t, c.want, transport, name)
	}
	write("b beta\nc alpha\nbroken\n")
	require.ErrorContains(t, r.Reload(), "line 3")
	a.ping()
	write("b beta\nc alpha\n")
	require.NoError(t, r.Reload())
	a.closed()
	b.ping()
	require.Equal(t, proto.StatusDenied, dial(t, r.Addrs()[0]).greeted("a"))
	require.Equal(t, proto.StatusOK, dial(t, r.Addrs()[0]).greeted("c"))
}

func TestAUserOfTheFileNeedsNoToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte("uid:1000 gamma\ngid:55 delta shm\n"), 0o600))
	r := openSocket(t, nil, server.Access{TokenFile: file})
	p := dialAs(t, r, 1000, 1000, 1000)
	require.Equal(t, proto.StatusOK, p.greeted(""))
	transport, st := p.joins("gamma")
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, proto.TransportInline, transport)
	q := dialAs(t, r, 1001, 1001, 55)
	require.Equal(t, proto.StatusOK, q.greeted(""))
	transport, st = q.joins("delta")
	require.Equal(t, proto.StatusOK, st)
	require.Equal(t, proto.TransportShared, transport)
	require.Equal(t, proto.StatusDenied, dialAs(t, r, 1001, 1001, 1001).greeted(""))
}

func TestTheSocketsFileIsForWhomItWasGiven(t *testing.T) {
	group := uint32(4242)
	if os.Geteuid() != 0 {
		group = uint32(os.Getegid())
	}
	path := filepath.Join(filepath.Dir(socketPath(t)), "sub", "s")
	start(t, func(c *server.Config) {
		c.Listen = []string{"unix:" + path}
		c.Access = server.Access{SocketMode: 0o660, SocketGroup: &group}
	})
	for name, want := range map[string]os.FileMode{path: 0o660, filepath.Dir(path): 0o710} {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(name, &st))
		require.Equal(t, want, os.FileMode(st.Mode&0o777), name)
		require.Equal(t, group, st.Gid, name)
	}
}

func TestAFileOfTokensThatCannotBeReadIsRefused(t *testing.T) {
	require.Contains(t, refused(t, server.Config{
		Listen: []string{"unix:/x"}, Access: server.Access{TokenFile: filepath.Join(t.TempDir(), "none")},
	}), "read the tokens")
	require.Contains(t, refused(t, server.Config{
		Listen: []string{"unix:/x"}, Access: server.Access{Token: "a", TokenFile: "/dev/null"},
	}), "give one of them")
}
