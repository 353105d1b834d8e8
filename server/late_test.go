package server

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server/engine"
)

// A server that was held up blames its peers: as long as there may be more that has come, nobody is closed for being late.
func TestNobodyIsLateWhileThereMayBeMoreToRead(t *testing.T) {
	fake, err := ringtest.NewFake(ring.Config{Ops: 8, Control: 8})
	require.NoError(t, err)
	r := &reactor{core: &recorder{}, ring: fake, log: slog.New(slog.DiscardHandler), limiter: newLimiter(), conns: make([]conn, 1)}
	r.waits.limits[waitFrame] = frameTime
	r.conns[0] = conn{id: engine.NewConnID(0, 1), fd: -1, local: true, pid: 1}
	c := &r.conns[0]
	c.in.Init(nil, &r.spares)
	c.moveTo(connOpen)
	c.taken = 1
	r.feed(c.id, make([]byte, proto.HeaderSize-1))
	r.await(c)
	require.Equal(t, waitFrame, c.wait.kind)
	r.now = frameTime
	r.losePatience()
	require.Equal(t, connOpen, c.state)
	r.drained = true
	r.losePatience()
	require.Equal(t, connClosing, c.state)
	require.EqualValues(t, 1, r.stats.SlowPeers)
}

// The end of a timer that was replaced by an earlier one is not the alarm: that is still in the ring, and no third is made.
func TestATimerThatWasReplacedIsNotTheAlarm(t *testing.T) {
	a := alarm{state: alarmArmed, at: time.Second, generation: 2}
	a.fired(ring.NewTag(tagTimer, 1))
	require.Equal(t, alarmArmed, a.state)
	a.fired(ring.NewTag(tagTimer, 2))
	require.Equal(t, alarmOff, a.state)
}
