package l1

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

func TestASumInPiecesIsTheSum(t *testing.T) {
	require.True(t, hasherStops, "the hasher is another one: sums are not interrupted any more")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 4*sumPiece)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	lengths := []int{0, 1, sumPiece, len(b)}
	for _, around := range []int{sumPiece + sumKept, 2*sumPiece + sumKept, 2*sumPiece + 1024, 2*sumPiece + 64, 2 * sumPiece} {
		lengths = append(lengths, around-1, around, around+1)
	}
	for range 20 {
		lengths = append(lengths, rng.IntN(len(b)))
	}
	for _, n := range lengths {
		stops := 0
		sum, err := SumPieces(b[:n], func() { stops++ })
		require.NoError(t, err)
		require.Equal(t, xxh3.Hash(b[:n]), sum, "%d bytes", n)
		require.Equal(t, max(0, n-sumKept-1)/sumPiece, stops, "%d bytes", n)
	}
}
