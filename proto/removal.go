package proto

// Delete removes objects from memory and disk.
type Delete struct {
	Layout uint16 // index into the registered layouts
	Keys   []Key
}

// AppendDelete appends x.
func AppendDelete(dst []byte, x *Delete) []byte {
	dst = appendU16(dst, x.Layout)
	return appendKeys(dst, x.Keys)
}

// ParseDelete decodes p into x, whose slices it uses again. After an error x is
// undefined.
func ParseDelete(p []byte, x *Delete) error {
	d := decoder{p: p}
	x.Layout = d.u16()
	x.Keys = d.keys(x.Keys)
	return d.end()
}

// DeleteReply answers a [Delete].
type DeleteReply struct {
	Deleted uint32 // objects that were there
}

// AppendDeleteReply appends x.
func AppendDeleteReply(dst []byte, x *DeleteReply) []byte { return appendU32(dst, x.Deleted) }

// ParseDeleteReply decodes p into x. After an error x is undefined.
func ParseDeleteReply(p []byte, x *DeleteReply) error {
	d := decoder{p: p}
	x.Deleted = d.u32()
	return d.end()
}

// Clear removes all objects of a namespace.
type Clear struct {
	Namespace string // empty: the instance's own
}

// AppendClear appends x.
func AppendClear(dst []byte, x *Clear) []byte { return appendName(dst, x.Namespace) }

// ParseClear decodes p into x. After an error x is undefined.
func ParseClear(p []byte, x *Clear) error {
	d := decoder{p: p}
	d.name("namespace", &x.Namespace)
	return d.end()
}

// ClearReply answers a [Clear].
type ClearReply struct {
	Deleted uint64 // objects that were in memory
}

// AppendClearReply appends x.
func AppendClearReply(dst []byte, x *ClearReply) []byte { return appendU64(dst, x.Deleted) }

// ParseClearReply decodes p into x. After an error x is undefined.
func ParseClearReply(p []byte, x *ClearReply) error {
	d := decoder{p: p}
	x.Deleted = d.u64()
	return d.end()
}
