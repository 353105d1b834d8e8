package benchmarks

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAJournalTellsRightFromWrong(t *testing.T) {
	store := func(version uint64, keys ...uint32) *Saying {
		return &Saying{Say: SayStore, Keys: keys, Version: version}
	}
	stored := func(keys ...uint32) *Saying { return &Saying{Say: SayDone, Stored: keys} }
	deleting := func(keys ...uint32) *Saying { return &Saying{Say: SayDelete, Keys: keys} }
	done, clearing := &Saying{Say: SayDone}, &Saying{Say: SayClear}
	for name, c := range map[string]struct {
		said    []*Saying
		right   []uint64 // versions of key 1 that may be served
		phantom []uint64
	}{
		"nothing was stored":         {nil, []uint64{0}, []uint64{1}},
		"a store":                    {[]*Saying{store(1, 1), stored(1)}, []uint64{0, 1}, []uint64{2}},
		"a store not acknowledged":   {[]*Saying{store(1, 1)}, []uint64{0, 1}, []uint64{2}},
		"a store that was refused":   {[]*Saying{store(1, 1, 2), stored(2)}, []uint64{0}, []uint64{1}},
		"a store beside the first":   {[]*Saying{store(1, 1), stored(1), store(2, 1), stored()}, []uint64{0, 1}, []uint64{2}},
		"a delete":                   {[]*Saying{store(1, 1), stored(1), deleting(1), done}, []uint64{0}, []uint64{1}},
		"a delete not acknowledged":  {[]*Saying{store(1, 1), stored(1), deleting(1)}, []uint64{0, 1}, []uint64{2}},
		"a delete of another":        {[]*Saying{store(1, 1), stored(1), deleting(2), done}, []uint64{0, 1}, nil},
		"a new version":              {[]*Saying{store(1, 1), stored(1), deleting(1), done, store(2, 1), stored(1)}, []uint64{0, 2}, []uint64{1}},
		"a new one in doubt":         {[]*Saying{store(1, 1), stored(1), deleting(1), done, store(2, 1)}, []uint64{0, 2}, []uint64{1}},
		"a clear":                    {[]*Saying{store(1, 1), stored(1), clearing, done}, []uint64{0}, []uint64{1}},
		"a clear not acknowledged":   {[]*Saying{store(1, 1), stored(1), clearing}, []uint64{0, 1}, nil},
		"a delete that was refused":  {[]*Saying{store(1, 1), stored(1), deleting(1), {Say: SayFailed}}, []uint64{0, 1}, nil},
		"a delete, a store in doubt": {[]*Saying{store(1, 1), deleting(1)}, []uint64{0, 1}, []uint64{2}},
	} {
		judge := func(version uint64, damaged bool) *journal {
			j := newJournal(0, 3)
			for _, s := range c.said {
				j.hear(s)
			}
			j.settled(1, version, damaged)
			return j
		}
		for _, v := range c.right {
			j := judge(v, false)
			require.Zero(t, j.phantom+j.corrupt+j.revived, "%s: %d", name, v)
		}
		for _, v := range c.phantom {
			require.EqualValues(t, 1, judge(v, false).phantom, "%s: %d", name, v)
			require.EqualValues(t, 1, judge(v, true).revived, "%s: %d", name, v)
		}
		require.EqualValues(t, 1, judge(badVersion, false).corrupt, name)
		require.EqualValues(t, 1, judge(badVersion, true).corrupt, name, "damage excuses no wrong bytes")
	}
}

func TestAJournalNotesWhatIsThereAgain(t *testing.T) {
	j := newJournal(0, 1)
	j.hear(&Saying{Say: SayStore, Keys: []uint32{0}, Version: 1})
	j.settled(0, 0, false)
	j.settled(0, 1, false)
	require.EqualValues(t, 1, j.reappeared)
	require.Zero(t, j.phantom)
}

// An evicted version may be back after a kill, though another was stored meanwhile: nobody deleted it. While the server
// lives, and when it was deleted, it may not.
func TestAnEvictedVersionMayComeBackWithAKill(t *testing.T) {
	begin := func() *journal {
		j := newJournal(0, 1)
		for version := uint64(1); version <= 2; version++ {
			j.hear(&Saying{Say: SayStore, Keys: []uint32{0}, Version: version})
			j.hear(&Saying{Say: SayDone, Stored: []uint32{0}})
		}
		return j
	}
	read := func(j *journal, version uint64) {
		j.hear(&Saying{Say: SayRead, Keys: []uint32{0}, Found: []uint64{version}})
	}
	j := begin()
	read(j, 2)
	require.Zero(t, j.phantom)
	read(j, 1)
	require.EqualValues(t, 1, j.phantom, "the server has not been killed")

	j = begin()
	j.settled(0, 1, false)
	require.EqualValues(t, 1, j.returned)
	read(j, 1)
	require.Zero(t, j.phantom)
	j.settled(0, 2, false)
	require.EqualValues(t, 1, j.phantom, "only one of the two is there")

	j = begin()
	j.settled(0, 0, false) // there was no memory for it
	j.settled(0, 2, false)
	require.Zero(t, j.phantom+j.returned)
	j.settled(0, 1, false)
	require.EqualValues(t, 1, j.phantom)

	j = begin()
	j.hear(&Saying{Say: SayDelete, Keys: []uint32{0}})
	j.hear(&Saying{Say: SayDone})
	j.settled(0, 1, false)
	require.EqualValues(t, 1, j.phantom, "it was deleted")
	require.Zero(t, j.returned)
}

func TestAVersionIsKnownByItsBytes(t *testing.T) {
	const largest = 64 << 10
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	scratch := make([]byte, largest)
	for range 300 {
		worker, n, version := r.IntN(3), r.Uint32N(100), 1+r.Uint64N(1<<30)
		p := make([]byte, tortureSize(worker, n, version, largest))
		fillVersion(p, worker, n, version)
		require.Equal(t, version, readVersion(p, worker, n, largest, scratch))
		require.EqualValues(t, uint64(badVersion), readVersion(p, worker, n+1, largest, scratch), "of another key")
		require.EqualValues(t, uint64(badVersion), readVersion(p[:len(p)-1], worker, n, largest, scratch), "short")
		at := r.IntN(len(p))
		p[at] ^= 1 << r.IntN(8)
		require.EqualValues(t, uint64(badVersion), readVersion(p, worker, n, largest, scratch), "bit of byte %d flipped", at)
	}
}

func TestHarmChangesSegmentFilesOnly(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	d, err := harm(r, dir)
	require.NoError(t, err)
	require.Zero(t, d, "there is nothing to harm")
	content := make([]byte, 1<<20)
	for _, name := range []string{"seg-00000001.slc", "seg-00000002.slc", "FORMAT"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	var all damage
	for range 20 {
		d, err := harm(r, dir)
		require.NoError(t, err)
		all.flips += d.flips
		all.cuts += d.cuts
		for _, name := range []string{"seg-00000001.slc", "seg-00000002.slc"} { // for the next
			path := filepath.Join(dir, name)
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			if d.cuts == 0 && d.flips == 1 {
				require.Len(t, got, len(content))
			}
			require.NoError(t, os.WriteFile(path, content, 0o600))
		}
	}
	require.Positive(t, all.flips)
	require.Positive(t, all.cuts)
	got, err := os.ReadFile(filepath.Join(dir, "FORMAT"))
	require.NoError(t, err)
	require.Equal(t, content, got)
}

func TestTheMedianIsTheMiddle(t *testing.T) {
	require.InDelta(t, 2, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
	require.Zero(t, median(nil))
}
