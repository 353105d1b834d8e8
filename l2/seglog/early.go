package seglog

import "slices"

// A header that goes out beside its values lists what a kill may have kept from being there. A log knows that its own are: it waits
// for each. Of what a former process left it knows what the disk says, until a read finds the value whole, and says so on, in
// the footer that it gives such a segment and of what it reinserts unread: so that whoever looks at the files can tell such a value from one
// that decayed.

// foundEarly notes what recovery found in segment i to be early.
func (l *Log) foundEarly(i uint32) {
	s := &l.segs[i]
	for k := range s.log {
		if s.log[k].early {
			s.early = append(s.early, s.log[k].at)
		}
	}
	slices.Sort(s.early)
	s.early = slices.Compact(s.early)
}

// copiedEarly notes that the copy r, of a value that may not be whole, is in segment i.
func (l *Log) copiedEarly(i uint32, r *record) {
	s := &l.segs[i]
	if k, there := slices.BinarySearch(s.early, r.at); !there {
		s.early = slices.Insert(s.early, k, r.at)
	}
}

// isEarly says whether the value at place at of segment i may never have been there whole.
func (l *Log) isEarly(i, at uint32) bool {
	_, early := slices.BinarySearch(l.segs[i].early, at)
	return early
}

// isWhole notes that this value was read and is what was put.
func (l *Log) isWhole(i, at uint32) {
	s := &l.segs[i]
	if k, early := slices.BinarySearch(s.early, at); early {
		s.early = slices.Delete(s.early, k, k+1)
	}
}
