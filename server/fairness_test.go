package server

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server/engine"
)

// A recorder is a core that notes whose frames it is given.
type recorder struct {
	core
	conns []engine.ConnID
}

func (c *recorder) Step(ev *engine.Event) {
	if ev.Kind == engine.EventFrame {
		c.conns = append(c.conns, ev.Conn)
	}
}

func (c *recorder) NextTick() (at time.Duration, ok bool) { return 0, false }

// Requests that are short and look at whole tables: one that floods with them makes turns no longer than others do.
func TestShortRequestsOfMuchWorkAreFewInATurn(t *testing.T) {
	for op, most := range map[proto.Op]int{
		proto.OpTransfers: 1, proto.OpInstances: 4, proto.OpEvict: 4, proto.OpRegister: 4, proto.OpStats: 16, proto.OpPing: 64,
	} {
		core := &recorder{}
		r := &reactor{core: core, conns: make([]conn, 2)}
		c := &r.conns[1]
		c.id = engine.NewConnID(1, 1)
		c.in.Init(nil, &r.spares)
		c.moveTo(connOpen)
		var all []byte
		for range 200 {
			all = proto.AppendFrame(all, proto.Header{Op: op, Flags: proto.FlagNoReply}, make([]byte, 8), 0)
		}
		r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: c.id, Body: all})
		r.stats.Turns++
		r.step()
		require.LessOrEqual(t, len(core.conns), most, "%v", op)
		require.NotEmpty(t, core.conns)
	}
}

// A frame that is larger than a connection's share of a turn is stepped whole, and asks for no turn of its own behind it: that
// would take system calls for nothing.
func TestAFrameBeyondItsShareTakesOneTurn(t *testing.T) {
	core := &recorder{}
	r := &reactor{core: core, conns: make([]conn, 2)}
	c := &r.conns[1]
	c.id = engine.NewConnID(1, 1)
	c.in.Init(nil, &r.spares)
	c.moveTo(connOpen)
	body := proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: make([]proto.Key, 512)})
	lookup := proto.AppendFrame(nil, proto.Header{Op: proto.OpLookup, Flags: proto.FlagNoReply}, body, 0)
	require.Greater(t, len(lookup), inputShare)
	for turn, rest := range []int{0, 7, 0, proto.HeaderSize + 1} { // of the next frame, which came with it
		ev := engine.Event{Kind: engine.EventFrame, Conn: c.id, Body: lookup[c.in.Unread():]}
		ev.Body = append(slices.Clone(ev.Body), lookup[:rest]...)
		r.events = append(r.events, ev)
		r.stats.Turns++
		r.step()
		require.Len(t, core.conns, turn+1)
		require.Equal(t, rest, c.in.Unread())
		if rest < proto.HeaderSize {
			require.Equal(t, flowMessage, c.flow)
			require.Empty(t, r.resumed)
		}
	}
	r.stats.Turns++
	r.step() // a header and some could have been a frame
	require.Equal(t, flowMessage, c.flow)
	require.Empty(t, r.resumed)
	require.Len(t, core.conns, 4)
}

// Who stores or retrieves is looked for, and who only asks is not.
func TestRequestsThatOthersFollow(t *testing.T) {
	lookup := func(options proto.LookupOptions) []byte {
		return proto.AppendLookup(nil, &proto.Lookup{Group: 1, Options: options, Keys: make([]proto.Key, 1)})
	}
	for op := proto.OpHello; op.Valid(); op++ {
		follows := slices.Contains([]proto.Op{
			proto.OpPrepareStore, proto.OpCommitStore, proto.OpPut, proto.OpPrepareRetrieve, proto.OpCommitRetrieve, proto.OpRelease,
		}, op)
		require.Equal(t, follows, continued(&proto.Frame{Header: proto.Header{Op: op}, Body: lookup(proto.LookupLoad)}), "%v", op)
	}
	of := proto.Frame{Header: proto.Header{Op: proto.OpLookup}, Body: lookup(proto.LookupHold | proto.LookupSlots)}
	require.True(t, continued(&of))
	of.Body = of.Body[:3] // damaged
	require.False(t, continued(&of))
}

