package l2

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
)

// An Inspection is a look at the files of a store that nobody has open. It changes
// nothing in them. It is for one goroutine; close it when done.
type Inspection struct {
	// Segments are the files, the newest first and those that are ignored last.
	Segments []seglog.StoredSegment

	dir  *segdir.Dir
	work *memory
}

// InspectOptions are the settings of [Inspect]. The zero value is usable.
type InspectOptions struct {
	// Unlocked looks at the files although another process may have the store open.
	// What is found is exact only if that process does nothing meanwhile.
	Unlocked bool
	// Logger gets a line for what is found amiss. Nil discards them.
	Logger *slog.Logger
}

// inspectPiece is how many bytes of a value are read at once.
const inspectPiece = 4 << 20

// Inspect reads the records of the store in dir. While a process has it open it is
// refused with [segdir.ErrLocked], and what is not a store with [segdir.ErrForeign].
func Inspect(dir string, opts InspectOptions) (*Inspection, error) {
	files, err := segdir.Open(dir, segdir.Options{Logger: opts.Logger, ReadOnly: true, Unlocked: opts.Unlocked})
	if err != nil {
		return nil, fmt.Errorf("l2: inspect: %w", err)
	}
	work, err := newMemory(inspectPiece)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	n := &Inspection{dir: files, work: work}
	if n.Segments, err = seglog.Walk(files, work.bytes[:1<<20]); err != nil {
		return nil, errors.Join(fmt.Errorf("l2: inspect %s: %w", dir, err), n.Close())
	}
	return n, nil
}

// Close gives the directory free.
func (n *Inspection) Close() error { return errors.Join(n.dir.Close(), n.work.close()) }

// ErrBadRecord means that a value is not what was written.
var ErrBadRecord = errors.New("l2: bad record")

// Verify reads the value of a record and compares its checksum. The error wraps
// [ErrBadRecord], or is that of ctx.
func (n *Inspection) Verify(ctx context.Context, r *seglog.StoredRecord) error {
	sum := xxh3.New()
	for off := int64(0); off < r.Size; off += inspectPiece {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := n.work.bytes[:min(inspectPiece, r.Size-off)]
		want := p
		if r.Addr.Off%seglog.BlockSize == 0 { // whole blocks need no copy
			want = n.work.bytes[:seglog.AlignUp(int64(len(p)))]
		}
		if _, err := n.dir.ReadAt(r.Addr.Segment, want, r.Addr.Off+off); err != nil {
			return fmt.Errorf("%w: %w", ErrBadRecord, err)
		}
		_, _ = sum.Write(p) // never fails
	}
	if got := sum.Sum64(); got != r.Sum {
		return fmt.Errorf("%w: segment %d at %d, %d bytes: checksum %016x, not %016x",
			ErrBadRecord, r.Addr.Segment, r.Addr.Off, r.Size, got, r.Sum)
	}
	return nil
}

// A Scanned is a value that [Store.Scan] met.
type Scanned struct {
	// Key is the key given to Put, or the SHA-256 of one that has not KeySize bytes.
	Key [KeySize]byte
	// Size is the length of the value in bytes.
	Size int64
}

// scanStep is how many keys the loop is asked for at once.
const scanStep = 1024

// Scan calls f for the values of the store's namespace, in no order, until f returns
// false. It reads the keys from the files, so that it costs reads of all their headers
// and memory for every record. A value that is there all the time is met once, unless
// eviction moves it meanwhile; one put, deleted or evicted meanwhile may be met or not.
// The store goes on working, f may use it but not close it.
func (s *Store) Scan(ctx context.Context, f func(Scanned) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	// Descriptors of its own: the store's are closed when a segment is removed.
	look, err := Inspect(s.loop.dir.Path(), InspectOptions{Unlocked: true})
	if err != nil {
		return err
	}
	met := make(map[seglog.Key]struct{})
	var keys []seglog.Key
	for i := range look.Segments {
		for n := range look.Segments[i].Records {
			r := &look.Segments[i].Records[n]
			if _, again := met[r.Key]; again || !r.Put || r.Key.Namespace != s.space {
				continue
			}
			met[r.Key] = struct{}{}
			keys = append(keys, r.Key)
		}
	}
	if err := look.Close(); err != nil {
		return err
	}
	for step := range slices.Chunk(keys, scanStep) {
		if on, err := s.scan(ctx, step, f); err != nil || !on {
			return err
		}
	}
	return nil
}

// scan calls f for those of the keys that the store has, and reports whether to go on.
func (s *Store) scan(ctx context.Context, keys []seglog.Key, f func(Scanned) bool) (bool, error) {
	r := s.newRequest(requestScan, nil)
	r.keys, r.sizes = keys, make([]int64, len(keys))
	if done, err := s.wait(ctx, r); !done {
		return false, err
	}
	if r.err != nil {
		return false, r.err
	}
	for i := range keys {
		if r.sizes[i] >= 0 && !f(Scanned{Key: keys[i].Hash, Size: r.sizes[i]}) {
			return false, nil
		}
	}
	return true, nil
}
