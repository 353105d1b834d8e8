package proto

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A codec is one payload structure together with its two functions.
type codec interface {
	parse(p []byte) error
	encode(dst []byte) []byte
	value() any      // pointer to the structure
	blank() codec    // of the same type, with nothing in it
	set(pointer any) // takes over a structure of the same type
}

type typed[T any] struct {
	x  T
	pf func([]byte, *T) error
	af func([]byte, *T) []byte
}

func (t *typed[T]) parse(p []byte) error     { return t.pf(p, &t.x) }
func (t *typed[T]) encode(dst []byte) []byte { return t.af(dst, &t.x) }
func (t *typed[T]) value() any               { return &t.x }
func (t *typed[T]) blank() codec             { return &typed[T]{pf: t.pf, af: t.af} }
func (t *typed[T]) set(pointer any)          { t.x = *pointer.(*T) }

// empty stands for the structure that replies without a body do not have.
type empty struct{}

func appendEmpty(dst []byte, _ *empty) []byte { return dst }
func parseEmpty(p []byte, _ *empty) error     { return ParseEmpty(p) }

// A message is one kind of frame with an example of its body.
type message struct {
	op    Op
	reply bool
	codec
}

func (m message) name() string {
	if m.reply {
		return m.op.String() + "_reply"
	}
	return m.op.String()
}

// header returns the header of an example frame.
func (m message) header() Header {
	h := Header{Op: m.op, Request: uint64(m.op) + 0x100, Boot: 0x1122334455667788}
	if m.op == OpHello && !m.reply {
		h.Boot = 0
	}
	if m.reply {
		h.Flags = FlagReply
	}
	return h
}

// frame returns a whole example frame.
func (m message) frame() []byte {
	return AppendFrame(nil, m.header(), m.encode(nil), 0)
}

func of[T any](op Op, reply bool, af func([]byte, *T) []byte, pf func([]byte, *T) error, x T) message {
	return message{op, reply, &typed[T]{x: x, pf: pf, af: af}}
}

// key returns a key whose bytes can be told apart.
func key(n byte) (k Key) {
	for i := range k {
		k[i] = n + byte(i)
	}
	return k
}

