package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
)

// A worker whose connection was lost ends, and with it the process that has replaced it by then.
func TestTheEndOfAReplacedWorkerLeavesItsSuccessor(t *testing.T) {
	s := startChild(t, nil)
	w := worker(t, s.addr(), client.Registration{Instance: 7})
	store(t, w, 1)
	w.Break()
	successor := startPuppetAs(t, s.addr(), 7)
	successor.ask(order{Do: "prepare", First: 100, N: 1, Wait: time.Second})
	successor.ask(order{Do: "fill"})
	require.NoError(t, w.Close())
	successor.ask(order{Do: "commit"})
}

// A server keeps what a lost connection had for as long as the process lives, which goes on after the end of its worker.
func TestTheEndOfAWorkerGivesBackWhatALostConnectionHad(t *testing.T) {
	s := startChild(t, nil)
	w := worker(t, s.addr(), client.Registration{Instance: 7})
	store(t, w, 1)
	r, err := w.Retrieve(within(t), 0, keys(0, 1), client.RetrieveOptions{})
	require.NoError(t, err)
	w.Break()
	require.ErrorIs(t, r.Release(within(t)), client.ErrStale)
	require.NoError(t, w.Close())
	idle(t, watcher(t, s))
}
