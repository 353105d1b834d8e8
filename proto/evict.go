package proto

// Evict ends an instance against its will: every life of its id that the server knows.
// What its process cannot touch any more comes back at once. The rest does when the
// process ends, which Kill sees to.
type Evict struct {
	Instance uint64
	Kill     bool
}

// AppendEvict appends x.
func AppendEvict(dst []byte, x *Evict) []byte {
	dst = appendU64(dst, x.Instance)
	return appendBool(dst, x.Kill)
}

// ParseEvict decodes p into x. After an error x is undefined.
func ParseEvict(p []byte, x *Evict) error {
	d := decoder{p: p}
	x.Instance = d.u64()
	x.Kill = d.bool("kill flag")
	return d.end()
}

// EvictReply answers an [Evict].
type EvictReply struct {
	Freed    uint64 // bytes that it had and has no more
	Draining uint64 // bytes that it keeps until its process ends, or I/O that is under way
}

// AppendEvictReply appends x.
func AppendEvictReply(dst []byte, x *EvictReply) []byte {
	dst = appendU64(dst, x.Freed)
	return appendU64(dst, x.Draining)
}

// ParseEvictReply decodes p into x. After an error x is undefined.
func ParseEvictReply(p []byte, x *EvictReply) error {
	d := decoder{p: p}
	x.Freed = d.u64()
	x.Draining = d.u64()
	return d.end()
}
