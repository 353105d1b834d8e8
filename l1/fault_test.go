package l1

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// truncated returns bytes of a pool whose file somebody cut to half.
func truncated(t *testing.T, size int64) []byte {
	t.Helper()
	dir := shmDir(t)
	p := open(t, named(dir, "cut", size))
	require.NoError(t, p.Populate(0, size))
	require.NoError(t, os.Truncate(filepath.Join(dir, p.Name()), size/2))
	return p.Bytes(0, size)
}

func TestTruncationUnderTheMappingIsAnError(t *testing.T) {
	const size = 2 << 20
	b := truncated(t, size)
	for _, from := range []int{0, size/2 - 4096, size / 2, size/2 + 100, size - 64, size - 1} {
		for range 3 { // the goroutine goes on and may fault again
			_, err := Sum(b[from:])
			require.ErrorIs(t, err, ErrFault)
			_, err = SumPieces(b[from:], func() {})
			require.ErrorIs(t, err, ErrFault)
			require.ErrorIs(t, CopyIn(b[from:], make([]byte, size-from)), ErrFault)
			require.ErrorIs(t, CopyOut(make([]byte, size-from), b[from:]), ErrFault)
		}
	}
	require.ErrorIs(t, touch(b), ErrFault)
	sum, err := Sum(b[:size/2])
	require.NoError(t, err)
	require.Equal(t, xxh3.Hash(make([]byte, size/2)), sum, "the other half is as it was")
}

func TestSumsOfAllSizesSurviveAFault(t *testing.T) {
	const size = 2 << 20
	b := truncated(t, size)[size/2:]
	// The hash has a path of its own for each of these lengths.
	for _, n := range []int{1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 512, 1024, 1025, 8192, 1 << 20} {
		_, err := Sum(b[:n])
		require.ErrorIs(t, err, ErrFault, "%d bytes", n)
		require.ErrorIs(t, CopyIn(b, make([]byte, n)), ErrFault)
	}
	sum, err := Sum(b[:0])
	require.NoError(t, err)
	require.Equal(t, xxh3.Hash(nil), sum)
}

func TestSettingOfTheGoroutineIsRestored(t *testing.T) {
	b := truncated(t, 1<<20)
	for _, before := range []bool{false, true} {
		debug.SetPanicOnFault(before)
		_, err := Sum(b)
		require.ErrorIs(t, err, ErrFault)
		require.Equal(t, before, debug.SetPanicOnFault(before))
		_, err = Sum(b[:1<<19])
		require.NoError(t, err)
		require.Equal(t, before, debug.SetPanicOnFault(before))
	}
	debug.SetPanicOnFault(false)
}

func TestOtherPanicsPass(t *testing.T) {
	f := func(what any) (err error) {
		defer settle(false, &err)
		panic(what)
	}
	for _, what := range []any{"x", errors.New("x"), 3} {
		require.PanicsWithValue(t, what, func() { _ = f(what) })
	}
	require.Panics(t, func() { _ = CopyIn(make([]byte, 1), make([]byte, 2)) })
	require.Panics(t, func() { _ = CopyOut(make([]byte, 1), make([]byte, 2)) })
}

func TestCopiesAndSumsAreExact(t *testing.T) {
	p := open(t, Config{Size: 1 << 20})
	src := []byte("some bytes of an object")
	dst := p.Bytes(8192, 4096)
	require.NoError(t, CopyIn(dst, src))
	sum, err := Sum(dst[:len(src)])
	require.NoError(t, err)
	require.Equal(t, xxh3.Hash(src), sum)
	got := make([]byte, len(src)+3)
	require.NoError(t, CopyOut(got, dst[:len(src)]))
	require.True(t, bytes.HasPrefix(got, src))
	require.Equal(t, []byte{0, 0, 0}, got[len(src):])
}

func TestTouchingPoolBytesDoesNotAllocate(t *testing.T) {
	p := open(t, Config{Size: 1 << 20})
	b, buf := p.Bytes(0, 4096), make([]byte, 4096)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if CopyIn(b, buf) != nil || CopyOut(buf, b) != nil {
			t.Error("fault")
		}
		if _, err := Sum(b); err != nil {
			t.Error(err)
		}
	}))
}

func BenchmarkCopyIn(b *testing.B) {
	for _, n := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
		mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		require.NoError(b, err)
		src := make([]byte, n)
		b.Run(fmt.Sprintf("plain/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(mem, src)
			}
		})
		b.Run(fmt.Sprintf("guarded/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if err := CopyIn(mem, src); err != nil {
					b.Fatal(err)
				}
			}
		})
		require.NoError(b, unix.Munmap(mem))
	}
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{64, 4 << 10, 1 << 20} {
		buf := make([]byte, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Sum(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPopulate(b *testing.B) {
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		p, err := Open(Config{Size: size})
		require.NoError(b, err)
		require.NoError(b, p.Populate(0, size))
		require.NoError(b, p.Close())
	}
}
