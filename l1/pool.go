// Package l1 owns the memory of the pool: one shared mapping that the workers
// map too. It makes the memory, reserves its pages and touches its bytes
// safely; which byte belongs to whom is the business of l1/table.
//
// The memory is either a sealed memfd, whose descriptor is passed to workers,
// or a named file in /dev/shm for workers that open it by name. It may be of
// huge pages, and may be placed on NUMA nodes. Workers can
// write to it at any time, and can truncate a named one, so that a plain load
// or store of pool bytes may fault: [Sum], [CopyIn] and [CopyOut] are the only
// functions that touch them, and turn a fault into an error.
package l1

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/l1/table"
)

// A Mode says what kind of memory a [Pool] is made of.
type Mode uint8

// The modes of a [Pool].
const (
	// ModeMemfd: a file without a name, sealed against shrinking and growing.
	ModeMemfd Mode = iota
	// ModeNamed: a file in /dev/shm.
	ModeNamed
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case ModeMemfd:
		return "memfd"
	case ModeNamed:
		return "named"
	}
	return "unknown"
}

// A Config says what pool [Open] makes.
type Config struct {
	// Size in bytes; an incomplete unit of 4 KiB at its end is dropped.
	Size int64
	Mode Mode
	// Name of a named pool, see [NormalizeName].
	Name string
	// Dir of a named pool, /dev/shm when empty.
	Dir string
	// FileMode of a named pool, 0600 when zero, whatever the umask.
	FileMode os.FileMode
	// Group is the group id of a named pool, -1 to leave it.
	Group int
	// HugePages says whether the pool is to have huge pages. One of pages that
	// were set aside is rounded up to whole pages.
	HugePages HugePages
	// Placement on NUMA nodes.
	Placement Placement
	// Logger may be nil.
	Logger *slog.Logger
}

var (
	// ErrClosed is returned for a pool that was closed.
	ErrClosed = errors.New("l1: the pool is closed")
	// ErrInUse is returned for a name that a living server has.
	ErrInUse = errors.New("l1: the pool's name is in use")
	// ErrRefused is returned for a name under which there is something that is
	// not a pool of ours.
	ErrRefused = errors.New("l1: the pool's name is taken by something else")
)

// ErrNoSpace is the error of a pool that its file system has no room for. Need
// and Have are in bytes; Have is -1 when it is not known.
type ErrNoSpace struct{ Need, Have int64 }

// Error says what is needed and what there is.
func (e ErrNoSpace) Error() string {
	if e.Have < 0 {
		return fmt.Sprintf("l1: no space for the pool: need %d bytes", e.Need)
	}
	return fmt.Sprintf("l1: no space for the pool: need %d bytes, have %d", e.Need, e.Have)
}

// A Pool is memory that is shared with other processes. Its methods may be
// called from any goroutine. Nobody may use its bytes after Close.
type Pool struct {
	log  *slog.Logger
	mode Mode
	name string
	dir  int // descriptor of a named pool's directory, else -1
	fd   int
	mem  []byte
	dev  uint64
	ino  uint64

	pages  pageChoice
	placer placer

	mapped sync.RWMutex // held for writing by Close, for reading by who needs the mapping to stay
	closed bool
}

