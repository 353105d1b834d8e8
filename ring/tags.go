package ring

// tagTable finds armed operations by their tags: open addressing with linear probing, at most half full, without tombstones.
type tagTable struct {
	slots []tagSlot
	shift uint8
}

type tagSlot struct {
	tag Tag
	op  uint32 // index + 1; 0: empty
}

func newTagTable(n int) tagTable {
	bits := uint8(1)
	for 1<<bits < 2*n {
		bits++
	}
	return tagTable{slots: make([]tagSlot, 1<<bits), shift: 64 - bits}
}

func (t *tagTable) home(tag Tag) uint32 { return uint32(uint64(tag) * 0x9e3779b97f4a7c15 >> t.shift) }

// slot returns where tag is, or the empty slot where it would be.
func (t *tagTable) slot(tag Tag) uint32 {
	mask := uint32(len(t.slots) - 1)
	i := t.home(tag)
	for t.slots[i].op != 0 && t.slots[i].tag != tag {
		i = (i + 1) & mask
	}
	return i
}

// insert enters tag, which must not be there.
func (t *tagTable) insert(tag Tag, op uint32) {
	s := &t.slots[t.slot(tag)]
	if s.op != 0 {
		panic("ring: an operation is armed under this tag")
	}
	*s = tagSlot{tag: tag, op: op + 1}
}

// find returns the operation of tag.
func (t *tagTable) find(tag Tag) (uint32, bool) {
	s := t.slots[t.slot(tag)]
	return s.op - 1, s.op != 0
}

// remove takes tag out and moves up the slots behind that probed past it.
func (t *tagTable) remove(tag Tag) {
	mask := uint32(len(t.slots) - 1)
	hole := t.slot(tag)
	if t.slots[hole].op == 0 {
		panic("ring: no operation is armed under this tag")
	}
	for i := (hole + 1) & mask; t.slots[i].op != 0; i = (i + 1) & mask {
		if home := t.home(t.slots[i].tag); (i-home)&mask >= (i-hole)&mask {
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = tagSlot{}
}
