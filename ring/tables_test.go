package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOperationsMoveOnlyAsDrawn(t *testing.T) {
	legal := map[[2]opState]bool{
		{opFree, opLive}:     true,
		{opLive, opFree}:     true,
		{opLive, opPausing}:  true,
		{opLive, opSettling}: true,
		{opPausing, opFree}:  true,
		{opSettling, opFree}: true,
	}
	for from := range opStates {
		require.NotEqual(t, "invalid", from.String())
		for to := range opStates {
			o := op{state: from}
			if legal[[2]opState{from, to}] {
				o.moveTo(to)
				require.Equal(t, to, o.state)
				continue
			}
			require.PanicsWithValue(t, fmt.Sprintf("ring: operation moves from %v to %v", from, to), func() { o.moveTo(to) })
			require.Equal(t, from, o.state)
		}
	}
	require.Equal(t, "invalid", opStates.String())
}

func TestAnOperationIsFoundUntilItIsReleased(t *testing.T) {
	table := newOpTable(2, 3)
	lives := map[uint64]bool{}
	for range 100 {
		i := table.take(codeRead)
		j := table.take(codeRecv)
		require.NotEqual(t, i, j)
		require.Equal(t, 2, table.live())
		user := table.userOf(i)
		require.False(t, lives[user], "two lives of one name")
		lives[user] = true
		found, ok := table.find(user)
		require.True(t, ok)
		require.Equal(t, i, found)
		table.release(i)
		_, ok = table.find(user)
		require.False(t, ok)
		k := table.take(codeWrite) // the same entry
		require.Equal(t, i, k)
		_, ok = table.find(user)
		require.False(t, ok, "a former life is found")
		table.release(k)
		table.release(j)
	}
	for _, user := range []uint64{userIgnored, userWake, 5, 1 << 63} {
		_, ok := table.find(user)
		require.False(t, ok)
	}
	table.take(codeRead)
	table.take(codeSync)
	require.Panics(t, func() { table.take(codeWrite) })
	for range 3 {
		table.take(codeTimer)
	}
	require.Panics(t, func() { table.take(codeSend) })
	require.Panics(t, func() { table.release(table.take(codeAccept)) })
}

func TestTagTableAgreesWithAMap(t *testing.T) {
	const seed, size = 17, 64
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	table := newTagTable(size)
	model := map[Tag]uint32{}
	for step := range 100_000 {
		tag := NewTag(uint32(r.IntN(100)), uint32(r.IntN(2)))
		op, ok := table.find(tag)
		want, has := model[tag]
		if has != ok || has && want != op {
			t.Fatalf("step %d: tag %#x: got %d %v, want %d %v", step, tag, op, ok, want, has)
		}
		switch {
		case has && r.IntN(2) == 0:
			table.remove(tag)
			delete(model, tag)
		case has:
			if step%100 == 0 {
				require.Panics(t, func() { table.insert(tag, 1) })
			}
		case len(model) < size:
			op := r.Uint32() >> 1
			table.insert(tag, op)
			model[tag] = op
		}
	}
	for tag, want := range model {
		op, ok := table.find(tag)
		require.True(t, ok)
		require.Equal(t, want, op)
	}
	require.Panics(t, func() { table.remove(NewTag(1000, 0)) })
}

func TestTagsKeepTheirParts(t *testing.T) {
	tag := NewTag(0xfedcba98, 0x12345678)
	require.Equal(t, uint32(0xfedcba98), tag.Index())
	require.Equal(t, uint32(0x12345678), tag.Generation())
}

func TestKindsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for k := KindAccept; k <= KindWake; k++ {
		require.NotEqual(t, "invalid", k.String())
		require.False(t, seen[k.String()])
		seen[k.String()] = true
	}
	require.Equal(t, "invalid", (KindWake + 1).String())
}

