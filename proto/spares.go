package proto

import "math/bits"

const (
	// spareShift and spareClasses say which buffers are kept: of 2^n bytes, from bufferMin
	// to 1 MiB, which is more than the largest frame without its payload takes.
	spareShift   = 12
	spareClasses = 9
)

// SparesMax is how many bytes of buffers [Spares] keep at most.
const SparesMax = 4 << 20

// Spares are reassembly buffers that no [Splitter] needs at present, for the next that
// does: a frame that comes in many pieces would otherwise cost allocations each time. They
// belong to one goroutine, as the splitters that share them do. The zero Spares is empty.
type Spares struct {
	free [spareClasses][][]byte
	held int
}

// Held returns how many bytes are kept.
func (s *Spares) Held() int { return s.held }

// spareClass is which buffers hold n bytes, n > 0; spareClasses or more: none do.
func spareClass(n int) int { return max(bits.Len(uint(n-1))-spareShift, 0) }

// get returns an empty buffer for n bytes.
func (s *Spares) get(n int) []byte {
	class := spareClass(n)
	if s == nil || class >= spareClasses {
		return make([]byte, 0, n)
	}
	list := s.free[class]
	if len(list) == 0 {
		return make([]byte, 0, 1<<(spareShift+class))
	}
	p := list[len(list)-1]
	list[len(list)-1] = nil
	s.free[class] = list[:len(list)-1]
	s.held -= cap(p)
	return p[:0]
}

// put takes a buffer that nobody uses any more.
func (s *Spares) put(p []byte) {
	if s == nil || cap(p) < bufferMin {
		return
	}
	class := spareClass(cap(p))
	if class >= spareClasses || cap(p) != 1<<(spareShift+class) || s.held+cap(p) > SparesMax {
		return
	}
	s.held += cap(p)
	s.free[class] = append(s.free[class], p)
}
