package seglog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
)

// The disk format. These constants are part of it and may not change without a new formatVersion; docs/FORMAT.md draws it byte
// by byte.
const (
	formatVersion = 2

	segmentMagic = 0x31474f4c544f4c53 // "SLOTLOG1"
	groupMagic   = 0x5052474c544f4c53 // "SLOTLGRP"
	footerMagic  = 0x544f464c544f4c53 // "SLOTLFOT"
	trailerMagic = 0x4c52544c544f4c53 // "SLOTLTRL"

	headSize     = 64 // of the head of a group, footer or trailer block
	recordSize   = 80
	blockRecords = (BlockSize - headSize) / recordSize // 50
)

// Sizes that other constants rest on.
var (
	_ [4096 - headSize - blockRecords*recordSize]byte // the records fit in a block
	_ [50]byte                                        = [blockRecords]byte{}
)

// A recordKind says what a record does.
type recordKind uint8

// The kinds of record on disk.
const (
	recordPut       recordKind = 1 // the key has this value
	recordTombstone recordKind = 2 // the key has no value of a lower sequence
	recordClear     recordKind = 3 // the namespace has no value of a lower sequence
	recordClearAll  recordKind = 4 // nothing of a lower sequence counts
)

// A record is one entry of a group header or footer block.
type record struct {
	key  Key
	seq  uint64
	sum  uint64 // xxh3-64 of the value
	size int64  // of the value, in bytes
	at   uint32 // where the value begins, in units from the segment's start
	head uint16 // how many blocks before the value's first block the group's header is
	kind recordKind
	// early: the block that lists it, or that lists what it is a copy of, went to the disk beside the value. If the process died, that
	// may not be there.
	early bool
}

// A segmentHead is what a segment's first block says.
type segmentHead struct {
	storeID    [16]byte
	nonce      [16]byte
	generation uint64
	size       int64  // of the file, in bytes
	seq        uint64 // the store's sequence when this life began
	oldest     uint64 // the lowest generation that counted then; 0: not told
	id         SegmentID
}

// A life is what ties blocks to one life of a segment.
type life struct {
	nonce      [16]byte
	generation uint64
}

// A blockHead is the head of a group, footer or trailer block.
type blockHead struct {
	magic    uint64
	count    uint32 // records in this block; trailer: footer blocks
	position uint32 // of this block, in blocks from the segment's start
	length   uint32 // group: blocks, this one included; footer: its place among the footer blocks; trailer: records
}

var (
	errMagic   = errors.New("not one of our blocks")
	errBlank   = errors.New("never written")
	errSum     = errors.New("checksum differs")
	errContent = errors.New("senseless content")
)

// putSegmentHead fills block p.
func putSegmentHead(p []byte, h *segmentHead) {
	clear(p[:BlockSize])
	le := binary.LittleEndian
	le.PutUint64(p[0:], segmentMagic)
	le.PutUint32(p[8:], formatVersion)
	le.PutUint32(p[12:], uint32(h.id))
	copy(p[16:32], h.storeID[:])
	le.PutUint64(p[32:], h.generation)
	copy(p[40:56], h.nonce[:])
	le.PutUint64(p[56:], uint64(h.size))
	le.PutUint64(p[64:], h.seq)
	le.PutUint64(p[72:], 0)
	le.PutUint64(p[80:], h.oldest)
	le.PutUint64(p[72:], xxh3.Hash(p[:BlockSize]))
}

// parseSegmentHead reads block p, and leaves it changed.
func parseSegmentHead(p []byte) (h segmentHead, err error) {
	le := binary.LittleEndian
	if le.Uint64(p[0:]) != segmentMagic {
		if blank(p[:BlockSize]) {
			return h, errBlank
		}
		return h, errMagic
	}
	if v := le.Uint32(p[8:]); v != formatVersion {
		return h, fmt.Errorf("format version %d, not %d", v, formatVersion)
	}
	sum := le.Uint64(p[72:])
	le.PutUint64(p[72:], 0)
	if xxh3.Hash(p[:BlockSize]) != sum {
		return h, errSum
	}
	h.id = SegmentID(le.Uint32(p[12:]))
	copy(h.storeID[:], p[16:32])
	h.generation = le.Uint64(p[32:])
	copy(h.nonce[:], p[40:56])
	h.size = int64(le.Uint64(p[56:]))
	h.seq = le.Uint64(p[64:])
	h.oldest = le.Uint64(p[80:])
	if h.generation == 0 || h.oldest > h.generation || h.size <= 0 || h.seq > sequenceMax || h.generation > sequenceMax {
		return h, errContent
	}
	return h, nil
}

// blank reports whether p is all zero, as a file is that was made and not written to.
func blank(p []byte) bool {
	return !slices.ContainsFunc(p, func(b byte) bool { return b != 0 })
}