func TestFixedMemoryIsCutIntoPieces(t *testing.T) {
	const base = 0x7f00_0000_0000
	var f fixedMemory
	piece := make([]byte, 1) // stands for each
	f.add(piece, base, base+fixedSize)
	f.add(piece, base+fixedSize, base+2*fixedSize)         // goes on
	f.add(piece, base+2*fixedSize, base+2*fixedSize+8192)  // the last, short
	f.add(piece, base+2*fixedSize+8192, base+3*fixedSize)  // adjacent, but what it follows is short
	f.add(piece, base-4096, base)                          // before all
	f.add(piece, base+10*fixedSize, base+10*fixedSize+512) // elsewhere
	f.add(piece, base+20*fixedSize, base+21*fixedSize)     // whole, elsewhere
	f.add(piece, base+30*fixedSize, base+31*fixedSize)     // and again
	f.add(piece, base+21*fixedSize, base+22*fixedSize)     // adjacent to the one before that, whose entry is not
	require.Len(t, f.ranges, 7)
	require.Equal(t, int64(6*fixedSize+4096+512), f.bytes)
	for _, c := range []struct {
		address uint64
		n       int
		entry   uint32
		in      int
	}{
		{base, 100, 0, 100},
		{base + fixedSize - 100, 1000, 0, 100},
		{base + fixedSize, 1000, 1, 1000},
		{base + fixedSize, 2 * fixedSize, 1, fixedSize},
		{base + 2*fixedSize + 8000, 1000, 2, 192},
		{base + 2*fixedSize + 8192, 1000, 3, 1000},
		{base - 4096, 8192, 4, 4096},
		{base - 1, 2, 4, 1},
		{base + 10*fixedSize, 1000, 5, 512},
		{base + 21*fixedSize - 10, 1000, 6, 10},
		{base + 21*fixedSize, 1000, 8, 1000},
	} {
		entry, in, ok := f.find(c.address, c.n)
		require.True(t, ok)
		require.Equal(t, c.entry, entry, "%#x", c.address)
		require.Equal(t, c.in, in, "%#x", c.address)
	}
	for _, address := range []uint64{0, base - 4097, base + 3*fixedSize, base + 10*fixedSize - 1, base + 10*fixedSize + 512} {
		_, _, ok := f.find(address, 1)
		require.False(t, ok, "%#x", address)
	}
	f.pieces[1] = nil // it could not be registered anew
	_, _, ok := f.find(base+fixedSize, 1)
	require.False(t, ok)
	require.True(t, f.overlaps(base-5000, base-4095))
	require.False(t, f.overlaps(base-5000, base-4096))
	require.False(t, f.overlaps(base+3*fixedSize, base+10*fixedSize))
}

// Memory is forgotten in pieces, those that have a byte of it and no others.
func TestOnlyThePiecesAroundAreForgotten(t *testing.T) {
	const pieces = 4
	mem, err := unix.Mmap(-1, 0, pieces*fixedSize, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	for _, c := range []struct {
		from, to int
		left     [pieces]bool
	}{
		{fixedSize, 2 * fixedSize, [pieces]bool{true, false, true, true}},
		{fixedSize + 4096, fixedSize + 8192, [pieces]bool{true, false, true, true}},
		{2*fixedSize - 1, 2*fixedSize + 1, [pieces]bool{true, false, false, true}},
		{0, pieces * fixedSize, [pieces]bool{}},
	} {
		u := Uring{q: &queue{fd: -1}} // the kernel knows of none
		for i := range pieces {
			piece := mem[i*fixedSize : (i+1)*fixedSize]
			u.fixed.add(piece, addressOf(piece), addressOf(piece)+fixedSize)
		}
		u.ForgetMemory(mem[c.from:c.to])
		bytes := int64(0)
		for i, left := range c.left {
			entry, _, ok := u.fixed.find(addressOf(mem[i*fixedSize:]), 1)
			require.Equal(t, left, ok, "piece %d after %d to %d", i, c.from, c.to)
			if ok {
				require.EqualValues(t, i, entry)
				bytes += fixedSize
			}
		}
		require.Equal(t, bytes, u.fixed.bytes)
	}
}

func TestConfigsThatDoNotFitAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Ops: -1},
		{Spin: -1},
		{Look: -1},
		{RecvBuffers: 1<<15 + 1},
		{RecvBufferSize: 1 << 20},
		{Ops: 1 << 16},
		{Control: 1 << 62},
		{Control: 1 << 15},
	} {
		_, err := New(cfg)
		require.Error(t, err, "%+v", cfg)
		require.NotErrorIs(t, err, ErrUnavailable)
	}
	for _, ops := range []int{0, 1, DefaultOps} {
		full := Config{Ops: ops, Control: ControlMax(ops), RecvBuffers: DefaultRecvBuffers}
		require.NoError(t, full.fits())
		full.Control++
		require.ErrorIs(t, full.fits(), ErrTooMany)
	}
	e, err := NewEpoll(Config{Control: 1 << 15})
	require.NoError(t, err, "it has no such bound")
	require.NoError(t, e.Close())
	cfg := Config{RecvBuffers: 5}
	require.NoError(t, cfg.complete())
	require.Equal(t, Config{
		Ops: DefaultOps, Control: DefaultControl, RecvBuffers: 8, RecvBufferSize: DefaultRecvBufferSize, Workers: DefaultWorkers,
	}, cfg)
}
