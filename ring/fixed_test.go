package ring_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/ring"
)

// aliased maps size bytes of a memfd of unit bytes again and again: as much to register as a pool of that size, for little memory.
// Bytes that are less than unit apart are different ones.
func aliased(t *testing.T, size, unit int) []byte {
	t.Helper()
	fd, err := unix.MemfdCreate("pool", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.Ftruncate(fd, int64(unit)))
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	for at := 0; at < size; at += unit {
		mapOver(t, mem[at:min(at+unit, size)], fd)
	}
	return mem
}

// Registering the pool as fixed buffers fails above 1 GiB a buffer, and values straddle the borders of the pieces: pools around that
// size are registered whole, in pieces, and what lies across each kind of border is written and read back as it was. Where memory
// cannot be registered the same is true without.
func TestPoolsAroundAGibibyteAreRegisteredInPieces(t *testing.T) {
	const gib, page = 1 << 30, 4096
	for _, engine := range both {
		for _, size := range []int{gib - page, gib, gib + page, 3 * gib} {
			t.Run(fmt.Sprintf("%v/%d", engine, size), func(t *testing.T) {
				mem := aliased(t, size, 16<<20)
				u := openEngine(t, engine, ring.Config{})
				err := u.RegisterMemory(mem)
				if engine == ring.EngineEpoll {
					require.ErrorIs(t, err, unix.EOPNOTSUPP)
					require.Zero(t, u.Stats().Registered)
				} else if err != nil {
					t.Logf("plain I/O: %v", err)
				} else {
					require.EqualValues(t, size, u.Stats().Registered)
				}
				fd := file(t, 0)
				for _, border := range []int{64 << 20, gib / 2, gib, 2 * gib, size - 200_000} {
					from, to := border-300_000, border+200_000
					if to > size {
						continue
					}
					p := mem[from:to]
					for i := range p {
						p[i] = byte(i * 7)
					}
					want := bytes.Clone(p)
					u.Write(ring.NewTag(1, 0), fd, 12345, p)
					require.EqualValues(t, len(p), next(t, u).Res)
					clear(p)
					u.Read(ring.NewTag(1, 0), fd, 12345, p)
					require.EqualValues(t, len(p), next(t, u).Res)
					require.True(t, bytes.Equal(want, p), "across %d", border)
				}
				s := u.Stats()
				require.Equal(t, s.Registered > 0, s.FixedIO > 0)
				require.Equal(t, s.Registered == 0, s.PlainIO > 0, "all of it is registered, or none")
			})
		}
	}
}

// A client punches holes: the kernel goes on with the pages that were registered, so that what is read from the disk does not come,
// and what is written to it is not what is there, until the memory is forgotten.
func TestPagesThatWereExchangedAreSeenWhenTheyAreForgotten(t *testing.T) {
	const size, hole = 1 << 20, 256 << 10
	for _, engine := range both {
		t.Run(engine.String(), func(t *testing.T) {
			mem := aliased(t, size, size)
			u := openEngine(t, engine, ring.Config{})
			for _, r := range [][]byte{mem[:size/2], mem[size/2:]} {
				if err := u.RegisterMemory(r); err != nil {
					t.Logf("plain I/O: %v", err)
				}
			}
			registered := u.Stats().Registered
			fd := file(t, 0)
			for i := range mem {
				mem[i] = byte(i*7 | 1)
			}
			want := bytes.Clone(mem)
			u.Write(ring.NewTag(1, 0), fd, 0, mem)
			require.EqualValues(t, size, next(t, u).Res)
			require.NoError(t, unix.Madvise(mem[size/2-hole:size/2+hole], unix.MADV_REMOVE))

			u.ForgetMemory(mem[size/2-1 : size/2]) // and nothing else
			u.ForgetMemory(mem[:0])
			require.Equal(t, registered/2, u.Stats().Registered)
			for _, at := range []int64{0, size / 2} {
				u.Read(ring.NewTag(1, 0), fd, at, mem[at:][:size/2])
				require.EqualValues(t, size/2, next(t, u).Res)
			}
			require.True(t, bytes.Equal(want[:size/2], mem[:size/2]))
			require.Equal(t, registered == 0, bytes.Equal(want[size/2:], mem[size/2:]), "of the rest the former pages are registered")

			u.ForgetMemory(mem)
			u.Read(ring.NewTag(1, 0), fd, 0, mem)
			require.EqualValues(t, size, next(t, u).Res)
			require.True(t, bytes.Equal(want, mem))
			require.Zero(t, u.Stats().Registered)
			u.Write(ring.NewTag(1, 0), fd, 0, mem[:4096])
			require.EqualValues(t, 4096, next(t, u).Res)
		})
	}
}
