package benchmarks

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsFilledMatches(t *testing.T) {
	key := BlockKey(7)
	for _, size := range []int{0, 1, 7, 8, 4095, 4096, 4097, 65536, 3*4096 + 5} {
		p := make([]byte, size)
		Fill(&key, p)
		require.Zero(t, Mismatches(&key, p), size)
	}
}

func TestEveryWrongByteIsCounted(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	key := BlockKey(8)
	p := make([]byte, 3*4096+77)
	for range 200 {
		Fill(&key, p)
		spoiled := map[int]bool{}
		for range 1 + r.IntN(20) {
			i := r.IntN(len(p))
			if !spoiled[i] {
				p[i] ^= byte(1 + r.IntN(255))
				spoiled[i] = true
			}
		}
		require.Equal(t, len(spoiled), Mismatches(&key, p))
	}
}

func TestOtherBlocksAndMovedPagesDiffer(t *testing.T) {
	key, other := BlockKey(1), BlockKey(2)
	p := make([]byte, 2*4096)
	Fill(&key, p)
	require.Greater(t, Mismatches(&other, p), 8000)
	swapped := append(append([]byte{}, p[4096:]...), p[:4096]...)
	require.Greater(t, Mismatches(&key, swapped), 8000)
	require.Greater(t, Mismatches(&key, make([]byte, 8192)), 8000)
}

func BenchmarkFill(b *testing.B) {
	key, p := BlockKey(1), make([]byte, 64<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		Fill(&key, p)
	}
}

func BenchmarkMismatches(b *testing.B) {
	key, p := BlockKey(1), make([]byte, 64<<10)
	Fill(&key, p)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if Mismatches(&key, p) != 0 {
			b.Fatal("a block differs from itself")
		}
	}
}
