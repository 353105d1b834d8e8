package proto

// Put stores one object whose bytes are the frame's payload. Its reply has no body.
type Put struct {
	Layout uint16 // index into the registered layouts
	Key    Key
}

// AppendPut appends x.
func AppendPut(dst []byte, x *Put) []byte {
	dst = appendU16(dst, x.Layout)
	return append(dst, x.Key[:]...)
}

// ParsePut decodes p into x. After an error x is undefined.
func ParsePut(p []byte, x *Put) error {
	d := decoder{p: p}
	x.Layout = d.u16()
	x.Key = d.key()
	return d.end()
}
