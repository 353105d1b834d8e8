package l2_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/l2/segdir"
)

var ctx = context.Background()

// require one value in the store, read with a buffer of exactly its length.
func requireValue(t *testing.T, s *l2.Store, key string, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := s.Get(ctx, []byte(key), got)
	require.NoError(t, err)
	require.Equal(t, len(want), n)
	require.True(t, string(want) == string(got), "value of %q differs", key)
}

func requireNoValue(t *testing.T, s *l2.Store, key string) {
	t.Helper()
	_, err := s.Get(ctx, []byte(key), make([]byte, 100))
	require.ErrorIs(t, err, l2.ErrNotFound)
	_, err = s.Size(ctx, []byte(key))
	require.ErrorIs(t, err, l2.ErrNotFound)
}

func TestPutGetOverwriteDelete(t *testing.T) {
	s := open(t, t.TempDir(), l2.Options{Size: 64 << 20})
	requireNoValue(t, s, "a")
	require.NoError(t, s.Put(ctx, []byte("a"), []byte("first")))
	requireValue(t, s, "a", []byte("first"))
	require.NoError(t, s.Put(ctx, []byte("a"), []byte("the second")))
	requireValue(t, s, "a", []byte("the second"))
	require.NoError(t, s.Put(ctx, []byte("b"), []byte("other")))
	require.NoError(t, s.Delete(ctx, []byte("a")))
	requireNoValue(t, s, "a")
	require.NoError(t, s.Delete(ctx, []byte("a")), "deleting nothing is no error")
	requireValue(t, s, "b", []byte("other"))
	require.NoError(t, s.Put(ctx, []byte("a"), []byte("again")))
	requireValue(t, s, "a", []byte("again"))
}

func TestKeysOfAnyLength(t *testing.T) {
	s := open(t, t.TempDir(), l2.Options{Size: 64 << 20})
	var keys []string
	for _, n := range []int{0, 1, 31, 32, 33, 64, 5000} {
		keys = append(keys, string(value(uint64(n), n)))
	}
	for i, key := range keys {
		require.NoError(t, s.Put(ctx, []byte(key), []byte(strconv.Itoa(i))))
	}
	for i, key := range keys {
		requireValue(t, s, key, []byte(strconv.Itoa(i)))
	}
}

var sizes = []int{0, 1, 511, 512, 513, 4095, 4096, 4097, 65535, 1 << 20, 1<<20 + 1, 5 << 20}

func TestValuesOfAllSizesComeBackAlsoAfterReopening(t *testing.T) {
	dir := t.TempDir()
	opts := l2.Options{Size: 512 << 20}
	s := open(t, dir, opts)
	for _, n := range sizes {
		require.NoError(t, s.Put(ctx, fmt.Appendf(nil, "%d", n), value(uint64(n), n)))
	}
	check := func() {
		for _, n := range sizes {
			requireValue(t, s, strconv.Itoa(n), value(uint64(n), n))
			size, err := s.Size(ctx, fmt.Appendf(nil, "%d", n))
			require.NoError(t, err)
			require.EqualValues(t, n, size)
		}
	}
	check()
	for range 2 { // the second time nothing was written in between
		require.NoError(t, s.Close())
		s = open(t, dir, opts)
		require.EqualValues(t, len(sizes), s.Stats().Records)
		check()
	}
	require.NoError(t, s.Delete(ctx, []byte("4096")))
	require.NoError(t, s.Put(ctx, []byte("512"), []byte("new")))
	require.NoError(t, s.Close())
	s = open(t, dir, opts)
	requireNoValue(t, s, "4096")
	requireValue(t, s, "512", []byte("new"))
	requireValue(t, s, "4097", value(4097, 4097))
}

func TestBuffersMayBeLongerButNotShorter(t *testing.T) {
	s := open(t, t.TempDir(), l2.Options{Size: 512 << 20})
	for _, n := range sizes[1:] {
		key := fmt.Appendf(nil, "%d", n)
		want := value(uint64(n), n)
		require.NoError(t, s.Put(ctx, key, want))
		for _, short := range []int{0, n / 2, n - 1} {
			dst := make([]byte, short)
			got, err := s.Get(ctx, key, dst)
			require.ErrorIs(t, err, l2.ErrShortBuffer)
			require.Equal(t, n, got)
			require.Equal(t, make([]byte, short), dst, "a short buffer was written to")
		}
		dst := make([]byte, n+1<<20)
		got, err := s.Get(ctx, key, dst)
		require.NoError(t, err)
		require.Equal(t, n, got)
		require.True(t, string(want) == string(dst[:n]))
		require.True(t, string(make([]byte, 1<<20)) == string(dst[n:]), "wrote behind the value")
	}
}

func TestValuesLargerThanASegmentAreRefused(t *testing.T) {
	s := open(t, t.TempDir(), l2.Options{Size: 64 << 20, SegmentSize: 4 << 20})
	most := s.MaxValue()
	require.Greater(t, most, int64(3<<20))
	require.Less(t, most, int64(4<<20))
	require.ErrorIs(t, s.Put(ctx, []byte("k"), make([]byte, most+1)), l2.ErrTooLarge)
	requireNoValue(t, s, "k")
	require.NoError(t, s.Put(ctx, []byte("k"), value(1, int(most))))
	requireValue(t, s, "k", value(1, int(most)))
}

func TestAValueLargerThanTheMemoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, l2.Options{Size: 256 << 20, SegmentSize: 16 << 20})
	require.NoError(t, s.Put(ctx, []byte("big"), value(1, 5<<20)))
	require.NoError(t, s.Close())
	s = open(t, dir, l2.Options{Size: 256 << 20, SegmentSize: 16 << 20, Memory: 2 << 20})
	require.EqualValues(t, 2<<20, s.MaxValue())
	require.ErrorIs(t, s.Put(ctx, []byte("k"), make([]byte, 3<<20)), l2.ErrTooLarge)
	_, err := s.Get(ctx, []byte("big"), make([]byte, 5<<20))
	require.ErrorIs(t, err, l2.ErrTooLarge)
	n, err := s.Get(ctx, []byte("big"), nil)
	require.ErrorIs(t, err, l2.ErrShortBuffer)
	require.Equal(t, 5<<20, n)
}

func TestNamespacesAreSeparate(t *testing.T) {
	dir := t.TempDir()
	opts := func(name string) l2.Options { return l2.Options{Size: 64 << 20, Namespace: name} }
	names := []string{"", "llama", "qwen"}
	for _, name := range names {
		s := open(t, dir, opts(name))
		requireNoValue(t, s, "k")
		require.NoError(t, s.Put(ctx, []byte("k"), []byte("of "+name)))
		require.NoError(t, s.Close())
	}
	s := open(t, dir, opts("llama"))
	require.NoError(t, s.Clear(ctx))
	requireNoValue(t, s, "k")
	require.NoError(t, s.Close())
	for _, name := range names {
		s := open(t, dir, opts(name))
		if name == "llama" {
			requireNoValue(t, s, "k")
		} else {
			requireValue(t, s, "k", []byte("of "+name))
		}
		require.NoError(t, s.Close())
	}
}

func TestClosedStoreRefusesAll(t *testing.T) {
	s := open(t, t.TempDir(), l2.Options{Size: 64 << 20})
	require.NoError(t, s.Put(ctx, []byte("k"), []byte("v")))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Put(ctx, []byte("k"), []byte("v")), l2.ErrClosed)
	_, err := s.Get(ctx, []byte("k"), make([]byte, 10))
	require.ErrorIs(t, err, l2.ErrClosed)
	_, err = s.Size(ctx, []byte("k"))
	require.ErrorIs(t, err, l2.ErrClosed)
	require.ErrorIs(t, s.Delete(ctx, []byte("k")), l2.ErrClosed)
	require.ErrorIs(t, s.Clear(ctx), l2.ErrClosed)
	st := s.Stats()
	require.Equal(t, "closed", st.State)
	require.EqualValues(t, 1, st.Puts)
}

func TestCloseWaitsForTheCallsUnderWay(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, l2.Options{Size: 256 << 20})
	const callers = 8
	type end struct {
		key string
		err error
	}
	ends := make(chan end, callers)
	started := make(chan struct{}, callers)
	for i := range callers {
		go func() {
			for n := 0; ; n++ {
				key := fmt.Sprintf("%d/%d", i, n)
				err := s.Put(ctx, []byte(key), value(uint64(n), 100000))
				if n == 3 {
					started <- struct{}{}
				}
				if err != nil {
					ends <- end{fmt.Sprintf("%d/%d", i, n-1), err}
					return
				}
			}
		}()
	}
	for range callers {
		<-started
	}
	require.NoError(t, s.Close())
	var last []string
	for range callers {
		e := <-ends
		require.ErrorIs(t, e.err, l2.ErrClosed)
		last = append(last, e.key)
	}
	s = open(t, dir, l2.Options{Size: 256 << 20})
	for _, key := range last { // what was acknowledged last is there
		_, err := s.Size(ctx, []byte(key))
		require.NoError(t, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, opts := range map[string]l2.Options{
		"no size":          {},
		"negative size":    {Size: -1},
		"little memory":    {Size: 1 << 30, Memory: 4096},
		"odd segments":     {Size: 1 << 30, SegmentSize: 4<<20 + 1},
		"negative entries": {Size: 1 << 30, MaxEntries: -1},
		"too few segments": {Size: 8 << 20, SegmentSize: 4 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l2.Open(t.TempDir(), opts)
			require.Error(t, err)
			require.Contains(t, err.Error(), "l2")
		})
	}
}

func TestOpenRefusesAForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o600))
	_, err := l2.Open(dir, l2.Options{Size: 64 << 20})
	require.ErrorIs(t, err, segdir.ErrForeign)
}

// runHolder holds the store until the process is killed.
func runHolder(dir string) error {
	s, err := l2.Open(dir, l2.Options{Size: 64 << 20})
	if err != nil {
		return err
	}
	if err := s.Put(ctx, []byte("k"), []byte("held")); err != nil {
		return err
	}
	fmt.Println("open")
	select {}
}

func TestADirectoryInUseIsRefusedUntilItsUserIsDead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, open(t, dir, l2.Options{Size: 64 << 20}).Close()) // skips where it must
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may be dead already
	_, err = fmt.Fscanln(out, new(string))
	require.NoError(t, err)

	_, err = l2.Open(dir, l2.Options{Size: 64 << 20})
	require.ErrorIs(t, err, segdir.ErrLocked)
	require.ErrorContains(t, err, "in use by pid "+strconv.Itoa(cmd.Process.Pid))

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	s := open(t, dir, l2.Options{Size: 64 << 20})
	requireValue(t, s, "k", []byte("held"))
}
