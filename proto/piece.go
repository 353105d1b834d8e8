package proto

const (
	// PieceSize is how many bytes of a frame are best handed to a Unix socket at once. The kernel has them in one block of memory that
	// it uses again and again: a page less its own head of some 320 bytes. What is longer goes into pages that are fetched for it, the
	// first touch of each of which can take 12 us in a virtual machine, and whoever sends waits for that. Besides, the server is woken
	// by the first piece, while the others are still sent.
	PieceSize = 3584
	// piecesMax is the longest that is sent in pieces: each is a system call.
	piecesMax = 32 << 10
)

// SendSize is how many bytes to hand to a Unix socket at once, of size that are to be sent.
func SendSize(size int) int {
	if size <= piecesMax {
		return PieceSize
	}
	return size
}
