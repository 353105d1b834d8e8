package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// onDiskNow says whether the disk has a key of c's.
func (w *world) onDiskNow(c *client, name string) bool {
	o := w.keyOf(c, name)
	key, _ := w.e.diskKey(&o.Key)
	_, there := w.log.Find(&key)
	return there
}

func TestWhatIsSeenOnceIsNotWritten(t *testing.T) {
	for _, mode := range []AdmitMode{AdmitAll, AdmitSeenTwice, AdmitTinyLFU} {
		for _, write := range []WriteMode{WriteThrough, WriteBack} {
			t.Run(fmt.Sprint(mode, write), func(t *testing.T) {
				w := diskWorld(t, 16, Config{Admit: mode, Write: write, InstanceCap: math.MaxInt64})
				a := w.worker(1, 100)
				a.store(slotSize, names("once", 4)...)
				a.store(slotSize, names("used", 4)...)
				w.settle()
				w.advance(time.Second)
				w.settle()
				require.Equal(t, 4, a.hits(names("used", 4)...)) // a second sighting, in memory
				w.settle()
				for i := range 16 { // one-offs push all of them out
					a.prepareAndCommit(w, fmt.Sprint("flood", i))
				}
				w.settle()
				w.advance(time.Second)
				w.settle()
				for _, k := range names("used", 4) {
					require.True(t, w.onDiskNow(a, k), k)
				}
				for _, k := range names("once", 4) {
					require.Equal(t, mode == AdmitAll, w.onDiskNow(a, k), k)
				}
				if mode != AdmitAll {
					require.Zero(t, a.hits("once0"), "it is gone")
					for _, k := range names("once", 2) { // a second store is a second sighting
						a.prepareAndCommit(w, k)
					}
					w.settle()
					w.e.short = true // write-back: memory is short
					w.advance(time.Second)
					w.settle()
					require.True(t, w.onDiskNow(a, "once0"))
					require.True(t, w.onDiskNow(a, "once1"))
					require.Positive(t, w.e.counters.AdmitRefused)
				}
				require.Positive(t, w.e.counters.Admitted)
				require.Zero(t, w.e.counters.AdmitLate)
				w.baseline()
			})
		}
	}
}

// prepareAndCommit stores a value and lets work go on until there is memory for it.
func (c *client) prepareAndCommit(w *world, key string) {
	id := c.prepare(time.Minute, slotSize, key)
	w.settle()
	out := c.prepared(id)
	require.Equal(w.t, proto.StatusReserved, out.Results[0].Status, key)
	c.fill(out, key)
	require.Equal(w.t, proto.StatusOK, c.commit(out.Transfer))
	w.settle()
}

// A pin is a use of an object in memory, and so a sighting.
func TestWhatIsPinnedIsWritten(t *testing.T) {
	for _, mode := range []AdmitMode{AdmitSeenTwice, AdmitTinyLFU} {
		w := diskWorld(t, 16, Config{Admit: mode})
		a := w.worker(1, 100)
		a.store(slotSize, "pinned", "other")
		w.settle()
		w.advance(time.Second)
		w.settle()
		require.False(t, w.onDiskNow(a, "pinned"))
		require.Equal(t, proto.StatusOK, a.pinned(soft, "pinned"))
		w.flush()
		w.settle()
		require.True(t, w.onDiskNow(a, "pinned"), mode)
		require.False(t, w.onDiskNow(a, "other"), mode)
	}
}

// What a flush settles, or uses itself, is asked about in that flush: there need not be another one.
func TestAUseThatAFlushSettlesIsAskedAbout(t *testing.T) {
	const long = usesFew + 1
	w := diskWorld(t, 4*long, Config{Admit: AdmitTinyLFU, InstanceCap: math.MaxInt64})
	a := w.worker(1, 100)
	many := names("k", long)
	a.store(slotSize, many...)
	w.settle()
	require.EqualValues(t, long, w.e.counters.AdmitRefused)
	w.mute = true
	a.store(slotSize, "last")
	require.Len(t, w.opinions, 1)
	require.Equal(t, long-2, a.hits(many[:long-2]...)) // a second sighting of all but two
	opinion := w.opinions[0]
	w.events, w.opinions, w.mute = w.opinions[1:], nil, false
	opinion.Now = w.now
	w.e.Step(&opinion) // one is refused when its turn comes, in the flush of this turn
	in := proto.Lookup{Mode: proto.ModePrefix, Group: 1, Keys: testKeys(many...)}
	a.post(proto.OpLookup, 0, proto.AppendLookup(nil, &in), nil)
	w.settle()
	for _, k := range many {
		require.True(t, w.onDiskNow(a, k), k)
	}
	require.False(t, w.onDiskNow(a, "last"))
	require.Zero(t, w.e.counters.AdmitLate)
	w.baseline()
}

