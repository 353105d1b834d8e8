package seglog

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

const rigSlot = 256 << 10

// A rig drives a log on a simulated disk in the most orderly way: every I/O ends at once, in order, unless broken.
type rig struct {
	t      *testing.T
	cfg    Config
	disk   *simDisk
	l      *Log
	report Report
	pool   []byte
	tok    Token
	ended  map[Token]Outcome
	broken func(io *IO) int64 // 0: carry it out; else the result, and nothing is done
	log    []IO               // carried out
	now    time.Duration
	space  int64 // of the file system, as it says when it is asked
}

func newRig(t *testing.T, segments int64, change func(*Config)) *rig {
	r := &rig{t: t, pool: make([]byte, 16*rigSlot), ended: make(map[Token]Outcome), space: 1 << 40}
	n := uint64(0)
	r.cfg = Config{
		Size: segments * 64 * BlockSize, SegmentSize: 64 * BlockSize, Arena: make([]byte, ArenaSize), MaxEntries: 1000,
		Nonce: func() (b [16]byte) {
			n++
			binary.LittleEndian.PutUint64(b[:], n*0x9e3779b97f4a7c15)
			return b
		},
	}
	if change != nil {
		change(&r.cfg)
	}
	r.disk = newSimDisk(rand.New(rand.NewPCG(1, 1)), r.cfg.Size)
	r.restart()
	return r
}

// restart begins anew from what the disk holds, as after the death of the process.
func (r *rig) restart() {
	var err error
	r.l, r.report, err = Recover(r.cfg, r.disk)
	require.NoError(r.t, err)
	clear(r.ended)
	r.check()
}

func (r *rig) check() {
	r.t.Helper()
	require.NoError(r.t, r.l.CheckInvariants())
}

func key(n int) (k Key) {
	k.Namespace = uint64(n >> 16)
	binary.LittleEndian.PutUint64(k.Hash[:], uint64(n)+1)
	return k
}

// value is the bytes of value n.
func value(n int, size int64) []byte {
	p := make([]byte, size)
	simFill(p, n)
	return p
}

// put queues key n with value n, without running.
func (r *rig) put(n int, size int64) Token {
	r.t.Helper()
	r.tok++
	slot := int64(r.tok%8) * rigSlot
	simFill(r.pool[slot:slot+size], n)
	k := key(n)
	require.True(r.t, r.l.Put(&k, Mem{Off: slot, Len: rigSlot}, size, r.tok))
	return r.tok
}

// putSummed is put with the value's checksum.
func (r *rig) putSummed(n int, size int64) Token {
	r.t.Helper()
	r.tok++
	slot := int64(r.tok%8) * rigSlot
	v := value(n, size)
	copy(r.pool[slot:], v)
	k := key(n)
	require.True(r.t, r.l.PutSummed(&k, Mem{Off: slot, Len: rigSlot}, size, xxh3.Hash(v), r.tok))
	return r.tok
}

// store puts and awaits it.
func (r *rig) store(n int, size int64) {
	r.t.Helper()
	tok := r.put(n, size)
	r.run()
	require.Equal(r.t, ResultOK, r.ended[tok].Result)
}

// delete asks for it without running; 0: nothing to wait for.
func (r *rig) delete(ns ...int) Token {
	keys := make([]Key, len(ns))
	for i, n := range ns {
		keys[i] = key(n)
	}
	r.tok++
	if !r.l.Delete(keys, r.tok) {
		return 0
	}
	return r.tok
}

// has says whether the key can be found.
func (r *rig) has(n int) bool {
	r.t.Helper()
	k := key(n)
	_, ok := r.l.Find(&k)
	checkFindAll(r.t, r.l, []Key{key(n + 1), k})
	return ok
}

// checkFindAll requires that FindAll says of the keys what Find does.
func checkFindAll(t *testing.T, l *Log, keys []Key) {
	t.Helper()
	found := make([]bool, len(keys))
	for i := range found {
		found[i] = i%2 == 0 // left over
	}
	l.FindAll(keys, found)
	for i := range keys {
		_, ok := l.Find(&keys[i])
		require.Equal(t, ok, found[i], "%x", keys[i])
	}
}

// load reads the value of key n; nil: a miss.
func (r *rig) load(n int) []byte {
	r.t.Helper()
	k := key(n)
	size, ok := r.l.Find(&k)
	if !ok {
		return nil
	}
	r.tok++
	tok := r.tok
	slot := int64(8+tok%8) * rigSlot
	require.True(r.t, r.l.Read(&k, Mem{Off: slot, Len: rigSlot}, tok))
	r.run()
	o, ok := r.ended[tok]
	require.True(r.t, ok)
	if o.Result != ResultOK {
		return nil
	}
	return append([]byte{}, r.pool[slot:slot+size]...)
}

func (r *rig) drain() {
	for {
		o, ok := r.l.Outcome()
		if !ok {
			return
		}
		_, twice := r.ended[o.Token]
		require.False(r.t, twice, "two outcomes for %d", o.Token)
		r.ended[o.Token] = o
	}
}

// run goes on until nothing is left to do.
func (r *rig) run() {
	r.t.Helper()
	for range 100000 {
		r.l.Flush()
		n := 0
		for {
			io, ok := r.l.NextIO()
			if !ok {
				break
			}
			n++
			r.done(*io)
		}
		r.drain()
		if n == 0 && !r.l.Pending() {
			r.check()
			return
		}
	}
	r.t.Fatal("no end")
}

// done carries an I/O out.
func (r *rig) done(io IO) {
	if r.broken != nil {
		if res := r.broken(&io); res != 0 {
			r.l.Done(io.ID, res, 0)
			return
		}
	}
	r.log = append(r.log, io)
	mem := r.pool
	if io.Mem.Own {
		mem = r.cfg.Arena
	}
	res, sum := int64(0), uint64(0)
	switch io.Kind {
	case IORead:
		n, _ := r.disk.ReadAt(io.Addr.Segment, mem[io.Mem.Off:][:io.Mem.Len], io.Addr.Off)
		res = int64(n)
	case IOWrite:
		r.disk.write(io.Addr.Segment, mem[io.Mem.Off:][:io.Mem.Len], io.Addr.Off, func() bool { return true })
		res = io.Mem.Len
	case IOSum:
		res, sum = io.Mem.Len, xxh3.Hash(mem[io.Mem.Off:][:io.Mem.Len])
	case IOCopy:
		from := r.pool
		if io.From.Own {
			from = r.cfg.Arena
		}
		res = int64(copy(mem[io.Mem.Off:][:io.Mem.Len], from[io.From.Off:][:io.From.Len]))
	case IOCreate:
		r.disk.create(r.t, io.Addr.Segment, io.Mem.Len)
	case IOSync:
		r.disk.endSync(io.Addr.Segment, r.disk.beginSync(io.Addr.Segment))
	case IORemove:
		delete(r.disk.files, io.Addr.Segment)
	case IOSpace:
		r.l.SetFree(r.space)
	}
	r.l.Done(io.ID, res, sum)
}

// close stops cleanly.
func (r *rig) close() {
	r.l.BeginClose()
	r.run()
	require.True(r.t, r.l.Idle())
	require.Equal(r.t, StateClosed, r.l.State())
}

// tick lets time pass and runs.
func (r *rig) tick(d time.Duration) {
	r.now += d
	r.l.Tick(r.now)
	r.run()
}

// sees demands that key n reads as value n.
func (r *rig) sees(n int, size int64) {
	r.t.Helper()
	require.True(r.t, bytes.Equal(value(n, size), r.load(n)), "key %d does not read right", n)
}
