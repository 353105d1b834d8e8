// Package ringtest holds the suite that every [ring.Interface] passes, and a [Fake] that passes it by plain system calls.
package ringtest

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

// cases is the suite. Each runs on a ring of its own.
var cases = []struct {
	name string
	run  func(l *loop)
}{
	{"AcceptTakesEveryConnection", acceptTakesEveryConnection},
	{"AcceptTakesAFewAtATime", acceptTakesAFewAtATime},
	{"AcceptStartsAgainAfterAPause", acceptStartsAgainAfterAPause},
	{"RecvDeliversInOrderUntilTheEnd", recvDeliversInOrderUntilTheEnd},
	{"RecvOfManyLosesNothingWhenBuffersRunOut", recvOfManyLosesNothing},
	{"RecvAfterAPauseContinuesTheStream", recvAfterAPauseContinuesTheStream},
	{"DataIsUntouchedUntilTheNextWait", dataIsUntouchedUntilTheNextWait},
	{"PauseOfNothingDoesNothing", pauseOfNothingDoesNothing},
	{"PauseEndsWhatWasDoneBefore", pauseEndsWhatWasDoneBefore},
	{"ATagIsArmedOnce", aTagIsArmedOnce},
	{"AFormerOperationIsNotTakenForANewOne", aFormerOperationIsNotTakenForANewOne},
	{"SendNowIsSilentWhenItAllWent", sendNowIsSilentWhenItAllWent},
	{"SendNowTellsWhatWent", sendNowTellsWhatWent},
	{"RepliesToASlowReaderArriveWhole", repliesToASlowReaderArriveWhole},
	{"SendWaitsForRoom", sendWaitsForRoom},
	{"BuffersLiveAsLongAsTheKernelNeedsThem", buffersLiveAsLongAsTheKernelNeedsThem},
	{"SendToNobodyFails", sendToNobodyFails},
	{"SendFDPassesADescriptor", sendFDPassesADescriptor},
	{"WritesAreReadBack", writesAreReadBack},
	{"ReadEndsWithTheFile", readEndsWithTheFile},
	{"ShortReadsAreContinued", shortReadsAreContinued},
	{"ShortWritesAreContinued", shortWritesAreContinued},
	{"DirectReadsEndWithTheFile", directReadsEndWithTheFile},
	{"ErrorsComeAsResults", errorsComeAsResults},
	{"RegisteredMemoryIsCutAtItsBorders", registeredMemoryIsCut},
	{"HeldFilesOutliveTheirDescriptor", heldFilesOutliveTheirDescriptor},
	{"RoomIsNeverExceeded", roomIsNeverExceeded},
	{"PollSeesAPipeAndAProcess", pollSeesAPipeAndAProcess},
	{"TimersFireInOrder", timersFireInOrder},
	{"PassDoesNotBlock", passDoesNotBlock},
	{"WakesMergeAndNoneIsLost", wakesMergeAndNoneIsLost},
	{"AnyoneAsksWhatIsDue", anyoneAsksWhatIsDue},
	{"WakeAfterCloseDoesNothing", wakeAfterCloseDoesNothing},
	{"TheCollectorRunsWhileWaitIdles", theCollectorRunsWhileWaitIdles},
	{"SignalsLoseNothing", signalsLoseNothing},
	{"CloseEndsEverything", closeEndsEverything},
}

// Run runs the suite on the rings that open makes, one for each case. The goroutine that calls open is locked to its thread and runs
// the case; Run closes the ring. A ring has Room for 16 operations at least and for 64 others.
func Run(t *testing.T, open func(t *testing.T) ring.Interface) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			r := open(t)
			l := &loop{T: t, Assertions: require.New(t), r: r, dst: make([]ring.Completion, 0, 64)}
			defer func() { _ = r.Close() }() // before the descriptors of the case's, which end with the test
			c.run(l)
			s := r.Stats()
			l.NoError(r.Close())
			l.NoError(r.Close(), "closing again does nothing")
			l.Zero(s.Overflows, "completions without room")
			l.Zero(s.Stale, "completions of nothing")
			l.Zero(r.Stats().InFlight, "operations after Close")
		})
	}
}

// A loop is one case's event loop.
type loop struct {
	*testing.T
	*require.Assertions
	r    ring.Interface
	dst  []ring.Completion
	left []ring.Completion // of the last Wait, with Data of their own
}

// next returns the next completion, whose Data stays valid.
func (l *loop) next() ring.Completion {
	l.Helper()
	for len(l.left) == 0 {
		l.wait()
	}
	c := l.left[0]
	l.left = l.left[1:]
	return c
}

// wait adds to what is left to look at.
func (l *loop) wait() {
	l.Helper()
	dst, err := l.r.Wait(l.dst[:0])
	l.NoError(err)
	l.NotEmpty(dst, "Wait returned without a completion")
	l.keep(dst)
}

// keep copies completions to what is left to look at.
func (l *loop) keep(dst []ring.Completion) {
	for _, c := range dst {
		c.Data = bytes.Clone(c.Data)
		l.left = append(l.left, c)
	}
}

// submit submits, and collects what is there.
func (l *loop) submit() {
	l.Helper()
	l.NoError(l.r.Submit())
	for {
		dst := l.r.Collect(l.dst[:0])
		l.keep(dst)
		if len(dst) < cap(l.dst) {
			return
		}
	}
}

// sync returns the completions that came of what was done before: a wake-up queued behind them ends the search.
func (l *loop) sync() []ring.Completion {
	l.Helper()
	l.r.Wake()
	var all []ring.Completion
	for {
		c := l.next()
		if c.Kind == ring.KindWake {
			return all
		}
		all = append(all, c)
	}
}

// expect checks that the next completion is this one, of no more.
func (l *loop) expect(kind ring.Kind, tag ring.Tag, res int) {
	l.Helper()
	c := l.next()
	l.Equal(kind, c.Kind, "kind of %+v", c)
	l.Equal(tag, c.Tag, "tag of %+v", c)
	l.Equal(errnoOr(res), errnoOr(int(c.Res)), "result of %+v", c)
	l.False(c.More, "more after %+v", c)
}

// errnoOr is the errno that res negates, or res: failures read better.
func errnoOr(res int) any {
	if res < 0 {
		return unix.Errno(-res).Error()
	}
	return res
}

// pair returns a pair of connected stream sockets with a send buffer of about sndbuf bytes (0: the default); the first, the ring's,
// does not block.
func (l *loop) pair(sndbuf int) (ours, peer int) {
	l.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	l.NoError(err)
	l.Cleanup(func() { _ = unix.Close(p[0]) })
	l.Cleanup(func() { _ = unix.Close(p[1]) })
	l.NoError(unix.SetNonblock(p[0], true))
	if sndbuf > 0 {
		l.NoError(unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_SNDBUF, sndbuf))
	}
	return p[0], p[1]
}

// tag makes a Tag of a first generation.
func tag(index uint32) ring.Tag { return ring.NewTag(index, 1) }
