package benchmarks

import (
	"encoding/binary"

	"github.com/slotcache/slotcache/proto"
)

// The content of a block is its key's: page p of it is one fixed page of noise with every
// word XORed by a word made of the key and p. A page at another place, of another block,
// or shifted within the block differs in every word, and both writing and comparing go at
// the memory's speed.
const (
	pageSize  = 4096
	pageWords = pageSize / 8
)

var noise = makeNoise()

func makeNoise() *[pageWords]uint64 {
	var page [pageWords]uint64
	for i := range page {
		page[i] = mix(uint64(i))
	}
	return &page
}

// mix is the finalizer of splitmix64: every bit of x reaches every bit of the result.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func pageMask(key *proto.Key, page int) uint64 {
	return mix(binary.LittleEndian.Uint64(key[:8]) ^ mix(uint64(page)))
}

// Fill writes what the key's block holds into p, a block of any length.
func Fill(key *proto.Key, p []byte) {
	page := 0
	for ; len(p) >= pageSize; p = p[pageSize:] {
		fillPage((*[pageSize]byte)(p), pageMask(key, page))
		page++
	}
	if len(p) > 0 {
		var last [pageSize]byte
		fillPage(&last, pageMask(key, page))
		copy(p, last[:])
	}
}

// fillPage is left alone by the race detector, which would slow it a hundredfold: it
// writes where no other goroutine looks.
//
//go:norace
func fillPage(p *[pageSize]byte, mask uint64) {
	for i := 0; i < pageWords; i++ {
		binary.LittleEndian.PutUint64(p[i*8:i*8+8], noise[i]^mask)
	}
}

// Mismatches compares every byte of p with what the key's block holds and counts those
// that differ.
func Mismatches(key *proto.Key, p []byte) int {
	wrong, page := 0, 0
	for ; len(p) >= pageSize; p = p[pageSize:] {
		mask := pageMask(key, page)
		if !samePage((*[pageSize]byte)(p), mask) {
			wrong += countWrong(p[:pageSize], mask)
		}
		page++
	}
	if len(p) > 0 {
		wrong += countWrong(p, pageMask(key, page))
	}
	return wrong
}

// samePage is left alone by the race detector too.
//
//go:norace
func samePage(p *[pageSize]byte, mask uint64) bool {
	var a, b, c, d uint64
	for i := 0; i < pageWords; i += 4 {
		a |= binary.LittleEndian.Uint64(p[i*8:i*8+8]) ^ noise[i] ^ mask
		b |= binary.LittleEndian.Uint64(p[i*8+8:i*8+16]) ^ noise[i+1] ^ mask
		c |= binary.LittleEndian.Uint64(p[i*8+16:i*8+24]) ^ noise[i+2] ^ mask
		d |= binary.LittleEndian.Uint64(p[i*8+24:i*8+32]) ^ noise[i+3] ^ mask
	}
	return a|b|c|d == 0
}

func countWrong(p []byte, mask uint64) int {
	var want [pageSize]byte
	fillPage(&want, mask)
	wrong := 0
	for i, b := range p {
		if b != want[i] {
			wrong++
		}
	}
	return wrong
}
