package engine

import (
	"fmt"
	"time"

	"github.com/slotcache/slotcache/l1/table"
)

// Admission says which objects go to disk at all. An object that is not admitted stays in memory, clean, until it is
// evicted or used again. Sightings are stores, and uses of an object in memory that is not admitted; what is on disk
// needs no opinion.

// AdmitMode says which objects are admitted to disk.
type AdmitMode uint8

// The modes of admission.
const (
	AdmitAll       AdmitMode = iota // every one
	AdmitSeenTwice                  // those seen a second time, as far as 2^20 sightings are remembered
	AdmitTinyLFU                    // those that the host's opinion, a frequency sketch, remembers (Host.Sight)
)

// String names the mode as the command line does.
func (m AdmitMode) String() string {
	switch m {
	case AdmitAll:
		return "all"
	case AdmitSeenTwice:
		return "seen-twice"
	case AdmitTinyLFU:
		return "tinylfu"
	}
	return fmt.Sprintf("AdmitMode(%d)", uint8(m))
}

// ParseAdmitMode reads a mode's name.
func ParseAdmitMode(name string) (AdmitMode, error) {
	for m := AdmitAll; m <= AdmitTinyLFU; m++ {
		if name == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("engine: admission %q is none of all, seen-twice, tinylfu", name)
}

// What the table keeps beside a ready object. (Beside a loading one it keeps who waits for it.)
//
//	           no opinion in time, or admitted
//	asked ----------------------------------------> 0: the disk is to have it, or has it
//	  |  ^                                           ^
//	  |  | used again (tinylfu)                      | used again (seen-twice)
//	  v  |                                           |
//	unseen ------------------------------------------+
const (
	markUnseen = ^uint32(0)     // not admitted
	markAsked  = ^uint32(0) - 1 // the host is asked
)

const (
	// SightMax is how many objects a batch of sightings has at most: an answer is a word of bits.
	SightMax = 64
	// SightBatches is how many batches may be with the host. What finds none free is admitted.
	SightBatches = 32
	// sightTime is how long an object waits for the host's opinion. Without one it is admitted.
	sightTime = 20 * time.Millisecond
)

// A sightBatch is some sightings, on their way to the host or back.
type sightBatch struct {
	refs   [SightMax]table.Ref
	hashes [SightMax]uint64
	count  int
	busy   bool // with the host
}

// admission is the state of it. With AdmitAll all of it is empty.
type admission struct {
	mode    AdmitMode
	seen    sightings
	batches []sightBatch
	filling int // the batch that is filled, or -1
}

func newAdmission(mode AdmitMode) admission {
	a := admission{mode: mode, filling: -1}
	switch mode {
	case AdmitAll:
	case AdmitSeenTwice:
		a.seen = newSightings()
	case AdmitTinyLFU:
		a.batches = make([]sightBatch, SightBatches)
	}
	return a
}

// stored is the sighting of an object that was published, and is dirty.
func (e *Engine) stored(ref table.Ref) {
	switch e.admission.mode {
	case AdmitAll:
	case AdmitSeenTwice:
		if !e.admission.seen.see(sightHash(e.table.Key(ref))) {
			e.table.SetData(ref, markUnseen)
		}
	case AdmitTinyLFU:
		e.sight(ref)
	}
}

// touch is a use of a ready object.
func (e *Engine) touch(ref table.Ref) {
	e.table.Touch(ref)
	if e.admission.mode == AdmitAll || e.table.Data(ref) != markUnseen || e.table.State(ref) != table.StateReady {
		return
	}
	if e.admission.mode == AdmitTinyLFU {
		e.sight(ref)
		return
	}
	e.admitted(ref)
}

// sight asks the host about an object.
func (e *Engine) sight(ref table.Ref) {
	a := &e.admission
	for i := 0; a.filling < 0 && i < len(a.batches); i++ {
		if !a.batches[i].busy {
			a.filling = i
			a.batches[i].count = 0
		}
	}
	if a.filling < 0 {
		e.counters.AdmitLate++
		e.admitted(ref)
		return
	}
	b := &a.batches[a.filling]
	b.refs[b.count], b.hashes[b.count] = ref, sightHash(e.table.Key(ref))
	b.count++
	e.table.SetData(ref, markAsked)
	if b.count == SightMax {
		e.askHost()
	}
}

// askHost hands over the batch that is filled, if there is one: when it is full, and at the end of each flush with a disk.
func (e *Engine) askHost() {
	if a := &e.admission; a.filling >= 0 {
		b := &a.batches[a.filling]
		b.busy = true
		e.host.Sight(a.filling, b.hashes[:b.count])
		a.filling = -1
	}
}

// onSighted takes the host's opinion on a batch.
func (e *Engine) onSighted(batch int, known uint64) {
	b := &e.admission.batches[batch]
	if !b.busy {
		panic("engine: an opinion on a batch that was not asked for")
	}
	b.busy = false
	for i, ref := range b.refs[:b.count] {
		if e.table.State(ref) != table.StateReady || e.table.Data(ref) != markAsked {
			continue // it is gone, or was admitted without
		}
		if known>>i&1 != 0 {
			e.admitted(ref)
		} else {
			e.table.SetData(ref, markUnseen)
		}
	}
}

// admitted has an object go to disk: a dirty one when its turn comes, another one after them.
func (e *Engine) admitted(ref table.Ref) {
	e.table.SetData(ref, 0)
	if !e.table.Dirty(ref) {
		e.refused.push(dirtyItem{ref: ref})
	}
}

// A verdict is what admission says of a dirty object whose turn has come.
type verdict uint8

const (
	verdictAdmit verdict = iota
	verdictRefuse
	verdictWait // for the host's opinion
)

// worthDisk says whether a dirty object goes to disk. Nobody waits for an opinion while memory is short.
func (e *Engine) worthDisk(d *dirtyItem) verdict {
	switch {
	case e.admission.mode == AdmitAll:
	case e.table.Data(d.ref) == markUnseen:
		return verdictRefuse
	case e.table.Data(d.ref) == markAsked:
		if !e.stopping && !e.short && e.parkedFirst == none && d.at.since(e.now) < sightTime {
			return verdictWait
		}
		e.counters.AdmitLate++
		e.table.SetData(d.ref, 0)
	}
	return verdictAdmit
}

// opinionDue is until when the first dirty object waits for the host's opinion, if that is what it waits for.
func (e *Engine) opinionDue() (time.Duration, bool) {
	if e.admission.mode != AdmitTinyLFU || e.dirty.len() == 0 || !e.spillRoom() || !e.hasToSpill() {
		return 0, false
	}
	d := &e.dirty.items[e.dirty.first]
	if !e.table.Alive(d.ref) || !e.table.Dirty(d.ref) || e.table.Data(d.ref) != markAsked {
		return 0, false
	}
	return e.now + max(0, sightTime-d.at.since(e.now)), true
}

// sightHash is an object's name for sketches.
func sightHash(k *table.Key) uint64 {
	h := uint64(0)
	for i := range 8 {
		h |= uint64(k.Hash[i]) << (8 * i)
	}
	return mix(h ^ mix(k.Namespace) ^ mix(k.Layout+1))
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

const (
	sightSets = 1 << 17 // of sightWays each
	sightWays = 8
)

// sightings remembers the last 2^20 sightings, more or less: a set of a few fingerprints for each of many hash values, in
// which a new one takes the place of the oldest. 4 MiB; one in 500 million is taken for another.
type sightings struct {
	prints [][sightWays]uint32
	oldest []uint8
}

func newSightings() sightings {
	return sightings{prints: make([][sightWays]uint32, sightSets), oldest: make([]uint8, sightSets)}
}

// see notes a sighting, and says whether it is not the first.
func (s *sightings) see(hash uint64) bool {
	set := hash % sightSets
	p := uint32(hash>>32) | 1 // 0 is none
	ways := &s.prints[set]
	for i := range ways {
		if ways[i] == p {
			return true
		}
	}
	at := &s.oldest[set]
	ways[*at] = p
	*at = (*at + 1) % sightWays
	return false
}
