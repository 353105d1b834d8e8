package l2_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/l2"
)

func TestBuffersAndCopiesMeetTheSameValues(t *testing.T) {
	s := open(t, t.TempDir(), l2.Options{Size: 256 << 20})
	for _, n := range []int{0, 1, 4095, 4096, 4097, 128 << 10, 128<<10 + 1, 1<<20 + 1, 5 << 20} {
		want := value(uint64(n), n)
		b, err := s.Buffer(ctx, n)
		require.NoError(t, err)
		require.Len(t, b.Bytes(), n)
		require.Equal(t, n, copy(b.Bytes(), want))
		require.NoError(t, s.PutBuffer(ctx, fmt.Appendf(nil, "buffer %d", n), b))
		require.True(t, string(want) == string(b.Bytes()), "it is the caller's as before")
		b.Release()
		b.Release()
		require.Nil(t, b.Bytes())
		require.ErrorContains(t, s.PutBuffer(ctx, []byte("k"), b), "released")
		requireValue(t, s, fmt.Sprintf("buffer %d", n), want)

		require.NoError(t, s.Put(ctx, fmt.Appendf(nil, "copy %d", n), want))
		got, err := s.GetBuffer(ctx, fmt.Appendf(nil, "copy %d", n))
		require.NoError(t, err)
		require.True(t, string(want) == string(got.Bytes()), n)
		got.Release()
	}
	require.EqualValues(t, l2.DefaultMemory, s.Stats().MemoryFree)
	_, err := s.GetBuffer(ctx, []byte("none"))
	require.ErrorIs(t, err, l2.ErrNotFound)
	_, err = s.Buffer(ctx, int(s.MaxValue())+1)
	require.ErrorIs(t, err, l2.ErrTooLarge)
}

func TestManyBuffersAtOnceWaitForMemory(t *testing.T) {
	s := open(t, t.TempDir(), l2.Options{Size: 256 << 20, Memory: 4 << 20})
	const length = 1<<20 - 5
	var callers sync.WaitGroup
	for c := range 12 {
		callers.Go(func() {
			for i := range 10 {
				key, want := fmt.Appendf(nil, "%d %d", c, i), value(uint64(c*100+i), length)
				b, err := s.Buffer(ctx, length)
				if err != nil {
					t.Error(err)
					return
				}
				copy(b.Bytes(), want)
				if err := s.PutBuffer(ctx, key, b); err != nil {
					t.Error(err)
				}
				b.Release()
				got, err := s.GetBuffer(ctx, key)
				if err != nil {
					t.Error(err)
					return
				}
				if string(got.Bytes()) != string(want) {
					t.Errorf("value of %s differs", key)
				}
				got.Release()
			}
		})
	}
	callers.Wait()
	require.EqualValues(t, 4<<20, s.Stats().MemoryFree)
}

func TestABufferOutlivesItsStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, l2.Options{Size: 64 << 20})
	want := value(3, 100000)
	require.NoError(t, s.Put(ctx, []byte("k"), want))
	b, err := s.GetBuffer(ctx, []byte("k"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.True(t, string(want) == string(b.Bytes()))
	require.ErrorIs(t, s.PutBuffer(ctx, []byte("k"), b), l2.ErrClosed)
	b.Release()
	b.Release()
	_, err = s.Buffer(ctx, 1)
	require.ErrorIs(t, err, l2.ErrClosed)
}

func TestAPutGivenUpReleasesItsBuffer(t *testing.T) {
	s := open(t, t.TempDir(), l2.Options{Size: 64 << 20})
	b, err := s.Buffer(ctx, 8<<20-4*4096)
	if err != nil { // the segments are smaller
		b, err = s.Buffer(ctx, int(s.MaxValue()))
	}
	require.NoError(t, err)
	for gaveUp := false; !gaveUp; {
		canceled, cancel := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(cancel)
		err := s.PutBuffer(canceled, []byte("k"), b)
		all.Wait()
		switch {
		case err == nil:
		case b.Bytes() != nil: // over before it began
			require.ErrorIs(t, err, context.Canceled)
		default:
			require.ErrorIs(t, err, context.Canceled)
			gaveUp = true
		}
	}
	b.Release()
	require.NoError(t, s.Delete(ctx, []byte("k"))) // behind what the disk was still at
	for s.Stats().MemoryFree != l2.DefaultMemory {
		require.NoError(t, s.Put(ctx, []byte("another"), nil))
	}
}

func TestABufferOfAnotherStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	a := open(t, filepath.Join(dir, "a"), l2.Options{Size: 64 << 20})
	b := open(t, filepath.Join(dir, "b"), l2.Options{Size: 64 << 20})
	of, err := a.Buffer(ctx, 10)
	require.NoError(t, err)
	defer of.Release()
	require.ErrorContains(t, b.PutBuffer(ctx, []byte("k"), of), "another store")
}

// stores a value whose checksum is not ready before release is closed, and waits until the value is on the disk without it.
func putUnsummed(t *testing.T, key string) (s *l2.Store, want []byte, release chan struct{}, put chan error) {
	t.Helper()
	release, put = make(chan struct{}), make(chan error, 1)
	s = open(t, t.TempDir(), l2.Options{Size: 128 << 20, Sum: func(p []byte) uint64 {
		<-release
		return xxh3.Hash(p)
	}})
	b, err := s.Buffer(ctx, 3<<20+5)
	require.NoError(t, err)
	want = value(1, len(b.Bytes()))
	copy(b.Bytes(), want)
	go func() {
		err := s.PutBuffer(ctx, []byte(key), b)
		b.Release()
		put <- err
	}()
	require.Eventually(t, func() bool { return s.Stats().WriteBytes >= uint64(len(want)) }, 30*time.Second, time.Millisecond,
		"the value waits for its checksum")
	return s, want, release, put
}

func TestALargeValueIsWrittenWhileItsChecksumIsComputed(t *testing.T) {
	s, want, release, put := putUnsummed(t, "a")
	requireNoValue(t, s, "a")
	close(release)
	require.NoError(t, <-put)
	requireValue(t, s, "a", want)
	require.EqualValues(t, l2.DefaultMemory, s.Stats().MemoryFree)
}

func TestADeleteOvertakesAValueWithoutItsChecksum(t *testing.T) {
	s, _, release, put := putUnsummed(t, "a")
	deleted := make(chan error, 1)
	go func() { deleted <- s.Delete(ctx, []byte("a")) }()
	require.NoError(t, s.Put(ctx, []byte("b"), []byte("other")), "others do not wait")
	close(release)
	require.NoError(t, <-put)
	require.NoError(t, <-deleted)
	requireNoValue(t, s, "a")
	requireValue(t, s, "b", []byte("other"))
	require.EqualValues(t, l2.DefaultMemory, s.Stats().MemoryFree)
}
