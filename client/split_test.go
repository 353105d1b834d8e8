package client

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// A server that takes few keys and small payloads makes every batch a large one.
func smallFake(t *testing.T, kind proto.ShmKind) (*fakeServer, *Worker) {
	s := newFake(t, fakeConfig{kind: kind, maxKeys: 64, maxPayload: 2500})
	return s, open(t, s, Registration{Layouts: []Layout{{Name: "small", Size: 1000}}})
}

func TestStoresOneAfterAnotherFitIntoPayloads(t *testing.T) {
	for _, kind := range []proto.ShmKind{proto.ShmFd, proto.ShmNone} {
		t.Run(kind.String(), func(t *testing.T) {
			s, w := smallFake(t, kind)
			ctx := testContext(t)
			sizes := sizesOf(200, 100)
			sizes[3], sizes[50], sizes[51] = 1000, 1001, 3000
			status, err := w.StoreEach(ctx, 0, keysOf(0, 200), sizes, 0, func(i int, slot []byte) error {
				copy(slot, valueOf(i, len(slot)))
				return nil
			})
			require.NoError(t, err)
			for i, st := range status {
				want := proto.StatusOK
				if i == 50 || i == 51 {
					want = proto.StatusTooLarge
				}
				require.Equal(t, want, st, i)
			}
			st, err := w.Put(ctx, 0, keyOf(500), make([]byte, 2600))
			require.NoError(t, err)
			require.Equal(t, proto.StatusTooLarge, st)
			s.idle()
		})
	}
}

func TestBatchesOfAnySizeAreSplit(t *testing.T) {
	for _, kind := range []proto.ShmKind{proto.ShmFd, proto.ShmNone} {
		t.Run(kind.String(), func(t *testing.T) {
			s, w := smallFake(t, kind)
			ctx := testContext(t)
			const n = 200
			storeAll(t, w, 0, n, 100)
			ops := s.ops()
			if kind == proto.ShmFd {
				require.Equal(t, 4, ops[proto.OpPrepareStore])
				require.Equal(t, 4, ops[proto.OpCommitStore])
			} else {
				require.Equal(t, 8, ops[proto.OpCommitStore], "25 values of 100 bytes fit into a payload")
			}

			for _, group := range []int{1, 7, 64} {
				r, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, n+50), Group: group, Slots: true})
				require.NoError(t, err)
				require.Equal(t, n-n%group, r.Hits)
				require.Len(t, r.Lease.Values(), r.Hits)
				requireValues(t, 0, 100, r.Lease.Values())
				require.NoError(t, r.Lease.Release(ctx))
			}
			_, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, n), Group: 65})
			require.ErrorContains(t, err, "groups")

			r, err := w.Retrieve(ctx, 0, keysOf(0, n), RetrieveOptions{})
			require.NoError(t, err)
			require.Len(t, r.Values(), n)
			requireValues(t, 0, 100, r.Values())
			require.NoError(t, r.Release(ctx))
			r, err = w.Retrieve(ctx, 0, keysOf(100, n), RetrieveOptions{Prefix: true})
			require.NoError(t, err)
			require.Len(t, r.Values(), 100)
			require.NoError(t, r.Release(ctx))
			_, err = w.Retrieve(ctx, 0, keysOf(100, n), RetrieveOptions{})
			require.ErrorIs(t, err, ErrMiss)
			s.idle()

			got, err := w.Delete(ctx, 0, keysOf(10, n))
			require.NoError(t, err)
			require.Equal(t, n-10, got)
			got, err = w.Touch(ctx, 0, keysOf(0, n))
			require.NoError(t, err)
			require.Equal(t, 10, got)
		})
	}
}

func TestABitmapOfManyRequestsIsOne(t *testing.T) {
	s, w := smallFake(t, proto.ShmFd)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	there := map[int]bool{}
	for range 60 {
		if i := rng.IntN(300); !there[i] {
			there[i] = true
			storeAll(t, w, i, 1, 50)
		}
	}
	ctx := testContext(t)
	r, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 300), Mode: proto.ModeAny, Hold: true})
	require.NoError(t, err)
	require.Equal(t, len(there), r.Hits)
	for i := range 300 {
		require.Equal(t, there[i], r.Hit(i), "key %d", i)
	}
	require.Greater(t, len(r.Lease.Handles()), 1)
	require.NoError(t, r.Lease.Release(ctx))
	s.idle()
}

