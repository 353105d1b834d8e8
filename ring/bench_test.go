package ring_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

// each runs a benchmark on each engine with each value.
func each[T any](b *testing.B, values []T, run func(b *testing.B, engine ring.Engine, v T)) {
	for _, engine := range []ring.Engine{ring.EngineUring, ring.EngineEpoll} {
		for _, v := range values {
			b.Run(fmt.Sprintf("engine=%v/%v", engine, v), func(b *testing.B) { run(b, engine, v) })
		}
	}
}

// BenchmarkTurn is a turn of a loop that answers itself: a receive's data comes and goes out again by SendNow, 64 bytes on each of
// some socket pairs. One thread does it all; what is measured is the turn and not a wake-up.
func BenchmarkTurn(b *testing.B) {
	each(b, []int{1, 16, 256}, func(b *testing.B, engine ring.Engine, conns int) {
		u := openEngine(b, engine, ring.Config{})
		out := make([][]byte, 2*conns)
		fds := make([]int, 2*conns)
		for i := range conns {
			fds[2*i], fds[2*i+1] = pair(b)
		}
		for i := range fds {
			out[i] = make([]byte, 64)
			u.Recv(ring.NewTag(uint32(i), 0), fds[i])
		}
		for i := range conns {
			u.SendNow(ring.NewTag(uint32(2*i), 0), fds[2*i], out[2*i])
		}
		dst := make([]ring.Completion, 0, 256)
		before := u.Stats()
		b.ReportAllocs()
		b.ResetTimer()
		for n := 0; n < b.N; {
			got, err := u.Wait(dst)
			if err != nil {
				b.Fatal(err)
			}
			for j := range got {
				c := &got[j]
				i := c.Tag.Index()
				if c.Kind != ring.KindRecv || !c.More {
					b.Fatalf("%+v", *c)
				}
				copy(out[i], c.Data)
				u.SendNow(c.Tag, fds[i], out[i][:c.Res])
			}
			n += len(got)
		}
		b.StopTimer()
		b.ReportMetric(float64(u.Stats().Enters-before.Enters)/float64(b.N), "enters/op")
	})
}

// BenchmarkEcho is a round trip of 64 bytes between a client that blocks in read(2) and a loop on another thread.
func BenchmarkEcho(b *testing.B) {
	each(b, []time.Duration{0, 50 * time.Microsecond}, func(b *testing.B, engine ring.Engine, spin time.Duration) {
		o, err := ring.Open(engine, ring.Config{Spin: spin})
		refused(b, err)
		u := o.Ring
		ours, peer := pair(b)
		require.NoError(b, unix.SetNonblock(peer, false))
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			done <- echo(u, ours)
		}()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		buf := make([]byte, 64)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := unix.Write(peer, buf); err != nil {
				b.Fatal(err)
			}
			if n, err := unix.Read(peer, buf); n != len(buf) {
				b.Fatal(n, err)
			}
		}
		require.NoError(b, unix.Shutdown(peer, unix.SHUT_RDWR))
		require.NoError(b, <-done)
	})
}

// echo answers on fd until its end.
func echo(u ring.Interface, fd int) error {
	dst, out := make([]ring.Completion, 0, 16), make([]byte, 64)
	u.Recv(ring.NewTag(1, 0), fd)
	for {
		got, err := u.Wait(dst)
		if err != nil {
			return err
		}
		for i := range got {
			if !got[i].More {
				return u.Close()
			}
			u.SendNow(ring.NewTag(2, 0), fd, out[:copy(out, got[i].Data)])
		}
	}
}

// BenchmarkRead reads 4 KiB from the page cache, with some reads in flight.
func BenchmarkRead(b *testing.B) {
	const size = 4096
	for _, fixed := range []bool{false, true} {
		b.Run(fmt.Sprintf("fixed=%v", fixed), func(b *testing.B) {
			each(b, []int{1, 32}, func(b *testing.B, engine ring.Engine, depth int) {
				u := openEngine(b, engine, ring.Config{})
				fd := file(b, 1<<20)
				mem := mapped(b, depth*size)
				if fixed {
					if err := u.RegisterMemory(mem); err != nil {
						b.Skip(err)
					}
				}
				read := func(i uint32) {
					u.Read(ring.NewTag(i, 0), fd, int64(i)*size, mem[i*size:(i+1)*size])
				}
				for i := range uint32(depth) {
					read(i)
				}
				dst := make([]ring.Completion, 0, 64)
				b.SetBytes(size)
				b.ReportAllocs()
				b.ResetTimer()
				for n := 0; n < b.N; {
					got, err := u.Wait(dst)
					if err != nil {
						b.Fatal(err)
					}
					for j := range got {
						if got[j].Res != size {
							b.Fatalf("%+v", got[j])
						}
						read(got[j].Tag.Index())
					}
					n += len(got)
				}
			})
		})
	}
}
