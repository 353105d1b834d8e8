package table

import "math/bits"

// levelsMax is enough for lengths of 30 bits at 6 bits a level.
const levelsMax = 5

// classes are the lengths that free blocks have, one class for each length in
// units: the first block of each, and a tree of bitmaps that finds the nearest
// class in one step a level. A bit of a level says whether the word below it
// has any.
type classes struct {
	first  []uint32
	levels [levelsMax][]uint64 // levels[0] has a bit for each length
	height int
}

func (c *classes) init(units int) {
	c.first = make([]uint32, units+1)
	n := units + 1
	for {
		n = (n + 63) / 64
		c.levels[c.height] = make([]uint64, n)
		c.height++
		if n == 1 {
			return
		}
	}
}

func (c *classes) has(length uint32) bool {
	return c.levels[0][length>>6]&(1<<(length&63)) != 0
}

func (c *classes) set(length uint32) {
	for i := range c.height {
		w := &c.levels[i][length>>6]
		was := *w
		*w |= 1 << (length & 63)
		if was != 0 {
			return
		}
		length >>= 6
	}
}

func (c *classes) clear(length uint32) {
	for i := range c.height {
		w := &c.levels[i][length>>6]
		*w &^= 1 << (length & 63)
		if *w != 0 {
			return
		}
		length >>= 6
	}
}

// largest returns the greatest length there is, 0 if there is none.
func (c *classes) largest() uint32 {
	at := uint32(0)
	for i := c.height - 1; i >= 0; i-- {
		w := c.levels[i][at]
		if w == 0 {
			return 0
		}
		at = at<<6 | uint32(63-bits.LeadingZeros64(w))
	}
	return at
}

// atLeast returns the smallest length there is from length on; there must be
// one.
func (c *classes) atLeast(length uint32) uint32 {
	for i := range c.height {
		if int(length>>6) < len(c.levels[i]) {
			if w := c.levels[i][length>>6] >> (length & 63); w != 0 {
				length += uint32(bits.TrailingZeros64(w))
				for ; i > 0; i-- {
					w := c.levels[i-1][length]
					length = length<<6 | uint32(bits.TrailingZeros64(w))
				}
				return length
			}
		}
		length = length>>6 + 1
	}
	panic("l1/table: no block is large enough")
}
