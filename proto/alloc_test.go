package proto

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// full returns a codec of m whose lists are long, and its encoding.
func full(t *testing.T, m message) (codec, []byte) {
	t.Helper()
	c := m.blank()
	c.set(wire{random: newRandom(t), lists: MaxDims}.value(m.value()))
	return c, c.encode(nil)
}

func TestParsingIntoAUsedStructureDoesNotAllocate(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		_, body := full(t, m)
		c := m.blank()
		require.NoError(t, c.parse(body))
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if c.parse(body) != nil {
				panic("parse failed")
			}
		}))
	})
}

func TestEncodingIntoAUsedBufferDoesNotAllocate(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		c, body := full(t, m)
		buf := make([]byte, 0, HeaderSize+len(body))
		h := m.header()
		require.Zero(t, testing.AllocsPerRun(100, func() {
			buf = BeginFrame(buf[:0], h)
			buf = EndFrame(c.encode(buf), 0, 0)
		}))
		require.Zero(t, testing.AllocsPerRun(100, func() {
			buf = AppendFrame(buf[:0], h, body, 0)
		}))
	})
}

func TestSplittingDoesNotAllocateInSteadyState(t *testing.T) {
	var stream []byte
	count := 0
	for _, m := range messages() {
		stream = append(stream, m.frame()...)
		count++
	}
	for _, cut := range []int{len(stream), 1, 31, 33, 1000} {
		var s Splitter
		frames := 0
		pass := func() {
			for p := stream; len(p) > 0; {
				n := min(cut, len(p))
				s.Feed(p[:n])
				p = p[n:]
				for {
					_, ok, err := s.Next()
					if err != nil {
						panic(err)
					}
					if !ok {
						break
					}
					frames++
				}
			}
		}
		pass()
		require.Equal(t, count, frames)
		require.Zero(t, testing.AllocsPerRun(20, pass), "pieces of %d bytes", cut)
		if cut == len(stream) {
			require.Zero(t, s.Buffered(), "frames that arrive whole are not copied")
		}
	}
}

func BenchmarkSplitter(b *testing.B) {
	var stream []byte
	for range 64 {
		stream = AppendFrame(stream, Header{Op: OpCommitRetrieve}, make([]byte, 8), 0)
	}
	var s Splitter
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		s.Feed(stream)
		for {
			if _, ok, err := s.Next(); err != nil || !ok {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/frame")
}

func BenchmarkParse(b *testing.B) {
	for _, m := range messages() {
		b.Run(m.name(), func(b *testing.B) {
			body := m.encode(nil)
			b.ReportAllocs()
			for b.Loop() {
				if err := m.parse(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLookupOf64Keys(b *testing.B) {
	x := Lookup{Group: 1, Keys: make([]Key, 64)}
	buf := AppendLookup(nil, &x)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendLookup(buf[:0], &x)
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := ParseLookup(buf, &x); err != nil {
				b.Fatal(err)
			}
		}
	})
}
