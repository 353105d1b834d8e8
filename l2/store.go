// Package l2 is a key-value cache on a disk for Go programs: values of up to many
// MiB in a directory of bounded size, the oldest making room for the new.
//
// It is a cache and not a database. What [Store.Put] returned for survives the
// death of the process; a power loss may take back what came since the last
// fdatasync. In either case, and after any damage to the files, [Store.Get] gives a
// value as it was put or says that there is none.
//
// I/O goes through io_uring, or system calls where the kernel refuses that, past the page cache. One goroutine, locked to its
// thread, owns the ring and the log of segments (package seglog); callers give it
// their requests through a queue and wait. What would keep it from the others
// (making files, fdatasync, checksums of big values) is done by helpers.
//
//	caller ── request ──> queue ── wake ──> loop ── I/O ──> kernel
//	  ^                                     |  ^ |
//	  +────────────── result ───────────────+  | +── files, sums ──> helpers
//	                                           +────── result ────────+
package l2

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/ring"
)

// Errors of a [Store]. Those that Open returns for a directory that another process
// uses, or that belongs to something else, are [segdir.ErrLocked] and
// [segdir.ErrForeign]; where the kernel refuses the io_uring that
// [Options.Engine] asks for it is [ring.ErrUnavailable].
var (
	// ErrNotFound means that the store has no value for the key.
	ErrNotFound = errors.New("l2: not found")
	// ErrShortBuffer means that the value is longer than the buffer given.
	ErrShortBuffer = errors.New("l2: buffer too short")
	// ErrTooLarge means that a value is longer than [Store.MaxValue].
	ErrTooLarge = errors.New("l2: value too large")
	// ErrDegraded means that the disk refuses writes, or hangs. The store goes on by
	// itself when it takes them again.
	ErrDegraded = errors.New("l2: the disk refuses writes")
	// ErrFull means that no room can be made for the value.
	ErrFull = errors.New("l2: no room")
	// ErrClosed means that [Store.Close] was called. A value whose Put ended with it is not stored.
	ErrClosed = errors.New("l2: store closed")
)

// DefaultMemory is the default of [Options.Memory], in bytes.
const DefaultMemory = 64 << 20

// MinMemory is the least [Options.Memory], in bytes.
const MinMemory = 1 << 20

// Options are the settings of [Open].
type Options struct {
	// Size is the most disk space in bytes that the directory may take, with all
	// that the file system adds. Required.
	Size int64
	// SegmentSize is the size in bytes of a segment file, the unit of eviction and
	// (but for a little) the longest value. It is a multiple of 4096. The default is
	// that of the store found, else about 1/32 of Size between 4 and 256 MiB.
	SegmentSize int64
	// Memory is the size in bytes of the buffers that values pass through on their
	// way from and to the disk: it bounds what is in flight, and the longest value.
	// It is memory of its own, outside the Go heap. The default is [DefaultMemory].
	Memory int64
	// MaxEntries is how many values the store can hold at most. Each takes about 72
	// bytes of memory. The default is one for each 64 KiB of Size.
	MaxEntries int
	// WriteLimit is the most bytes written to the disk in a second. The default is no limit.
	WriteLimit int64
	// StallTime is how long an I/O may take until the disk counts as one that hangs: calls
	// then fail as when it refuses, but for those whose I/O is under way. The default is 5
	// seconds; less than 0 waits for ever.
	StallTime time.Duration
	// Unregistered forgoes telling the kernel of Memory for good, as it is where the limit on
	// locked memory forbids it (8 MiB for users, as a rule): I/O then costs more processor time.
	Unregistered bool
	// Sum computes the checksums of values that are not copied, in the place of the library's:
	// for those who measure what they cost. It returns the xxh3-64 of p, and may be called from
	// any goroutine.
	Sum func(p []byte) uint64
	// Namespace separates the keys of several users of a directory: each sees only
	// those put under its own name.
	Namespace string
	// Engine carries out the I/O. The default is io_uring, or system calls of
	// goroutines where the kernel refuses that.
	Engine ring.Engine
	// Logger gets a line when the disk begins or ends to refuse, and for what is
	// found amiss at the start. Nil discards them.
	Logger *slog.Logger
}

// withDefaults returns the options with the defaults filled in.
func (o Options) withDefaults() (Options, error) {
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Sum == nil {
		o.Sum = xxh3.Hash
	}
	switch {
	case o.Size <= 0:
		return o, fmt.Errorf("l2: Options.Size is %d, want the bytes of disk to use", o.Size)
	case o.Memory < MinMemory:
		return o, fmt.Errorf("l2: Options.Memory is %d, want %d or more", o.Memory, MinMemory)
	case o.SegmentSize < 0 || o.SegmentSize%seglog.BlockSize != 0:
		return o, fmt.Errorf("l2: Options.SegmentSize is %d, want a multiple of %d", o.SegmentSize, seglog.BlockSize)
	case o.WriteLimit < 0:
		return o, fmt.Errorf("l2: Options.WriteLimit is %d", o.WriteLimit)
	case o.MaxEntries < 0:
		return o, fmt.Errorf("l2: Options.MaxEntries is %d", o.MaxEntries)
	}
	return o, nil
}

