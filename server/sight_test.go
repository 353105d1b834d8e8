package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/server/engine"
)

func TestASecondSightingIsKnown(t *testing.T) {
	woken := make(chan struct{}, engine.SightBatches)
	s, err := newSighter(func() { woken <- struct{}{} })
	require.NoError(t, err)
	defer s.stop()
	ask := func(batch int, hashes ...uint64) uint64 {
		s.ask(batch, hashes)
		<-woken
		got := s.take(nil)
		require.Len(t, got, 1)
		require.Equal(t, batch, got[0].batch)
		return got[0].known
	}
	require.Zero(t, ask(3, 10, 11, 12))
	require.EqualValues(t, 0b101, ask(4, 10, 99, 12))
	require.EqualValues(t, 0b11, ask(5, 99, 11))
	for i := range engine.SightBatches { // all that the engine can have under way
		s.ask(i, []uint64{uint64(1000 + i)})
	}
	var got []opinion
	for len(got) < engine.SightBatches {
		<-woken
		got = s.take(got)
	}
	for i, o := range got {
		require.Equal(t, opinion{batch: i}, o, "in order")
	}
}