func TestAnInlineObjectOverThePayloadIsTooLarge(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmNone, maxPayload: 1000})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	sizes := []uint64{600, 1001, 400, 1, 1000, 5000, 0}
	st, err := w.PrepareStore(ctx, 0, keysOf(0, len(sizes)), sizes, 0)
	require.NoError(t, err)
	require.Equal(t, 4, s.ops()[proto.OpPrepareStore], "those of 600, 401, 1000 and 0 bytes")
	for i, size := range sizes {
		if size > 1000 {
			require.Equal(t, proto.StatusTooLarge, st.Status(i))
			continue
		}
		require.Equal(t, proto.StatusReserved, st.Status(i))
		copy(st.Slot(i), valueOf(i, int(size)))
	}
	require.NoError(t, st.Commit(ctx, 1, 2, 3, 4, 5))
	require.Equal(t, 5, st.Published())
	for i, size := range sizes {
		got, ok, err := w.Fetch(ctx, 0, keyOf(i), nil)
		require.NoError(t, err)
		require.Equal(t, size <= 1000, ok)
		if ok {
			require.True(t, bytes.Equal(valueOf(i, int(size)), got), "value %d", i)
		}
	}
	s.idle()
}

// What a batch had before it failed is given back.
func TestAHalfDoneBatchLeavesNothing(t *testing.T) {
	s, w := smallFake(t, proto.ShmFd)
	ctx := testContext(t)
	storeAll(t, w, 0, 200, 10)
	for _, op := range []proto.Op{proto.OpLookup, proto.OpPrepareStore, proto.OpPrepareRetrieve} {
		n := 0
		s.setHook(func(r *fakeRequest) fakeAct {
			if r.Op == op {
				if n++; n == 3 {
					return fakeAct{status: proto.StatusBusy}
				}
			}
			return fakeAct{}
		})
		var err error
		switch op { //nolint:exhaustive // the other ops are no batches
		case proto.OpLookup:
			_, err = w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 200), Slots: true})
		case proto.OpPrepareStore:
			_, err = w.PrepareStore(ctx, 0, keysOf(1000, 200), sizesOf(200, 10), 0)
		case proto.OpPrepareRetrieve:
			_, err = w.Retrieve(ctx, 0, keysOf(0, 200), RetrieveOptions{})
		}
		require.ErrorIs(t, err, &StatusError{Op: op, Status: proto.StatusBusy})
		s.idle()
	}
}

// Objects of a lease are larger than those of any layout that is registered: what is asked for together does not fit into a
// payload, and less does.
func TestALeaseOfLargerObjectsIsRetrievedInMorePieces(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmNone})
	ctx := testContext(t)
	w := open(t, s, Registration{})
	storeAll(t, w, 0, 10, 100)
	found, err := w.Lookup(ctx, LookupRequest{Keys: keysOf(0, 10), Hold: true})
	require.NoError(t, err)
	s.setHook(func(r *fakeRequest) fakeAct {
		var x proto.PrepareRetrieve
		if r.Op == proto.OpPrepareRetrieve && proto.ParsePrepareRetrieve(r.Body, &x) == nil && x.Count > 3 {
			return fakeAct{status: proto.StatusTooLarge}
		}
		return fakeAct{}
	})
	other := open(t, s, Registration{Layouts: []Layout{{Name: "small", Size: 10}}})
	r, err := other.RetrieveLease(ctx, found.Lease.Handle(), 0, 10)
	require.NoError(t, err)
	require.Len(t, r.Values(), 10)
	requireValues(t, 0, 100, r.Values())
	require.NoError(t, r.Release(ctx))
	require.NoError(t, found.Lease.Release(ctx))
	s.idle()
}
