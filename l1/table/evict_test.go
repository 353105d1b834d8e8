package table

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// keyOf returns one of 2^64 keys.
func keyOf(n uint64) (k Key) {
	binary.LittleEndian.PutUint64(k.Hash[:], n)
	return k
}

func newTable(units int64, objects int) *Table {
	t := New(Config{Size: units * Unit, MaxObjects: objects, Seed: 7})
	t.Grow(units * Unit)
	return t
}

// put stores a clean object, asking as long as it is told to.
func put(t testing.TB, tab *Table, n uint64, size int64) (Ref, Result) {
	t.Helper()
	k := keyOf(n)
	for range 1 << 20 {
		r, _, res := tab.Stage(&k, size)
		if res == Again {
			continue
		}
		if res == Staged {
			tab.Publish(r, false)
		}
		return r, res
	}
	t.Fatal("asking does not end")
	return 0, NoSpace
}

func found(tab *Table, n uint64) bool {
	k := keyOf(n)
	_, _, ok := tab.Find(&k)
	return ok
}

// A pool that could be reserved only in part has room for what that part holds.
func TestTheRoomIsOfThePoolThatThereIs(t *testing.T) {
	tab := New(Config{Size: 200 * Unit, MaxObjects: 1000, Seed: 7})
	tab.Grow(100 * Unit)
	for n := range uint64(100) {
		put(t, tab, n, Unit)
	}
	require.Equal(t, 100, tab.room())

	tab = New(Config{Size: 200 * Unit, MaxObjects: 50})
	require.Equal(t, 50, tab.room(), "of as many objects as there are entries")
	tab.Grow(100 * Unit)
	put(t, tab, 1, Unit)
	require.Equal(t, 50, tab.room())
}

func TestTrimmingGoesInBoundedSteps(t *testing.T) {
	tab := newTable(1000, 1000)
	for n := range uint64(1000) {
		put(t, tab, n, Unit)
	}
	calls, before := 1, uint64(0)
	for ; !tab.Trim(10 * Unit); calls++ {
		evicted := tab.Usage().Evictions - before
		require.Positive(t, evicted)
		require.LessOrEqual(t, evicted, uint64(workMax/evictionWork))
		before += evicted
	}
	require.Greater(t, calls, 10)
	require.Equal(t, 10*Unit, tab.Usage().Used)
	r, _ := put(t, tab, 1, Unit)
	tab.Hold(r)
	require.False(t, tab.Trim(0), "one is held")
	require.Equal(t, Unit, tab.Usage().Used)
}

func TestOldestGoesFirstAndATouchSavesIt(t *testing.T) {
	tab := newTable(40, 100)
	refs := map[uint64]Ref{}
	for n := range uint64(10) {
		refs[n], _ = put(t, tab, n, 4*Unit)
	}
	tab.Touch(refs[0])
	tab.Hold(refs[2])
	tab.Hold(refs[3])
	tab.Release(refs[3])
	// The order of leaving is now 1, 4, 5, 6, 7, 8, 9, 0, 3.
	for i, gone := range []uint64{1, 4, 5, 6, 7, 8, 9, 0, 3} {
		require.True(t, found(tab, gone))
		_, res := put(t, tab, 100+uint64(i), 4*Unit)
		require.Equal(t, Staged, res)
		require.False(t, found(tab, gone), "%d should have gone", gone)
		require.Equal(t, uint64(i+1), tab.Usage().Evictions)
		require.NoError(t, tab.CheckInvariants())
	}
	require.True(t, found(tab, 2), "held")
}

func TestHeldDirtyStagedAndLoadingAreNeverEvicted(t *testing.T) {
	tab := newTable(5, 100)
	kinds := []func(*Table, *Key){
		func(tab *Table, k *Key) { r, _, _ := tab.Stage(k, Unit); tab.Publish(r, false); tab.Hold(r) },
		func(tab *Table, k *Key) { r, _, _ := tab.Stage(k, Unit); tab.Publish(r, true) },
		func(tab *Table, k *Key) { tab.Stage(k, Unit) },
		func(tab *Table, k *Key) { tab.Load(k, Unit) },
		func(tab *Table, k *Key) { r, _, _ := tab.Stage(k, Unit); tab.Quarantine(r) },
	}
	for i, make := range kinds {
		k := keyOf(uint64(i))
		make(tab, &k)
	}
	_, res := put(t, tab, 100, 1)
	require.Equal(t, NoSpace, res)
	require.Zero(t, tab.Usage().Evictions)
	require.NoError(t, tab.CheckInvariants())

	k := keyOf(1)
	r, _, _ := tab.Find(&k)
	tab.Cleaned(r)
	_, res = put(t, tab, 100, 1)
	require.Equal(t, Staged, res)
	require.False(t, found(tab, 1))
}

