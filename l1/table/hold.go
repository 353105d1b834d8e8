package table

// leavingMost bounds the objects that are held and still in the policy's lists: as many as a request may have keys.
const leavingMost = 4096

// HoldAll is [Table.Hold] for the first n of refs, as far as they are ready and have no more than most bytes together; the rest is
// as it was. sizes[i] becomes the length of each of them. Zero references are none.
//
// They are held at once, and nobody evicts them. Out of the policy's lists, which is most of the work and changes nothing for
// others, they come before anything else reads or changes these ([Table.settle]).
func (t *Table) HoldAll(refs []Ref, sizes []int64, most int64) (n int) {
	for i := 0; i < 2*Batch; i += Batch {
		t.fetchPlaces(refs, i)
	}
	for i, r := range refs {
		if i%Batch == 0 {
			t.fetchPlaces(refs, i+2*Batch)
		}
		x := r.index()
		o := &t.objects[x]
		if o.state != StateReady || o.generation != r.generation() {
			return i
		}
		size := t.places[x].size
		if size > most {
			return i
		}
		most -= size
		sizes[i] = size
		if !o.plain() || o.holds == ^uint32(0) {
			t.Hold(r)
			continue
		}
		if t.countHold(x) {
			if len(t.leaving) == cap(t.leaving) {
				t.settle()
			}
			t.leaving = append(t.leaving, x)
		}
	}
	return len(refs)
}

// fetchPlaces asks for where the bytes are of the objects that come from refs[i] on.
func (t *Table) fetchPlaces(refs []Ref, i int) {
	if i >= len(refs) {
		return
	}
	at := t.scratch[:min(Batch, len(refs)-i)]
	for j := range at {
		at[j] = refs[i+j].index()
	}
	fetch(t.places, at)
}

// settle takes out of the policy's lists what is held by now. Whoever changes or reads the lists calls it first, and whoever
// releases a hold.
func (t *Table) settle() {
	if len(t.leaving) > 0 {
		t.leaveLists()
	}
}

func (t *Table) leaveLists() {
	l := t.leaving
	for i := 0; i < len(l); i += Batch {
		if i == 0 {
			t.policy.fetch(l[:min(Batch, len(l))])
			t.policy.fetch(l[min(Batch, len(l)):min(2*Batch, len(l))])
			t.policy.fetchNeighbours(l[:min(Batch, len(l))])
		}
		t.policy.fetch(l[min(i+2*Batch, len(l)):min(i+3*Batch, len(l))])
		t.policy.fetchNeighbours(l[min(i+Batch, len(l)):min(i+2*Batch, len(l))])
		for _, x := range l[i:min(i+Batch, len(l))] {
			t.policy.unlink(x)
		}
	}
	t.leaving = l[:0]
}
