package proto_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
)

func TestLongFramesAreSentInPieces(t *testing.T) {
	lookup := proto.HeaderSize + len(proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: make([]proto.Key, 512)}))
	require.Equal(t, proto.PieceSize, proto.SendSize(lookup))
	require.Equal(t, 5, (lookup+proto.PieceSize-1)/proto.PieceSize)
	require.LessOrEqual(t, proto.HeaderSize, proto.SendSize(proto.HeaderSize), "a short frame is one piece")
	require.Equal(t, 1<<20, proto.SendSize(1<<20), "a value is")
}
