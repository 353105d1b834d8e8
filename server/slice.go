package server

import (
	"time"

	"golang.org/x/sys/unix"
)

// loopSlice is for how long the loop's thread asks to run at a time, when others want its processor too: about what a turn
// takes. Who asks for less is run the sooner, for as much in all.
const loopSlice = 100 * time.Microsecond

// setSlice asks for the slice d for this thread, and returns what it had. It needs no privilege. Linux before 6.12 takes no notice of
// it, and a thread that has been given a priority of another kind is left alone.
func setSlice(d time.Duration) (before time.Duration, err error) {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return 0, err //nolint:wrapcheck // the caller says what for
	}
	if attr.Policy != unix.SCHED_NORMAL {
		return 0, nil
	}
	before = time.Duration(attr.Runtime)
	attr.Runtime = uint64(d)
	return before, unix.SchedSetAttr(0, attr, 0) //nolint:wrapcheck // the caller says what for
}

// hurry gives the loop's thread its slice, and returns the end of that.
func (r *reactor) hurry() func() {
	before, err := setSlice(loopSlice)
	if err != nil {
		r.log.Debug("the loop's thread has no short slice", "err", err)
		return func() {}
	}
	return func() { _, _ = setSlice(before) } // it could be set
}
