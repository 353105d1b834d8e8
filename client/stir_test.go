package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

// labelled is a value that says of which key it is, who wrote it, how long it is and what
// its checksum is.
func labelled(k, writer int) []byte {
	b := make([]byte, 32+(k*7919+writer*104729)%50000)
	for i := 32; i < len(b); i++ {
		b[i] = byte(i*writer ^ k)
	}
	binary.LittleEndian.PutUint64(b, uint64(k))
	binary.LittleEndian.PutUint64(b[8:], uint64(writer))
	binary.LittleEndian.PutUint64(b[16:], uint64(len(b)))
	binary.LittleEndian.PutUint64(b[24:], xxh3.Hash(b[32:]))
	return b
}

// whole says whether b is one labelled value of the key.
func whole(k int, b []byte) bool {
	return len(b) >= 32 && binary.LittleEndian.Uint64(b) == uint64(k) &&
		binary.LittleEndian.Uint64(b[16:]) == uint64(len(b)) && binary.LittleEndian.Uint64(b[24:]) == xxh3.Hash(b[32:])
}

// stir has writers and readers, o.N of each, use o.First keys for a while.
func (p *performer) stir(ctx context.Context, o *order) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int{}
	var failed error
	for id := range 2 * o.N {
		w, err := client.Open(context.Background(), p.addr, client.Options{Logger: slog.New(slog.DiscardHandler)}, client.Registration{
			Layouts: []client.Layout{chunk}, Inline: id/2%4 == 3,
		})
		if err != nil {
			return nil, err
		}
		random := rand.New(rand.NewPCG(o.Seed, uint64(id)))
		wg.Go(func() {
			own := map[string]int{}
			var err error
			for err == nil {
				k := random.IntN(o.First)
				if id%2 == 0 {
					err = stirWrite(ctx, w, k, int(o.Seed)*100+id, own)
				} else {
					err = stirRead(ctx, w, k, own)
				}
			}
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
			mu.Lock()
			failed = errors.Join(failed, err, w.Close())
			for name, n := range own {
				counts[name] += n
			}
			mu.Unlock()
		})
	}
	wg.Wait()
	return counts, failed
}

// stirWrite stores a value, or removes the one that is there.
func stirWrite(ctx context.Context, w *client.Worker, k, writer int, counts map[string]int) error {
	status, err := w.Put(ctx, 0, key(k), labelled(k, writer))
	if err != nil {
		return err
	}
	counts[status.String()]++
	if status == proto.StatusExists {
		_, err = w.Delete(ctx, 0, keys(k, 1))
	}
	return err
}

// stirRead requires a miss or one whole value.
func stirRead(ctx context.Context, w *client.Worker, k int, counts map[string]int) error {
	got, there, err := w.Fetch(ctx, 0, key(k), nil)
	switch {
	case err != nil:
		return err
	case !there:
		counts["miss"]++
	case !whole(k, got):
		return fmt.Errorf("key %d has %d bytes that are no value of it", k, len(got))
	default:
		counts["hit"]++
	}
	return nil
}
