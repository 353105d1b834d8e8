package seglog

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// handed takes I/Os until there are no more.
func (r *rig) handed() (ios []IO) {
	for {
		io, ok := r.l.NextIO()
		if !ok {
			return ios
		}
		ios = append(ios, *io)
	}
}

// busy is a rig with both loads and stores waiting, and nothing in flight.
func busy(t *testing.T, change func(*Config)) *rig {
	r := newRig(t, 6, func(c *Config) {
		c.SegmentSize = 1024 * BlockSize
		c.Size = 6 * c.SegmentSize
		c.IOSize = BlockSize
		change(c)
	})
	r.store(1, 200000)
	r.run()
	for n := range 4 {
		k := key(1)
		require.True(t, r.l.Read(&k, Mem{Off: int64(8+n) * rigSlot, Len: rigSlot}, Token(1000+n)))
		k = key(50 + n)
		require.True(t, r.l.PutSummed(&k, Mem{Off: int64(n) * rigSlot, Len: rigSlot}, 200000, 1, Token(2000+n)))
	}
	r.l.Flush()
	header, ok := r.l.NextIO() // is before all others
	require.True(t, ok)
	r.done(*header)
	return r
}

func TestLoadsGoFirstAndLeaveAQuarterToStores(t *testing.T) {
	r := busy(t, func(c *Config) { c.MaxInFlight = 16 })
	ios := r.handed()
	require.Len(t, ios, 16)
	for i, io := range ios {
		require.Equal(t, i < 12, io.Load, "I/O %d", i)
	}
	// As long as both wait it stays so, whichever ends.
	for range 30 {
		r.done(ios[0])
		ios = append(ios[1:], r.handed()...)
		loads := 0
		for _, io := range ios {
			if io.Load {
				loads++
			}
		}
		require.Len(t, ios, 16)
		require.LessOrEqual(t, loads, 12)
		require.GreaterOrEqual(t, loads, 4)
	}
}

func TestBytesInFlightAreBounded(t *testing.T) {
	r := busy(t, func(c *Config) { c.MaxInFlight, c.MaxInFlightBytes, c.IOSize = 64, 40*BlockSize, 4*BlockSize })
	ios := r.handed()
	var loads, stores int64
	for _, io := range ios {
		if io.Load {
			loads += io.Mem.Len
		} else {
			stores += io.Mem.Len
		}
	}
	require.LessOrEqual(t, loads+stores, int64(40*BlockSize))
	require.GreaterOrEqual(t, loads, int64(24*BlockSize))
	require.GreaterOrEqual(t, stores, int64(8*BlockSize))
}

func TestAnIOLargerThanTheLimitIsStillDone(t *testing.T) {
	r := newRig(t, 6, func(c *Config) { c.MaxInFlightBytes = 1 })
	r.store(1, 100000)
	r.sees(1, 100000)
}

func TestManyGroupsAreInFlightAtOnce(t *testing.T) {
	r := newRig(t, 6, func(c *Config) { c.SegmentSize, c.Size = 1024*BlockSize, 6*1024*BlockSize })
	r.run()
	for n := range 8 {
		r.put(n, 100000)
		r.l.Flush()
	}
	payloads := 0
	for _, io := range r.handed() {
		if io.Kind == IOWrite && !io.Mem.Own {
			payloads++
		}
	}
	require.Equal(t, 8, payloads)
	require.Equal(t, 8, len(r.l.groups)-len(r.l.groupFree))
}

func TestManyDeletesShareABlock(t *testing.T) {
	r := newRig(t, 6, nil)
	for n := range 40 {
		r.store(n, 10)
	}
	r.run()
	before := r.l.Stats().WriteBytes
	var ns []int
	for n := range 40 {
		ns = append(ns, n)
	}
	tok := r.delete(ns...)
	r.run()
	require.Equal(t, ResultOK, r.ended[tok].Result)
	require.EqualValues(t, BlockSize, r.l.Stats().WriteBytes-before)
	require.EqualValues(t, 40, r.l.Stats().Tombstones)
}

// A flatDisk carries I/Os out without an allocation.
type flatDisk struct {
	r     *rig
	bytes []byte
}

func (d *flatDisk) mem(m Mem) []byte {
	if m.Own {
		return d.r.cfg.Arena[m.Off:][:m.Len]
	}
	return d.r.pool[m.Off:][:m.Len]
}

func (d *flatDisk) done(io *IO) {
	at := int64(io.Addr.Segment)*d.r.cfg.SegmentSize + io.Addr.Off
	res, sum := io.Mem.Len, uint64(0)
	switch io.Kind {
	case IORead:
		copy(d.mem(io.Mem), d.bytes[at:])
	case IOWrite:
		copy(d.bytes[at:], d.mem(io.Mem))
	case IOSum:
		sum = xxh3.Hash(d.mem(io.Mem))
	case IOCopy:
		copy(d.mem(io.Mem), d.mem(io.From))
	case IOCreate, IOSync, IORemove, IOSpace:
		res = 0
	}
	d.r.l.Done(io.ID, res, sum)
}

