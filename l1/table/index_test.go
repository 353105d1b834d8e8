package table

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// The hash of a key is the library's, whatever it has in common with others.
func TestTheHashOfAKeyIsXXH3(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 1000 {
		var x index
		x.init(Config{MaxObjects: 10, Seed: rng.Uint64()})
		var b [48]byte
		for i := range b {
			b[i] = byte(rng.Uint32() >> rng.IntN(32))
		}
		k := Key{Namespace: binary.LittleEndian.Uint64(b[0:]), Layout: binary.LittleEndian.Uint64(b[8:]), Hash: [32]byte(b[16:])}
		require.Equal(t, uint32(xxh3.HashSeed(b[:], x.secret[0]-secret[0])), x.hashKey(&k))
	}
}

// A key is that of another only if all its bits are.
func TestKeysThatDifferInABit(t *testing.T) {
	var x index
	k := Key{Namespace: 1 << 40, Layout: 7, Hash: keyOf(5).Hash}
	s := x.stem(&k)
	require.True(t, k.has(&s, &k.Hash))
	for bit := range 8 * len(k.Hash) {
		h := k.Hash
		h[bit/8] ^= 1 << (bit % 8)
		require.False(t, k.has(&s, &h), bit)
	}
	for bit := range 64 {
		s := x.stem(&Key{Namespace: k.Namespace ^ 1<<bit, Layout: k.Layout})
		require.False(t, k.has(&s, &k.Hash), bit)
		s = x.stem(&Key{Namespace: k.Namespace, Layout: k.Layout ^ 1<<bit})
		require.False(t, k.has(&s, &k.Hash), bit)
	}
}

// A slot keeps what it has of an object however many objects there may be, and however far it is from its place.
func TestSlotsOfTablesOfAnySize(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for width := uint(1); width <= 30; width++ {
		x := index{object: width, far: 1<<min(placeBits, 32-width) - 1}
		for range 200 {
			h, place, i := rng.Uint32(), rng.Uint32N(40), rng.Uint32N(1<<width)
			s := x.mark(h, place) | slot(i)
			require.Equal(t, i, x.objectOf(s))
			require.True(t, x.marked(s, x.mark(h, place)))
			if place < x.far {
				require.False(t, x.marked(s, x.mark(h, place+1)), "width %d place %d", width, place)
			}
			if width+placeBits < 32 {
				require.False(t, x.marked(s, x.mark(h^1<<31, place)))
			}
		}
	}
}