// One lookup of tens of thousands of keys while eviction runs: in frames of the most keys,
// all of which are there at once, it takes a turn of the loop for each of them, and what
// another client sends in a turn is served in that turn.
func TestALookupOfTensOfThousandsOfKeysTakesATurnForEachFrame(t *testing.T) {
	const frames = 13 // 53,248 keys
	core := &recorder{}
	r := &reactor{core: core, conns: make([]conn, 3)}
	for i := range r.conns {
		c := &r.conns[i]
		c.id = engine.NewConnID(uint32(i), 1)
		c.in.Init(nil, &r.spares)
		c.moveTo(connOpen)
	}
	big, small := r.conns[1].id, r.conns[2].id
	ping := proto.AppendFrame(nil, proto.Header{Op: proto.OpPing, Flags: proto.FlagNoReply}, nil, 0)
	body := proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: make([]proto.Key, proto.MaxKeys)})
	var all []byte
	for range frames {
		all = proto.AppendFrame(all, proto.Header{Op: proto.OpLookup, Flags: proto.FlagNoReply}, body, 0)
	}
	r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: big, Body: all})
	for turn := range frames {
		r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: small, Body: ping})
		r.stats.Turns++
		core.conns = core.conns[:0]
		r.step()
		slices.Sort(core.conns)
		require.Equal(t, []engine.ConnID{big, small}, core.conns, "turn %d", turn)
	}
	r.stats.Turns++
	core.conns = core.conns[:0]
	r.step()
	require.Empty(t, core.conns)
	require.Zero(t, r.conns[1].in.Unread())
}

// A replier is a core that answers one connection, and looks at what its peer has when the
// frames of another are stepped.
type replier struct {
	recorder
	r       *reactor
	answers engine.ConnID
	step    func()
}

func (c *replier) Step(ev *engine.Event) {
	switch {
	case ev.Kind != engine.EventFrame:
	case ev.Conn == c.answers:
		c.r.Send(ev.Conn, []byte("pong"))
	default:
		c.step()
	}
}

// One lookup of tens of thousands of keys while eviction runs: what others are answered goes out before its next
// frame is stepped, and what they are answered afterwards in the same turn neither is forgotten nor waits for an event.
func TestRepliesGoOutBeforeTheNextFrameOfALongLookup(t *testing.T) {
	opened, err := ring.Open(ringtest.Engine(t), ring.Config{Ops: 8, Control: 16})
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Ring.Close()) }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer closeFd(ends[0])
	defer closeFd(ends[1])
	r := &reactor{ring: opened.Ring, conns: make([]conn, 3), segments: make([]segment, 1), completions: make([]ring.Completion, 0, 16)}
	defer r.buffers.close()
	for i := range r.conns {
		c := &r.conns[i]
		c.id = engine.NewConnID(uint32(i), 1)
		c.fd = ends[0]
		c.in.Init(nil, &r.spares)
		c.moveTo(connOpen)
	}
	big, small := r.conns[1].id, r.conns[2].id
	var got []byte
	read := func() int {
		var p [64]byte
		n, _ := unix.Read(ends[1], p[:]) // none: EAGAIN
		got = append(got, p[:max(n, 0)]...)
		return n
	}
	stepped := 0
	r.core = &replier{r: r, answers: small, step: func() {
		if stepped++; stepped > 1 { // the first is new in its turn
			require.Equal(t, 4, read())
			r.Send(small, []byte("late"))
		}
	}}
	body := proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: make([]proto.Key, proto.MaxKeys)})
	var all []byte
	for range 2 {
		all = proto.AppendFrame(all, proto.Header{Op: proto.OpLookup, Flags: proto.FlagNoReply}, body, 0)
	}
	r.feed(big, all)
	r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: small, Body: proto.AppendFrame(nil, proto.Header{Op: proto.OpPing}, nil, 0)})
	r.stats.Turns++
	r.drained = true // the turn had seen all there was, so that nothing else has the loop look again
	r.step()
	require.Equal(t, 2, stepped)
	r.advance(&r.conns[2]) // as the flush of this turn does, in which nothing is known of the try
	r.conns[2].marks, r.touched = 0, r.touched[:0]
	require.Equal(t, -1, read())
	r.ring.Timer(ring.NewTag(tagTimer, 1), 5*time.Second) // ends a wait for something that never comes
	require.NoError(t, r.wait())
	require.Empty(t, r.completions, "nothing failed, and nothing announces that")
	r.collect()
	require.NotZero(t, r.conns[2].marks&markTouched)
	r.advance(&r.conns[2])
	require.NoError(t, r.ring.Submit())
	require.Equal(t, 4, read())
	require.Equal(t, "ponglate", string(got))
}

