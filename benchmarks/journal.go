package benchmarks

import (
	"fmt"
	"slices"
)

// A journal is what the parent of a torture knows of one worker's keys. It is for one
// goroutine at a time.
type journal struct {
	worker int
	keys   []keyJournal
	open   *Saying // the step whose outcome was not told
	acked  int64
	denied int64 // steps that the server refused

	corrupt, phantom, reappeared, revived, returned int64
	example                                         string // of the first thing that was wrong
}

// A keyJournal is what is known of one key. It may be missing at any time: it is a cache.
type keyJournal struct {
	may     []uint64 // versions that may be served
	evicted []uint64 // those before them that were never deleted: a crash may bring them back while their segment is not reused
	touched bool     // a step that may change it began since the last mark
	absent  bool     // it was missing after a start, and nothing was stored since
}

func newJournal(worker, keys int) *journal {
	return &journal{worker: worker, keys: make([]keyJournal, keys)}
}

// hear takes a line of the worker into account.
func (j *journal) hear(s *Saying) {
	switch s.Say {
	case SayStore, SayDelete, SayClear:
		j.open = s
		j.begin(s)
	case SayDone:
		j.done(s)
		j.open = nil
	case SayFailed:
		if s.Refused {
			j.denied++
		}
		j.open = nil
	case SayRead:
		for i, n := range s.Keys {
			j.saw(n, s.Found[i], false)
		}
	}
}

// begin allows for all that a step may do.
func (j *journal) begin(s *Saying) {
	for _, n := range s.Keys {
		k := &j.keys[n]
		k.touched = true
		if s.Say == SayStore {
			k.may = append(k.may, s.Version)
			k.absent = false
		}
	}
	if s.Say == SayClear {
		for n := range j.keys {
			j.keys[n].touched = true
		}
	}
}

// done narrows it down to what the step did.
func (j *journal) done(s *Saying) {
	open := j.open
	switch {
	case open == nil:
	case open.Say == SayStore:
		for _, n := range open.Keys {
			k := &j.keys[n]
			if slices.Contains(s.Stored, n) {
				for _, v := range k.may { // it was not there any more, or this would not have been stored
					if v != open.Version {
						k.evicted = append(k.evicted, v)
					}
				}
				k.may = append(k.may[:0], open.Version)
				j.acked++
			} else {
				k.may = slices.DeleteFunc(k.may, func(v uint64) bool { return v == open.Version })
			}
		}
	case open.Say == SayDelete:
		for _, n := range open.Keys {
			j.keys[n].forget()
			j.acked++
		}
	case open.Say == SayClear:
		for n := range j.keys {
			j.keys[n].forget()
		}
		j.acked++
	}
}

// forget is for a key that is deleted.
func (k *keyJournal) forget() { k.may, k.evicted = k.may[:0], k.evicted[:0] }

// saw judges what a key was served as. damaged tells that the files were damaged before
// this start: then what was deleted may be back, if its tombstone was hit.
func (j *journal) saw(n uint32, version uint64, damaged bool) {
	k := &j.keys[n]
	switch {
	case version == 0:
		return
	case version == badVersion:
		j.corrupt++
		j.wrong("worker %d key %d: wrong bytes", n)
		return
	case slices.Contains(k.may, version):
		if k.absent {
			j.reappeared++
		}
	case damaged:
		j.revived++
	default:
		j.phantom++
		j.wrong(fmt.Sprintf("worker %%d key %%d: version %d, may be %d", version, k.may), n)
	}
	k.may = append(k.may[:0], version)
	k.absent = false
}

// wrong keeps the first finding.
func (j *journal) wrong(format string, n uint32) {
	if j.example == "" {
		j.example = fmt.Sprintf(format, j.worker, n)
	}
}

// settled judges what a key was served as after a start: nobody works on it.
func (j *journal) settled(n uint32, version uint64, damaged bool) {
	k := &j.keys[n]
	if i := slices.Index(k.evicted, version); i >= 0 && !slices.Contains(k.may, version) {
		j.returned++
		k.may = append(k.may[:0], version)
	}
	j.saw(n, version, damaged)
	if version == 0 {
		k.absent = true
	} else {
		k.evicted = k.evicted[:0] // what a start finds is all that there is
	}
}

// mark begins a time in which touched tells what was not left alone.
func (j *journal) mark() {
	for n := range j.keys {
		j.keys[n].touched = false
	}
}
