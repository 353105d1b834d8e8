package table

// Batch is how many keys go through a step of a batch together: enough for their
// cache misses to overlap, few enough that what one step fetches is still there when
// it is used.
const Batch = 8

// How many batches after that in which they were asked for slots are looked at, and objects behind these.
const (
	slotsAhead   = 1
	objectsAhead = 2
	roundsAhead  = slotsAhead + objectsAhead
)

// FindAll finds many objects of one namespace and layout, k's: found[i] becomes the
// object of hash hashes[i], zero if there is none. It says what [Table.Find] says of
// each, and takes a fraction of the time where the table is larger than the
// processor's caches: keys are hashed while the slots of those before them are on
// their way from memory, and the objects of those before these. What it found is true
// until the table is changed.
func FindAll[H ~[32]byte](t *Table, k Key, hashes []H, found []Ref) {
	t.findAll(&k, plain(hashes), found)
}

func (t *Table) findAll(k *Key, hashes [][32]byte, found []Ref) {
	var rounds [roundsAhead + 1]struct{ sums, at [Batch]uint32 }
	stem := t.index.stem(k)
	n := len(hashes)
	found = found[:n]
	for i := 0; i < n+roundsAhead*Batch; i += Batch {
		if i < n { // hash, and ask for the slots
			r := &rounds[i/Batch%(roundsAhead+1)]
			keys := hashes[i:min(i+Batch, n)]
			for j := range keys {
				r.sums[j%Batch] = t.index.hash(&stem, &keys[j])
			}
			t.index.fetch(r.sums[:len(keys)])
		}
		if i := i - slotsAhead*Batch; i >= 0 && i < n { // look at the slots, and ask for the objects
			r := &rounds[i/Batch%(roundsAhead+1)]
			m := min(Batch, n-i)
			for j := range m {
				r.at[j] = t.index.first(r.sums[j])
			}
			fetch(t.objects, r.at[:m])
		}
		if i := i - roundsAhead*Batch; i >= 0 && i < n { // compare
			r := &rounds[i/Batch%(roundsAhead+1)]
			keys := hashes[i:min(i+Batch, n)]
			for j := range keys {
				found[i+j] = t.among(&stem, &keys[j], r.sums[j%Batch], r.at[j%Batch])
			}
		}
	}
}

// among is the object of hash key, whose hash is h; i is what the index has first for that.
func (t *Table) among(s *stem, key *[32]byte, h, i uint32) Ref {
	if i == 0 {
		return 0
	}
	if o := &t.objects[i]; o.key.has(s, key) {
		return newRef(i, o.generation)
	}
	k := Key{s.namespace, s.layout, *key} // another has the same hash
	if i = t.find(&k, h); i == 0 {
		return 0
	}
	return newRef(i, t.objects[i].generation)
}

// Ahead has the processor bring what Hold, Release, Touch and Extent need of the
// objects that come after refs[i] into its caches. A caller that handles many calls it
// before it handles those at each multiple of [Batch]; zero references are passed
// over. It changes nothing.
func (t *Table) Ahead(refs []Ref, i int) {
	if i == 0 {
		t.ahead(refs, 0, false)
		t.ahead(refs, Batch, false)
		t.ahead(refs, 0, true)
	}
	t.ahead(refs, i+2*Batch, false)
	t.ahead(refs, i+Batch, true)
}

// ahead fetches what the objects of a batch have themselves, or, when that is there,
// what their neighbours in the policy's lists have.
func (t *Table) ahead(refs []Ref, i int, neighbours bool) {
	if i >= len(refs) {
		return
	}
	at := t.scratch[:min(Batch, len(refs)-i)] // of the table: what is given to an interface is on the heap
	for j := range at {
		at[j] = refs[i+j].index()
	}
	if neighbours {
		t.policy.fetchNeighbours(at)
		return
	}
	fetch(t.objects, at)
	fetch(t.places, at)
	t.policy.fetch(at)
}

// first is the first object that may have a hash, 0 if there is none.
func (x *index) first(h uint32) uint32 {
	for place := uint32(0); ; place++ {
		s := x.slots[(h+place)&x.mask]
		if s == 0 || x.marked(s, x.mark(h, place)) {
			return x.objectOf(s)
		}
	}
}
