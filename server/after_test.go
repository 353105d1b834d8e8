package server

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server/engine"
)

// A leaver is a core that answers a frame, and leaves the rest of its work to the next event, as an engine does with the uses of a
// long lookup.
type leaver struct {
	recorder
	r     *reactor
	left  bool
	later func()
}

func (c *leaver) Step(ev *engine.Event) {
	if c.left {
		c.left = false
		c.later()
	}
	if ev.Kind == engine.EventFrame {
		c.r.Send(ev.Conn, []byte("pong"))
		c.left = true
	}
}

func (c *leaver) NextTick() (time.Duration, bool) { return 0, c.left }

// What an engine leaves until a reply is out comes behind it, and by itself: nothing need happen, and the timer of a later deadline
// stays as it is.
func TestWhatIsLeftForTheNextTurnComesBehindTheReply(t *testing.T) {
	opened, err := ring.Open(ringtest.Engine(t), ring.Config{Ops: 8, Control: 16})
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Ring.Close()) }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer closeFd(ends[0])
	defer closeFd(ends[1])
	r := &reactor{ring: opened.Ring, conns: make([]conn, 1), segments: make([]segment, 1), completions: make([]ring.Completion, 0, 16)}
	defer r.buffers.close()
	c := &r.conns[0]
	c.id = engine.NewConnID(0, 1)
	c.fd = ends[0]
	c.in.Init(nil, &r.spares)
	c.moveTo(connOpen)
	r.alarm = alarm{state: alarmArmed, at: 5 * time.Second, generation: 1}
	r.ring.Timer(ring.NewTag(tagTimer, 1), r.alarm.at) // ends a wait for something that never comes

	var got [8]byte
	n := 0
	r.core = &leaver{r: r, later: func() { n, _ = unix.Read(ends[1], got[:]) }} // none: EAGAIN
	r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: c.id, Body: proto.AppendFrame(nil, proto.Header{Op: proto.OpPing}, nil, 0)})
	r.step()
	r.advance(c)
	r.setAlarm()
	require.Zero(t, n)
	require.Equal(t, alarm{state: alarmArmed, at: 5 * time.Second, generation: 1, due: true}, r.alarm)
	require.NoError(t, r.wait())
	require.Empty(t, r.completions)
	r.collect()
	r.step()
	require.Equal(t, "pong", string(got[:max(n, 0)]))
	r.setAlarm()
	require.False(t, r.alarm.due)
}
