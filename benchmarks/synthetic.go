package benchmarks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
)

// WriteSynthetic writes a trace of conversations that share beginnings and grow turn by
// turn, the same for the same seed.
func WriteSynthetic(path string, requests int, seed uint64) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	w := bufio.NewWriter(f)
	lines := json.NewEncoder(w)
	r := rand.New(rand.NewPCG(seed, 2))
	next := uint64(1000)
	var chats [64][]uint64
	for range requests {
		chat := &chats[r.IntN(len(chats))]
		if len(*chat) == 0 || len(*chat) > 40 {
			*chat = (*chat)[:0]
			system := uint64(r.IntN(4)) * 100
			for i := range uint64(1 + r.IntN(4)) {
				*chat = append(*chat, system+i)
			}
		}
		for range 1 + r.IntN(6) {
			*chat = append(*chat, next)
			next++
		}
		if err := lines.Encode(&Request{Blocks: *chat}); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}
