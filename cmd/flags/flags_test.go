package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizesAreBinaryAndRefuseNonsense(t *testing.T) {
	good := map[string]Size{
		"0": 0, "4096": 4096, "64KiB": 64 << 10, "64k": 64 << 10, "256MiB": 256 << 20,
		"1.5GiB": 3 << 29, "2 GiB": 2 << 30, "1e3": 1000,
	}
	for text, want := range good {
		var s Size
		require.NoError(t, s.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, s, text)
	}
	for _, text := range []string{"", "GiB", "-1", "12 potatoes", "1e300", "9999999PiB", "0x10", "NaN"} {
		s := Size(7)
		err := s.UnmarshalText([]byte(text))
		require.ErrorContains(t, err, "is not a size", text)
		require.Equal(t, Size(7), s, text)
	}
}

func TestExitCodesComeFromTheError(t *testing.T) {
	require.Equal(t, OK, Code(nil))
	require.Equal(t, Failure, Code(errors.New("x")))
	require.Equal(t, Usage, Code(Usagef("x %d", 1)))
	require.Equal(t, NotFound, Code(fmt.Errorf("outer: %w", &ExitError{Code: NotFound, Err: fs.ErrNotExist})))
}

func TestDefaultSocketFollowsTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	require.Equal(t, filepath.Join(dir, "slotcache", "slotcached.sock"), DefaultSocket())
	t.Setenv("XDG_RUNTIME_DIR", "relative")
	require.Equal(t, fmt.Sprintf("/tmp/slotcache-%d/slotcached.sock", os.Getuid()), DefaultSocket())
}

func TestDefaultAddrNeedsADirectoryOfOurOwn(t *testing.T) {
	runtimeDir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtimeDir)
	dir := filepath.Join(runtimeDir, "slotcache")

	addr, err := DefaultAddr()
	require.NoError(t, err, "no server yet is not an error here")
	require.Equal(t, "unix:"+dir+"/slotcached.sock", addr)

	require.NoError(t, MakePrivate(dir))
	require.NoError(t, MakePrivate(dir), "the second time it is there already")
	info, err := os.Lstat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())

	require.NoError(t, os.Chmod(dir, 0o755))
	_, err = DefaultAddr()
	require.ErrorContains(t, err, "chmod 700")
	require.Error(t, MakePrivate(dir))

	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Symlink(t.TempDir(), dir))
	require.ErrorContains(t, MakePrivate(dir), "not a directory")

	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	require.ErrorContains(t, MakePrivate(dir), "not a directory")
}

func TestADirectoryOfAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := filepath.Join(t.TempDir(), "d")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chown(dir, 65534, 65534))
	require.ErrorContains(t, CheckPrivate(dir), "belongs to uid 65534")
}

func TestAddressesAreChecked(t *testing.T) {
	for _, addr := range []string{"unix:/tmp/x", "unix:x", "tcp:127.0.0.1:80", "tcp:[::1]:80"} {
		require.NoError(t, CheckAddr(addr), addr)
	}
	for _, addr := range []string{"", "unix", "unix:", "/tmp/x", "http://x", "tcp:80", "unix:/" + strings.Repeat("x", 107)} {
		require.Error(t, CheckAddr(addr), addr)
	}
}

func TestVersionIsNeverEmpty(t *testing.T) {
	require.Contains(t, Version(), "go1")
	require.NotContains(t, Version(), "(devel)")
}
