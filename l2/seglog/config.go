package seglog

import (
	"errors"
	"fmt"
	"time"
)

// A Config sizes a [Log]. The zero value of a field means its default.
type Config struct {
	Size             int64           // the cap on all segment files together, in bytes; required
	SegmentSize      int64           // bytes a segment: a multiple of BlockSize; default: that of the store found, if it can be kept, else Size/32 within [4 MiB, 256 MiB]
	Arena            []byte          // the log's own I/O memory: aligned to BlockSize, at least ArenaMin bytes, ArenaSize is right
	MaxEntries       int             // records indexed at most; default Size/64 KiB within [4096, 16 Mi]
	MaxQueue         int             // puts waiting or in flight at most; default 65536
	MaxFences        int             // delete and clear records owed to the disk at most, beyond which they become one record that clears all; default 131072
	MaxInFlight      int             // I/Os handed out at once at most; default 64, at least 4
	MaxInFlightBytes int64           // bytes being read and written at once at most; default 32 MiB (a single I/O may exceed it)
	IOSize           int64           // longest read or write of a value, in bytes: a multiple of BlockSize; default 1 MiB
	Nonce            func() [16]byte // 128 random bits, for each life of a segment; required
	WriteLimit       int64           // bytes written a second at most; 0: no limit. Deletes count, and do not wait
	StallTime        time.Duration   // after which an I/O in flight stalls the log; default 5 s; less than 0: never
	FreeMin          int64           // bytes of the file system that stay free, see SetFree; default SegmentSize
	StoreID          [16]byte        // segments of another store are ignored; zero: that of the newest segment, or a new one
	Seed             uint64          // of the hash of keys in memory
	foldDigest       bool            // tests: few digests for all keys
	HashMask         uint64          // bits of the hash that count; 0 means all. Tests fold the hash with it

	// Progress is called by [Recover] after each file of so many, with the records found so far; nil: not.
	Progress func(done, files, records int)
}

// Sizes of [Config.Arena], in bytes.
const (
	// ArenaMin is the least that works: a few groups at a time, and one small value.
	ArenaMin = 64 * BlockSize
	// ArenaSize lets about 50 groups be in flight, and has 4 MiB for small values and for those that are reinserted.
	ArenaSize = arenaBlocks*BlockSize + 4<<20
)

// arenaBlocks is what the arena has at most for headers and the like, in blocks.
const arenaBlocks = 72

// ErrConfig is what [Recover] returns for a Config that cannot work.
var ErrConfig = errors.New("l2/seglog: config")

// Limits of the sizes that [Recover] accepts, in bytes.
const (
	segmentsMin    = 4
	segmentsMax    = 1<<16 - 1
	segmentSizeMin = 8 * BlockSize
	segmentSizeMax = 1 << 30 // so that sizes have sizeBits
)

// withDefaults fills what is zero and checks the rest. found is the segment size of the store that is there, or 0.
func (c Config) withDefaults(found int64) (Config, error) {
	if c.Nonce == nil {
		return c, fmt.Errorf("%w: no source of nonces", ErrConfig)
	}
	if len(c.Arena) < ArenaMin || len(c.Arena)%BlockSize != 0 {
		return c, fmt.Errorf("%w: an arena of %d bytes, not %d or more in blocks of %d", ErrConfig, len(c.Arena), ArenaMin, BlockSize)
	}
	if c.Size < segmentsMin*segmentSizeMin {
		return c, fmt.Errorf("%w: a store of %d bytes: give it %d or more", ErrConfig, c.Size, segmentsMin*segmentSizeMin)
	}
	if c.SegmentSize == 0 && found >= segmentSizeMin && found <= segmentSizeMax && found%BlockSize == 0 &&
		c.Size/found >= segmentsMin && c.Size/found <= segmentsMax {
		c.SegmentSize = found
	}
	if c.SegmentSize == 0 {
		c.SegmentSize = min(max(c.Size/32, 4<<20), 256<<20, c.Size/segmentsMin) &^ (BlockSize - 1)
	}
	if c.SegmentSize < segmentSizeMin || c.SegmentSize > segmentSizeMax || c.SegmentSize%BlockSize != 0 {
		return c, fmt.Errorf("%w: segments of %d bytes in a store of %d: not a multiple of %d from %d to %d",
			ErrConfig, c.SegmentSize, c.Size, BlockSize, segmentSizeMin, segmentSizeMax)
	}
	if c.Size/c.SegmentSize < segmentsMin {
		return c, fmt.Errorf("%w: %d bytes are less than %d segments of %d", ErrConfig, c.Size, segmentsMin, c.SegmentSize)
	}
	if c.Size/c.SegmentSize > segmentsMax {
		return c, fmt.Errorf("%w: %d bytes are more than %d segments of %d", ErrConfig, c.Size, segmentsMax, c.SegmentSize)
	}
	defaultTo(&c.MaxEntries, int(min(max(c.Size>>16, 4096), 16<<20)))
	defaultTo(&c.MaxQueue, 65536)
	defaultTo(&c.MaxFences, 131072)
	defaultTo(&c.MaxInFlight, 64)
	defaultTo(&c.MaxInFlightBytes, 32<<20)
	defaultTo(&c.IOSize, 1<<20)
	defaultTo(&c.StallTime, 5*time.Second)
	defaultTo(&c.FreeMin, c.SegmentSize)
	defaultTo(&c.HashMask, ^uint64(0))
	c.MaxInFlight = max(c.MaxInFlight, 4)
	c.MaxEntries = min(max(c.MaxEntries, 2*blockRecords), 1<<31)
	if c.WriteLimit < 0 || c.FreeMin < 0 || c.MaxQueue < 1 || c.MaxFences < 1 || c.MaxInFlightBytes < 1 || c.IOSize < BlockSize || c.IOSize%BlockSize != 0 {
		return c, fmt.Errorf("%w: a limit is negative, or the I/O size %d no multiple of %d", ErrConfig, c.IOSize, BlockSize)
	}
	return c, nil
}

// defaultTo sets v to d if it is zero.
func defaultTo[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
