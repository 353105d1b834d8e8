package proto

import (
	"bytes"
	"slices"
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

// A lookup of the most keys comes in many pieces; its buffer is shared by the streams.
func TestSplittingLargeFramesDoesNotAllocateInSteadyState(t *testing.T) {
	var stream []byte
	for range 3 {
		stream = AppendFrame(stream, Header{Op: OpLookup}, AppendLookup(nil, &Lookup{Group: 1, Keys: make([]Key, MaxKeys)}), 0)
	}
	stream = AppendFrame(stream, Header{Op: OpPing}, nil, 0)
	for _, cut := range []int{1000, 16 << 10, 60_000, 100_000} {
		var spares Spares
		var streams [3]Splitter
		for i := range streams {
			streams[i].Init(nil, &spares)
		}
		frames := 0
		pass := func() {
			for i := range streams {
				s := &streams[i]
				for p := stream; len(p) > 0; {
					n := min(cut, len(p))
					s.Feed(p[:n])
					p = p[n:]
					for {
						f, ok, err := s.Next()
						if err != nil {
							panic(err)
						}
						if !ok {
							break
						}
						if f.Op == OpLookup && len(f.Body) < MaxKeys*KeySize {
							panic("a short frame")
						}
						frames++
					}
				}
				s.Trim()
				if s.Buffered() > 0 {
					panic("a stream at rest keeps a buffer")
				}
			}
		}
		pass()
		require.Equal(t, 12, frames)
		require.Zero(t, testing.AllocsPerRun(20, pass), "pieces of %d bytes", cut)
		require.LessOrEqual(t, spares.Held(), SparesMax)
	}
}

// A thousand streams that each had a frame in two pieces, one after the other, need one buffer; so do those that end
// within a frame.
func TestABufferServesOneStreamAfterTheOther(t *testing.T) {
	var spares Spares
	streams := make([]Splitter, 1000)
	frame := AppendFrame(nil, Header{Op: OpLookup}, make([]byte, 1000), 0)
	for i := range streams {
		s := &streams[i]
		s.Init(nil, &spares)
		s.Feed(frame[:900])
		_, ok, err := s.Next()
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, bufferMin, s.Buffered())
		require.Zero(t, spares.Held())
		if i%2 == 0 {
			s.Feed(frame[900:])
			_, ok, err = s.Next()
			require.NoError(t, err)
			require.True(t, ok)
			s.Trim()
		} else {
			s.Reset()
		}
		require.Zero(t, s.Buffered())
		require.Equal(t, bufferMin, spares.Held())
	}
}

// Frames that alias a buffer stay whole until the next Feed, whoever takes large buffers
// meanwhile.
func TestASharedBufferIsNotGivenAwayWhileAFrameAliasesIt(t *testing.T) {
	var spares Spares
	var a, b Splitter
	a.Init(nil, &spares)
	b.Init(nil, &spares)
	body := func(v byte) []byte { return bytes.Repeat([]byte{v}, 100_000) }
	first := AppendFrame(nil, Header{Op: OpLookup}, body(1), 0)
	second := AppendFrame(nil, Header{Op: OpLookup}, body(2), 0)
	a.Feed(first[:90_000])
	_, ok, err := a.Next()
	require.NoError(t, err)
	require.False(t, ok)
	a.Feed(append(slices.Clone(first[90_000:]), second[:90_000]...))
	f, ok, err := a.Next()
	require.NoError(t, err)
	require.True(t, ok)
	a.Hold() // needs a larger buffer than that which f is in
	for range 3 {
		b.Feed(second[:90_000])
		b.Hold()
	}
	require.True(t, bytes.Equal(f.Body, body(1)))
	a.Feed(second[90_000:])
	f, ok, err = a.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.True(t, bytes.Equal(f.Body, body(2)))
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
