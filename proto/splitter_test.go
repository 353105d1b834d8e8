package proto

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cut is a frame with its payload, copied out of a stream.
type cut struct {
	Header
	body    string
	payload []byte
}

// whole cuts a stream that is there at once by the header's rules alone, up to
// the first frame that is broken or incomplete.
func whole(stream []byte) (cuts []cut, err error) {
	for len(stream) >= HeaderSize {
		h, err := ParseHeader(stream)
		if err != nil {
			return cuts, err
		}
		if len(stream) < HeaderSize+int(h.Body) {
			break
		}
		body := stream[HeaderSize : HeaderSize+h.Body]
		stream = stream[HeaderSize+h.Body:]
		payload := stream[:min(len(stream), int(h.Payload()))]
		stream = stream[len(payload):]
		cuts = append(cuts, cut{h, string(body), append([]byte(nil), payload...)})
	}
	return cuts, nil
}

// A dealer feeds a stream to a splitter in pieces and collects the frames. It
// overwrites each piece once the splitter may not look at it any more, and checks
// that frames are intact until the next Feed.
type dealer struct {
	s    Splitter
	cuts []cut
	live []Frame // returned since the last Feed, with their places in cuts
	at   []int
	hold func() bool // whether to stop in the middle of a piece now
	skip func() bool // whether to receive payload elsewhere now
}

// deal feeds one piece. Payload bytes that were skipped are at the start of rest,
// what remains of the stream; deal returns what then remains of it.
func (d *dealer) deal(t require.TestingT, piece, rest []byte) ([]byte, error) {
	own := bytes.Clone(piece)
	d.live, d.at = d.live[:0], d.at[:0]
	d.s.Feed(own)
	err := d.drain(t)
	if err == nil && d.s.Payload() > 0 && d.s.Unread() == 0 && d.skip() {
		n := min(len(rest), int(d.s.Payload()))
		d.took(rest[:n])
		d.s.Skip(uint32(n))
		rest = rest[n:]
	}
	for i, f := range d.live {
		require.Equal(t, d.cuts[d.at[i]].body, string(f.Body), "the frame is intact until the next Feed")
	}
	for i := range own {
		own[i] = 0xaa
	}
	return rest, err
}

func (d *dealer) drain(t require.TestingT) error {
	for {
		if d.hold() {
			d.s.Hold()
			return nil
		}
		f, ok, err := d.s.Next()
		if err != nil {
			return err
		}
		if ok {
			require.Equal(t, f.Payload(), d.s.Payload())
			d.live, d.at = append(d.live, f), append(d.at, len(d.cuts))
			d.cuts = append(d.cuts, cut{Header: f.Header, body: string(f.Body)})
			continue
		}
		p := d.s.Take()
		if len(p) == 0 {
			require.True(t, d.s.Payload() == 0 || d.s.Unread() == 0)
			return nil
		}
		d.took(p)
	}
}

// took adds to the payload of the last frame.
func (d *dealer) took(p []byte) {
	c := &d.cuts[len(d.cuts)-1]
	c.payload = append(c.payload, p...)
}

func never() bool { return false }

// split deals a stream in pieces whose lengths next returns.
func split(t require.TestingT, stream []byte, d *dealer, next func() int) ([]cut, error) {
	for len(stream) > 0 {
		n := min(next(), len(stream))
		var err error
		stream, err = d.deal(t, stream[:n], stream[n:])
		if err != nil {
			return d.cuts, err
		}
	}
	d.hold = never
	_, err := d.deal(t, nil, nil)
	return d.cuts, err
}

func TestFrameByteByByteEqualsTheWholeFrame(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.file, func(t *testing.T) {
			var frame []byte
			for _, l := range s.lines() {
				frame = append(frame, l.data...)
			}
			stream := append(bytes.Clone(frame), frame...)
			want, err := whole(stream)
			require.NoError(t, err)
			require.Len(t, want, 2)
			got, err := split(t, stream, &dealer{hold: never, skip: never}, func() int { return 1 })
			require.NoError(t, err)
			require.Equal(t, want, got)
			for at := 1; at < len(stream); at++ { // and cut in two at every place
				d := &dealer{hold: never, skip: never}
				rest, err := d.deal(t, stream[:at], stream[at:])
				require.NoError(t, err)
				_, err = d.deal(t, rest, nil)
				require.NoError(t, err)
				require.Equal(t, want, d.cuts)
			}
		})
	}
}

