package benchmarks

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/proto"
)

// What a line of a torturer's output says. A step is two lines: the first before anything
// of it can have reached the server, the second when its outcome is known.
const (
	SayReady  = "ready"  // registered
	SayPaused = "paused" // does nothing until it is told to go on
	SayStore  = "store"  // is about to store Keys, each as Version
	SayDelete = "delete" // is about to delete Keys
	SayClear  = "clear"  // is about to clear its namespace
	SayDone   = "done"   // the step is acknowledged; of a store: Stored are the keys published
	SayFailed = "failed" // the step's outcome is not known, or it was refused
	SayRead   = "read"   // Keys were read and had the versions Found, 0 for none, badVersion for wrong bytes
)

// What a torturer can be told, a word a line.
const (
	TellPause = "pause"
	TellGo    = "go"
)

// A Saying is one line of a torturer's output.
type Saying struct {
	Say     string   `json:"say"`
	Keys    []uint32 `json:"keys,omitempty"`
	Version uint64   `json:"version,omitempty"`
	Stored  []uint32 `json:"stored,omitempty"`
	Found   []uint64 `json:"found,omitempty"`
	Error   string   `json:"error,omitempty"`
	Refused bool     `json:"refused,omitempty"` // the server said so itself
}

// badVersion stands for bytes that are no version of their key.
const badVersion = math.MaxUint64

// A TorturerOptions describes one worker of a torture.
type TorturerOptions struct {
	Addr    string
	Worker  int
	Keys    int    // how many it has; they are its own alone
	Largest int    // bytes of a value at most
	Seed    uint64 // of what it does
	Version uint64 // the first version it stores; it never uses one twice
}

// tortureHeader is what every value begins with: its key's number and its version. The
// rest follows from them, and so does its length.
const tortureHeader = 16

// tortureKey names key n of a worker.
func tortureKey(worker int, n uint32) proto.Key { return BlockKey(uint64(worker)<<32 | uint64(n)) }

// contentKey is the key that a version's bytes are made from.
func contentKey(worker int, n uint32, version uint64) proto.Key {
	var k proto.Key
	binary.LittleEndian.PutUint64(k[:], mix(uint64(worker)<<32|uint64(n))^mix(version+1))
	return k
}

// tortureSize is the length of a version in bytes: any power of two is as likely as any
// other, and lengths around multiples of a block come often.
func tortureSize(worker int, n uint32, version uint64, largest int) int {
	r := rand.New(rand.NewPCG(version, uint64(worker)<<32|uint64(n)))
	size := int(math.Exp2(4 + r.Float64()*(math.Log2(float64(largest))-4)))
	if size > pageSize && r.IntN(3) == 0 {
		size = size/pageSize*pageSize + r.IntN(3) - 1
	}
	return min(max(size, tortureHeader), largest)
}

// fillVersion writes a version's bytes.
func fillVersion(p []byte, worker int, n uint32, version uint64) {
	k := contentKey(worker, n, version)
	Fill(&k, p)
	binary.LittleEndian.PutUint64(p, uint64(worker)<<32|uint64(n))
	binary.LittleEndian.PutUint64(p[8:], version)
}

// readVersion tells which version of the key p is: badVersion if it is none.
func readVersion(p []byte, worker int, n uint32, largest int, scratch []byte) uint64 {
	if len(p) < tortureHeader || binary.LittleEndian.Uint64(p) != uint64(worker)<<32|uint64(n) {
		return badVersion
	}
	version := binary.LittleEndian.Uint64(p[8:])
	if version == 0 || len(p) != tortureSize(worker, n, version, largest) {
		return badVersion
	}
	want := scratch[:len(p)]
	fillVersion(want, worker, n, version)
	if string(want) != string(p) {
		return badVersion
	}
	return version
}

// openTorturer registers a worker in a namespace of its own.
func openTorturer(ctx context.Context, addr string, worker, largest int) (*client.Worker, error) {
	name := fmt.Sprintf("torturer-%d", worker)
	return client.Open(ctx, addr, clientOptions(name), client.Registration{
		Name: name, Namespace: name, Layouts: []client.Layout{{Name: layoutName, Size: uint64(largest)}},
	})
}

// torturer is a worker process of a torture.
type torturer struct {
	opts    TorturerOptions
	w       *client.Worker
	r       *rand.Rand
	says    *json.Encoder
	version uint64
	scratch []byte
	value   []byte
}