// messages returns every kind of frame with an example.
func messages() []message {
	k := []Key{key(0x10), key(0x50)}
	chunk := Layout{Name: "bf16 kv_layers_tokens_hidden", Dims: []uint32{2, 32, 256, 1024}, Size: 32 << 20}
	return []message{
		of(OpHello, false, AppendHello, ParseHello, Hello{VersionMin: 1, VersionMax: 2, Features: 4, Token: "secret"}),
		of(OpHello, true, AppendHelloReply, ParseHelloReply, HelloReply{
			Version: 1, Boot: 0x1122334455667788, MaxFrame: MaxFrame, MaxKeys: MaxKeys,
			MaxPayload: MaxPayload, PoolSize: 16 << 30, Server: "slotcached 1.0",
		}),
		of(OpRegister, false, AppendRegister, ParseRegister, Register{
			Instance: 0xabcdef, Want: TransportShared, ReadOnly: true, Name: "worker-0", Namespace: "llama-3-8b/é",
			Layouts: []Layout{chunk, {Size: 4096}},
		}),
		of(OpRegister, true, AppendRegisterReply, ParseRegisterReply, RegisterReply{
			Incarnation: 3, Transport: TransportShared, ShmKind: ShmNamed, ShmName: "slotcache_l1_pool_a",
			PoolSize: 16 << 30, Ready: 1 << 30, Dev: 26, Inode: 4711, LayoutIDs: []uint64{0xfeedface01, 0xfeedface02},
		}),
		of(OpUnregister, false, AppendUnregister, ParseUnregister, Unregister{}),
		of(OpUnregister, true, AppendUnregisterReply, ParseUnregisterReply, UnregisterReply{Draining: 64 << 20}),
		of(OpPing, false, AppendPing, ParsePing, Ping{}),
		of(OpPing, true, AppendPingReply, ParsePingReply, PingReply{Ready: 2 << 30, UptimeMs: 60000}),
		of(OpLookup, false, AppendLookup, ParseLookup, Lookup{
			Layout: 1, Mode: ModeAny, Options: LookupHold | LookupLoad | LookupSlots, Group: 2, WaitMs: 1500, Keys: k,
		}),
		of(OpLookup, true, AppendLookupReply, ParseLookupReply, LookupReply{
			Hits: 2, FromMemory: 1, FromDisk: 1, Lease: 0x700000009, Bitmap: []byte{3},
			Slots: []Slot{{Off: 4096, Len: 100}, {Off: 1 << 33, Len: 4096}},
		}),
		of(OpPrepareStore, false, AppendPrepareStore, ParsePrepareStore, PrepareStore{
			Layout: 1, WaitMs: 250, Sizes: []uint64{4096, 100}, Keys: k,
		}),
		of(OpPrepareStore, true, AppendPrepareStoreReply, ParsePrepareStoreReply, PrepareStoreReply{
			Transfer: 0x500000001, Results: []StoreResult{{StatusReserved, Slot{8192, 4096}}, {Status: StatusExists}},
		}),
		of(OpCommitStore, false, AppendCommitStore, ParseCommitStore, CommitStore{
			Transfer: 0x500000001, Sums: []uint64{0x0123456789abcdef},
		}),
		of(OpCommitStore, true, AppendCommitStoreReply, ParseCommitStoreReply, CommitStoreReply{Published: 1}),
		of(OpAbortStore, false, AppendAbortStore, ParseAbortStore, AbortStore{Transfer: 0x500000001}),
		of(OpAbortStore, true, appendEmpty, parseEmpty, empty{}),
		of(OpPrepareRetrieve, false, AppendPrepareRetrieve, ParsePrepareRetrieve, PrepareRetrieve{
			Layout: 1, Mode: RetrievePrefix, WaitMs: 20, Keys: k,
		}),
		of(OpPrepareRetrieve, true, AppendPrepareRetrieveReply, ParsePrepareRetrieveReply, PrepareRetrieveReply{
			Transfer: 0x600000002, Slots: []Slot{{Off: 4096, Len: 100}, {Off: 8192, Len: 4096}},
		}),
		of(OpCommitRetrieve, false, AppendCommitRetrieve, ParseCommitRetrieve, CommitRetrieve{Transfer: 0x600000002}),
		of(OpCommitRetrieve, true, appendEmpty, parseEmpty, empty{}),
		of(OpRelease, false, AppendRelease, ParseRelease, Release{Leases: []uint64{0x700000009, 0x70000000a}}),
		of(OpRelease, true, appendEmpty, parseEmpty, empty{}),
		of(OpDelete, false, AppendDelete, ParseDelete, Delete{Layout: 1, Keys: k}),
		of(OpDelete, true, AppendDeleteReply, ParseDeleteReply, DeleteReply{Deleted: 2}),
		of(OpClear, false, AppendClear, ParseClear, Clear{Namespace: "llama-3-8b"}),
		of(OpClear, true, AppendClearReply, ParseClearReply, ClearReply{Deleted: 1 << 33}),
		of(OpPin, false, AppendPin, ParsePin, Pin{Layout: 1, Hard: true, TTLMs: 60000, Keys: k}),
		of(OpPin, true, AppendPinReply, ParsePinReply, PinReply{Pinned: 1, TTLMs: 60000, Results: []Status{StatusOK, StatusMiss}}),
		of(OpUnpin, false, AppendUnpin, ParseUnpin, Unpin{Layout: 1, Keys: k}),
		of(OpUnpin, true, AppendUnpinReply, ParseUnpinReply, UnpinReply{Unpinned: 2}),
		of(OpTouch, false, AppendTouch, ParseTouch, Touch{Layout: 1, Keys: k}),
		of(OpTouch, true, AppendTouchReply, ParseTouchReply, TouchReply{Touched: 2}),
		of(OpStats, false, AppendStats, ParseStats, Stats{}),
		of(OpStats, true, AppendStatsReply, ParseStatsReply, StatsReply{
			Counters: []Counter{{"requests_total", 12}, {"pool_bytes", math.MaxUint64}},
		}),
		of(OpInstances, false, AppendInstances, ParseInstances, Instances{Cursor: 5}),
		of(OpInstances, true, AppendInstancesReply, ParseInstancesReply, InstancesReply{Next: 6, Instances: []InstanceInfo{{
			ID: 0xabcdef, Incarnation: 3, State: InstanceDraining, Transport: TransportShared, PID: 1234,
			Staged: 4096, Held: 8192, Quarantined: 12288, AgeMs: 61000, Name: "worker-0", Namespace: "llama-3-8b",
		}}}),
		of(OpTransfers, false, AppendTransfers, ParseTransfers, Transfers{}),
		of(OpTransfers, true, AppendTransfersReply, ParseTransfersReply, TransfersReply{Transfers: []TransferInfo{{
			Handle: 0x700000009, Kind: TransferLease, State: TransferOpen, Instance: 0xabcdef, Incarnation: 3,
			Keys: 2, Bytes: 8192, AgeMs: 90,
		}}}),
		of(OpEvict, false, AppendEvict, ParseEvict, Evict{Instance: 0xabcdef, Kill: true}),
		of(OpEvict, true, AppendEvictReply, ParseEvictReply, EvictReply{Freed: 8192, Draining: 1 << 33}),
		of(OpPut, false, AppendPut, ParsePut, Put{Layout: 1, Key: k[0]}),
		of(OpPut, true, appendEmpty, parseEmpty, empty{}),
	}
}