// randomStream returns count frames, some large, some with payload.
func randomStream(random *rand.Rand, count int) []byte {
	var stream []byte
	fill := func(n int) []byte {
		b := make([]byte, 0, n+8)
		for len(b) < n {
			b = binary.LittleEndian.AppendUint64(b, random.Uint64())
		}
		return b[:n]
	}
	sizes := []int{0, 1, 8, 31, 100, 4000, 5000, 70_000, MaxBody}
	for i := range count {
		body := fill(sizes[random.IntN(len(sizes)-i%2)])
		var payload []byte
		if random.IntN(3) == 0 {
			payload = fill(sizes[random.IntN(len(sizes))])
		}
		stream = AppendFrame(stream, Header{Op: Op(random.Uint32()), Request: uint64(i)}, body, uint32(len(payload)))
		stream = append(stream, payload...)
	}
	return stream
}

func TestFramesDoNotDependOnHowTheStreamIsCut(t *testing.T) {
	random := newRandom(t)
	for i := range 15 {
		stream := randomStream(random, 20)
		want, err := whole(stream)
		require.NoError(t, err)
		require.Len(t, want, 20)
		d := &dealer{hold: never, skip: never}
		if i%3 > 0 {
			d.hold = func() bool { return random.IntN(8) == 0 }
			d.skip = func() bool { return random.IntN(2) == 0 }
		}
		pieces := []int{33, 4096, 16 << 10, 64 << 10, 1 << 20}[i%5]
		got, err := split(t, stream, d, func() int { return 1 + random.IntN(pieces) })
		require.NoError(t, err)
		require.Equal(t, len(want), len(got))
		for j := range want {
			require.Equal(t, want[j].Header, got[j].Header)
			require.True(t, want[j].body == got[j].body, "body %d of stream %d", j, i)
			require.True(t, bytes.Equal(want[j].payload, got[j].payload), "payload %d of stream %d", j, i)
		}
	}
}

func TestThousandFramesInOnePieceAreNotCopied(t *testing.T) {
	var stream []byte
	for i := range 1000 {
		stream = AppendFrame(stream, Header{Op: OpPing, Request: uint64(i)}, nil, 0)
	}
	var s Splitter
	s.Feed(stream)
	for i := range 1000 {
		f, ok, err := s.Next()
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, i, f.Request)
	}
	_, ok, err := s.Next()
	require.NoError(t, err)
	require.False(t, ok, "the piece ended with the last frame")
	require.Zero(t, s.Buffered())
	require.Zero(t, s.Unread())
}

func TestHeaderThatAnnouncesMuchCostsLittle(t *testing.T) {
	p := AppendHeader(nil, Header{Version: Version, Op: OpLookup, Size: MaxFrame, Body: MaxBody})
	var s Splitter
	for n := 1; n <= HeaderSize; n++ {
		s.Feed(p[n-1 : n])
		_, ok, err := s.Next()
		require.NoError(t, err)
		require.False(t, ok)
		require.LessOrEqual(t, s.Buffered(), bufferMin)
	}
	arrived := HeaderSize
	for piece := make([]byte, 1000); arrived+len(piece) < MaxFrame; arrived += len(piece) {
		s.Feed(piece)
		_, ok, err := s.Next()
		require.NoError(t, err)
		require.False(t, ok)
		require.LessOrEqual(t, s.Buffered(), max(bufferMin, 2*(arrived+len(piece))), "at most twice what arrived")
		require.LessOrEqual(t, s.Buffered(), MaxFrame)
	}
	s.Feed(make([]byte, MaxFrame-arrived))
	f, ok, err := s.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, f.Body, MaxBody)
	require.Equal(t, MaxFrame, s.Buffered())
	s.Trim()
	require.Zero(t, s.Buffered(), "a large buffer does not outlive its frame")
}

func TestThousandHostileHeadersAllocateNextToNothing(t *testing.T) {
	for _, size := range []uint32{0, 31, MaxFrame + 1, 1 << 31, 1<<32 - 1} {
		p := AppendHeader(nil, Header{Version: Version, Op: OpLookup, Size: size, Body: size})
		splitters := make([]Splitter, 1000)
		got := allocated(func() {
			for i := range splitters {
				s := &splitters[i]
				s.Feed(p)
				if _, _, err := s.Next(); err == nil {
					panic("accepted")
				}
			}
		})
		require.Less(t, got, uint64(1000*1024), "size %d", size)
		for i := range splitters {
			require.Zero(t, splitters[i].Buffered())
		}
	}
}