// Open makes a pool and maps it. Its pages are not reserved yet: touching one
// that [Pool.Populate] did not reserve may fault. It returns [ErrNoSpace] when
// the file system is too small, [ErrInUse] and [ErrRefused] for a name that is
// taken, and a [*HugePagesError] when huge pages must be had and cannot.
func Open(cfg Config) (*Pool, error) {
	size := cfg.Size / table.Unit * table.Unit
	if size <= 0 || size > table.MaxSize {
		return nil, fmt.Errorf("l1: a pool of %d bytes: out of range", cfg.Size)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	switch cfg.HugePages {
	case HugeOff, HugeAuto:
		return openOnce(cfg, size, false)
	case HugeTry:
		return openTrying(cfg, size)
	case HugeOn:
		return openOnce(cfg, size, true)
	}
	panic("l1: unknown choice of huge pages")
}

// openOnce opens a pool, which has huge pages or fails if huge is true.
func openOnce(cfg Config, size int64, huge bool) (*Pool, error) {
	w, none, err := newPlacer("/", cfg.Placement)
	if err != nil {
		return nil, err
	}
	if none {
		cfg.Logger.Info("the pool is not placed: the kernel knows no NUMA nodes", "placement", cfg.Placement)
	}
	p := &Pool{log: cfg.Logger, mode: cfg.Mode, dir: -1, fd: -1, pages: plainPages(), placer: w}
	switch cfg.Mode {
	case ModeMemfd:
		size, err = p.makeMemfd(cfg, size, huge)
	case ModeNamed:
		size, err = p.makeNamed(cfg, size, huge)
	default:
		panic("l1: unknown mode")
	}
	if err == nil {
		err = p.mapMemory(size)
	}
	if err == nil && huge && p.pages.kind == pagesTransparent {
		err = p.proveHuge()
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if cfg.HugePages != HugeOff && p.pages.kind == pagesPlain {
		p.collapsing()
	}
	return p, nil
}

func (p *Pool) mapMemory(size int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(p.fd, &st); err != nil {
		return fmt.Errorf("l1: stat: %w", err)
	}
	p.dev, p.ino = st.Dev, st.Ino
	// Huge pages are set aside for the file here, and by the thread's policy.
	err := p.placer.during(func() (err error) {
		p.mem, err = mapAligned(p.fd, size, max(hugeSize, p.pages.size))
		return err
	})
	switch {
	case errors.Is(err, unix.ENOMEM) && p.pages.kind == pagesHugetlb:
		return &HugePagesError{
			Need: size / p.pages.size, Have: hugetlbFree("/", p.pages.size), Size: p.pages.size,
			Why: "set more aside (sysctl vm.nr_hugepages), or give the pool less",
		}
	case err != nil:
		return fmt.Errorf("l1: map %d bytes: %w", size, err)
	}
	if err := p.placer.place(p.mem); err != nil {
		return err
	}
	p.advise()
	// A crash should not write the whole pool to a core file. Without the advice
	// only that is lost.
	if err := unix.Madvise(p.mem, unix.MADV_DONTDUMP); err != nil {
		p.log.Debug("pool stays in core dumps", "error", err)
	}
	return nil
}

// Size returns the pool's size in bytes, a multiple of 4 KiB and of the size of
// huge pages that were set aside.
func (p *Pool) Size() int64 { return int64(len(p.mem)) }

// Bytes returns the n bytes at off of the server's mapping, as an address for
// I/O. Touching them by the CPU is left to [Sum], [CopyIn] and [CopyOut].
func (p *Pool) Bytes(off, n int64) []byte {
	if off < 0 || n < 0 || off > p.Size()-n {
		panic("l1: bytes outside the pool")
	}
	return p.mem[off : off+n : off+n]
}

// Fd returns the pool's descriptor, which stays the pool's. A named pool's
// carries the lock that says that its server lives: it is not for passing on.
func (p *Pool) Fd() int { return p.fd }

// ReadOnlyFd returns a new descriptor that cannot be mapped for writing. The
// caller closes it.
func (p *Pool) ReadOnlyFd() (int, error) {
	p.mapped.RLock()
	defer p.mapped.RUnlock()
	if p.closed {
		return -1, ErrClosed
	}
	fd, err := unix.Open(procPath(p.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("l1: reopen read-only: %w", err)
	}
	return fd, nil
}

// Name returns a named pool's normalized name, and "" for a memfd.
func (p *Pool) Name() string { return p.name }

// Stat returns device and inode, by which a worker that opened the pool by name
// knows that it is this one.
func (p *Pool) Stat() (dev, ino uint64) { return p.dev, p.ino }

// Close unmaps the pool and unlinks its name, after a [Pool.Populate] under way
// has ended its step. The second call does nothing.
func (p *Pool) Close() error {
	p.mapped.Lock()
	defer p.mapped.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var errs []error
	if p.mem != nil {
		if err := unmap(p.mem); err != nil {
			errs = append(errs, fmt.Errorf("l1: unmap: %w", err))
		}
	}
	if p.name != "" {
		errs = append(errs, p.unlink()) // before the lock goes with the descriptor
	}
	for _, fd := range []int{p.fd, p.dir} {
		if fd < 0 {
			continue
		}
		if err := unix.Close(fd); err != nil {
			errs = append(errs, fmt.Errorf("l1: close: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Abandon removes the name of a named pool and leaves its memory, for a process that is about to end while the kernel
// still moves bytes of it. Close may follow.
func (p *Pool) Abandon() error {
	p.mapped.Lock()
	defer p.mapped.Unlock()
	if p.closed || p.name == "" {
		return nil
	}
	return p.unlink()
}

// procPath names an open file for a second open or a link.
func procPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// retry repeats what a signal interrupted.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
