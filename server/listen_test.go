package server_test

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/server"
)

// refused tries to start a server that must not start, and returns why.
func refused(t *testing.T, cfg server.Config) string {
	t.Helper()
	if cfg.L1Size == 0 {
		cfg.L1Size = 1 << 20
	}
	s, err := server.New(cfg)
	require.Error(t, err)
	require.Nil(t, s)
	t.Log(err)
	return err.Error()
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := socketPath(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	require.NoError(t, unix.Close(fd)) // as a killed process leaves it
	r := start(t, func(c *server.Config) { c.Listen = []string{"unix:" + path} })
	greet(t, r).ping()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	r.stop()
	require.NoFileExists(t, path)
}

// A killed server's ring keeps its listening socket open for a while.
func TestASocketWhoseServerIsDeadIsReplacedThoughItStillListens(t *testing.T) {
	path := socketPath(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	dup, err := unix.Dup(fd)
	require.NoError(t, err)
	file := os.NewFile(uintptr(dup), "listener")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childListens+"=1")
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, file.Close())
	probe, err := net.Dial("unix", path)
	require.NoError(t, err, "it listens still")
	require.NoError(t, probe.Close())
	greet(t, start(t, func(c *server.Config) { c.Listen = []string{"unix:" + path} })).ping()
}

func TestASocketInUseIsKept(t *testing.T) {
	r := start(t, nil)
	require.Contains(t, refused(t, server.Config{Listen: r.Addrs()}), "another server answers")
	greet(t, r).ping()
}

func TestAFileThatIsNotASocketIsKept(t *testing.T) {
	path := socketPath(t)
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	require.Contains(t, refused(t, server.Config{Listen: []string{"unix:" + path}}), "not a socket")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(text))
}

func TestATooLongPathIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("x", 110))
	require.Contains(t, refused(t, server.Config{Listen: []string{"unix:" + path}}), "107")
}

func TestAMissingDirectoryIsMadePrivate(t *testing.T) {
	dir := filepath.Join(filepath.Dir(socketPath(t)), "sub")
	start(t, func(c *server.Config) { c.Listen = []string{"unix:" + filepath.Join(dir, "s")} })
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestBadConfigsAreRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	for want, cfg := range map[string]server.Config{
		"no address":     {},
		"not an address": {Listen: []string{"http://x"}},
		"at least":       {Listen: []string{"unix:/x"}, L1Size: 1},
		"in use":         {Listen: []string{"tcp:" + taken.Addr().String()}},
		"a spin":         {Listen: []string{"unix:/x"}, L1Size: 1 << 20, Spin: -1},
		"a look":         {Listen: []string{"unix:/x"}, L1Size: 1 << 20, Look: -1},
		"a token":        {Listen: []string{"unix:/x"}, L1Size: 1 << 20, Access: server.Access{Token: strings.Repeat("x", 65)}},
		"of disk":        {Listen: []string{"unix:/x"}, L2Dir: "/x", L2Size: 1},
		"connections":    {Listen: []string{"unix:/x"}, Limits: server.Limits{Conns: -1}},
	} {
		require.Contains(t, refused(t, cfg), want)
	}
}

func TestATakenPortIsNamedOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	addr := taken.Addr().String()
	says := refused(t, server.Config{Listen: []string{"tcp:" + addr}})
	require.Equal(t, 1, strings.Count(says, addr), says)
	require.Contains(t, says, "give another --listen")
}

func TestAnAddressForOtherMachinesNeedsAFileOfTokens(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("word *\n"), 0o600))
	for _, c := range []struct {
		listen, at string
		access     server.Access
		starts     bool
	}{
		{"tcp:0.0.0.0:0", "tcp:0.0.0.0:", server.Access{}, false},
		{"tcp:[::]:0", "tcp:[::]:", server.Access{Token: "word"}, false},
		{"tcp:0.0.0.0:0", "tcp:0.0.0.0:", server.Access{TokenFile: tokens}, true},
		{"tcp:127.0.0.1:0", "tcp:127.0.0.1:", server.Access{}, true},
		{"tcp::0", "tcp:127.0.0.1:", server.Access{}, true},
	} {
		cfg := server.Config{Listen: []string{c.listen}, L1Size: 1 << 20, Access: c.access}
		if !c.starts {
			before := openFiles(t)
			require.Contains(t, refused(t, cfg), "give a --token-file")
			require.Equal(t, before, openFiles(t))
			continue
		}
		s := open(t, func(with *server.Config) { with.Listen, with.Access = cfg.Listen, cfg.Access })
		s.Shutdown()
		require.NoError(t, s.Run())
		require.True(t, strings.HasPrefix(s.Addrs()[0], c.at), "%s: %v", c.listen, s.Addrs())
	}
}

func TestWithoutADiskNothingIsSaidToBeLost(t *testing.T) {
	for _, disk := range []bool{false, true} {
		var log bytes.Buffer
		s := open(t, func(cfg *server.Config) {
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			if disk {
				cfg.L2Dir, cfg.L2Size = filepath.Join(t.TempDir(), "l2"), 64<<20
			}
		})
		s.Shutdown()
		s.Shutdown()
		require.NoError(t, s.Run())
		<-s.Stopped()
		require.Contains(t, log.String(), "stopped at once")
		require.Equal(t, disk, strings.Contains(log.String(), "not on disk is lost"), log.String())
	}
}

// A start makes segment files that it may never write to.
func TestASpareSegmentIsNoWarning(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l2")
	var log bytes.Buffer
	for range 2 {
		log.Reset()
		s := open(t, func(cfg *server.Config) {
			cfg.L2Dir, cfg.L2Size = dir, 64<<20
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		s.run()
		s.stop()
	}
	require.Contains(t, log.String(), "disk tier recovered")
	require.NotContains(t, log.String(), "ignored")
}

func TestAFailedStartLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	path := socketPath(t)
	cfg := server.Config{
		Listen: []string{"unix:" + path}, HTTP: taken.Addr().String(),
		L2Dir: filepath.Join(filepath.Dir(path), "l2"), L2Size: 64 << 20,
	}
	before := openFiles(t)
	refused(t, cfg)
	require.NoFileExists(t, path)
	require.Equal(t, before, openFiles(t))
	refused(t, cfg) // not for a lock or a socket that stayed
}

// openFiles counts this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}
