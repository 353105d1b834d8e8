package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/slotcache/slotcache/benchmarks/load"
	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

const (
	// fetchWait is how long the server may take to read a request's blocks from disk.
	fetchWait = 30 * time.Second
	// storeWait is how long it may take to make room for blocks to be stored.
	storeWait = 10 * time.Second
	// storeTries is how often blocks that found no room are tried.
	storeTries = 3
)

// A Fetch is the outcome of asking for the leading blocks of a list.
type Fetch struct {
	Hits   int `json:"hits"`   // leading blocks that came, from memory or disk
	Memory int `json:"memory"` // of these, in memory when the request came
	Disk   int `json:"disk"`   // of these, on disk when the request came
	Wrong  int `json:"wrong"`  // bytes that were not what they must be
}

// A Stored is the outcome of storing blocks.
type Stored struct {
	Stored  int `json:"stored"`
	Existed int `json:"existed"` // cached already, or being stored by somebody else
	Failed  int `json:"failed"`  // no room was had
}

// A mover takes blocks to and from a server. It is for one goroutine.
type mover struct {
	w     *client.Worker
	addr  string // of the server
	size  int    // of a block, in bytes
	keys  []client.Key
	sizes []uint64
	parts []*load.Session // over which a part of a frame was sent
}

// layoutName is part of the identity of every block a benchmark stores.
const layoutName = "slotbench"

// clientOptions has the client log what is worth a warning only: reconnecting is expected.
func clientOptions(name string) client.Options { // worker processes have the environment, too
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return client.Options{
		Name: name, Logger: log,
		Token: os.Getenv("SLOTCACHE_TOKEN"), TokenFile: os.Getenv("SLOTCACHE_TOKEN_FILE"),
	}
}

// openMover registers a worker process for blocks of the given size.
func openMover(ctx context.Context, addr, name string, size int) (*mover, error) {
	w, err := client.Open(ctx, addr, clientOptions(name), client.Registration{
		Name:      name,
		Namespace: layoutName,
		Layouts:   []client.Layout{{Name: layoutName, Size: uint64(size)}},
	})
	if err != nil {
		return nil, fmt.Errorf("worker %s: %w", name, err)
	}
	return &mover{w: w, addr: addr, size: size}, nil
}

// name fills m.keys with the keys of the blocks.
func (m *mover) name(ids []uint64) []client.Key {
	m.keys = m.keys[:0]
	for _, id := range ids {
		m.keys = append(m.keys, BlockKey(id))
	}
	return m.keys
}

// lease looks the leading blocks up, loads what is on disk and holds them.
func (m *mover) lease(ctx context.Context, ids []uint64) (*client.LookupResult, error) {
	return m.w.Lookup(ctx, client.LookupRequest{
		Keys:  m.name(ids),
		Mode:  proto.ModePrefix,
		Group: 1,
		Hold:  true,
		Load:  true,
		Slots: true,
		Wait:  fetchWait,
	})
}

// fetch asks for the leading blocks, compares every byte where it lies, and lets go. The
// time is that of the lookup alone.
func (m *mover) fetch(ctx context.Context, ids []uint64) (f Fetch, took time.Duration, err error) {
	begin := time.Now()
	found, err := m.lease(ctx, ids)
	took = time.Since(begin)
	if err != nil {
		return f, took, err
	}
	f = Fetch{Hits: found.Hits, Memory: min(found.FromMemory, found.Hits)}
	f.Disk = f.Hits - f.Memory
	if found.Lease == nil {
		return f, took, nil
	}
	f.Wrong = m.check(found.Lease.Values())
	return f, took, found.Lease.Release(ctx)
}

// check compares the values of the leading keys last named and counts the wrong bytes. A
// value of another length is wrong as a whole.
func (m *mover) check(values [][]byte) int {
	wrong := 0
	for i, value := range values {
		if len(value) != m.size {
			wrong += max(m.size, len(value))
			continue
		}
		wrong += Mismatches(&m.keys[i], value)
	}
	return wrong
}

// prepare asks for slots to store the blocks in.
func (m *mover) prepare(ctx context.Context, ids []uint64) (*client.Store, error) {
	keys := m.name(ids)
	m.sizes = m.sizes[:0]
	for range keys {
		m.sizes = append(m.sizes, uint64(m.size))
	}
	return m.w.PrepareStore(ctx, 0, keys, m.sizes, storeWait)
}

// store stores the blocks, those that find no room in several tries.
func (m *mover) store(ctx context.Context, ids []uint64) (s Stored, err error) {
	for try := 1; len(ids) > 0; try++ {
		open, err := m.prepare(ctx, ids)
		if err != nil {
			return s, err
		}
		var again []uint64
		granted, existed := 0, 0
		for i := range ids {
			switch status := open.Status(i); status { //nolint:exhaustive // the others are no outcome of a key
			case proto.StatusReserved:
				Fill(&m.keys[i], open.Slot(i))
				granted++
			case proto.StatusExists, proto.StatusBusy:
				existed++
			case proto.StatusNoSpace:
				again = append(again, ids[i])
			default:
				return s, errors.Join(fmt.Errorf("store block %d: %s", ids[i], status), open.Abort(ctx))
			}
		}
		if err := open.Commit(ctx); err != nil {
			return s, err
		}
		s.Stored += granted
		s.Existed += existed
		if try == storeTries {
			s.Failed += len(again)
			break
		}
		ids = again
	}
	return s, nil
}

// hopeless reports whether an error would come again however often the request is tried:
// the server understood it and refuses it.
func hopeless(err error) bool {
	var refused *client.StatusError
	if errors.Is(err, client.ErrClosed) {
		return true
	}
	if errors.Is(err, client.ErrStale) || !errors.As(err, &refused) {
		return false
	}
	switch refused.Status { //nolint:exhaustive // every other status may pass
	case proto.StatusBadRequest, proto.StatusBadVersion, proto.StatusUnsupported, proto.StatusDenied, proto.StatusTooLarge:
		return true
	}
	return false
}
