package table

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainUse is what a use is, without anything that makes it quick.
func plainUse(s *scale, t *trait, now uint32) {
	age := uint64(now - t.stamp())
	for k, f := range t.f {
		x := int64(-32 * octave)
		if age < 32*s.half[2*k] {
			x = max(x, int64(f)-int64(age*s.loss[k]>>32))
		}
		d := max(x, -x) >> stepBits
		sum := max(x, 0)
		if d < int64(len(sumTable)) {
			sum += int64(sumTable[d])
		}
		t.f[k] = uint16(min(sum, octavesMax*octave))
	}
	t.setStamp(now)
}

// A use is the same however it is computed, for all rooms, ages and frequencies.
func TestAUseIsWhatItIsByDefinition(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var s scale
	for range 2000 {
		s.fit(1 + rng.IntN(1<<rng.IntN(24)))
		var a trait
		for k := range a.f {
			a.f[k] = uint16(rng.IntN(octavesMax*octave+1) >> rng.IntN(16))
		}
		a.setStamp(rng.Uint32())
		b := a
		now := a.stamp()
		for range 50 {
			now += rng.Uint32() >> rng.IntN(32)
			s.use(&a, now)
			plainUse(&s, &b, now)
			require.Equal(t, b, a)
		}
	}
}
