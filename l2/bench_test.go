package l2_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/slotcache/slotcache/l2"
)

const benchLength = 1 << 20

// benchKeys is how many values the benchmarks go round, of benchLength each.
const benchKeys = 512

func openBench(b *testing.B) *l2.Store {
	b.Helper()
	b.SetBytes(benchLength)
	b.ReportAllocs()
	return open(b, b.TempDir(), l2.Options{Size: 2 << 30})
}

func benchPut(b *testing.B, s *l2.Store, n int, v []byte) {
	if err := s.Put(ctx, fmt.Appendf(nil, "key %d", n%benchKeys), v); err != nil {
		b.Error(err)
	}
}

func benchGet(b *testing.B, s *l2.Store, n int, dst []byte) {
	if _, err := s.Get(ctx, fmt.Appendf(nil, "key %d", n*7919%benchKeys), dst); err != nil {
		b.Error(err)
	}
}

func BenchmarkPut1MiB(b *testing.B) {
	s := openBench(b)
	v := value(1, benchLength)
	for n := 0; b.Loop(); n++ {
		benchPut(b, s, n, v)
	}
}

func BenchmarkGet1MiB(b *testing.B) {
	s := openBench(b)
	dst := make([]byte, benchLength)
	for n := range benchKeys {
		benchPut(b, s, n, dst)
	}
	for n := 0; b.Loop(); n++ {
		benchGet(b, s, n, dst)
	}
}

func BenchmarkPut1MiBParallel(b *testing.B) {
	s := openBench(b)
	v := value(1, benchLength)
	var next atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			benchPut(b, s, int(next.Add(1)), v)
		}
	})
}

func BenchmarkGet1MiBParallel(b *testing.B) {
	s := openBench(b)
	v := value(1, benchLength)
	for n := range benchKeys {
		benchPut(b, s, n, v)
	}
	var next atomic.Int64
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		dst := make([]byte, benchLength)
		for pb.Next() {
			benchGet(b, s, int(next.Add(1)), dst)
		}
	})
}

func BenchmarkPut4KiBParallel(b *testing.B) {
	s := openBench(b)
	v := value(1, 4096)
	b.SetBytes(int64(len(v)))
	var next atomic.Int64
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			benchPut(b, s, int(next.Add(1)), v)
		}
	})
}
