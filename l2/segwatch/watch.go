// Package segwatch says in a program's log what becomes of the disk under a [seglog.Log]: when it fails and when it is well again, when
// it has no room, and which records are bad. It is apart from those who drive a log, the server and the stand-alone store, so that both say the same.
package segwatch

import (
	"log/slog"
	"time"

	"github.com/slotcache/slotcache/l2/seglog"
)

// A Watch says once what is many I/Os that fail in the same way. It is for the goroutine that has the log, and makes no line where
// nothing has changed.
type Watch struct {
	of  *seglog.Log
	log *slog.Logger

	sick  bool
	stuck bool          // it was said that the disk hangs, since it was last well
	since time.Duration // when it became sick
	small bool          // it was said that there is no room to grow
	bad   uint64        // damaged records that it was told of
}

// New watches the disk under of, for log.
func New(of *seglog.Log, log *slog.Logger) Watch { return Watch{of: of, log: log} }

// Look says what has changed since the last call. now is the time since the start, err that of the last I/O that failed, if one did.
func (w *Watch) Look(now time.Duration, err error) {
	w.state(w.of.State(), now, err)
	w.room(w.of.Cramped())
	w.damage(w.of.Damage())
}

// room takes whether the store stays smaller than it was meant to be.
func (w *Watch) room(cramped bool) {
	if cramped && !w.small {
		w.log.Warn("the file system has no room for another segment and as much to spare: what is on disk is used again, oldest first; free some space, or give the store less")
	}
	w.small = cramped
}

// state takes the log's state. A disk that hung is tried when it has come back: what it is meanwhile is not said.
func (w *Watch) state(state seglog.State, now time.Duration, err error) {
	switch {
	case state == seglog.StateStalled && !w.stuck:
		if !w.sick {
			w.since = now
		}
		w.sick, w.stuck = true, true
		w.log.Warn("disk stalled: an I/O does not end; nothing is given to the disk until it does, and deletes are not durable", "since", w.of.StallTime())
	case state == seglog.StateDegraded && !w.sick:
		w.sick, w.since = true, now
		w.log.Warn("disk degraded: it refuses writes, nothing is written and deletes are not durable; it is tried again by itself", "err", err)
	case state == seglog.StateOK && w.sick:
		w.sick, w.stuck = false, false
		w.log.Info("disk well again", "after", now-w.since)
	}
}

// damage takes what the log knows of bad records. Of several that were found since the last call the line names the last.
func (w *Watch) damage(d seglog.Damage) {
	if d.Count == w.bad {
		return
	}
	w.log.Warn("a value could not be read back as it was written, and is gone",
		"records", d.Count-w.bad, "segment", d.Addr.Segment, "offset", d.Addr.Off, "bytes", d.Size)
	w.bad = d.Count
}