// sequenceMax bounds the sequences and generations believed from disk, so that adding to them never wraps.
const sequenceMax = 1 << 62

// sealBlock writes the head of block p, whose records are in place, and its sum.
func sealBlock(p []byte, h *blockHead, of *life) {
	clear(p[:headSize])
	if h.magic != trailerMagic {
		clear(p[headSize+int(h.count)*recordSize : BlockSize])
	}
	le := binary.LittleEndian
	le.PutUint64(p[0:], h.magic)
	le.PutUint32(p[8:], formatVersion)
	le.PutUint32(p[12:], h.count)
	le.PutUint64(p[16:], of.generation)
	le.PutUint32(p[24:], h.position)
	le.PutUint32(p[28:], h.length)
	// The nonce takes part in the sum and stays off the disk: bytes that were not written in this life of the segment do not
	// verify, even if they are a perfect copy of a block that did.
	copy(p[48:64], of.nonce[:])
	sum := xxh3.Hash(p[:BlockSize])
	clear(p[48:64])
	le.PutUint64(p[40:], sum)
}

// parseBlock checks that p is a block of the kind magic, of this life, at this position.
func parseBlock(p []byte, magic uint64, of *life, position uint32) (h blockHead, err error) {
	le := binary.LittleEndian
	if le.Uint64(p[0:]) != magic || le.Uint32(p[8:]) != formatVersion || le.Uint64(p[16:]) != of.generation ||
		le.Uint32(p[24:]) != position {
		return h, errMagic
	}
	sum := le.Uint64(p[40:])
	le.PutUint64(p[40:], 0)
	if le.Uint64(p[48:]) != 0 || le.Uint64(p[56:]) != 0 {
		return h, errContent
	}
	copy(p[48:64], of.nonce[:])
	got := xxh3.Hash(p[:BlockSize])
	clear(p[48:64])
	le.PutUint64(p[40:], sum)
	if got != sum {
		return h, errSum
	}
	h = blockHead{magic: magic, count: le.Uint32(p[12:]), position: position, length: le.Uint32(p[28:])}
	if le.Uint64(p[32:]) != 0 || magic != trailerMagic && h.count > blockRecords {
		return h, errContent
	}
	return h, nil
}

// putRecord writes record i of block p.
func putRecord(p []byte, i int, r *record) {
	b := p[headSize+i*recordSize:][:recordSize]
	le := binary.LittleEndian
	b[0], b[1] = byte(r.kind), 0
	if r.early {
		b[1] = 1
	}
	le.PutUint16(b[2:], r.head)
	le.PutUint32(b[4:], r.at)
	le.PutUint64(b[8:], uint64(r.size))
	le.PutUint64(b[16:], r.seq)
	le.PutUint64(b[24:], r.sum)
	le.PutUint64(b[32:], r.key.Namespace)
	le.PutUint64(b[40:], r.key.Layout)
	copy(b[48:80], r.key.Hash[:])
}

// parseRecord reads record i of block p. Its value must lie within blocks [from, to) of the segment.
func parseRecord(p []byte, i int, from, to uint32) (r record, err error) {
	b := p[headSize+i*recordSize:][:recordSize]
	le := binary.LittleEndian
	kind, early := b[0], b[1]
	r.early = early == 1
	r.head = le.Uint16(b[2:])
	r.kind = recordKind(kind)
	r.at = le.Uint32(b[4:])
	r.size = int64(le.Uint64(b[8:]))
	r.seq = le.Uint64(b[16:])
	r.sum = le.Uint64(b[24:])
	r.key.Namespace = le.Uint64(b[32:])
	r.key.Layout = le.Uint64(b[40:])
	copy(r.key.Hash[:], b[48:80])
	if kind < byte(recordPut) || kind > byte(recordClearAll) || early > 1 || r.seq == 0 || r.seq > sequenceMax {
		return r, errContent
	}
	if r.kind != recordPut {
		if r.at != 0 || r.head != 0 || r.size != 0 || r.early {
			return r, errContent
		}
		return r, nil
	}
	if r.size < 0 || r.size > int64(to)*BlockSize {
		return r, errContent
	}
	off := int64(r.at) * unit
	if off < int64(from)*BlockSize || off+r.size > int64(to)*BlockSize ||
		!packed(r.size) && off%BlockSize != 0 || r.at/blockUnits < from+uint32(r.head) {
		return r, errContent
	}
	return r, nil
}

// blocks is the number of blocks that size bytes take.
func blocks(size int64) uint32 { return uint32((size + BlockSize - 1) / BlockSize) }

// footerBlocks is the number of footer blocks for n records, the trailer not counted.
func footerBlocks(n uint32) uint32 { return (n + blockRecords - 1) / blockRecords }
