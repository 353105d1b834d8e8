package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/slotcache/slotcache/client"
)

func benchWorker(b *testing.B) *client.Worker {
	addr, stop := exampleServer()
	b.Cleanup(stop)
	return worker(b, addr, client.Registration{})
}

func BenchmarkLookup(b *testing.B) {
	w := benchWorker(b)
	ctx := context.Background()
	store(b, w, 64)
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			req := client.LookupRequest{Keys: keys(0, n)}
			for b.Loop() {
				if r, err := w.Lookup(ctx, req); err != nil || r.Hits != n {
					b.Fatal(r, err)
				}
			}
		})
		b.Run(fmt.Sprintf("keys=%d/slots", n), func(b *testing.B) {
			b.ReportAllocs()
			req := client.LookupRequest{Keys: keys(0, n), Slots: true}
			for b.Loop() {
				r, err := w.Lookup(ctx, req)
				if err != nil || r.Hits != n {
					b.Fatal(r, err)
				}
				if err := r.Lease.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLookupParallel(b *testing.B) {
	w := benchWorker(b)
	store(b, w, 1)
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		req := client.LookupRequest{Keys: keys(0, 1)}
		for pb.Next() {
			if _, err := w.Lookup(context.Background(), req); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkStore(b *testing.B) {
	for _, inline := range []bool{false, true} {
		for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("inline=%v/size=%d", inline, size), func(b *testing.B) {
				addr, stop := exampleServer()
				b.Cleanup(stop)
				w := worker(b, addr, client.Registration{Inline: inline})
				ctx := context.Background()
				value := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					i++
					if st, err := w.Put(ctx, 0, key(i), value); err != nil || st != 0 {
						b.Fatal(st, err)
					}
				}
			})
		}
	}
}

func BenchmarkStoreEach(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			addr, stop := exampleServer()
			b.Cleanup(stop)
			w := worker(b, addr, client.Registration{})
			value := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			const at = 64
			list, sizes := make([]client.Key, at), make([]uint64, at)
			for done := 0; done < b.N; done += at {
				n := min(at, b.N-done)
				for i := range n {
					list[i], sizes[i] = key(1+done+i), uint64(size)
				}
				_, err := w.StoreEach(context.Background(), 0, list[:n], sizes[:n], time.Second, func(_ int, slot []byte) error {
					copy(slot, value)
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFetch(b *testing.B) {
	for _, inline := range []bool{false, true} {
		for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("inline=%v/size=%d", inline, size), func(b *testing.B) {
				addr, stop := exampleServer()
				b.Cleanup(stop)
				w := worker(b, addr, client.Registration{Inline: inline})
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				if st, err := w.Put(ctx, 0, key(1), make([]byte, size)); err != nil || st != 0 {
					b.Fatal(st, err)
				}
				dst := make([]byte, 0, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, ok, err := w.Fetch(ctx, 0, key(1), dst); err != nil || !ok {
						b.Fatal(ok, err)
					}
				}
			})
		}
	}
}