func TestNothingIsEvictedForWhatCannotFit(t *testing.T) {
	tab := newTable(100, 100)
	for n := range uint64(20) {
		r, _ := put(t, tab, n, 5*Unit)
		if n%2 == 0 {
			tab.Hold(r)
		}
	}
	_, res := put(t, tab, 100, 51*Unit)
	require.Equal(t, NoSpace, res)
	require.Zero(t, tab.Usage().Evictions)
	_, res = put(t, tab, 100, 100*Unit+1)
	require.Equal(t, TooLarge, res)
	for _, size := range []int64{-1, -1 << 63, 1<<63 - 1, 1 << 62} {
		_, res = put(t, tab, 100, size)
		require.Equal(t, TooLarge, res)
	}
	require.Zero(t, tab.Usage().Evictions)
}

func TestMemoryNotReadyIsNoSpace(t *testing.T) {
	tab := New(Config{Size: 100 * Unit, MaxObjects: 10})
	_, res := put(t, tab, 1, 60*Unit)
	require.Equal(t, NoSpace, res)
	tab.Grow(60 * Unit)
	_, res = put(t, tab, 1, 60*Unit)
	require.Equal(t, Staged, res)
	require.Equal(t, 60*Unit, tab.Usage().Ready)
	require.Equal(t, 100*Unit, tab.Usage().Capacity)
}

func TestZeroLengthObjectsHoldNoMemory(t *testing.T) {
	tab := newTable(1, 10)
	_, res := put(t, tab, 1, Unit)
	require.Equal(t, Staged, res)
	r, res := put(t, tab, 2, 0)
	require.Equal(t, Staged, res)
	require.Equal(t, Extent{}, tab.Extent(r))
	require.Equal(t, Unit, tab.Usage().Used)
	require.Equal(t, 2, tab.Usage().Objects)
	require.Zero(t, tab.Usage().Evictions)
	require.NoError(t, tab.CheckInvariants())
	_, res = put(t, tab, 3, Unit)
	require.Equal(t, Staged, res)
	require.True(t, found(tab, 2), "it is not in the way")
}

func TestEntriesRunOutBeforeBytes(t *testing.T) {
	tab := newTable(100, 3)
	var refs []Ref
	for n := range uint64(3) {
		r, _ := put(t, tab, n, Unit)
		refs = append(refs, r)
	}
	_, res := put(t, tab, 3, 0)
	require.Equal(t, Staged, res)
	require.False(t, found(tab, 0), "the oldest gave its entry")
	tab.Hold(refs[1])
	tab.Hold(refs[2])
	r, _ := put(t, tab, 4, 0)
	tab.Hold(r)
	_, res = put(t, tab, 5, 0)
	require.Equal(t, NoSpace, res)
	require.Equal(t, 3, tab.Usage().Objects)
	require.NoError(t, tab.CheckInvariants())
}

func TestEverythingIsEvictedForAnObjectAsLargeAsThePool(t *testing.T) {
	tab := newTable(10_000, 20_000)
	for n := range uint64(10_000) {
		put(t, tab, n, Unit)
	}
	k := keyOf(1 << 40)
	calls, before := 0, uint64(0)
	for {
		_, _, res := tab.Stage(&k, 10_000*Unit)
		calls++
		got := tab.Usage().Evictions
		require.LessOrEqual(t, got-before, uint64(workMax/evictionWork))
		require.Greater(t, got, before, "every call makes progress")
		if res == Staged {
			break
		}
		require.Equal(t, Again, res)
		before = got
	}
	require.Equal(t, uint64(10_000), tab.Usage().Evictions)
	require.LessOrEqual(t, calls, 10_000*evictionWork/workMax+10)
	require.NoError(t, tab.CheckInvariants())
}