// turn is a whole turn of a driver, outcomes included.
func (d *flatDisk) turn() {
	d.r.l.Flush()
	for {
		io, ok := d.r.l.NextIO()
		if !ok {
			break
		}
		d.done(io)
	}
	for {
		if _, ok := d.r.l.Outcome(); !ok {
			return
		}
	}
}

func TestACycleAllocatesNothing(t *testing.T) {
	for _, size := range []int64{40000, 3000} {
		cycleAllocates(t, size)
	}
}

func cycleAllocates(t *testing.T, size int64) {
	r := newRig(t, 6, func(c *Config) { c.Size, c.SegmentSize = 6*512*BlockSize, 512*BlockSize })
	d := &flatDisk{r: r, bytes: make([]byte, r.cfg.Size)}
	d.turn()
	n, reads := 0, 0
	keys := make([]Key, 1)
	cycle := func() {
		n++
		keys[0] = key(n % 100)
		if !r.l.Put(&keys[0], Mem{Len: rigSlot}, size, 1) {
			t.Fatal("refused")
		}
		d.turn()
		for _, k := range []int{n % 100, 777} { // the second is read often and put seldom: it is reinserted
			keys[0] = key(k)
			if r.l.Read(&keys[0], Mem{Len: rigSlot}, 2) {
				reads++
			} else if k == 777 && !r.l.Put(&keys[0], Mem{Len: rigSlot}, size, 1) {
				t.Fatal("refused")
			}
			d.turn()
		}
		keys[0] = key(n % 100)
		if n%3 == 0 && !r.l.Delete(keys, 3) {
			t.Fatal("not fenced")
		}
		d.turn()
	}
	for range 4000 { // several times round the store
		cycle()
	}
	s := r.l.Stats()
	require.Positive(t, s.EvictedSegments)
	require.Positive(t, s.Reinserted)
	require.EqualValues(t, reads, s.Reads)
	require.Zero(t, testing.AllocsPerRun(4000, cycle))
	require.NoError(t, r.l.CheckInvariants())
}

func BenchmarkPutAndRead(b *testing.B) {
	t := &testing.T{}
	r := newRig(t, 8, func(c *Config) {
		c.Size, c.SegmentSize, c.MaxEntries = 32*16384*BlockSize, 16384*BlockSize, 100000
	})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		k := key(n % 5000)
		for range 16 {
			r.l.PutSummed(&k, Mem{Len: rigSlot}, 100000, 7, 1)
		}
		for !r.l.Idle() {
			r.l.Flush()
			for {
				io, ok := r.l.NextIO()
				if !ok {
					break
				}
				if io.Kind == IOWrite {
					r.l.Done(io.ID, io.Mem.Len, 0)
				} else {
					r.l.Done(io.ID, 0, 0)
				}
			}
		}
		for {
			if _, ok := r.l.Outcome(); !ok {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(16*b.N), "ns/put")
}

// BenchmarkFind is what a key costs that is on disk: asked for by itself, and in a request of 512. Keys come in random order.
func BenchmarkFind(b *testing.B) {
	const request = 512
	for _, records := range []int{1e3, 1e4, 1e5, 1e6} {
		l := &Log{index: newIndex(&Config{MaxEntries: records, HashMask: ^uint64(0)}, 1)}
		keys := make([]Key, records)
		for i, n := range rand.New(rand.NewPCG(1, 1)).Perm(records) {
			keys[i] = key(n)
		}
		for n := range records {
			k := key(n)
			l.index.insert(l.index.digest(&k), &record{key: k, seq: 1, at: 1, kind: recordPut}, 0)
		}
		at := 0
		next := func(n int) []Key {
			if at+n > len(keys) {
				at = 0
			}
			at += n
			return keys[at-n : at]
		}
		b.Run(fmt.Sprintf("single/records=%d", records), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := l.Find(&next(1)[0]); !ok {
					b.Fatal("lost")
				}
			}
		})
		b.Run(fmt.Sprintf("batch/records=%d", records), func(b *testing.B) {
			b.ReportAllocs()
			var found [request]bool
			for n := 0; n < b.N; n += request { // ns/op is of one key
				l.FindAll(next(request), found[:])
				if !found[n%request] {
					b.Fatal("lost")
				}
			}
		})
	}
}

// Who reads little is not held up by who reads much: they take turns, piece by piece.
func TestReadersTakeTurns(t *testing.T) {
	r := newRig(t, 6, func(c *Config) { bigger(c); c.MaxInFlight = 4 })
	for n := range 8 {
		r.store(n, 200_000)
	}
	asked := map[Token]uint8{}
	ask := func(class uint8, n int) {
		k := key(n)
		r.tok++
		asked[r.tok] = class
		require.True(t, r.l.ReadFor(class, &k, Mem{Off: (8 + int64(n)) * rigSlot, Len: rigSlot}, r.tok))
	}
	for n := range 7 {
		ask(1, n)
	}
	ask(2, 7)
	before := 0
	for ended := false; !ended; {
		io, ok := r.l.NextIO()
		require.True(t, ok)
		r.done(*io)
		for {
			o, ok := r.l.Outcome()
			if !ok {
				break
			}
			require.Equal(t, ResultOK, o.Result)
			if asked[o.Token] == 2 {
				ended = true
			} else if !ended {
				before++
			}
		}
	}
	require.LessOrEqual(t, before, 1)
	r.run()
}
