package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

func TestACallMovesOnlyAsItsTableSays(t *testing.T) {
	legal := map[[2]callState]bool{
		{callIdle, callWaiting}:      true,
		{callWaiting, callReading}:   true,
		{callWaiting, callDone}:      true,
		{callWaiting, callAbandoned}: true,
		{callReading, callDone}:      true,
		{callReading, callAbandoned}: true,
		{callDone, callIdle}:         true,
		{callAbandoned, callIdle}:    true,
	}
	for from := range callState(callStates) {
		for to := range callState(callStates) {
			c := &call{op: proto.OpPing, state: from}
			if legal[[2]callState{from, to}] {
				require.NotPanics(t, func() { c.moveTo(to) }, "%s to %s", from, to)
				require.Equal(t, to, c.state)
				continue
			}
			require.PanicsWithValue(t, "client: call of ping moves from "+from.String()+" to "+to.String(), func() { c.moveTo(to) })
			require.Equal(t, from, c.state)
		}
	}
	require.Equal(t, "callState(9)", callState(9).String())
}

// The reader looks for handles at fixed places of a reply's body.
func TestAGrantIsReadOffEachReplyThatHasOne(t *testing.T) {
	slots := []proto.Slot{{Off: 1, Len: 2}}
	bodies := map[proto.Op][]byte{
		proto.OpPrepareStore:    proto.AppendPrepareStoreReply(nil, &proto.PrepareStoreReply{Transfer: 77, Results: make([]proto.StoreResult, 2)}),
		proto.OpPrepareRetrieve: proto.AppendPrepareRetrieveReply(nil, &proto.PrepareRetrieveReply{Transfer: 77, Slots: slots}),
		proto.OpLookup:          proto.AppendLookupReply(nil, &proto.LookupReply{Hits: 1, FromMemory: 2, FromDisk: 3, Lease: 77, Slots: slots}),
		proto.OpPing:            proto.AppendPingReply(nil, &proto.PingReply{Ready: 77, UptimeMs: 77}),
		proto.OpCommitStore:     proto.AppendCommitStoreReply(nil, &proto.CommitStoreReply{Published: 77}),
	}
	for op, body := range bodies {
		want := uint64(77)
		if op == proto.OpPing || op == proto.OpCommitStore {
			want = 0
		} else {
			require.NotPanics(t, func() { enderOf(op) })
		}
		require.Equal(t, want, grantOf(&call{op: op, body: body}), op)
		refused := &call{op: op, body: body, header: proto.Header{Status: proto.StatusBusy}}
		require.Zero(t, grantOf(refused), op)
		require.Zero(t, grantOf(&call{op: op, body: body[:3]}), op)
	}
	require.Panics(t, func() { enderOf(proto.OpPing) })
}

func TestErrorsAreToldApart(t *testing.T) {
	stale := &StatusError{Op: proto.OpCommitStore, Status: proto.StatusStale}
	require.ErrorIs(t, stale, ErrStale)
	require.ErrorIs(t, &StatusError{Status: proto.StatusStaleEpoch}, ErrStale)
	require.NotErrorIs(t, stale, ErrMiss)
	require.NotErrorIs(t, stale, &StatusError{Op: proto.OpPing, Status: proto.StatusStale})
	require.Equal(t, "client: commit_store: stale", stale.Error())
	require.Equal(t, "client: miss", ErrMiss.Error())
	require.Equal(t, proto.StatusOK, statusOf(ErrClosed))
	require.ErrorIs(t, malformed(proto.OpPing, "%d", 1), ErrReply)
}
