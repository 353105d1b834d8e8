package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/cmd/cmdtest"
)

// Two teams share a server: neither sees the other's values or workers, and only the operator
// ends one.
func TestTokensSeparateTeams(t *testing.T) {
	dir := cmdtest.Dir(t)
	file := filepath.Join(dir, "tokens")
	require.NoError(t, os.WriteFile(file, []byte("red red shm\nblue blue\nop * admin\n"), 0o600))
	s := cmdtest.Start(t, append(cmdtest.Small(dir), "--token-file", file)...)
	as := func(token, namespace string, args ...string) cmdtest.Result {
		args = append([]string{"--addr", cmdtest.Addr(dir), "--token", token, "--namespace", namespace}, args...)
		return cmdtest.Run(t, strings.NewReader("value of "+token), "slotcache", args...)
	}
	require.Zero(t, as("red", "red", "put", "k", "-").Code)
	require.Equal(t, 3, as("blue", "blue", "get", "k", "-").Code, "not cached there")
	r := as("blue", "red", "get", "k", "-")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, `the token is not for namespace "red"`)
	require.Equal(t, "value of red", as("red", "red", "get", "k", "-").Stdout)
	require.Equal(t, "value of red", as("op", "red", "get", "k", "-").Stdout)
	require.NotContains(t, as("blue", "", "stats").Stdout, "connections_total")
	require.Contains(t, as("op", "", "stats").Stdout, "connections_total")

	require.NoError(t, os.WriteFile(file, []byte("blue red\n"), 0o600))
	s.Signal(syscall.SIGHUP)
	for end := time.Now().Add(time.Minute); as("red", "red", "ping").Code == 0; {
		require.True(t, time.Now().Before(end), "the tokens are not read again")
	}
	require.Equal(t, "value of red", as("blue", "red", "get", "k", "-").Stdout)
	s.Signal(syscall.SIGTERM)
	r = s.Wait()
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "worker registered")
	require.Contains(t, r.Stderr, "it can read and write the whole pool")
}

// A named pool has the group and the mode that were asked for, whatever the umask and the directory say.
func TestANamedPoolIsForItsGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving a file to a foreign group takes root")
	}
	for want, flags := range map[os.FileMode][]string{0o660: nil, 0o640: {"--shm-mode", "0640"}} {
		name := fmt.Sprintf("group-test-%d", os.Getpid())
		s := cmdtest.Start(t, append(append(cmdtest.Small(cmdtest.Dir(t)), "--shm-name", name, "--shm-group", "12345"), flags...)...)
		info, err := os.Stat("/dev/shm/slotcache_l1_pool_" + name)
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm())
		require.EqualValues(t, 12345, info.Sys().(*syscall.Stat_t).Gid)
		s.Signal(syscall.SIGTERM)
		require.Zero(t, s.Wait().Code)
		require.NoFileExists(t, "/dev/shm/slotcache_l1_pool_"+name)
	}
}