// As many completions at once as a turn takes: whether there are more is not known, and replies that were tried are not known
// to be out. What is queued behind these must not wait for an event that nobody has a reason for.
func TestATurnOfTheMostCompletionsIsFollowedByALook(t *testing.T) {
	opened, err := ring.Open(ringtest.Engine(t), ring.Config{Ops: 8, Control: 16})
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Ring.Close()) }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &reactor{ring: opened.Ring, completions: make([]ring.Completion, 0, 1)}
	r.ring.Timer(ring.NewTag(tagTimer, 1), 0)
	for len(r.completions) == 0 {
		require.NoError(t, r.wait())
	}
	r.ring.Timer(ring.NewTag(tagTimer, 2), 5*time.Second) // ends a wait for something that never comes
	require.NoError(t, r.wait())
	require.Empty(t, r.completions)
	require.True(t, r.drained)
}

// Whether a try went is told by what did not come: while more may come, nothing is taken to be out.
func TestATryIsOpenUntilAllCompletionsWereSeen(t *testing.T) {
	r := &reactor{conns: make([]conn, 1), segments: make([]segment, 2), tried: []uint32{0}, output: 4}
	c := &r.conns[0]
	c.moveTo(connOpen)
	c.out = output{first: 1, last: 1, state: sendTried, size: 4, bytes: 4}
	r.segments[1] = segment{buf: make([]byte, bufferMin), tail: 4}
	r.collect()
	require.Equal(t, sendTried, c.out.state)
	require.Equal(t, 4, c.out.bytes)
	r.drained = true
	r.collect()
	require.Equal(t, sendIdle, c.out.state)
	require.Zero(t, c.out.bytes)
	require.Empty(t, r.tried)
}

// One that floods and goes makes all others wait: what it only asked for is not looked up when nobody takes the answer;
// what it gives back still is.
func TestWhatNobodyHearsIsNotAsked(t *testing.T) {
	fake, err := ringtest.NewFake(ring.Config{Ops: 8, Control: 8})
	require.NoError(t, err)
	core := &recorder{}
	r := &reactor{core: core, ring: fake, conns: make([]conn, 2)}
	c := &r.conns[1]
	c.id = engine.NewConnID(1, 1)
	c.in.Init(nil, &r.spares)
	c.moveTo(connOpen)
	c.deaf = true
	var all []byte
	for _, op := range []proto.Op{proto.OpPing, proto.OpStats, proto.OpRelease, proto.OpInstances, proto.OpTransfers, proto.OpLookup, proto.OpUnregister} {
		all = proto.AppendFrame(all, proto.Header{Op: op}, make([]byte, 8), 0)
	}
	r.events = append(r.events, engine.Event{Kind: engine.EventFrame, Conn: c.id, Body: all})
	r.step()
	require.Len(t, core.conns, 3, "RELEASE, LOOKUP, which may hold, and UNREGISTER")
	require.Zero(t, c.in.Unread())
	require.Equal(t, 3, c.owed)
}