// An opinion that does not come in time is no reason to wait, and is none to refuse.
func TestALateOpinionMeansAdmit(t *testing.T) {
	w := diskWorld(t, 64, Config{Admit: AdmitTinyLFU, InstanceCap: math.MaxInt64})
	w.mute = true
	a := w.worker(1, 100)
	a.store(slotSize, names("k", 8)...)
	require.Zero(t, w.e.spilling, "it is waited for")
	at, ok := w.e.NextTick()
	require.True(t, ok)
	require.Equal(t, w.now+sightTime, at)
	w.now = at
	w.step(Event{Kind: EventTick})
	w.settle()
	require.EqualValues(t, 8, w.e.counters.AdmitLate)
	for _, k := range names("k", 8) {
		require.True(t, w.onDiskNow(a, k))
	}
	require.Len(t, w.opinions, 1)
	w.step(w.opinions[0]) // it says no, when it is of no use any more
	w.opinions = nil
	for i := range SightBatches + 1 { // and when the host has all that it is to have, nobody is asked
		a.store(slotSize, fmt.Sprint("more", i))
	}
	require.Len(t, w.opinions, SightBatches)
	require.Greater(t, w.e.counters.AdmitLate, uint64(8))
	for _, ev := range w.opinions {
		w.step(ev)
	}
	require.Panics(t, func() { w.e.onSighted(0, 0) }, "a second time")
	w.settle()
	w.advance(time.Second)
	w.settle()
	w.baseline()
}

// An opinion that does not come is no reason for turns of which nothing comes, while the object is not to go to disk yet, or cannot.
func TestALateOpinionKeepsNobodyBusy(t *testing.T) {
	for _, write := range []WriteMode{WriteThrough, WriteBack} {
		w := diskWorld(t, 64, Config{Admit: AdmitTinyLFU, Write: write, InstanceCap: math.MaxInt64})
		w.mute = true
		a := w.worker(1, 100)
		if write == WriteThrough {
			w.e.spilling += spillsMax // the log has all that it is to have
			w.quiet = true
		}
		a.store(slotSize, names("k", 8)...)
		for range 4 {
			w.advance(sightTime)
			at, ok := w.e.NextTick()
			require.True(t, !ok || at > w.now, "%v: a turn at %v, it is %v", write, at, w.now)
		}
		require.Zero(t, w.e.counters.AdmitLate)
		if write == WriteThrough {
			w.e.spilling -= spillsMax
			w.quiet = false
		}
		w.e.short = true
		w.advance(0)
		w.settle()
		require.EqualValues(t, 8, w.e.counters.AdmitLate)
		require.True(t, w.onDiskNow(a, "k7"))
	}
}

func TestSightingsAreRememberedInBoundedMemory(t *testing.T) {
	s := newSightings()
	rng := rand.New(rand.NewPCG(1, 1))
	hashes := make([]uint64, sightSets*sightWays/2)
	known := 0
	for i := range hashes {
		hashes[i] = rng.Uint64()
		if s.see(hashes[i]) {
			known++
		}
	}
	require.Less(t, known, 100, "few are taken for others")
	for i := range hashes {
		if s.see(hashes[i]) {
			known++
		}
	}
	require.Greater(t, known, len(hashes)*94/100)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.see(rng.Uint64()) }))
}

func TestNamesOfAdmissionAreRead(t *testing.T) {
	for m := AdmitAll; m <= AdmitTinyLFU; m++ {
		got, err := ParseAdmitMode(m.String())
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	_, err := ParseAdmitMode("AdmitMode(3)")
	require.Error(t, err)
	require.Equal(t, "AdmitMode(3)", AdmitMode(3).String())
}

func TestAMomentTellsHowLongAgoItWas(t *testing.T) {
	for _, at := range []time.Duration{0, 5 * time.Millisecond, 1<<32*time.Millisecond - time.Millisecond, 1 << 32 * time.Millisecond} {
		m := momentOf(at)
		require.Zero(t, m.since(at))
		require.Equal(t, 7*time.Millisecond, m.since(at+7*time.Millisecond))
		require.Equal(t, time.Hour, m.since(at+time.Hour))
	}
}

// A queue that is emptied goes on in the memory that it has used, and an item that goes back comes again.
func TestAnItemRingStaysWhereItWas(t *testing.T) {
	q := itemRing{items: make([]dirtyItem, 8)}
	next, want := uint64(0), uint64(0)
	for range 100 {
		for range 2 {
			q.append(dirtyItem{sum: next})
			next++
		}
		for range 2 {
			require.Equal(t, want, q.pop().sum)
			q.unpop()
			require.Equal(t, want, q.pop().sum)
			want++
		}
		require.LessOrEqual(t, q.first, 2)
	}
}
