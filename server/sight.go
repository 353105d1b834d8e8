package server

import (
	"fmt"
	"sync"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/slotcache/slotcache/server/engine"
)

// sightKeys is how many objects the sketch of admission remembers: about 20 MiB.
const sightKeys = 1 << 17

// A sighter is the goroutine that has an opinion on which objects are worth the disk: those that a cache of their names
// knows already, which by TinyLFU keeps the ones seen more often. Nobody else touches that cache. The loop hands it
// batches of hashes and takes bits back, as it does with the helpers; it never waits for them.
type sighter struct {
	cache *ristretto.Cache[uint64, struct{}]
	wake  func() // of the loop

	mutex    sync.Mutex
	work     sync.Cond
	asked    [engine.SightBatches]sighting // a ring
	first    int
	count    int
	opinions []opinion
	stopping bool
	group    sync.WaitGroup
}

// A sighting is a batch of hashes.
type sighting struct {
	batch  int
	hashes [engine.SightMax]uint64
	count  int
}

// An opinion has a bit for each hash of a batch that was known.
type opinion struct {
	batch int
	known uint64
}

func newSighter(wake func()) (*sighter, error) {
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, struct{}]{
		NumCounters: 10 * sightKeys, MaxCost: sightKeys, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("server: make the sketch of admission: %w", err)
	}
	s := &sighter{cache: cache, wake: wake, opinions: make([]opinion, 0, engine.SightBatches)}
	s.work.L = &s.mutex
	s.group.Go(s.run)
	return s, nil
}

// ask hands over a batch. There is room: the engine has no more of them.
func (s *sighter) ask(batch int, hashes []uint64) {
	s.mutex.Lock()
	q := &s.asked[(s.first+s.count)%len(s.asked)]
	q.batch, q.count = batch, copy(q.hashes[:], hashes)
	s.count++
	s.mutex.Unlock()
	s.work.Signal()
}

// take takes the opinions there are, appended to dst.
func (s *sighter) take(dst []opinion) []opinion {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	dst = append(dst, s.opinions...)
	s.opinions = s.opinions[:0]
	return dst
}

func (s *sighter) stop() {
	s.mutex.Lock()
	s.stopping = true
	s.mutex.Unlock()
	s.work.Signal()
	s.group.Wait()
}

// run answers batch after batch.
func (s *sighter) run() {
	defer s.cache.Close()
	for {
		q, ok := s.next()
		if !ok {
			return
		}
		known := uint64(0)
		for i, h := range q.hashes[:q.count] {
			if _, hit := s.cache.Get(h); hit {
				known |= 1 << i
				continue
			}
			s.cache.Set(h, struct{}{}, 1)
		}
		s.cache.Wait() // what is set is seen by the next batch
		s.mutex.Lock()
		s.opinions = append(s.opinions, opinion{q.batch, known})
		s.mutex.Unlock()
		s.wake()
	}
}

// next waits for a batch.
func (s *sighter) next() (sighting, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for s.count == 0 && !s.stopping {
		s.work.Wait()
	}
	if s.stopping {
		return sighting{}, false
	}
	q := s.asked[s.first]
	s.first = (s.first + 1) % len(s.asked)
	s.count--
	return q, true
}
