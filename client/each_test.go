package client

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

// eachSize is the size of object i: many go into one transfer, and some have one of their own.
func eachSize(i int) int { return []int{0, 100, 5000, 40000, 1 << 20}[i%5] }

func eachSizes(n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(eachSize(i))
	}
	return list
}

// fillEach writes the values of keysOf(0, n), and counts how often it did.
func fillEach(filled map[int]int) func(i int, slot []byte) error {
	return func(i int, slot []byte) error {
		copy(slot, valueOf(i, eachSize(i)))
		filled[i]++
		return nil
	}
}

func TestStoreEachStoresInOrderWithSlotsAskedForAhead(t *testing.T) {
	eachTransport(t, func(t *testing.T, cfg fakeConfig) {
		cfg.size = 48 << 20
		s := newFake(t, cfg)
		w := open(t, s, Registration{})
		ctx := testContext(t)
		const n = 100
		storeAll(t, w, 7, 1, eachSize(7))
		s.ops()
		var order []int
		filled := map[int]int{}
		fill := fillEach(filled)
		sizes := eachSizes(n)
		sizes[50] = testLayout.Size + 1
		status, err := w.StoreEach(ctx, 0, keysOf(0, n), sizes, 0, func(i int, slot []byte) error {
			order = append(order, i)
			return fill(i, slot)
		})
		require.NoError(t, err)
		require.Len(t, status, n)
		require.IsIncreasing(t, order)
		require.Len(t, order, n-2)
		require.Equal(t, proto.StatusExists, status[7])
		require.Equal(t, proto.StatusTooLarge, status[50])
		for i, st := range status {
			if i == 7 || i == 50 {
				continue
			}
			require.Equal(t, proto.StatusOK, st, i)
			got, ok, err := w.Fetch(ctx, 0, keyOf(i), nil)
			require.NoError(t, err)
			require.True(t, ok, i)
			requireValues(t, i, eachSize(i), [][]byte{got})
		}
		ops := s.ops()
		require.Equal(t, ops[proto.OpPrepareStore], ops[proto.OpCommitStore])
		require.Less(t, ops[proto.OpPrepareStore], n/2, "small objects go together")
		s.idle()
		status, err = w.StoreEach(ctx, 0, nil, nil, 0, nil)
		require.NoError(t, err)
		require.Empty(t, status)
	})
}

func TestStoreEachTriesAgainWhatThereWasNoRoomForAhead(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd, size: 48 << 20})
	w := open(t, s, Registration{})
	refused := 0
	s.setHook(func(r *fakeRequest) fakeAct {
		if r.Op != proto.OpPrepareStore {
			return fakeAct{}
		}
		if refused++; refused != 2 {
			return fakeAct{}
		}
		var q proto.PrepareStore
		require.NoError(t, proto.ParsePrepareStore(r.Body, &q))
		out := proto.PrepareStoreReply{Results: make([]proto.StoreResult, len(q.Keys))}
		for i := range out.Results {
			out.Results[i].Status = proto.StatusBusy
		}
		body := proto.AppendPrepareStoreReply(nil, &out)
		return fakeAct{skip: true, raw: proto.AppendFrame(nil, proto.Header{Op: r.Op, Flags: proto.FlagReply, Request: r.Request, Boot: r.Boot}, body, 0)}
	})
	filled := map[int]int{}
	status, err := w.StoreEach(testContext(t), 0, keysOf(0, 100), eachSizes(100), 0, fillEach(filled))
	require.NoError(t, err)
	for i, st := range status {
		require.Equal(t, proto.StatusOK, st, i)
		require.Equal(t, 1, filled[i])
	}
	s.idle()
}

func TestStoreEachLeavesNothingOpenAfterAnError(t *testing.T) {
	eachTransport(t, func(t *testing.T, cfg fakeConfig) {
		cfg.size = 48 << 20
		s := newFake(t, cfg)
		w := open(t, s, Registration{})
		broken := errors.New("no more")
		for _, at := range []int{0, 13, 99} {
			_, err := w.StoreEach(testContext(t), 0, keysOf(0, 100), eachSizes(100), 0, func(i int, _ []byte) error {
				if i == at {
					return broken
				}
				return nil
			})
			require.ErrorIs(t, err, broken)
			s.idle()
			_, err = w.Clear(testContext(t))
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(testContext(t))
		_, err := w.StoreEach(ctx, 0, keysOf(0, 100), eachSizes(100), 0, func(i int, _ []byte) error {
			if i == 20 {
				cancel()
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		s.idle()
	})
}

func TestStoreEachGoesOnAfterALostConnection(t *testing.T) {
	eachTransport(t, func(t *testing.T, cfg fakeConfig) {
		cfg.size = 48 << 20
		s := newFake(t, cfg)
		w := open(t, s, Registration{})
		for _, op := range []proto.Op{proto.OpPrepareStore, proto.OpCommitStore} {
			for _, act := range []fakeAct{{drop: true}, {dropAfter: true}, {status: proto.StatusDraining}} {
				s.onNext(op, act)
				filled := map[int]int{}
				status, err := w.StoreEach(testContext(t), 0, keysOf(0, 60), eachSizes(60), 0, fillEach(filled))
				require.NoError(t, err)
				for i, st := range status {
					require.Contains(t, []proto.Status{proto.StatusOK, proto.StatusExists}, st, i)
					got, ok, err := w.Fetch(testContext(t), 0, keyOf(i), nil)
					require.NoError(t, err)
					require.True(t, ok, i)
					requireValues(t, i, eachSize(i), [][]byte{got})
				}
				s.idle()
				_, err = w.Clear(testContext(t))
				require.NoError(t, err)
			}
		}
	})
}

// What ends a retrieval or lease goes with the next request, in its write.
func TestReleasesGoWithTheNextRequest(t *testing.T) {
	s := newFake(t, fakeConfig{kind: proto.ShmFd})
	w := open(t, s, Registration{})
	ctx := testContext(t)
	storeAll(t, w, 0, 3, 100)
	l := w.session.Load().link
	for range 20 {
		r, err := w.Retrieve(ctx, 0, keysOf(0, 3), RetrieveOptions{})
		require.NoError(t, err)
		l.out.mu.Lock()
		l.out.armed = true // no timer takes part
		l.out.mu.Unlock()
		require.NoError(t, r.Release(ctx))
		l.out.mu.Lock()
		waits := len(l.out.late)
		l.out.mu.Unlock()
		require.NotZero(t, waits)
		require.Equal(t, 1, s.count().open)
		_, err = w.Ping(ctx)
		require.NoError(t, err)
		require.Zero(t, s.count().open, "it came before the ping")
	}
	// Without another request it goes by itself.
	l.out.flushLate()
	r, err := w.Retrieve(ctx, 0, keysOf(0, 3), RetrieveOptions{})
	require.NoError(t, err)
	require.NoError(t, r.Release(ctx))
	s.idle()
}