// RunTorturer works until its input ends or a call fails. It says what it does.
func RunTorturer(ctx context.Context, opts TorturerOptions, in io.Reader, out io.Writer) error {
	w, err := openTorturer(ctx, opts.Addr, opts.Worker, opts.Largest)
	if err != nil {
		return err
	}
	t := &torturer{
		opts: opts, w: w, r: rand.New(rand.NewPCG(opts.Seed, uint64(opts.Worker))), says: json.NewEncoder(out),
		version: opts.Version, scratch: make([]byte, opts.Largest),
	}
	orders := make(chan string)
	go func() {
		defer close(orders)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	if err := t.says.Encode(&Saying{Say: SayReady}); err != nil {
		return err
	}
	for {
		select {
		case order, ok := <-orders:
			if !ok {
				return w.Close()
			}
			if order != TellPause {
				continue
			}
			if err := t.says.Encode(&Saying{Say: SayPaused}); err != nil {
				return err
			}
			if _, ok := <-orders; !ok {
				return w.Close()
			}
		default:
			if err := t.step(ctx); err != nil {
				return err
			}
		}
	}
}

// step does one thing.
func (t *torturer) step(ctx context.Context) error {
	switch n := t.r.IntN(200); {
	case n < 110:
		return t.store(ctx, t.draw(1+t.r.IntN(8)))
	case n < 150:
		keys := t.draw(1 + t.r.IntN(4))
		return t.fence(SayDelete, keys, func() error {
			_, err := t.w.Delete(ctx, 0, t.names(keys))
			return err
		})
	case n < 151:
		return t.fence(SayClear, nil, func() error {
			_, err := t.w.Clear(ctx)
			return err
		})
	default:
		return t.read(ctx, t.draw(1+t.r.IntN(4)))
	}
}

// draw picks different keys.
func (t *torturer) draw(count int) []uint32 {
	keys := make([]uint32, 0, count)
	for _, k := range t.r.Perm(t.opts.Keys)[:count] {
		keys = append(keys, uint32(k))
	}
	return keys
}

func (t *torturer) names(keys []uint32) []client.Key {
	names := make([]client.Key, len(keys))
	for i, n := range keys {
		names[i] = tortureKey(t.opts.Worker, n)
	}
	return names
}

// store stores the keys in a version of their own; now and then it gives it up instead.
func (t *torturer) store(ctx context.Context, keys []uint32) error {
	version := t.version
	t.version++
	sizes := make([]uint64, len(keys))
	for i, n := range keys {
		sizes[i] = uint64(tortureSize(t.opts.Worker, n, version, t.opts.Largest))
	}
	if err := t.says.Encode(&Saying{Say: SayStore, Keys: keys, Version: version}); err != nil {
		return err
	}
	open, err := t.w.PrepareStore(ctx, 0, t.names(keys), sizes, 5*time.Second)
	if err != nil {
		return t.failed(err)
	}
	done := Saying{Say: SayDone}
	for i, n := range keys {
		if open.Status(i) == proto.StatusReserved {
			fillVersion(open.Slot(i), t.opts.Worker, n, version)
			done.Stored = append(done.Stored, n)
		}
	}
	if t.r.IntN(20) == 0 {
		done.Stored = nil
		err = open.Abort(ctx)
	} else {
		err = open.Commit(ctx)
	}
	if err != nil {
		return t.failed(err)
	}
	return t.says.Encode(&done)
}

// fence does a step without an outcome but that it was done.
func (t *torturer) fence(say string, keys []uint32, do func() error) error {
	if err := t.says.Encode(&Saying{Say: say, Keys: keys}); err != nil {
		return err
	}
	if err := do(); err != nil {
		return t.failed(err)
	}
	return t.says.Encode(&Saying{Say: SayDone})
}

// failed says that a step failed. A server that is gone ends the worker.
func (t *torturer) failed(err error) error {
	_, refused := errors.AsType[*client.StatusError](err)
	if saying := t.says.Encode(&Saying{Say: SayFailed, Error: err.Error(), Refused: refused}); saying != nil {
		return saying
	}
	if refused {
		return nil
	}
	return err
}

// read reads keys and says which versions they have.
func (t *torturer) read(ctx context.Context, keys []uint32) error {
	say := Saying{Say: SayRead, Keys: keys}
	for _, n := range keys {
		value, ok, err := t.w.Fetch(ctx, 0, tortureKey(t.opts.Worker, n), t.value[:0])
		t.value = value
		switch {
		case err != nil:
			return t.failed(err)
		case ok:
			say.Found = append(say.Found, readVersion(value, t.opts.Worker, n, t.opts.Largest, t.scratch))
		default:
			say.Found = append(say.Found, 0)
		}
	}
	return t.says.Encode(&say)
}
