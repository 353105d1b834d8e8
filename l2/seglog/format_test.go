package seglog

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// fixSum makes the checksum of one of our blocks right, whatever else it holds.
func fixSum(p, nonce []byte) {
	le := binary.LittleEndian
	switch le.Uint64(p) {
	case segmentMagic:
		le.PutUint64(p[72:], 0)
		le.PutUint64(p[72:], xxh3.Hash(p))
	case groupMagic, footerMagic, trailerMagic:
		le.PutUint64(p[40:], 0)
		copy(p[48:64], nonce)
		sum := xxh3.Hash(p)
		clear(p[48:64])
		le.PutUint64(p[40:], sum)
	}
}

func TestASegmentHeadSurvivesTheDisk(t *testing.T) {
	h := segmentHead{storeID: [16]byte{1, 2}, nonce: [16]byte{3, 4}, generation: 5, size: 1 << 28, seq: 6, id: 7}
	p := make([]byte, BlockSize)
	p[4000] = 9 // what was there is overwritten
	putSegmentHead(p, &h)
	got, err := parseSegmentHead(p)
	require.NoError(t, err)
	require.Equal(t, h, got)
}

func TestEveryBitOfAFirstBlockCounts(t *testing.T) {
	clean := make([]byte, BlockSize)
	putSegmentHead(clean, &segmentHead{generation: 5, size: 1 << 28, seq: 6, id: 7})
	for bit := range BlockSize * 8 {
		p := append([]byte{}, clean...)
		p[bit/8] ^= 1 << (bit % 8)
		_, err := parseSegmentHead(p)
		require.Error(t, err, "bit %d", bit)
	}
}

func TestEveryBitOfAGroupHeaderCounts(t *testing.T) {
	of := life{nonce: [16]byte{1}, generation: 3}
	clean := make([]byte, BlockSize)
	r := record{key: key(1), seq: 9, sum: 10, size: 100, at: 6*blockUnits + 3, kind: recordPut}
	putRecord(clean, 0, &r)
	sealBlock(clean, &blockHead{magic: groupMagic, count: 1, position: 5, length: 2}, &of)
	h, err := parseBlock(append([]byte{}, clean...), groupMagic, &of, 5)
	require.NoError(t, err)
	require.Equal(t, blockHead{magic: groupMagic, count: 1, position: 5, length: 2}, h)
	got, err := parseRecord(clean, 0, 6, 7)
	require.NoError(t, err)
	require.Equal(t, r, got)
	for bit := range BlockSize * 8 {
		p := append([]byte{}, clean...)
		p[bit/8] ^= 1 << (bit % 8)
		_, err := parseBlock(p, groupMagic, &of, 5)
		require.Error(t, err, "bit %d", bit)
	}
}

func TestABlockOfAnotherLifeKindOrPlaceIsNone(t *testing.T) {
	of := life{nonce: [16]byte{1}, generation: 3}
	p := make([]byte, BlockSize)
	sealBlock(p, &blockHead{magic: groupMagic, position: 5, length: 1}, &of)
	parse := func(magic uint64, of life, position uint32) error {
		_, err := parseBlock(append([]byte{}, p...), magic, &of, position)
		return err
	}
	require.NoError(t, parse(groupMagic, of, 5))
	require.ErrorIs(t, parse(footerMagic, of, 5), errMagic)
	require.ErrorIs(t, parse(groupMagic, of, 6), errMagic)
	require.ErrorIs(t, parse(groupMagic, life{nonce: of.nonce, generation: 4}, 5), errMagic)
	require.ErrorIs(t, parse(groupMagic, life{nonce: [16]byte{2}, generation: 3}, 5), errSum)
}

func TestSenselessRecordsAreRefused(t *testing.T) {
	good := record{key: key(1), seq: 9, size: 5000, at: 6 * blockUnits, kind: recordPut}
	for name, change := range map[string]func(r *record){
		"kind 0":              func(r *record) { r.kind = 0 },
		"kind 5":              func(r *record) { r.kind = 5 },
		"before its group":    func(r *record) { r.at = 6*blockUnits - 1 },
		"behind its group":    func(r *record) { r.at = 6*blockUnits + 52 },
		"far away":            func(r *record) { r.at = 1 << 31 },
		"too long":            func(r *record) { r.size = 8193 },
		"not at a block":      func(r *record) { r.at, r.size = 6*blockUnits+1, PackMax },
		"huge":                func(r *record) { r.size = 1 << 62 },
		"negative":            func(r *record) { r.size = -1 },
		"sequence":            func(r *record) { r.seq = 1 << 63 },
		"tombstone of a size": func(r *record) { r.kind = recordTombstone },
	} {
		p := make([]byte, BlockSize)
		r := good
		putRecord(p, 3, &r)
		_, err := parseRecord(p, 3, 6, 8)
		require.NoError(t, err)
		change(&r)
		putRecord(p, 3, &r)
		_, err = parseRecord(p, 3, 6, 8)
		require.ErrorIs(t, err, errContent, name)
	}
}

func TestARecordBlockHoldsFifty(t *testing.T) {
	require.Equal(t, 50, blockRecords)
	require.EqualValues(t, 0, footerBlocks(0))
	require.EqualValues(t, 1, footerBlocks(1))
	require.EqualValues(t, 1, footerBlocks(50))
	require.EqualValues(t, 2, footerBlocks(51))
}
