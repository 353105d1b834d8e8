package proto

import "strconv"

// A LookupMode is what a [Lookup] counts.
type LookupMode uint8

// The modes of a lookup.
const (
	ModePrefix LookupMode = 0 // the leading keys that are there
	ModeAny    LookupMode = 1 // every key that is there, as a bitmap
)

// String returns the mode's name.
func (m LookupMode) String() string {
	switch m {
	case ModePrefix:
		return "prefix"
	case ModeAny:
		return "any"
	default:
		return "mode_" + strconv.Itoa(int(m))
	}
}

// LookupOptions are what a [Lookup] does beside counting. Other bits must be 0.
type LookupOptions uint8

// The options of a lookup.
const (
	LookupHold  LookupOptions = 1 << iota // hold the hits in memory, as a lease
	LookupLoad                            // read from disk what is only there
	LookupSlots                           // return the hits' slots; only together with LookupHold

	lookupOptionsKnown = LookupHold | LookupLoad | LookupSlots
)

// Lookup asks which of the keys are there.
type Lookup struct {
	Layout  uint16 // index into the registered layouts
	Mode    LookupMode
	Options LookupOptions
	Group   uint16 // keys that count only together, at least 1
	WaitMs  uint32 // how long to wait for loads, in milliseconds
	Keys    []Key
}

// AppendLookup appends x.
func AppendLookup(dst []byte, x *Lookup) []byte {
	dst = appendU16(dst, x.Layout)
	dst = append(dst, byte(x.Mode), byte(x.Options))
	dst = appendU16(dst, x.Group)
	dst = appendU32(dst, x.WaitMs)
	return appendKeys(dst, x.Keys)
}

// ParseLookup decodes p into x, whose slices it uses again. After an error x is
// undefined.
func ParseLookup(p []byte, x *Lookup) error {
	d := decoder{p: p}
	x.Layout = d.u16()
	x.Mode = LookupMode(d.enum("mode", uint8(ModePrefix), uint8(ModeAny)))
	x.Options = LookupOptions(d.enum("options", 0, uint8(lookupOptionsKnown)))
	x.Group = d.u16()
	x.WaitMs = d.u32()
	x.Keys = d.keys(x.Keys)
	if x.Group == 0 {
		d.fail("group", 0)
	}
	// Slots without a hold could be given to another object before the reply arrives.
	if x.Options&LookupSlots != 0 && x.Options&LookupHold == 0 {
		d.fail("slots without a hold, options", uint64(x.Options))
	}
	return d.end()
}

// LookupHolds reports whether p, which may be damaged, is a [Lookup] that takes holds.
func LookupHolds(p []byte) bool {
	const at = 2 + 1 // behind the layout and the mode
	return len(p) > at && LookupOptions(p[at])&LookupHold != 0
}

// LookupReply answers a [Lookup].
type LookupReply struct {
	Hits       uint32 // in prefix mode the leading keys that are there, else the bits set
	FromMemory uint32 // hits that were in memory when the request came
	FromDisk   uint32 // hits that were on disk only when the request came
	Lease      uint64 // the handle of the holds taken, 0 if none
	Bitmap     []byte // in any mode a bit a key, lowest bit of the first byte first; else empty
	Slots      []Slot // with LookupSlots one a hit, in the order of the keys; else empty
}

// AppendLookupReply appends x.
func AppendLookupReply(dst []byte, x *LookupReply) []byte {
	dst = appendU32(dst, x.Hits)
	dst = appendU32(dst, x.FromMemory)
	dst = appendU32(dst, x.FromDisk)
	dst = appendU64(dst, x.Lease)
	dst = appendCount(dst, len(x.Bitmap), MaxBitmap)
	dst = append(dst, x.Bitmap...)
	return appendSlots(dst, x.Slots)
}

// ParseLookupReply decodes p into x, whose slices it uses again. After an error
// x is undefined.
func ParseLookupReply(p []byte, x *LookupReply) error {
	d := decoder{p: p}
	x.Hits = d.u32()
	x.FromMemory = d.u32()
	x.FromDisk = d.u32()
	x.Lease = d.u64()
	n := d.count("length of the bitmap", 1, MaxBitmap)
	x.Bitmap = append(x.Bitmap[:0], d.take(n)...)
	x.Slots = d.slots(x.Slots)
	if x.Hits > MaxKeys {
		d.fail("hits", uint64(x.Hits))
	}
	return d.end()
}
