package seglog

import "slices"

// A scanner reads the records of one segment into segment.log. It reads through the arena, which nothing else uses yet.
type scanner struct {
	dev    Reader
	l      *Log
	s      *segment
	report *Report
	at     uint32 // the window: blocks [at, at+n) are in the arena
	n      uint32
	ahead  uint32 // blocks to read next time
	end    uint32 // the first block behind all groups found
	unread bool   // some part could not be read
	err    error
}

// block returns a block, valid until the next call, or nil if it cannot be read. Neighbours come in larger and larger reads.
func (sc *scanner) block(b uint32) []byte {
	if b < sc.at || b >= sc.at+sc.n {
		if b != sc.at+sc.n {
			sc.ahead = 0
		}
		window := uint32(len(sc.l.cfg.Arena)/BlockSize) - 1 // block 0 stays zero
		sc.ahead = min(max(4, 2*sc.ahead), window, sc.l.segBlocks-b)
		sc.at, sc.n = b, 0
		p := sc.l.cfg.Arena[BlockSize:][:sc.ahead*BlockSize]
		n, err := sc.dev.ReadAt(sc.s.id, p, int64(b)*BlockSize)
		sc.report.BytesScanned += int64(n)
		sc.n = uint32(n / BlockSize)
		if sc.n < sc.ahead {
			sc.unread, sc.err = true, orShort(err)
			if sc.n == 0 {
				return nil
			}
		}
	}
	return sc.l.cfg.Arena[(1+b-sc.at)*BlockSize:][:BlockSize]
}

// footer reads the footer. False: there is no valid one.
func (sc *scanner) footer() bool {
	last := sc.l.segBlocks - 1
	p := sc.block(last)
	if p == nil {
		return false
	}
	t, err := parseBlock(p, trailerMagic, &sc.s.life, last)
	if err != nil || t.count != footerBlocks(t.length) || t.count >= last-1 {
		return false
	}
	first := last - t.count
	sc.s.log = slices.Grow(sc.s.log, int(t.length))
	for i := range t.count {
		p := sc.block(first + i)
		if p == nil {
			return false
		}
		h, err := parseBlock(p, footerMagic, &sc.s.life, first+i)
		if err != nil || h.length != i || h.count == 0 || !sc.take(p, h.count, 1, first) {
			return false
		}
	}
	if uint32(len(sc.s.log)) != t.length {
		return false
	}
	sc.unread, sc.err = false, nil // of blocks that are not needed
	return true
}

// groups tries every block, because groups complete in any order: behind a gap there may be more.
func (sc *scanner) groups() {
	sc.unread, sc.err = false, nil // the footer does not count
	sc.end = 1
	for b := uint32(1); b < sc.l.segBlocks; {
		p := sc.block(b)
		if p == nil {
			b++
			continue
		}
		h, err := parseBlock(p, groupMagic, &sc.s.life, b)
		if err != nil || h.length == 0 || h.length > sc.l.segBlocks-b || !sc.take(p, h.count, b, b+h.length) {
			b++
			continue
		}
		b += h.length
		sc.end = b
	}
}

// take appends the block's records, whose values lie in blocks [from, to), or none if one of them is senseless.
func (sc *scanner) take(p []byte, count, from, to uint32) bool {
	n := len(sc.s.log)
	for i := range count {
		r, err := parseRecord(p, int(i), from, to)
		if err != nil {
			sc.s.log = sc.s.log[:n]
			return false
		}
		sc.s.log = append(sc.s.log, r)
	}
	return true
}