func TestLargeObjectDoesNotEmptyAPoolOfSmallOnes(t *testing.T) {
	const units = 64 << 10
	for seed := range uint64(2) {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 2))
		tab := newTable(units, units)
		refs := make([]Ref, units)
		for n := range refs {
			refs[n], _ = put(t, tab, uint64(n), Unit)
		}
		rng.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
		for i, r := range refs {
			tab.Touch(r)
			if i%1000 == 0 {
				tab.Hold(r)
			}
		}
		const need = 800
		_, res := put(t, tab, 1<<40, need*Unit)
		require.Equal(t, Staged, res)
		evictions := tab.Usage().Evictions
		t.Logf("%d evictions for %d units", evictions, need)
		require.LessOrEqual(t, evictions, uint64(6*need))
		require.NoError(t, tab.CheckInvariants())
	}
}

// TestAHoleGrowsByOneNeighbour: enough bytes are free, and the allocation fails for they are
// in pieces. Every second object of a full pool is gone; an object of one and a half costs one
// eviction at most, and the whole pool can be had at the end.
func TestAHoleGrowsByOneNeighbour(t *testing.T) {
	for _, policy := range policies {
		tab := New(Config{Size: 400 * Unit, MaxObjects: 1000, Policy: policy})
		tab.Grow(400 * Unit)
		for n := range uint64(100) {
			put(t, tab, n, 4*Unit)
		}
		for n := uint64(0); n < 100; n += 2 {
			k := keyOf(n)
			r, _, _ := tab.Find(&k)
			tab.Delete(r)
		}
		for n := range uint64(25) {
			_, res := put(t, tab, 1000+n, 6*Unit)
			require.Equal(t, Staged, res, "%v", policy)
			require.LessOrEqual(t, tab.Usage().Evictions, n+1, "%v", policy)
		}
		_, res := put(t, tab, 5000, 400*Unit)
		require.Equal(t, Staged, res, "%v", policy)
		require.NoError(t, tab.CheckInvariants())
	}
}

// A hole whose left neighbour went is still the same hole: what goes next is beside it, and not what is oldest.
func TestAHoleGrowsToTheLeft(t *testing.T) {
	const units = 100
	tab := New(Config{Size: units * Unit, MaxObjects: units + 1, Policy: PolicyLRU})
	tab.Grow(units * Unit)
	var refs [units]Ref
	for n := range refs {
		refs[n], _ = put(t, tab, uint64(n), Unit)
	}
	for n := range units - 1 { // the last of the pool is the oldest, then come those from its start on
		tab.Touch(refs[n])
	}
	for n := 5; n < units; n += 10 {
		tab.Delete(refs[n])
	}
	_, res := put(t, tab, 1000, 6*Unit)
	require.Equal(t, Staged, res)
	require.EqualValues(t, 5, tab.Usage().Evictions)
	for n, r := range refs {
		require.Equal(t, n < 94 && n%10 != 5, tab.Alive(r), "object %d", n)
	}
	require.NoError(t, tab.CheckInvariants())
}

func TestRoomBetweenHeldObjectsIsFoundIfThereIsAny(t *testing.T) {
	for seed := range uint64(20) {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 3))
		const units = 2000
		tab := newTable(units, units)
		for n := uint64(0); tab.Usage().Used < units*Unit; n++ {
			size := min(1+rng.Int64N(8), units-tab.Usage().Used/Unit)
			r, res := put(t, tab, n, size*Unit)
			require.Equal(t, Staged, res)
			if rng.IntN(30) == 0 {
				tab.Hold(r)
			}
		}
		run, longest := int64(0), int64(0)
		for at := uint32(0); at != nowhere; at = tab.memory.after(at) {
			if run += int64(tab.memory.length(at)); !tab.yields(at, false, nobody) {
				run = 0
			}
			longest = max(longest, run)
		}
		_, res := put(t, tab, 1<<40, (longest+1)*Unit)
		require.Equal(t, NoSpace, res)
		require.NoError(t, tab.CheckInvariants())

		// The longest run is all there is now, since asking for more emptied it.
		r, res := put(t, tab, 1<<41, longest*Unit)
		require.Equal(t, Staged, res)
		tab.Delete(r)
	}
}

