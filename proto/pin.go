package proto

// Pin keeps objects in memory for a time.
type Pin struct {
	Layout uint16 // index into the registered layouts
	Hard   bool   // they stay though memory is short
	TTLMs  uint32 // for how long, in milliseconds; 0: as long as the server sees fit
	Keys   []Key
}

// AppendPin appends x.
func AppendPin(dst []byte, x *Pin) []byte {
	dst = appendU16(dst, x.Layout)
	dst = appendBool(dst, x.Hard)
	dst = appendU32(dst, x.TTLMs)
	return appendKeys(dst, x.Keys)
}

// ParsePin decodes p into x, whose slices it uses again. After an error x is
// undefined.
func ParsePin(p []byte, x *Pin) error {
	d := decoder{p: p}
	x.Layout = d.u16()
	x.Hard = d.bool("hard flag")
	x.TTLMs = d.u32()
	x.Keys = d.keys(x.Keys)
	return d.end()
}

// PinReply answers a [Pin].
type PinReply struct {
	Pinned  uint32   // results that are ok
	TTLMs   uint32   // the time of these pins, which may be less than was asked for
	Results []Status // one for each key, in order: ok, miss, busy, no_space or too_large
}

// AppendPinReply appends x.
func AppendPinReply(dst []byte, x *PinReply) []byte {
	dst = appendU32(dst, x.Pinned)
	dst = appendU32(dst, x.TTLMs)
	dst = appendCount(dst, len(x.Results), MaxKeys)
	for _, s := range x.Results {
		dst = appendU16(dst, uint16(s))
	}
	return dst
}

// ParsePinReply decodes p into x, whose slices it uses again. After an error x is
// undefined.
func ParsePinReply(p []byte, x *PinReply) error {
	d := decoder{p: p}
	x.Pinned = d.u32()
	x.TTLMs = d.u32()
	x.Results = resize(x.Results, d.count("number of results", 2, MaxKeys))
	for i := range x.Results {
		if x.Results[i] = Status(d.u16()); !x.Results[i].Valid() {
			d.fail("status", uint64(x.Results[i]))
		}
	}
	if uint64(x.Pinned) > uint64(len(x.Results)) {
		d.fail("pinned", uint64(x.Pinned))
	}
	return d.end()
}

// Unpin ends pins before their time.
type Unpin struct {
	Layout uint16 // index into the registered layouts
	Keys   []Key
}

// AppendUnpin appends x.
func AppendUnpin(dst []byte, x *Unpin) []byte {
	dst = appendU16(dst, x.Layout)
	return appendKeys(dst, x.Keys)
}

// ParseUnpin decodes p into x, whose slices it uses again. After an error x is
// undefined.
func ParseUnpin(p []byte, x *Unpin) error {
	d := decoder{p: p}
	x.Layout = d.u16()
	x.Keys = d.keys(x.Keys)
	return d.end()
}

// UnpinReply answers an [Unpin].
type UnpinReply struct {
	Unpinned uint32 // objects whose pin ended
}

// AppendUnpinReply appends x.
func AppendUnpinReply(dst []byte, x *UnpinReply) []byte { return appendU32(dst, x.Unpinned) }

// ParseUnpinReply decodes p into x. After an error x is undefined.
func ParseUnpinReply(p []byte, x *UnpinReply) error {
	d := decoder{p: p}
	x.Unpinned = d.u32()
	return d.end()
}

// Touch marks objects as recently used.
type Touch struct {
	Layout uint16 // index into the registered layouts
	Keys   []Key
}

// AppendTouch appends x.
func AppendTouch(dst []byte, x *Touch) []byte {
	dst = appendU16(dst, x.Layout)
	return appendKeys(dst, x.Keys)
}

// ParseTouch decodes p into x, whose slices it uses again. After an error x is
// undefined.
func ParseTouch(p []byte, x *Touch) error {
	d := decoder{p: p}
	x.Layout = d.u16()
	x.Keys = d.keys(x.Keys)
	return d.end()
}

// TouchReply answers a [Touch].
type TouchReply struct {
	Touched uint32 // objects that were in memory
}

// AppendTouchReply appends x.
func AppendTouchReply(dst []byte, x *TouchReply) []byte { return appendU32(dst, x.Touched) }

// ParseTouchReply decodes p into x. After an error x is undefined.
func ParseTouchReply(p []byte, x *TouchReply) error {
	d := decoder{p: p}
	x.Touched = d.u32()
	return d.end()
}
