package table

import "math"

const (
	// speeds is how many half-lives a frequency is kept for.
	speeds = 5
	// rates is how many half-lives objects can be ordered by: rate 2k is what is kept, and
	// rate 2k+1 lies between that and the next.
	rates = 2*speeds - 1
	// octave is 1 in the logarithms to base 2 that frequencies are kept as.
	octave = 2048
	// octavesMax is where the logarithms end.
	octavesMax = 31
	// stepBits is the resolution of the table of sums, in bits of octave left out.
	stepBits = 5
)

// halfLives are the half-lives of the frequencies, in uses of the cache for each
// object that it has room for. Neighbours are a factor of 4 apart: what lies
// between two is made of them, see frequency.
var halfLives = [speeds]uint64{2, 8, 32, 128, 512}

// A trait is what is remembered of an object's uses: when the last one was, and
// for each half-life the logarithm of their number, a use counting half as much
// after that time. The last use counts 1, so that no logarithm is negative.
type trait struct {
	low, high uint16 // of the stamp; a uint32 would cost padding
	f         [speeds]uint16
}

// stamp is when the last use was.
func (t *trait) stamp() uint32 { return uint32(t.high)<<16 | uint32(t.low) }

func (t *trait) setStamp(now uint32) { t.low, t.high = uint16(now), uint16(now>>16) }

// newTrait is that of one use, at a time.
func newTrait(at uint32) (t trait) {
	t.setStamp(at)
	return t
}

// sums has log2(1+2^-d) for d from 0 on.
var sumTable = newSumTable()

func newSumTable() (t [16 * octave >> stepBits]uint16) {
	for i := range t {
		d := (float64(i) + 0.5) * (1 << stepBits) / octave
		t[i] = uint16(math.Round(math.Log2(1+math.Exp2(-d)) * octave))
	}
	return t
}

// plusOne returns log2(1+2^x).
func plusOne(x int64) uint16 {
	d, big := uint64(-x), uint64(0)
	if x > 0 {
		d, big = uint64(x), uint64(x)
	}
	if d >>= stepBits; d < uint64(len(sumTable)) {
		big += uint64(sumTable[d])
	}
	return uint16(min(big, octavesMax*octave))
}

// A scale is the half-lives in uses, for a room.
type scale struct {
	room uint64
	half [rates]uint64
	loss [speeds]uint64 // what a use takes off the logarithm, in 2^-32
}

// fit follows the room; small changes are not worth it.
func (s *scale) fit(room int) {
	r := uint64(max(room, 1))
	if r <= s.room+s.room/16 && r+s.room/16 >= s.room {
		return
	}
	s.room = r
	for k, h := range halfLives {
		s.half[2*k] = h * r
		s.loss[k] = octave << 32 / s.half[2*k]
		if 2*k+1 < rates {
			s.half[2*k+1] = 2 * h * r
		}
	}
}

// use counts one use now.
func (s *scale) use(t *trait, now uint32) {
	age := uint64(now - t.stamp())
	t.setStamp(now)
	if age < 32*s.half[0] { // most often: not even the shortest is forgotten
		for k := range t.f {
			t.f[k] = plusOne(int64(t.f[k]) - int64(age*s.loss[k]>>32))
		}
		return
	}
	for k, f := range t.f {
		x := int64(-32 * octave)
		if age < 32*s.half[2*k] {
			x = max(x, int64(f)-int64(age*s.loss[k]>>32))
		}
		t.f[k] = plusOne(x)
	}
}

// byAge is the rate of no half-life: only the last use counts.
const byAge = -1

// value orders traits by frequency of rate k, the least first, in uses: how
// much later a single use would have to be for the same.
func (s *scale) value(t *trait, k int, now uint32) int64 {
	v := -int64(now - t.stamp())
	if k != byAge {
		v += int64(uint64(t.frequency(k)) * s.half[k] / octave)
	}
	return v
}

// grades is how many steps of a quarter octave a frequency has.
const grades = 64

// grade is the step of rate k.
func (t *trait) grade(k int) uint32 { return min(t.frequency(k)/(octave/4), grades-1) }

// frequency is the logarithm of rate k. Between two half-lives that differ by a factor of 4 it
// is what both together say, such that it loses by age what the one between them, twice the
// shorter, does: 1/3 of the one and 2/3 of the other.
func (t *trait) frequency(k int) uint32 {
	f := uint32(t.f[k/2])
	if k&1 == 0 {
		return f
	}
	return (f + 2*uint32(t.f[k/2+1])) / 3
}