func TestLargeBufferIsLetGoThoughBytesFollow(t *testing.T) {
	base := make([]byte, 0, 512)
	large := AppendFrame(nil, Header{Op: OpLookup}, make([]byte, 100<<10), 0)
	small := AppendFrame(nil, Header{Op: OpPing}, nil, 0)
	for _, tail := range []int{0, 1, 31} {
		var s Splitter
		s.Init(base, nil)
		require.Equal(t, cap(base), s.Buffered())
		s.Feed(large[:len(large)-1])
		_, ok, err := s.Next()
		require.NoError(t, err)
		require.False(t, ok)
		require.Greater(t, s.Buffered(), bufferKeep)
		s.Feed(append(large[len(large)-1:len(large):len(large)], small[:tail]...))
		_, ok, err = s.Next()
		require.NoError(t, err)
		require.True(t, ok)
		_, ok, err = s.Next()
		require.NoError(t, err)
		require.False(t, ok)
		s.Feed(small[tail:])
		require.LessOrEqual(t, s.Buffered(), bufferMin)
		f, ok, err := s.Next()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, OpPing, f.Op)
	}
}

func TestLargeBufferOfHeldFramesIsLetGo(t *testing.T) {
	var stream []byte
	for i := range 3000 {
		stream = AppendFrame(stream, Header{Op: OpPing, Request: uint64(i)}, nil, 0)
	}
	var s Splitter
	for p := stream; len(p) > 0; {
		n := min(10_000, len(p))
		s.Feed(p[:n])
		s.Hold()
		p = p[n:]
	}
	require.Greater(t, s.Buffered(), bufferKeep)
	require.LessOrEqual(t, s.Buffered(), 2*len(stream))
	for i := range 2999 {
		f, ok, err := s.Next()
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, i, f.Request)
	}
	s.Trim()
	require.Equal(t, bufferMin, s.Buffered(), "one frame is left in it")
	f, ok, err := s.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 2999, f.Request)
}

func TestOnlyTheFrameThatStraddlesIsCopied(t *testing.T) {
	m, _ := messageOf(OpLookup, false)
	stream := append(m.frame(), m.frame()...)
	piece := stream[40:]
	var s Splitter
	s.Feed(stream[:40])
	_, ok, err := s.Next()
	require.NoError(t, err)
	require.False(t, ok)
	s.Feed(piece)
	first, ok, err := s.Next()
	require.NoError(t, err)
	require.True(t, ok)
	second, ok, err := s.Next()
	require.NoError(t, err)
	require.True(t, ok)
	clear(piece)
	require.Equal(t, m.encode(nil), first.Body, "in the splitter's buffer")
	require.Equal(t, make([]byte, len(second.Body)), second.Body, "in the piece")
}

func TestErrorRemainsAndNothingMoreIsBuffered(t *testing.T) {
	bad := AppendHeader(nil, Header{Version: 9, Op: OpPing, Size: HeaderSize})
	good := AppendFrame(nil, Header{Op: OpPing}, nil, 0)
	for _, n := range []int{len(bad), 7} {
		var s Splitter
		s.Feed(good)
		_, ok, err := s.Next()
		require.NoError(t, err)
		require.True(t, ok)
		s.Feed(bad[:n])
		_, ok, err = s.Next()
		require.False(t, ok)
		if n < len(bad) {
			require.NoError(t, err)
			s.Feed(bad[n:])
			_, _, err = s.Next()
		}
		require.ErrorIs(t, err, ErrFrame)
		held := s.Buffered()
		for range 100 {
			s.Feed(good)
			_, ok, again := s.Next()
			require.False(t, ok)
			require.Equal(t, err, again)
		}
		require.Equal(t, held, s.Buffered())
		s.Reset()
		s.Feed(good)
		_, ok, err = s.Next()
		require.NoError(t, err)
		require.True(t, ok, "a new stream")
	}
}

func TestMistakesOfTheCallerArePanics(t *testing.T) {
	var s Splitter
	require.Panics(t, func() { s.Skip(1) })
	frame := AppendFrame(nil, Header{Op: OpCommitStore}, make([]byte, 12), 5)
	s.Feed(append(frame, "pay"...))
	_, ok, err := s.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Panics(t, func() { s.Skip(1) }, "bytes of the payload are there to be taken")
	require.Equal(t, "pay", string(s.Take()))
	require.Panics(t, func() { s.Skip(3) })
	s.Skip(2)
	require.Zero(t, s.Payload())
	_, ok, err = s.Next()
	require.NoError(t, err)
	require.False(t, ok)
}

func TestResetLetsALargeBufferGo(t *testing.T) {
	for _, n := range []int{1000, MaxBody} {
		var s Splitter
		s.Feed(AppendFrame(nil, Header{Op: OpLookup}, make([]byte, n), 0)[:HeaderSize+n-1])
		_, _, err := s.Next()
		require.NoError(t, err)
		s.Reset()
		require.LessOrEqual(t, s.Buffered(), bufferKeep, fmt.Sprint(n))
		require.Zero(t, s.Unread())
	}
}
