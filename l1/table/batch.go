package table

// Batch is how many keys go through a step of a batch together: enough for their
// cache misses to overlap, few enough that what one step fetches is still there when
// it is used.
const Batch = 8

// FindAll finds many objects of one namespace and layout, k's: found[i] becomes the
// object of hash hashes[i], zero if there is none. It says what [Table.Find] says of
// each, and takes a fraction of the time where the table is larger than the
// processor's caches: keys are hashed while the slots of those before them are on
// their way from memory, and the objects of those before these. What it found is true
// until the table is changed.
func FindAll[H ~[32]byte](t *Table, k Key, hashes []H, found []Ref) {
	var rounds [3]struct{ sums, at [Batch]uint32 }
	n := len(hashes)
	for i := 0; i < n+2*Batch; i += Batch {
		if i < n { // hash, and ask for the slots
			r := &rounds[i/Batch%3]
			for j := range min(Batch, n-i) {
				k.Hash = hashes[i+j]
				r.sums[j] = t.index.hash(&k)
			}
			t.index.fetch(r.sums[:min(Batch, n-i)])
		}
		if i := i - Batch; i >= 0 && i < n { // look at the slots, and ask for the objects
			r := &rounds[i/Batch%3]
			for j := range min(Batch, n-i) {
				r.at[j] = t.index.first(r.sums[j])
			}
			fetch(t.objects, r.at[:min(Batch, n-i)])
		}
		if i := i - 2*Batch; i >= 0 && i < n { // compare
			r := &rounds[i/Batch%3]
			for j := range min(Batch, n-i) {
				k.Hash = hashes[i+j]
				found[i+j] = t.among(&k, r.sums[j], r.at[j])
			}
		}
	}
}

// among is the object of key k, whose hash is h; i is what the index has first for that.
func (t *Table) among(k *Key, h, i uint32) Ref {
	if i == 0 {
		return 0
	}
	if t.objects[i].key != *k { // another key of the same hash
		if i = t.find(k, h); i == 0 {
			return 0
		}
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
	for at := h & x.mask; ; at = (at + 1) & x.mask {
		if s := x.slots[at]; s == 0 || s.hash() == h {
			return s.object()
		}
	}
}
