package seglog

import "fmt"

// A state is one of the package's enumerations with a table of legal moves.
type state interface {
	~uint8
	fmt.Stringer
}

// moves lists, for each state, the states it may become, as a set of bits.
type moves []uint32

// to makes a set of states.
func to[S state](states ...S) uint32 {
	var set uint32
	for _, s := range states {
		set |= 1 << s
	}
	return set
}

// legal says whether a thing in state from may become next.
func (m moves) legal(from, next uint8) bool { return int(from) < len(m) && m[from]>>next&1 == 1 }

// move changes the state at to next, or panics: an illegal move is a mistake of this package.
func move[S state](m moves, what string, at *S, next S) {
	if !m.legal(uint8(*at), uint8(next)) {
		panic(fmt.Sprintf("l2/seglog: %s moves from %v to %v", what, *at, next))
	}
	*at = next
}
