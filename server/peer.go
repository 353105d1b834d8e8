package server

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/server/engine"
)

// watchRetry is when a watch that the kernel refused is tried again.
const watchRetry = time.Second

// watchState is where a watch is in its life.
//
//	          watch           process ended
//	free ------------> armed ---------------> free
//	                  |  ^  \ unwatch            ^
//	          refused |  |   +------> pausing ---+  the ring's last completion
//	                  v  | time
//	                 refused -- unwatch --> free
type watchState uint8

const (
	watchFree    watchState = iota
	watchArmed              // a poll is in the ring
	watchPausing            // a poll that was asked to end is in the ring
	watchRefused            // the poll failed; it is armed again soon
)

var watchNames = [...]string{"free", "armed", "pausing", "refused"}

// String names the state.
func (s watchState) String() string {
	if int(s) < len(watchNames) {
		return watchNames[s]
	}
	return fmt.Sprintf("watchState(%d)", uint8(s))
}

var watchMoves = [...]uint8{
	watchFree:    1 << watchArmed,
	watchArmed:   1<<watchFree | 1<<watchPausing | 1<<watchRefused,
	watchPausing: 1 << watchFree,
	watchRefused: 1<<watchArmed | 1<<watchFree,
}

// A watch waits for the end of a process. Its pidfd is closed when nothing of it is in the
// ring any more.
type watch struct {
	id         engine.WatchID
	state      watchState
	process    uint32
	generation uint32
	retry      time.Duration // when it was refused
}

// moveTo changes the state.
func (w *watch) moveTo(s watchState) {
	if watchMoves[w.state]&(1<<s) == 0 {
		panic(fmt.Sprintf("server: watch moves from %v to %v", w.state, s))
	}
	w.state = s
}

// watches are the processes and watches of a reactor, by index. The first of each is not
// used: 0 means none.
type watches struct {
	processes     []process
	processesFree []uint32
	asked         uint32        // the process that [engine.Host.Watchable] was asked about last, in this turn
	asker         engine.ConnID // the connection that this was for
	list          []watch
	free          []uint32
	byInstance    []uint32 // the watch of each of the engine's instances
	refused       int      // watches in that state
	ended         uint64   // processes that were forgotten by the kernel when it was asked who they are
}

// startWatch is [engine.Host.Watch].
func (r *reactor) startWatch(c *conn, id engine.WatchID) {
	ws := &r.watches
	if ws.asked == 0 || ws.asker != c.id {
		panic("server: a process is watched that nobody asked about")
	}
	var x uint32
	if n := len(ws.free); n > 0 {
		x = ws.free[n-1]
		ws.free = ws.free[:n-1]
	} else {
		x = uint32(len(ws.list))
		ws.list = append(ws.list, watch{})
	}
	w := &ws.list[x]
	ws.processes[ws.asked].refs++
	w.id = id
	w.process = ws.asked
	w.generation++
	ws.byInstance[uint32(id)] = x
	r.arm(x)
}

// arm puts the poll of a watch in the ring.
func (r *reactor) arm(x uint32) {
	w := &r.watches.list[x]
	w.moveTo(watchArmed)
	r.ring.Poll(watchTag(x, w.generation), r.watches.processes[w.process].fd)
}

// endWatch is [engine.Host.Unwatch]. A watch that has ended by itself is not there any more.
func (r *reactor) endWatch(id engine.WatchID) {
	ws := &r.watches
	x := ws.byInstance[uint32(id)]
	if x == 0 || ws.list[x].id != id {
		return
	}
	ws.byInstance[uint32(id)] = 0
	w := &ws.list[x]
	switch w.state {
	case watchArmed:
		w.moveTo(watchPausing)
		r.ring.Pause(watchTag(x, w.generation))
	case watchRefused:
		ws.refused--
		r.freeWatch(x)
	case watchFree, watchPausing:
		panic(fmt.Sprintf("server: a watch in the state %v has an instance", w.state))
	}
}

// kill is [engine.Host.Kill]. The server's own process, whose goroutines may be clients, is
// never killed.
func (r *reactor) kill(id engine.WatchID) bool {
	ws := &r.watches
	x := ws.byInstance[uint32(id)]
	if x == 0 || ws.list[x].id != id {
		return true // it has ended already
	}
	p := &ws.processes[ws.list[x].process]
	if int(p.pid) == os.Getpid() {
		return false
	}
	err := unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0)
	if err != nil && err != unix.ESRCH {
		r.log.Warn("a client's process cannot be killed, as asked for", "pid", p.pid, "err", err)
		return false
	}
	r.log.Warn("a client's process is killed, as asked for", "pid", p.pid)
	return true
}

// gone takes the completion of a watch's poll.
func (r *reactor) gone(done *ring.Completion) {
	x := done.Tag.Index() - tagWatch
	w := &r.watches.list[x]
	if w.generation != done.Tag.Generation() {
		panic(fmt.Sprintf("server: completion for watch %#x, which is not there", uint64(done.Tag)))
	}
	switch {
	case w.state == watchPausing:
		r.freeWatch(x)
	case done.Res < 0:
		w.moveTo(watchRefused)
		w.retry = r.now + watchRetry
		r.watches.refused++
		r.complain("a process can't be watched now; it is tried again", "err", unix.Errno(-done.Res))
	default:
		r.watches.byInstance[uint32(w.id)] = 0
		r.post(engine.Event{Kind: engine.EventGone, Watch: w.id})
		r.freeWatch(x)
	}
}

// freeWatch gives the place of a watch free.
func (r *reactor) freeWatch(x uint32) {
	w := &r.watches.list[x]
	w.moveTo(watchFree)
	r.releaseProcess(w.process)
	r.watches.free = append(r.watches.free, x)
}

// retryWatches arms the watches again that were refused long enough ago, and says when the
// next is due.
func (r *reactor) retryWatches() (time.Duration, bool) {
	var at time.Duration
	found := false
	for x := 1; x < len(r.watches.list) && r.watches.refused > 0; x++ {
		w := &r.watches.list[x]
		if w.state != watchRefused {
			continue
		}
		if r.now >= w.retry {
			r.watches.refused--
			r.arm(uint32(x))
			continue
		}
		if !found || w.retry < at {
			at, found = w.retry, true
		}
	}
	return at, found
}

// watchTag names a watch to the ring.
func watchTag(x, generation uint32) ring.Tag { return ring.NewTag(tagWatch+x, generation) }