// A Store is an open cache. All its methods may be called from any number of
// goroutines at once.
type Store struct {
	space  uint64 // the namespace as a number
	memory *memory
	fits   int64 // longest value, in bytes
	sum    func([]byte) uint64
	loop   *loop
	box    *inbox

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // methods under way; only added to while not closed
	stop   sync.Once
	err    error // of Close
	final  Stats // as of Close
}

// Open opens the store in dir, which is made where it is missing, and reads its
// index. One process at a time may have it. Close the store when done; it does not
// end with the last reference to it.
func Open(dir string, opts Options) (*Store, error) {
	return openOn(dir, opts, func() (ring.Opened, error) {
		return ring.Open(opts.Engine, ring.Config{Ops: maxInFlight, Control: controlOps, RecvBuffers: 1, RecvBufferSize: 4096})
	})
}

// openOn is Open with a ring of the caller's.
func openOn(dir string, opts Options, newRing func() (ring.Opened, error)) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	var undo cleanup
	defer undo.run()
	files, err := segdir.Open(dir, segdir.Options{Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("l2: open: %w", err)
	}
	undo.add(files.Close)
	buffers, err := newMemory(opts.Memory)
	if err != nil {
		return nil, err
	}
	undo.add(buffers.close)
	arena, err := newMemory(seglog.ArenaSize)
	if err != nil {
		return nil, err
	}
	undo.add(arena.close)
	cfg := seglog.Config{
		Size:        segdir.Usable(opts.Size),
		SegmentSize: opts.SegmentSize,
		Arena:       arena.bytes,
		MaxEntries:  opts.MaxEntries,
		WriteLimit:  opts.WriteLimit,
		StallTime:   opts.StallTime,
		Nonce:       nonce,
		Seed:        seed(),
	}
	tuning(&cfg, opts.Memory)
	log, report, err := seglog.Recover(cfg, files)
	if err != nil {
		return nil, fmt.Errorf("l2: open %s: %w", dir, err)
	}
	if free, err := files.FreeSpace(); err == nil {
		log.SetFree(free)
	}
	for _, ignored := range report.Ignored {
		opts.Logger.Warn("ignored a segment", "dir", dir, "reason", ignored)
	}
	disk, err := newRing()
	if err != nil {
		return nil, fmt.Errorf("l2: open: %w", err)
	}
	if disk.Refusal != nil {
		opts.Logger.Warn("no io_uring: I/O goes through system calls of goroutines, which costs some speed", "dir", dir, "err", disk.Refusal)
	}
	undo.forget()

	s := &Store{space: number(opts.Namespace), memory: buffers, fits: longest(log, opts.Memory), sum: opts.Sum}
	s.box = &inbox{wake: disk.Ring.Wake}
	s.loop = newLoop(loopConfig{
		ring: disk.Ring, engine: disk.Engine, log: log, dir: files, box: s.box, logger: opts.Logger.With("dir", dir),
		memory: buffers, arena: arena, report: report, sum: opts.Sum, unregistered: opts.Unregistered,
	})
	go s.loop.run()
	return s, nil
}

// MaxValue returns the length in bytes of the longest value that the store takes.
func (s *Store) MaxValue() int64 { return s.fits }

// longest finds the longest value that fits a segment and the memory.
func longest(log *seglog.Log, memory int64) int64 {
	low, high := int64(0), memory/seglog.BlockSize
	for low < high {
		if middle := (low + high + 1) / 2; log.Fits(middle * seglog.BlockSize) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low * seglog.BlockSize
}

// enter counts a method in, unless the store is closed or ctx over. The caller
// counts it out with s.calls.Done.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// Close waits for the calls under way, writes out what is queued so that the next
// start is quick, and gives the directory free. Calls that wait for memory end with
// [ErrClosed], for they might wait for a [Buffer] that nobody releases before Close
// returns. The second call returns what the first did.
func (s *Store) Close() error {
	s.stop.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.memory.refuse()
		s.calls.Wait()
		s.box.close()
		<-s.loop.done
		s.err = s.loop.closeAll()
		s.final = s.loop.stats()
	})
	return s.err
}

// nonce draws the random number of a segment's life.
func nonce() (n [16]byte) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

// seed draws the seed of the index's hash.
func seed() uint64 {
	n := nonce()
	return binary.LittleEndian.Uint64(n[:])
}

// A cleanup undoes the steps of an Open that fails later on, last first.
type cleanup struct{ steps []func() error }

func (c *cleanup) add(step func() error) { c.steps = append(c.steps, step) }

func (c *cleanup) forget() { c.steps = nil }

func (c *cleanup) run() {
	for i := len(c.steps) - 1; i >= 0; i-- {
		_ = c.steps[i]() // the error that led here says more
	}
}
