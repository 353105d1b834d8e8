package server_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server"
)

// More connections than an io_uring has room for: the server says how many it takes, takes so many, and with epoll more.
func TestMoreConnectionsThanARingTakesAreRefusedByNumber(t *testing.T) {
	var files unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	if files.Cur < 18_000 {
		t.Skipf("%d files may be open, and this takes 18,000", files.Cur)
	}
	const most = 14_815
	with := func(engine ring.Engine, conns int) error {
		s, err := server.New(server.Config{Listen: []string{"unix:" + socketPath(t)}, L1Size: 1 << 20, Engine: engine, Limits: server.Limits{Conns: conns}})
		if err == nil {
			s.Shutdown()
			require.NoError(t, s.Run())
		}
		return err
	}
	require.NoError(t, with(ring.EngineEpoll, most+1))
	if ringtest.Engine(t) == ring.EngineEpoll {
		return
	}
	err := with(ring.EngineUring, most)
	if errors.Is(err, ring.ErrUnavailable) && ringtest.Engine(t) != ring.EngineUring {
		t.Skip(err)
	}
	require.NoError(t, err)
	err = with(ring.EngineUring, most+1)
	require.ErrorIs(t, err, ring.ErrTooMany)
	require.ErrorContains(t, err, "give 14815 at most (--connections), or --io-engine epoll")
}
