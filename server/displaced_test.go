package server

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server/engine"
)

// A flood of connections that keep on asking for something, and so are never idle: as long as they have not registered
// the one whose last request is longest ago makes room, and those who registered do not.
func TestWhoOnlyKeepsAskingGivesWay(t *testing.T) {
	fake, err := ringtest.NewFake(ring.Config{Ops: 8, Control: 64})
	require.NoError(t, err)
	r := &reactor{ring: fake, log: slog.New(slog.DiscardHandler), limiter: newLimiter(), conns: make([]conn, 16), now: time.Hour}
	for i := range r.conns {
		c := &r.conns[i]
		c.id = engine.NewConnID(uint32(i), 1)
		c.fd = -1
		c.moveTo(connOpen)
		c.taken = 1
		c.enrolled = i < 4
		r.now++
		r.await(c)
	}
	r.now++
	r.conns[4].taken++ // it asks once more
	r.await(&r.conns[4])
	for n := range 12 {
		r.makeRoom()
		require.EqualValues(t, n+1, r.stats.Displaced)
	}
	r.makeRoom()
	require.EqualValues(t, 12, r.stats.Displaced, "nobody else gives way")
	require.Equal(t, uint32(5), r.leaving[0])
	require.Equal(t, uint32(4), r.leaving[11])
	for i := range 4 {
		require.Equal(t, connOpen, r.conns[i].state)
	}
}
