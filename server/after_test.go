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

// A leaver is a core that answers frames, and leaves the rest of the work of the first to a tick, as an engine does with the uses of a
// long lookup.
type leaver struct {
	recorder
	r     *reactor
	left  bool
	later func()
}

func (c *leaver) Step(ev *engine.Event) {
	switch {
	case ev.Kind == engine.EventFrame:
		c.r.Send(ev.Conn, []byte("pong"))
		c.left = c.left || len(c.conns) == 0
		c.recorder.Step(ev)
	case c.left:
		c.left = false
		c.later()
	}
}

func (c *leaver) NextTick() (time.Duration, bool) { return 0, c.left }

// What an engine leaves until a reply is out comes behind it, and by itself: nothing need happen, and the timer of a later deadline
// stays as it is. Who asks for something else meanwhile has the reply before that, too.
func TestWhatIsLeftForTheNextTurnComesBehindTheReplies(t *testing.T) {
	opened, err := ring.Open(ringtest.Engine(t), ring.Config{Ops: 8, Control: 16})
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Ring.Close()) }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &reactor{ring: opened.Ring, conns: make([]conn, 2), segments: make([]segment, 1), completions: make([]ring.Completion, 0, 16)}
	defer r.buffers.close()
	var peers [2]int
	for i := range r.conns {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer closeFd(ends[0])
		defer closeFd(ends[1])
		c := &r.conns[i]
		c.id, c.fd, peers[i] = engine.NewConnID(uint32(i), 1), ends[0], ends[1]
		c.in.Init(nil, &r.spares)
		c.moveTo(connOpen)
	}
	r.alarm = alarm{state: alarmArmed, at: 5 * time.Second, generation: 1}
	r.ring.Timer(ring.NewTag(tagTimer, 1), r.alarm.at) // ends a wait for something that never comes

	calls := 0
	var got [2]string
	r.core = &leaver{r: r, later: func() {
		calls++
		for i, fd := range peers {
			var p [8]byte
			n, _ := unix.Read(fd, p[:]) // none: EAGAIN
			got[i] = string(p[:max(n, 0)])
		}
	}}
	ask := func(i int) {
		frame := proto.AppendFrame(nil, proto.Header{Op: proto.OpPing}, nil, 0)
		r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: r.conns[i].id, Body: frame})
	}
	ask(0)
	r.step()
	r.advance(&r.conns[0])
	r.setAlarm()
	require.Zero(t, calls)
	require.Equal(t, alarm{state: alarmArmed, at: 5 * time.Second, generation: 1, due: true}, r.alarm)
	require.NoError(t, r.wait())
	require.Empty(t, r.completions)
	r.collect()
	ask(1)
	r.step()
	require.Equal(t, 1, calls)
	require.Equal(t, [2]string{"pong", "pong"}, got)
	r.setAlarm()
	require.False(t, r.alarm.due)
}