// messageOf returns the message of a frame with this op and direction.
func messageOf(op Op, reply bool) (message, bool) {
	for _, m := range messages() {
		if m.op == op && m.reply == reply {
			return m, true
		}
	}
	return message{}, false
}

// forEachMessage runs f as a subtest for every kind of frame.
func forEachMessage(t *testing.T, f func(t *testing.T, m message)) {
	t.Helper()
	for _, m := range messages() {
		t.Run(m.name(), func(t *testing.T) { f(t, m) })
	}
}

func TestEveryOpHasARequestAndAReply(t *testing.T) {
	for op := range 256 {
		for _, reply := range []bool{false, true} {
			_, ok := messageOf(Op(op), reply)
			require.Equal(t, Op(op).Valid(), ok, fmt.Sprint(Op(op)))
		}
	}
}

func TestParseYieldsWhatAppendTook(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		body := m.encode(nil)
		c := m.blank()
		require.NoError(t, c.parse(body))
		require.Equal(t, m.value(), c.value())
		require.Equal(t, append([]byte{9}, body...), c.encode([]byte{9}), "appending leaves what is there alone")
	})
}

func TestParseIntoAUsedStructureLeavesNothingOfItsFormerContents(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		large := m.blank()
		large.set(wire{random: newRandom(t), lists: 7}.value(m.value()))
		c := m.blank()
		require.NoError(t, c.parse(large.encode(nil)))
		require.Equal(t, large.value(), c.value())
		body := m.encode(nil)
		require.NoError(t, c.parse(body))
		require.Equal(t, body, c.encode(nil))
		require.Equal(t, wireBytes(m.value()), wireBytes(c.value()))
	})
}

func TestEveryPrefixOfABodyIsRejected(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		body := m.encode(nil)
		for n := range body {
			require.ErrorIs(t, m.blank().parse(body[:n]), ErrBody, "%d of %d bytes", n, len(body))
		}
	})
}

func TestTrailingBytesAreRejected(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		require.ErrorIs(t, m.blank().parse(append(m.encode(nil), 0)), ErrBody)
	})
}