func TestLongestRunIsFoundWhileThePoolIsFull(t *testing.T) {
	for seed := range uint64(20) {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 4))
		const units = 3000
		tab := newTable(units, units)
		refs := []Ref{}
		for n := uint64(0); tab.Usage().Used < units*Unit; n++ {
			r, _ := put(t, tab, n, min(1+rng.Int64N(20), units-tab.Usage().Used/Unit)*Unit)
			refs = append(refs, r)
		}
		rng.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
		for i, r := range refs {
			tab.Touch(r)
			if i%20 == 0 {
				tab.Hold(r)
			}
		}
		run, longest := int64(0), int64(0)
		for at := uint32(0); at != nowhere; at = tab.memory.after(at) {
			if run += int64(tab.memory.length(at)); !tab.yields(at, false, nobody) {
				run = 0
			}
			longest = max(longest, run)
		}
		_, res := put(t, tab, 1<<40, longest*Unit)
		require.Equal(t, Staged, res)
		require.NoError(t, tab.CheckInvariants())
		t.Logf("%d units, %d of %d objects evicted", longest, tab.Usage().Evictions, len(refs))
	}
}

func TestEachMeetsEveryIndexedObjectOnceInBoundedSteps(t *testing.T) {
	tab := newTable(1000, 500)
	want := map[Ref]bool{}
	all := 0
	for n := range 300 {
		k := keyOf(uint64(n))
		k.Namespace = uint64(n % 3)
		r, _, _ := tab.Stage(&k, Unit)
		switch n % 5 {
		case 0:
			tab.Abort(r)
			continue
		case 1:
			tab.Quarantine(r)
			continue
		case 2:
			tab.Publish(r, false)
		}
		all++
		if n%3 == 1 {
			want[r] = true
		}
	}
	got := map[Ref]bool{}
	dst := make([]Ref, 0, 7)
	for cursor, calls := uint32(0), 0; ; calls++ {
		require.Less(t, calls, 100)
		dst, cursor = tab.Each(1, false, cursor, 7, dst[:0])
		for _, r := range dst {
			require.False(t, got[r])
			got[r] = true
			tab.Delete(r)
		}
		if cursor == 0 {
			break
		}
	}
	require.Equal(t, want, got)
	dst, cursor := tab.Each(0, true, 0, 1000, nil)
	require.Zero(t, cursor)
	require.Len(t, dst, all-len(want))

	for limit := 1; limit <= all; limit++ { // also where a step ends before the last entry
		met := 0
		for cursor := uint32(0); ; {
			dst, cursor = tab.Each(0, true, cursor, limit, dst[:0])
			met += len(dst)
			if cursor == 0 {
				break
			}
		}
		require.Equal(t, all-len(want), met, "in steps of %d", limit)
	}

	tab = newTable(1, 1) // the first entry and the last are met too
	r, _ := put(t, tab, 1, 1)
	dst, cursor = tab.Each(0, false, 0, 1, nil)
	require.Equal(t, []Ref{r}, dst)
	require.Zero(t, cursor)
	require.NoError(t, tab.CheckInvariants())
}

func TestOneCallIsBoundedWhereNoCandidateIsGood(t *testing.T) {
	// Runs of evictable units between held ones, each run too short: every
	// candidate is looked at in vain.
	const units = 20_000
	tab := newTable(units, units)
	for n := range uint64(units) {
		r, _ := put(t, tab, n, Unit)
		if n%60 == 59 {
			tab.Hold(r)
		}
	}
	k := keyOf(1 << 40)
	for calls, before := 1, uint64(0); ; calls++ {
		_, _, res := tab.Stage(&k, 61*Unit)
		require.Greater(t, tab.Usage().Evictions, before)
		before = tab.Usage().Evictions
		require.LessOrEqual(t, calls, units)
		if res == NoSpace {
			break
		}
		require.Equal(t, Again, res)
	}
	require.Zero(t, tab.Usage().Evictable)
	require.NoError(t, tab.CheckInvariants())
}
