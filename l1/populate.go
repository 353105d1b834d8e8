package l1

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/table"
)

const (
	// populateStep is how many bytes are reserved by one pair of system calls,
	// some milliseconds: a signal makes the kernel give up a whole step.
	populateStep = 8 << 20
	// populateStepMin ends the halving of steps that signals interrupt.
	populateStepMin = 256 << 10
)

// Populate reserves the pages of the bytes [from, to), widened to whole units,
// so that touching them cannot fail for want of memory, and maps them here. It
// is slow, up to a second a GiB, and meant for a goroutine of its own while
// others use other parts of the pool; bytes that are there keep their values.
// It returns [ErrNoSpace] when the file system is full; how far it came then is
// not told, so callers that want to know pass the range in pieces.
func (p *Pool) Populate(from, to int64) error {
	if from < 0 || from > to || to > p.Size() {
		panic("l1: populating outside the pool")
	}
	from = from / table.Unit * table.Unit
	to = table.Footprint(to)
	step := int64(populateStep)
	for from < to {
		n := min(step, to-from)
		err := p.populateOnce(from, n)
		if errors.Is(err, unix.EINTR) {
			step = max(step/2, populateStepMin)
			continue
		}
		var full ErrNoSpace
		if errors.As(err, &full) {
			full.Need = to - from
			return full
		}
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

func (p *Pool) populateOnce(off, n int64) error {
	p.mapped.RLock()
	defer p.mapped.RUnlock()
	if p.closed {
		return ErrClosed
	}
	return p.placer.during(func() error { return p.populateHere(off, n) })
}

// populateHere is populateOnce under the pool's lock and on a thread with its
// policy.
func (p *Pool) populateHere(off, n int64) error {
	b := p.mem[off : off+n]
	if p.pages.collapse {
		p.collapse(off, n)
	}
	if p.pages.atFault {
		// What cannot be had this way the next call has or tells.
		_ = unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	}
	if err := p.reserve(off, n); err != nil {
		return err
	}
	err := unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.14
		err = touch(b)
	}
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("l1: populate %d bytes at %d: %w", n, off, err)
	}
	return err
}

// Room returns how many bytes may be populated while the system has free bytes
// of memory: those that the pool's node has, if there is only one, and any number
// where the pages were set aside before.
func (p *Pool) Room(free int64) int64 {
	if p.pages.kind == pagesHugetlb {
		return math.MaxInt64
	}
	if node, ok := p.placer.free("/"); ok {
		return min(free, node)
	}
	return free
}

// reserve allocates pages to the file.
func (p *Pool) reserve(off, n int64) error {
	err := unix.Fallocate(p.fd, 0, off, n)
	switch {
	case err == nil || errors.Is(err, unix.EINTR):
		return err
	case errors.Is(err, unix.ENOSPC):
		have := int64(-1)
		if p.pages.kind == pagesHugetlb {
			have, _ = groupsLeft("/", p.pages.size)
			have = min(have, hugetlbFree("/", p.pages.size)*p.pages.size)
		} else if p.mode == ModeNamed {
			if free, err := freeSpace(p.fd); err == nil {
				have = free
			}
		}
		return ErrNoSpace{Need: n, Have: have}
	}
	return fmt.Errorf("l1: reserve %d bytes at %d: %w", n, off, err)
}
