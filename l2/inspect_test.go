package l2_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
)

// atOnce does all of the work, 64 at a time.
func atOnce(t *testing.T, work []func() error) {
	t.Helper()
	next := make(chan func() error)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for do := range next {
				if err := do(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, do := range work {
		next <- do
	}
	close(next)
	all.Wait()
}

func TestScanMeetsWhatCanBeGot(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	s := open(t, dir, l2.Options{Size: 64 << 20})
	want := map[[32]byte]int64{}
	var work []func() error
	for i := range 1500 { // more than one step of the scan
		key := fmt.Appendf(nil, "key %d", i)
		v := value(uint64(i), rng.IntN(3000))
		kind := rng.IntN(8)
		work = append(work, func() error {
			err := s.Put(ctx, key, nil)
			switch {
			case err != nil:
			case kind == 0:
				err = s.Delete(ctx, key)
			case kind < 4:
				err = s.Put(ctx, key, v)
			}
			return err
		})
		switch {
		case kind == 0:
		case kind < 4:
			want[sha256.Sum256(key)] = int64(len(v))
		default:
			want[sha256.Sum256(key)] = 0
		}
	}
	atOnce(t, work)
	require.Greater(t, len(want), 1024)
	got := map[[32]byte]int64{}
	require.NoError(t, s.Scan(ctx, func(x l2.Scanned) bool {
		_, twice := got[x.Key]
		require.False(t, twice)
		got[x.Key] = x.Size
		return true
	}))
	require.Equal(t, want, got)
	n := 0
	require.NoError(t, s.Scan(ctx, func(l2.Scanned) bool { n++; return n < 3 }))
	require.Equal(t, 3, n, "it ends when it is told to")

	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Scan(ctx, nil), l2.ErrClosed)
	look, err := l2.Inspect(dir, l2.InspectOptions{})
	require.NoError(t, err)
	onDisk := map[[32]byte]int64{}
	for i := range look.Segments {
		for k := range look.Segments[i].Records {
			r := &look.Segments[i].Records[k]
			if r.Put {
				require.NoError(t, look.Verify(ctx, r))
			}
			if r.Visible {
				onDisk[r.Key.Hash] = r.Size
			}
		}
	}
	require.NoError(t, look.Close())
	require.Equal(t, want, onDisk, "the files say the same")
}

func TestScanSeesOnlyItsOwnNamespace(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		s := open(t, dir, l2.Options{Size: 64 << 20, Namespace: name})
		require.NoError(t, s.Put(ctx, []byte("in "+name), value(1, 10)))
		n := 0
		require.NoError(t, s.Scan(ctx, func(x l2.Scanned) bool {
			require.Equal(t, sha256.Sum256([]byte("in "+name)), x.Key)
			n++
			return true
		}))
		require.Equal(t, 1, n)
		require.NoError(t, s.Close())
	}
}

func TestAScanBesideWritersMeetsWhatIsThereAllTheTime(t *testing.T) {
	s := open(t, t.TempDir(), l2.Options{Size: 64 << 20})
	var work []func() error
	for i := range 1500 {
		work = append(work, func() error { return s.Put(ctx, fmt.Appendf(nil, "stays %d", i), nil) })
	}
	atOnce(t, work)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	writers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := fmt.Appendf(nil, "comes and goes %d", i%200)
			if err := s.Put(ctx, key, nil); err != nil {
				t.Error(err)
			}
			if err := s.Delete(ctx, key); err != nil {
				t.Error(err)
			}
		}
	})
	for range 5 {
		met := map[[32]byte]int{}
		require.NoError(t, s.Scan(ctx, func(x l2.Scanned) bool { met[x.Key]++; return true }))
		for i := range 1500 {
			require.Equal(t, 1, met[sha256.Sum256(fmt.Appendf(nil, "stays %d", i))], i)
		}
	}
	close(stop)
	writers.Wait()
}

func TestAStoreInUseIsInspectedOnlyUnlocked(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, l2.Options{Size: 64 << 20})
	require.NoError(t, s.Put(ctx, []byte("k"), value(1, 5000)))
	_, err := l2.Inspect(dir, l2.InspectOptions{})
	require.ErrorIs(t, err, segdir.ErrLocked)
	look, err := l2.Inspect(dir, l2.InspectOptions{Unlocked: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, look.Close()) }()
	visible := 0
	for i := range look.Segments {
		for k := range look.Segments[i].Records {
			if r := &look.Segments[i].Records[k]; r.Visible {
				visible++
				require.NoError(t, look.Verify(ctx, r))
				canceled, cancel := context.WithCancel(ctx)
				cancel()
				require.ErrorIs(t, look.Verify(canceled, r), context.Canceled)
			}
		}
	}
	require.Equal(t, 1, visible)
	require.NoError(t, s.Put(ctx, []byte("another"), value(2, 5000)), "the store did not notice")
}

func TestInspectionFindsEveryFlippedBitOfAValueAndChangesNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	s := open(t, dir, l2.Options{Size: 64 << 20, SegmentSize: 8 << 20})
	const length = 9<<20/2 + 77 // longer than a piece
	big := append(append([]byte{}, value(1, length/2)...), value(2, length-length/2)...)
	require.NoError(t, s.Put(ctx, []byte("k"), big))
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "seg-00000077.tmp"), []byte("half made"), 0o600))
	before, err := os.ReadDir(dir)
	require.NoError(t, err)

	look, err := l2.Inspect(dir, l2.InspectOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, look.Close()) }()
	i := slices.IndexFunc(look.Segments, func(seg seglog.StoredSegment) bool { return len(seg.Records) > 0 })
	require.GreaterOrEqual(t, i, 0)
	r := look.Segments[i].Records[0] // the only one
	require.True(t, r.Visible)
	require.NoError(t, look.Verify(ctx, &r))
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("seg-%08d.slc", r.Addr.Segment)), os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for range 20 {
		at := r.Addr.Off + rng.Int64N(length)
		b := make([]byte, 1)
		_, err := f.ReadAt(b, at)
		require.NoError(t, err)
		bit := byte(1) << rng.IntN(8)
		for _, bad := range []bool{true, false} {
			b[0] ^= bit
			_, err = f.WriteAt(b, at)
			require.NoError(t, err)
			if err := look.Verify(ctx, &r); bad {
				require.ErrorIs(t, err, l2.ErrBadRecord)
			} else {
				require.NoError(t, err)
			}
		}
	}
	after, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestInspectRefusesWhatIsMissingOrForeign(t *testing.T) {
	dir := t.TempDir()
	_, err := l2.Inspect(filepath.Join(dir, "none"), l2.InspectOptions{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = l2.Inspect(dir, l2.InspectOptions{})
	require.ErrorIs(t, err, segdir.ErrForeign)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
